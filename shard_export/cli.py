"""`fallow-export`: build, verify and assemble layer libraries from the command line."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shard_export.library.errors import ExportError
from shard_export.library.manifest import Manifest, library_digest
from shard_export.library.store import check_target, verify_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shard_export.build.events import BuildEvent

EXIT_INTERRUPTED = 130
MODES = ("int4_asym", "int4_sym", "int8_asym")


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
        print("Stopped; nothing half-written is left.", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fallow-export", description="Turn a model into a layer library.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="export a model as a layer library")
    build.add_argument("source", metavar="SRC", type=Path, help="Hugging Face folder (safetensors) or .gguf file")
    build.add_argument("out", metavar="OUT", type=Path, help="folder of the new library")
    build.add_argument("--layers", choices=MODES, default=MODES[0], help="how layers are stored (default: %(default)s)")
    build.add_argument(
        "--group-size", type=int, metavar="N", help="input columns per scale; must divide (default: chosen per matrix)"
    )
    build.add_argument("--force", action="store_true", help="replace a library that is already at OUT")
    build.add_argument("--json-events", action="store_true", help="report progress as JSON lines on standard output")
    build.set_defaults(run=_build)

    verify = commands.add_parser("verify", help="check that a library is complete and unchanged")
    verify.add_argument("library", metavar="LIB", type=Path)
    verify.set_defaults(run=_verify)

    assemble = commands.add_parser("assemble", help="write a library as a folder that openvino_genai loads")
    assemble.add_argument("library", metavar="LIB", type=Path)
    assemble.add_argument("out", metavar="OUT", type=Path)
    assemble.set_defaults(run=_assemble)
    return parser


def _build(options: argparse.Namespace) -> None:
    check_target(options.out.absolute(), replace=options.force)  # before torch takes its seconds to load
    _require_export_packages()
    from shard_export.build.job import BuildOptions, build_library

    build_options = BuildOptions(layers=options.layers, group_size=options.group_size, replace=options.force)
    with contextlib.ExitStack() as stack:
        on_event = _print_json if options.json_events else stack.enter_context(_progress())
        manifest = build_library(options.source, options.out, build_options, on_event)
    if not options.json_events:
        print(f"{options.out}: {_summary(manifest)}")


def _verify(options: argparse.Namespace) -> None:
    manifest = verify_library(options.library)
    print(f"{options.library} is complete: {_summary(manifest)}")


def _assemble(options: argparse.Namespace) -> None:
    _require_export_packages()
    from shard_export.build.assembled import write_assembled

    write_assembled(options.library, options.out)
    print(f'{options.out} is ready for openvino_genai.LLMPipeline("{options.out}", "CPU").')


def _require_export_packages() -> None:
    try:
        import torch  # noqa: F401 - the heaviest of them; the extra brings all
    except ImportError:
        raise ExportError("The exporter's packages are not installed; run: pip install 'fallow[export]'.") from None


def _summary(manifest: Manifest) -> str:
    size_mb = sum(record.size_bytes for record in manifest.files()) / 1e6
    text = f"{manifest.model_id} ({manifest.family}), {manifest.layer_count} layers, {size_mb:.0f} MB"
    if manifest.end_to_end is not None:
        text += f", top-1 agreement {manifest.end_to_end.top1_agreement:.1%}, KL {manifest.end_to_end.mean_kl:.3f}"
    return f"{text}, SHA-256 {library_digest(manifest)[:16]}"


def _print_json(event: BuildEvent) -> None:
    print(msgspec.json.encode(event).decode(), flush=True)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[BuildEvent], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from shard_export.build.events import BuildStarted, LayerDone

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
                progress.update(task, description=event.model_id, total=event.layer_count, completed=0)
            elif isinstance(event, LayerDone):
                progress.update(task, completed=event.index + 1, eta=f"{event.eta_s:.0f} s left")

        yield on_event


if __name__ == "__main__":
    sys.exit(main())
