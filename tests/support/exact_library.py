"""A checkpoint's units in plain float32, and what an assembled library computes: for comparing with transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import openvino as ov
import torch

from shard_export.build.advice import quiet
from shard_export.build.exact import cache_shapes
from shard_export.build.skeleton import Skeleton
from shard_export.build.template import layer_key, make_template
from shard_export.build.trace import LayerCall, trace_embed, trace_head, trace_layer, trace_rope
from shard_export.build.units import write_unit
from shard_export.checkpoint.source import open_checkpoint
from shard_export.library.graph import assemble
from shard_export.library.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    Attention,
    Manifest,
    Tokens,
    Unit,
    encode_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}


def exact_library(source: Path, folder: Path) -> tuple[Manifest, Skeleton]:
    """Trace every unit of a checkpoint and write them uncompressed; nothing is checked on the way."""
    (folder / "units").mkdir(parents=True)
    with quiet(), torch.no_grad():
        skeleton = Skeleton(open_checkpoint(source))
        units = [*_ends(skeleton, folder), *_ropes(skeleton, folder), *_layers(skeleton, folder)]
    manifest = Manifest(
        FORMAT_VERSION, "exact", "1", skeleton.family, len(skeleton.kinds), skeleton.hidden_size, skeleton.vocab_size,
        skeleton.context_tokens, units, Tokens([], [2], 1, None, False, ""), {},
    )  # fmt: skip
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
    return manifest, skeleton


def _ends(skeleton: Skeleton, folder: Path) -> list[Unit]:
    units = []
    skeleton.fill_end("embed")
    units.append(_write(folder, trace_embed(skeleton), "embed", kind="embed"))
    skeleton.fill_end("head")
    units.append(_write(folder, trace_head(skeleton), "head", kind="head"))
    return units


def _ropes(skeleton: Skeleton, folder: Path) -> list[Unit]:
    return [
        _write(folder, trace_rope(skeleton, layer), skeleton.rope_name(rope), kind="rope")
        for rope, layer in enumerate(skeleton.ropes)
    ]


def _layers(skeleton: Skeleton, folder: Path) -> list[Unit]:
    units, templates = [], dict[Any, Any]()
    for index, (rope, window) in enumerate(skeleton.kinds):
        layer = skeleton.fill_layer(index)
        call, size = LayerCall(layer), skeleton.rotary(index, torch.zeros(1, 1, dtype=torch.long))[0].shape[-1]

        def trace(call: LayerCall = call, size: int = size) -> ov.Model:
            return trace_layer(call, skeleton.hidden_size, size)

        key = layer_key(layer)
        if key not in templates:
            templates[key] = make_template(layer, trace)
        model = templates[key].instantiate(layer.state_dict()) if templates[key] else trace()
        (heads, k_size), (_, v_size) = cache_shapes(model)
        kind = "sliding" if window else "full"
        attention = Attention(kind, heads, k_size, v_size, skeleton.rope_name(rope), window)  # type: ignore[arg-type]
        name = f"layer-{index:03d}"
        units.append(_write(folder, model, f"{index:03}", kind="layer", name=name, index=index, attention=attention))
        skeleton.drop_layer(index)
    return units


def _write(folder: Path, model: ov.Model, stem: str, **fields: Any) -> Unit:
    _, unit = write_unit(model, folder, stem, compressed=False)
    return msgspec.structs.replace(unit, **{"name": stem, **fields})


def run_in_chunks(folder: Path, manifest: Manifest, ids: Array, cuts: list[int]) -> Array:
    """Run an assembled library over ids [1,n] cut at those places, through its cache; returns logits [1,n,V]."""
    model = ov.Core().compile_model(assemble(folder, manifest, 0, manifest.layer_count), "CPU", EXACT)
    request = model.create_infer_request()
    chunks = []
    for first, last in zip([0, *cuts], [*cuts, ids.shape[1]], strict=True):
        inputs = {
            "input_ids": ids[:, first:last],
            "attention_mask": np.ones((1, last), np.int64),
            "position_ids": np.arange(first, last, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        chunks.append(request.infer(inputs)["logits"].copy())
    return np.concatenate(chunks, 1)
