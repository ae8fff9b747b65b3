"""`fallow-export`: build, verify and assemble layer libraries from the command line."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shard_export.library.counts import counted
from shard_export.library.errors import ExportError
from shard_export.library.manifest import Manifest, library_digest
from shard_export.library.report import end_to_end_lines, report_of, unit_table
from shard_export.library.store import check_target, verify_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shard_export.library.events import BuildEvent, BuildStarted

EXIT_INTERRUPTED = 130
MODES = ("auto", "gguf", "int4_gptq", "int4_asym", "int4_sym", "int8_asym")
END_MODES = ("auto", "gguf", "int8_asym", "int4_asym")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, the error's own, or 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], None] = options.run
        run(options)
    except ExportError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fallow-export", description="Turn a model into a layer library.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="export a model as a layer library")
    build.add_argument("source", metavar="SRC", type=Path, help="Hugging Face folder (safetensors) or .gguf file")
    build.add_argument("out", metavar="OUT", type=Path, help="folder of the new library")
    build.add_argument(
        "--layers",
        choices=MODES,
        default=MODES[0],
        help="how layers are stored (default: the file's own blocks where there are such, else int4_gptq)",
    )
    build.add_argument(
        "--ends",
        choices=END_MODES,
        default=END_MODES[0],
        help="how embedding and head are stored (default: the file's own blocks where there are such, else int8_asym)",
    )
    build.add_argument(
        "--group-size", type=int, metavar="N", help="input columns per scale; must divide (default: chosen per matrix)"
    )
    build.add_argument(
        "--int8-ratio",
        type=float,
        default=0.0,
        metavar="R",
        help="share of the layers' weights, the most sensitive first, to store in eight bits instead of four",
    )
    build.add_argument(
        "--context",
        type=int,
        default=0,
        metavar="N",
        help="shorten the context to N tokens (longrope: up to its original length this uses the short factors)",
    )
    build.add_argument("--role", choices=("target", "draft"), default="target", help="what the model is for")
    build.add_argument("--target", metavar="LIB", type=Path, help="library whose vocabulary a draft must share")
    build.add_argument("--force", action="store_true", help="replace a library that is already at OUT")
    build.add_argument("--json-events", action="store_true", help="report progress as JSON lines on standard output")
    build.add_argument("-v", "--verbose", action="store_true", help="show what torch and transformers say meanwhile")
    build.set_defaults(run=_build)

    verify = commands.add_parser("verify", help="check that a library is complete and unchanged")
    verify.add_argument("library", metavar="LIB", type=Path)
    verify.add_argument("--json", action="store_true", help="print the parity record as one JSON object")
    verify.set_defaults(run=_verify)

    evaluate = commands.add_parser("evaluate", help="measure what a library costs in quality")
    evaluate.add_argument("library", metavar="LIB", type=Path)
    evaluate.add_argument("--against", metavar="SRC", type=Path, required=True, help="the model it was made from")
    evaluate.add_argument("--text", metavar="FILE", type=Path, help="UTF-8 text to read (default: conversations)")
    evaluate.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    evaluate.set_defaults(run=_evaluate)

    families = commands.add_parser("families", help="list the model families that can be exported and what was checked")
    families.add_argument("--json", action="store_true", help="print the table as one JSON object")
    families.set_defaults(run=_families)

    assemble = commands.add_parser("assemble", help="write a library as a folder that openvino_genai loads")
    assemble.add_argument("library", metavar="LIB", type=Path)
    assemble.add_argument("out", metavar="OUT", type=Path)
    assemble.set_defaults(run=_assemble)
    return parser


def _build(options: argparse.Namespace) -> None:
    check_target(options.out.absolute(), replace=options.force)  # before torch takes its seconds to load
    _require_export_packages()
    from shard_export.build.job import build_library
    from shard_export.build.options import BuildOptions

    if (options.role == "draft") != (options.target is not None):
        raise ExportError("A draft belongs to a target: give both --role draft and --target LIB, or neither.")
    build_options = BuildOptions(
        layers=options.layers,
        ends=options.ends,
        group_size=options.group_size,
        int8_ratio=options.int8_ratio,
        context_tokens=options.context,
        replace=options.force,
        role=options.role,
        target=str(options.target.absolute()) if options.target is not None else "",
    )
    with contextlib.ExitStack() as stack:
        cancel = stack.enter_context(_stopped_by_interrupt())
        on_event = _print_json if options.json_events else stack.enter_context(_progress(verbose=options.verbose))
        manifest = build_library(options.source, options.out, build_options, on_event, cancel)
    if not options.json_events:
        print(f"{options.out}: {_summary(manifest)}")


def _verify(options: argparse.Namespace) -> None:
    manifest = verify_library(options.library)
    report = report_of(manifest)
    if options.json:
        print(msgspec.json.encode(report).decode())
        return
    from rich.console import Console

    Console().print(unit_table(report))
    print(*end_to_end_lines(report), sep="\n")
    print(f"{options.library} is complete: {_summary(manifest)}")


def _evaluate(options: argparse.Namespace) -> None:
    _require_export_packages()
    from rich.console import Console
    from rich.progress import Progress

    from shard_export.build.evaluate import evaluate, table

    text = _read_text(options.text) if options.text is not None else ""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Opening the model", total=None)

        def on_progress(done: int, total: int) -> None:
            progress.update(task, description="Tokens read", completed=done, total=total)

        evaluation = evaluate(options.library, options.against, text, on_progress)
    if options.json:
        print(msgspec.json.encode(evaluation).decode())
    else:
        Console().print(table(evaluation))


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} cannot be read as UTF-8 text ({error}); name another file.") from error


def _assemble(options: argparse.Namespace) -> None:
    _require_export_packages()
    from shard_export.build.assembled import write_assembled

    write_assembled(options.library, options.out)
    print(f'{options.out} is ready for openvino_genai.LLMPipeline("{options.out}", "CPU").')


def _families(options: argparse.Namespace) -> None:
    from shard_export.checkpoint.families import CHECKED, REFUSED

    if options.json:
        print(msgspec.json.encode({"exported": CHECKED, "refused": REFUSED}).decode())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("family", "attention", "sliding", "experts", "paged", "max error", "rope kinds", box=None)
    for family in CHECKED:
        marks = ["yes" if mark else "" for mark in (family.sliding, family.experts, family.paged)]
        table.add_row(family.name, family.attention, *marks, f"{family.max_error:.0e}", ", ".join(family.ropes))
    Console().print(table)
    for family in CHECKED:
        if family.note:
            print(f"{family.name}: {family.note}")
    for name, reason in REFUSED.items():
        print(f"{name} cannot be exported: {reason}")


def _require_export_packages() -> None:
    try:
        import torch  # noqa: F401 - the heaviest of them; the extra brings all
    except ImportError:
        raise ExportError("The exporter's packages are not installed; run: pip install 'fallow[export]'.") from None


def _summary(manifest: Manifest) -> str:
    size_mb = sum(record.size_bytes for record in manifest.files()) / 1e6
    text = f"{manifest.model_id} ({manifest.family}), {counted(manifest.layer_count, 'layer')}, {size_mb:.0f} MB"
    if manifest.end_to_end is not None:
        text += f", top-1 agreement {manifest.end_to_end.top1_agreement:.1%}, KL {manifest.end_to_end.mean_kl:.3f}"
    return f"{text}, SHA-256 {library_digest(manifest)[:16]}"


@contextlib.contextmanager
def _stopped_by_interrupt() -> Iterator[threading.Event]:
    """Let the first Ctrl-C finish the layer in work and the second one stop at once."""
    cancel = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()
        print("Stopping after this layer; press Ctrl-C again to stop at once.", file=sys.stderr)

    before = signal.signal(signal.SIGINT, stop) if _is_main_thread() else None
    try:
        yield cancel
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _print_json(event: BuildEvent) -> None:
    print(msgspec.json.encode(event).decode(), flush=True)


def _about_start(event: BuildStarted) -> Iterator[str]:
    yield (
        f"{event.model_id}: about {event.estimated_bytes / 1e9:.2f} GB on the disk, "
        f"{event.estimated_memory_bytes / 1e9:.1f} GB of memory, {max(1, round(event.estimated_seconds / 60))} min"
    )
    if event.finished_layers:
        yield f"Going on after {counted(event.finished_layers, 'finished layer')}."
    if event.restarted_because:
        yield f"Starting over: {event.restarted_because}."
    yield from event.notes


@contextlib.contextmanager
def _progress(*, verbose: bool) -> Iterator[Callable[[BuildEvent], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from shard_export.library.events import BuildAdvice, BuildStarted, LayerDone

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("layers"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[eta]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Opening the model", total=None, eta="")

        def on_event(event: BuildEvent) -> None:
            if isinstance(event, BuildStarted):
                for line in _about_start(event):
                    progress.console.print(line)
                done = event.finished_layers
                progress.update(task, description=event.model_id, total=event.layer_count, completed=done)
            elif isinstance(event, BuildAdvice) and verbose:
                progress.console.print(f"{event.package}: {event.message}", markup=False, highlight=False)
            elif isinstance(event, LayerDone):
                progress.update(task, completed=event.index + 1, eta=f"{event.eta_s:.0f} s left")

        yield on_event


if __name__ == "__main__":
    sys.exit(main())
