"""Builds without a model: checkpoints of no meaning, and the stage of the exporter that only plays."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from console.api.admin.build_types import Build, BuildRequest
from console.builds.exporter import Exporter
from console.builds.jobs import BuildJobs
from console.registry.audit import Actor
from console.registry.registry import Registry
from shard_export.library.manifest import EndToEnd
from tests.support import played_exporter
from tests.support.libraries import make_library

ADA = Actor("user:ada", "10.0.0.9")
LAYERS = 4
ALL = 1000
Make = Callable[[], BuildJobs]


class Stage:
    """What a test tells the exporter, which begins with a checkpoint named `toy`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        script = str(Path(played_exporter.__file__))
        # -S -E: no site-packages, which take longest to start.
        command = (sys.executable, "-S", "-E", script, str(folder))
        # At the lowest priority it would hardly get a turn beside other tests.
        self.exporter = Exporter(command, needed=(), gentle=False)
        whole = EndToEnd(positions=192, top1_agreement=0.831, mean_kl=0.104, fp32_error=1e-6)
        _, digest = make_library(folder / "library", layers=LAYERS, model_id="toy", end_to_end=whole)
        self._write("digest", digest)
        self._write("count", str(LAYERS))

    def let(self, layers: int = ALL) -> None:
        """Let it finish so many layers."""
        self._write("layers", str(layers))

    def fail(self, sentence: str) -> None:
        """Let it fail where it would go on; empty: not any more."""
        self._write("fail", sentence)

    def end_with(self, exit_code: int) -> None:
        """Let it end with this exit code after it published its library."""
        self._write("exit_code", str(exit_code))

    @property
    def runs(self) -> list[list[str]]:
        """How it was started, each time."""
        path = self.folder / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _write(self, name: str, text: str) -> None:
        fresh = self.folder / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(self.folder / name)


def make_played_checkpoint(folder: Path, *, family: str = "llama", layers: int = LAYERS, width: int = 8) -> Path:
    """Write a folder that looks like a model, with weights of no meaning."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": family, "vocab_size": 32, "hidden_size": width, "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [32, width], "model.norm.weight": [width]}
    for index in range(layers):
        shapes[f"model.layers.{index}.mlp.weight"] = [width, width]
        shapes[f"model.layers.{index}.norm.weight"] = [width]
    head: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        size_bytes = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        head[name] = {"dtype": "F16", "shape": shape, "data_offsets": [end, end + size_bytes]}
        end += size_bytes
    raw = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(end))
    return folder


def asked(root: Path, **fields: object) -> BuildRequest:
    values: dict[str, object] = {"source": str(root / "toy"), "out": str(root / "library")}
    return BuildRequest(**(values | fields))  # type: ignore[arg-type]  # the fields of a request


def only(jobs: BuildJobs) -> Build:
    (build,) = jobs.views().builds
    return build


def audited(registry: Registry, search: str) -> list[str]:
    return [entry.action for entry in registry.audit.list(search=search)]
