"""The build: checkpoint in, published layer library out, one layer in memory at a time.

Order of things: account for every tensor, see what an earlier build finished, check memory and disk, save the
tokenizer, write embed, ropes, layers and head into the work folder with a parity gate each, judge the whole on real
text, and only then publish. Whatever goes wrong before that leaves no library, only finished layers to go on from.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import openvino as ov
import torch

from shard_export.build.draft import check_draft
from shard_export.build.estimate import check_resources, estimate_build, keep_heap_small, trim_heap
from shard_export.build.events import BuildEvent, BuildFailed, BuildPublished, BuildStarted, LayerDone
from shard_export.build.journal import EMBED, Journal, make_key, versions
from shard_export.build.parity import TEXT, Chains, Gate, cache_shapes
from shard_export.build.recipes import Choice, Recipe
from shard_export.build.skeleton import Skeleton
from shard_export.build.template import LayerTemplate, layer_key, make_template
from shard_export.build.tokenizer import save_tokenizer
from shard_export.build.trace import LayerCall, quiet, trace_embed, trace_head, trace_layer, trace_rope
from shard_export.build.units import write_unit
from shard_export.build.workspace import Workspace
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
from shard_export.library.store import check_target, disk_errors, publish

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from shard_export.checkpoint.source import Checkpoint


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to build.

    `layers` and `ends` (embed and head) are compression modes, `auto` what suits the source; `group_size` None chooses
    per matrix; `replace` allows to put the new library in the place of an old one. A draft's
    vocabulary is checked against the library `target`.
    """

    layers: Choice = "auto"
    ends: Choice = "auto"
    group_size: int | None = None
    replace: bool = False
    role: Literal["target", "draft"] = "target"
    target: str = ""


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
    that was not there before. Layers that are finished when the build ends early stay in the work folder beside
    `out`, and a build of the same source with the same options goes on from there, to the same bytes.
    """
    report = on_event or (lambda _event: None)
    source, out = source.absolute(), out.absolute()
    workspace = Workspace(out)
    keep_heap_small()
    try:
        check_target(out, replace=options.replace)
        opened = contextlib.ExitStack()
        with disk_errors(out), quiet(), torch.no_grad(), workspace, opened:
            checkpoint = opened.enter_context(contextlib.closing(open_checkpoint(source)))
            return _Build(checkpoint, workspace, options=options, report=report, cancel=cancel).run()
    except ExportError as error:
        report(BuildFailed(error=type(error).__name__, message=str(error), exit_code=error.exit_code))
        raise
    except KeyboardInterrupt as interrupt:
        stopped = _stopped(workspace)
        report(BuildFailed(error=type(stopped).__name__, message=str(stopped), exit_code=stopped.exit_code))
        raise stopped from interrupt


def _stopped(workspace: Workspace) -> BuildCancelled:
    return BuildCancelled(f"The build of {workspace.out} was stopped; {workspace.kept_note(None)}.")


class _Build:
    """One build: what the steps share."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        workspace: Workspace,
        *,
        options: BuildOptions,
        report: Callable[[BuildEvent], None],
        cancel: threading.Event | None,
    ) -> None:
        self._checkpoint, self._space, self._work, self._out = checkpoint, workspace, workspace.library, workspace.out
        self._options, self._report, self._cancel = options, report, cancel
        self._started_s = time.monotonic()
        self._units: list[Unit] = []
        self._made = 0
        self._templates: dict[object, LayerTemplate | None] = {}

    def run(self) -> Manifest:
        """Carry the build out and publish."""
        self._skeleton = skeleton = Skeleton(self._checkpoint)
        self._recipe = Recipe(skeleton, self._options)
        self._journal = self._space.journal = Journal(
            self._space.journal_folder, self._work, make_key(self._checkpoint.path, self._options)
        )
        self._check_room()
        tokenizer = self._checkpoint.tokenizer()
        tokens = save_tokenizer(tokenizer, skeleton.config, self._checkpoint.path, self._work, skeleton.vocab_size)
        if self._options.target:
            check_draft(self._work, skeleton.vocab_size, Path(self._options.target))
        self._gate = Gate(skeleton, tokenizer(TEXT).input_ids)
        self._recipe.start(tokenizer)
        chains = self._embed()
        self._ropes()
        layers_started_s = time.monotonic()
        for index in range(self._journal.finished_layers, len(skeleton.kinds)):
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

    def _check_room(self) -> None:
        layers, ends = self._skeleton.weight_count()
        estimate = estimate_build(
            weights=layers + ends,
            largest_unit=self._skeleton.largest_unit(),
            library_bytes=self._recipe.library_bytes(),
        )
        self._report(
            BuildStarted(
                model_id=self._checkpoint.model_id,
                family=self._skeleton.family,
                layer_count=len(self._skeleton.kinds),
                estimated_bytes=estimate.disk_bytes,
                ignored_tensors=self._skeleton.ledger.ignored,
                estimated_memory_bytes=estimate.memory_bytes,
                estimated_seconds=round(estimate.seconds, 1),
                finished_layers=self._journal.finished_layers,
                restarted_because=self._journal.restarted_because,
                notes=self._checkpoint.notes() + self._skeleton.notes() + self._recipe.recompressed(),
            )
        )
        check_resources(estimate, self._out, kept_bytes=self._journal.size_bytes)

    def _embed(self) -> Chains:
        """Make the embedding, or take up the finished steps; returns the chains behind the last of them."""
        if self._journal.steps:
            self._units += [step.unit for step in self._journal.steps]
            self._skeleton.skip_end("embed")
            for index in range(self._journal.finished_layers):
                self._skeleton.skip_layer(index)
            return Chains(*self._journal.chains())
        self._skeleton.fill_end("embed")
        plain = trace_embed(self._skeleton)
        stored = self._write("embed", "embed", plain, lambda model: self._recipe.compress_end(model, "embed"))
        parity, chains = self._gate.embed(plain, stored)
        chains = chains._replace(calibration=self._recipe.first_inputs())
        self._finish(parity, EMBED, chains)
        self._skeleton.drop_end("embed")
        return chains

    def _finish(self, parity: Parity, index: int, chains: Chains) -> None:
        """Record what the gate found about the last unit and put the unit into the journal."""
        self._units.append(msgspec.structs.replace(self._units.pop(), parity=parity))
        self._journal.add(index, self._units[-1], chains)

    def _ropes(self) -> None:
        for rope, layer in enumerate(self._skeleton.ropes):
            name = self._skeleton.rope_name(rope)
            stored = self._write(name, "rope", trace_rope(self._skeleton, layer), None)
            error = self._gate.rope(stored, rope)
            self._units.append(msgspec.structs.replace(self._units.pop(), parity=Parity(error, error)))

    def _layer(self, index: int, chains: Chains, layers_started_s: float) -> Chains:
        self._raise_if_cancelled()
        trim_heap()
        started_s = time.monotonic()
        rope, window = self._skeleton.kinds[index]
        layer = self._skeleton.fill_layer(index)
        self._checkpoint.forget()
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
        inputs, calibrated = self._recipe.layer_inputs(call, chains.calibration, (rope, window))

        def compress(model: ov.Model) -> None:
            self._recipe.compress_layer(model, index, inputs)

        stored = self._write(name, "layer", plain, compress, index=index, attention=attention)
        parity, chains = self._gate.layer(name, call, (plain, stored), chains, (rope, window))
        chains = chains._replace(calibration=calibrated)
        self._finish(parity, index, chains)
        self._skeleton.drop_layer(index)
        now_s, count = time.monotonic(), len(self._skeleton.kinds)
        self._made += 1
        mean_s = (now_s - layers_started_s) / self._made
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
        self._skeleton.fill_end("head")
        plain = trace_head(self._skeleton)
        stored = self._write("head", "head", plain, lambda model: self._recipe.compress_end(model, "head"))
        parity, end_to_end = self._gate.head(plain, stored, chains)
        self._units.append(msgspec.structs.replace(self._units.pop(), parity=parity))
        return end_to_end

    def _write(
        self,
        name: str,
        kind: Literal["layer", "embed", "head", "rope"],
        plain: ov.Model,
        compress: Callable[[ov.Model], None] | None,
        *,
        index: int = -1,
        attention: Attention | None = None,
    ) -> ov.Model:
        """Compress a copy of a unit, write it, read it back; returns what was read."""
        model = plain.clone()
        if compress is not None:
            compress(model)
        stem = f"{index:03d}" if kind == "layer" else name
        stored, unit = write_unit(model, self._work, stem, compressed=compress is not None)
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
            versions=dict(versions()),
            end_to_end=end_to_end,
            role=self._options.role,
        )

    def _raise_if_cancelled(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise _stopped(self._space)
