"""The build: checkpoint in, published layer library out, one layer in memory at a time.

Order of things: account for every tensor, check the room on the disk, write embed, ropes, layers and head into the
work folder with a parity gate each, save the tokenizer, judge the whole on real text, and only then publish. Whatever
goes wrong before that leaves no library.
"""

from __future__ import annotations

import shutil
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import openvino as ov
import torch

from shard_export.build.events import BuildEvent, BuildFailed, BuildPublished, BuildStarted, LayerDone
from shard_export.build.parity import TEXT, Chains, Gate, cache_shapes
from shard_export.build.quantize import Mode, compress_unit, group_size_for
from shard_export.build.skeleton import Skeleton
from shard_export.build.template import LayerTemplate, layer_key, make_template
from shard_export.build.tokenizer import save_tokenizer
from shard_export.build.trace import LayerCall, quiet, trace_embed, trace_head, trace_layer, trace_rope
from shard_export.build.units import write_unit
from shard_export.checkpoint.source import open_checkpoint
from shard_export.library.errors import BuildCancelled, ExportError
from shard_export.library.manifest import (
    FORMAT_VERSION,
    Attention,
    EndToEnd,
    Manifest,
    Parity,
    Tokens,
    Unit,
    library_digest,
)
from shard_export.library.store import (
    check_target,
    disk_errors,
    disk_full,
    existing_parent,
    publish,
    work_folder_of,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from shard_export.checkpoint.source import Checkpoint

_PACKAGES = ("fallow", "openvino", "torch", "transformers")
_OVERHEAD_BYTES = 16 << 20  # graphs, tokenizer, manifest


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to build.

    `layers` and `ends` (embed and head) are compression modes; `group_size` None chooses per matrix; `replace` allows
    to put the new library in the place of an old one.
    """

    layers: Mode = "int4_asym"
    ends: Mode = "int8_asym"
    group_size: int | None = None
    replace: bool = False
    role: Literal["target", "draft"] = "target"


def build_library(
    source: Path,
    out: Path,
    options: BuildOptions = BuildOptions(),  # noqa: B008 - frozen
    on_event: Callable[[BuildEvent], None] | None = None,
    cancel: threading.Event | None = None,
) -> Manifest:
    """Build the layer library of a Hugging Face folder or `.gguf` file at `out` and return its manifest.

    Blocking and heavy; call it from a worker thread or process. `on_event` is called in the calling thread. `cancel`
    is looked at between layers. Raises the exceptions of `shard_export.library.errors`; then nothing is at `out`
    that was not there before, and the work folder is gone.
    """
    report = on_event or (lambda _event: None)
    source, out = source.absolute(), out.absolute()
    work = work_folder_of(out)
    try:
        check_target(out, replace=options.replace)
        checkpoint = open_checkpoint(source)
        try:
            with quiet(), disk_errors(out), torch.no_grad():
                _fresh(work)
                return _Build(checkpoint, work, out, options=options, report=report, cancel=cancel).run()
        finally:
            checkpoint.close()
            shutil.rmtree(work, ignore_errors=True)
    except ExportError as error:
        report(BuildFailed(error=type(error).__name__, message=str(error), exit_code=error.exit_code))
        raise


def _fresh(work: Path) -> None:
    """Make an empty work folder, removing what a killed build left."""
    if work.exists():
        shutil.rmtree(work)
    (work / "units").mkdir(parents=True)


class _Build:
    """One build: what the steps share."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        work: Path,
        out: Path,
        *,
        options: BuildOptions,
        report: Callable[[BuildEvent], None],
        cancel: threading.Event | None,
    ) -> None:
        self._checkpoint, self._work, self._out = checkpoint, work, out
        self._options, self._report, self._cancel = options, report, cancel
        self._started_s = time.monotonic()
        self._units: list[Unit] = []
        self._templates: dict[object, LayerTemplate | None] = {}

    def run(self) -> Manifest:
        """Carry the build out and publish."""
        self._skeleton = skeleton = Skeleton(self._checkpoint)
        self._check_options()
        self._check_room()
        tokenizer = self._checkpoint.tokenizer()
        tokens = save_tokenizer(tokenizer, skeleton.config, self._checkpoint.path, self._work, skeleton.vocab_size)
        self._gate = Gate(skeleton, tokenizer(TEXT).input_ids)
        chains = self._embed()
        self._ropes()
        layers_started_s = time.monotonic()
        for index in range(len(skeleton.kinds)):
            chains = self._layer(index, chains, layers_started_s)
        end_to_end = self._head(chains)
        skeleton.ledger.close()
        manifest = self._manifest(tokens, end_to_end)
        self._raise_if_cancelled()
        publish(self._work, self._out, manifest, replace=self._options.replace)
        self._report(
            BuildPublished(
                folder=str(self._out),
                library_digest=library_digest(manifest),
                size_bytes=sum(record.size_bytes for record in manifest.files()),
                seconds=round(time.monotonic() - self._started_s, 1),
                top1_agreement=end_to_end.top1_agreement,
                mean_kl=end_to_end.mean_kl,
            )
        )
        return manifest

    def _check_options(self) -> None:
        """Refuse a group size that does not divide before any work is done."""
        for name, shape in self._skeleton.matrix_shapes().items():
            if self._options.layers != "int8_asym":
                group_size_for(shape[1], self._options.group_size, name)

    def _check_room(self) -> None:
        layers, ends = self._skeleton.weight_count()
        need_bytes = _OVERHEAD_BYTES + layers * _bytes_per_weight(self._options.layers)
        need_bytes += ends * _bytes_per_weight(self._options.ends)
        self._report(
            BuildStarted(
                model_id=self._checkpoint.model_id,
                family=self._skeleton.family,
                layer_count=len(self._skeleton.kinds),
                estimated_bytes=int(need_bytes),
                ignored_tensors=self._skeleton.ledger.ignored,
            )
        )
        if shutil.disk_usage(existing_parent(self._work)).free < need_bytes:
            raise disk_full(self._out, int(need_bytes))

    def _embed(self) -> Chains:
        plain = trace_embed(self._skeleton)
        stored = self._write("embed", "embed", plain, self._options.ends)
        parity, chains = self._gate.embed(plain, stored)
        self._units.append(msgspec.structs.replace(self._units.pop(), parity=parity))
        return chains

    def _ropes(self) -> None:
        for rope, layer in enumerate(self._skeleton.ropes):
            name = self._skeleton.rope_name(rope)
            stored = self._write(name, "rope", trace_rope(self._skeleton, layer), None)
            error = self._gate.rope(stored, rope)
            self._units.append(msgspec.structs.replace(self._units.pop(), parity=Parity(error, error)))

    def _layer(self, index: int, chains: Chains, layers_started_s: float) -> Chains:
        self._raise_if_cancelled()
        started_s = time.monotonic()
        rope, window = self._skeleton.kinds[index]
        layer = self._skeleton.fill_layer(index)
        call = LayerCall(layer)
        plain = self._trace(layer, call, rope)
        (k_heads, k_size), (_, v_size) = cache_shapes(plain)
        attention = Attention(
            kind="sliding" if window else "full",
            kv_heads=k_heads,
            k_head_size=k_size,
            v_head_size=v_size,
            rope=self._skeleton.rope_name(rope),
            window_tokens=window,
        )
        name = f"layer-{index:03d}"
        stored = self._write(name, "layer", plain, self._options.layers, index=index, attention=attention)
        parity, chains = self._gate.layer(name, call, (plain, stored), chains, (rope, window))
        self._units.append(msgspec.structs.replace(self._units.pop(), parity=parity))
        self._skeleton.drop_layer(index)
        now_s, count = time.monotonic(), len(self._skeleton.kinds)
        mean_s = (now_s - layers_started_s) / (index + 1)
        self._report(
            LayerDone(
                index=index,
                layer_count=count,
                seconds=round(now_s - started_s, 3),
                eta_s=round(mean_s * (count - index - 1), 1),
                fp32_error=parity.fp32_error,
                compressed_error=parity.compressed_error,
            )
        )
        return chains

    def _trace(self, layer: torch.nn.Module, call: LayerCall, rope: int) -> ov.Model:
        def trace() -> ov.Model:
            return trace_layer(call, self._skeleton.hidden_size, self._gate.rotary_size(rope))

        key = layer_key(layer), rope
        if key not in self._templates:
            self._templates[key] = make_template(layer, trace)
        template = self._templates[key]
        return template.instantiate(layer.state_dict()) if template is not None else trace()

    def _head(self, chains: Chains) -> EndToEnd:
        self._raise_if_cancelled()
        plain = trace_head(self._skeleton)
        stored = self._write("head", "head", plain, self._options.ends)
        parity, end_to_end = self._gate.head(plain, stored, chains)
        self._units.append(msgspec.structs.replace(self._units.pop(), parity=parity))
        return end_to_end

    def _write(
        self,
        name: str,
        kind: Literal["layer", "embed", "head", "rope"],
        plain: ov.Model,
        mode: Mode | None,
        *,
        index: int = -1,
        attention: Attention | None = None,
    ) -> ov.Model:
        """Compress a copy of a unit, write it, read it back; returns what was read."""
        model = plain.clone()
        if mode is not None:
            compress_unit(model, mode, self._options.group_size if kind == "layer" else None)
        stem = f"{index:03d}" if kind == "layer" else name
        stored, unit = write_unit(model, self._work, stem, compressed=mode is not None)
        self._units.append(msgspec.structs.replace(unit, name=name, kind=kind, index=index, attention=attention))
        return stored

    def _manifest(self, tokens: Tokens, end_to_end: EndToEnd) -> Manifest:
        order = {"embed": 0, "rope": 1, "layer": 2, "head": 3}
        return Manifest(
            format_version=FORMAT_VERSION,
            model_id=self._checkpoint.model_id,
            revision=self._checkpoint.revision,
            family=self._skeleton.family,
            layer_count=len(self._skeleton.kinds),
            hidden_size=self._skeleton.hidden_size,
            vocab_size=self._skeleton.vocab_size,
            context_tokens=self._skeleton.context_tokens,
            units=sorted(self._units, key=lambda unit: (order[unit.kind], unit.index, unit.name)),
            tokens=tokens,
            versions={name: metadata.version(name) for name in _PACKAGES},
            end_to_end=end_to_end,
            role=self._options.role,
        )

    def _raise_if_cancelled(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise BuildCancelled(f"The build of {self._out} was stopped and its work removed; start it again any time.")


def _bytes_per_weight(mode: Mode) -> float:
    return 1.03 if mode == "int8_asym" else 0.6
