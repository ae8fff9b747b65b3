"""One "machine" of the benchmark: a process on one core that generates in process, without any link.

`python -m tests.bench.machine genai|engine FOLDER CORE` reads one JSON request a line from stdin (`{"prompt": [ids],
"tokens": n}`) and answers each with one JSON line: `{"seconds": s, "ids": [...]}`, the time from the first to the last
token.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Generate = Callable[[list[int], int], tuple[float, list[int]]]


def genai(folder: Path) -> Generate:
    """OpenVINO's own C++ loop on the assembled folder."""
    import openvino as ov
    import openvino_genai

    pipeline = openvino_genai.LLMPipeline(str(folder), "CPU", INFERENCE_NUM_THREADS=1)

    def generate(prompt: list[int], tokens: int) -> tuple[float, list[int]]:
        config = openvino_genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        config.apply_chat_template = False
        ids = np.asarray([prompt], np.int64)
        inputs = openvino_genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        result = pipeline.generate(inputs, config)
        seconds = result.perf_metrics.get_tpot().mean / 1000 * (tokens - 1)
        return seconds, [int(token) for token in result.tokens[0]]

    return generate


def engine(folder: Path) -> Generate:
    """Our paged engine over the whole layer range."""
    from agent.stage.engines import load
    from agent.stage.sampling import sample
    from agent.stage.types import Epoch, PipelineId, Row, Sampling, StageSpec, StreamId
    from shard_export.library.store import load_manifest

    layers = load_manifest(folder).layer_count
    core = sorted(os.sched_getaffinity(0))[:1]
    spec = StageSpec(str(folder), 0, layers, PipelineId(1), Epoch(1), 0, streams=1, threads=1, cores=core)
    stage = load(spec)

    def generate(prompt: list[int], tokens: int) -> tuple[float, list[int]]:
        stream = StreamId(1)
        logits = stage.step([Row(stream, 0, len(prompt))], np.asarray(prompt, np.int64))
        ids = [int(sample(logits, [(Sampling(), len(prompt))])[0])]
        began_s = time.perf_counter()
        for position in range(len(prompt), len(prompt) + tokens - 1):
            logits = stage.step([Row(stream, position, 1)], np.asarray(ids[-1:], np.int64))
            ids.append(int(sample(logits, [(Sampling(), position + 1)])[0]))
        seconds = time.perf_counter() - began_s
        stage.release(stream)
        return seconds, ids

    return generate


def main() -> None:
    """Serve requests from stdin until it closes."""
    kind, folder, core = sys.argv[1:4]
    os.sched_setaffinity(0, {int(core)})
    generate = {"genai": genai, "engine": engine}[kind](Path(folder))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        seconds, ids = generate(request["prompt"], request["tokens"])
        print(json.dumps({"seconds": seconds, "ids": ids}), flush=True)


if __name__ == "__main__":
    main()
