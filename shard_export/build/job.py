"""The build: checkpoint in, published layer library out, one layer in memory at a time.

Order of things: account for every tensor, see what an earlier build finished, check memory and disk, save the
tokenizer, write embed, ropes, layers and head into the work folder with a parity gate each, judge the whole on real
text, and only then publish. Whatever goes wrong before that leaves no library, only finished layers to go on from.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from shard_export.build.advice import heard
from shard_export.build.draft import check_draft
from shard_export.build.estimate import check_resources, keep_heap_small, trim_heap
from shard_export.build.journal import EMBED, Journal, make_key, versions
from shard_export.build.making import UnitMaker
from shard_export.build.options import BuildOptions
from shard_export.build.parity import TEXT, Chains, Gate
from shard_export.build.recipes import Recipe
from shard_export.build.skeleton import Skeleton
from shard_export.build.tokenizer import save_tokenizer
from shard_export.build.workspace import Workspace
from shard_export.checkpoint.source import open_checkpoint
from shard_export.library.errors import BuildCancelled, ExportError
from shard_export.library.estimates import estimate_build, usable_cores
from shard_export.library.events import BuildAdvice, BuildEvent, BuildFailed, BuildPublished, BuildStarted, LayerDone
from shard_export.library.manifest import FORMAT_VERSION, EndToEnd, Manifest, Parity, Tokens, Unit, library_digest
from shard_export.library.store import check_target, disk_errors, publish

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from shard_export.checkpoint.source import Checkpoint


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

    def pass_on(package: str, sentence: str) -> None:
        report(BuildAdvice(package=package, message=sentence))

    keep_heap_small()
    try:
        check_target(out, replace=options.replace)
        opened = contextlib.ExitStack()
        with disk_errors(out), heard(pass_on), torch.no_grad(), workspace, opened:
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

    def run(self) -> Manifest:
        """Carry the build out and publish."""
        self._skeleton = skeleton = Skeleton(self._checkpoint, self._options.context_tokens)
        self._recipe = Recipe(skeleton, self._options)
        self._journal = self._space.journal = Journal(
            self._space.journal_folder, self._work, make_key(self._checkpoint.path, self._options)
        )
        self._check_room()
        tokenizer = self._checkpoint.tokenizer()
        tokens = save_tokenizer(
            tokenizer,
            skeleton.config,
            self._checkpoint.path,
            self._work,
            skeleton.vocab_size,
            more_ends=self._checkpoint.end_ids(),
        )
        if self._options.target:
            check_draft(self._work, skeleton.vocab_size, Path(self._options.target))
        gate = Gate(skeleton, tokenizer(TEXT, verbose=False).input_ids)
        self._recipe.start(tokenizer)
        maker = UnitMaker(skeleton, self._recipe, gate, self._work)
        chains = self._take_up() if self._journal.steps else self._embed(maker)
        self._units += [maker.rope(rope) for rope in range(len(skeleton.ropes))]
        chains = self._layers(maker, chains)
        self._raise_if_cancelled()
        unit, end_to_end = maker.head(chains)
        self._units.append(unit)
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
            cores=usable_cores(),
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

    def _take_up(self) -> Chains:
        """Account for the finished steps; returns the chains behind the last of them."""
        self._units += [step.unit for step in self._journal.steps]
        self._skeleton.skip_end("embed")
        for index in range(self._journal.finished_layers):
            self._skeleton.skip_layer(index)
        return Chains(*self._journal.chains())

    def _embed(self, maker: UnitMaker) -> Chains:
        unit, chains = maker.embed()
        self._finish(unit, EMBED, chains)
        return chains

    def _layers(self, maker: UnitMaker, chains: Chains) -> Chains:
        """Make the layers that are not finished yet."""
        began_s, first, count = time.monotonic(), self._journal.finished_layers, len(self._skeleton.kinds)
        for index in range(first, count):
            self._raise_if_cancelled()
            self._checkpoint.forget()
            trim_heap()
            started_s = time.monotonic()
            unit, chains = maker.layer(index, chains, self._units)
            self._finish(unit, index, chains)
            now_s = time.monotonic()
            parity = unit.parity or Parity(0.0, 0.0)
            self._report(
                LayerDone(
                    index=index,
                    layer_count=count,
                    seconds=round(now_s - started_s, 3),
                    eta_s=round((now_s - began_s) / (index - first + 1) * (count - index - 1), 1),
                    fp32_error=parity.fp32_error,
                    compressed_error=parity.compressed_error,
                )
            )
        return chains

    def _finish(self, unit: Unit, index: int, chains: Chains) -> None:
        """Put a unit that is written and checked into the journal."""
        self._units.append(unit)
        self._journal.add(index, unit, chains)

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
