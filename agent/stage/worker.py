"""The child process of a stage: `python -m agent.stage.worker`, frames in on stdin, frames out on stdout.

The main thread owns the engine; a reader thread feeds it, and ends the process at once when stdin closes, even in
the middle of inference. A stage with a link of its own to the console (see uplink) is fed by a second reader and
answers there; one with direct links also by its inlet, and its steps leave by its outlet. Nothing but frames ever
reaches the real stdout. Exit codes: 0 stdin closed, 2 the parent sent garbage, 3 the stage could not be loaded (a NACK
says why), 4 the stage's own link broke.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from agent.link.frames import FrameError, FrameType, decode, kind_and_step
from agent.link.parsing import UNREADABLE
from agent.link.stage_messages import AdvanceEpoch, CutDirect, DirectRoute
from agent.stage import affinity, child
from agent.stage.errors import GrammarUnusable, StageLoadError
from agent.stage.gate import Gate
from agent.stage.inlet import Inlet
from agent.stage.intake import Intake, TooManySteps
from agent.stage.outgoing import Outgoing
from agent.stage.outlet import Outlet
from agent.stage.pipes import PipeClosed, read_frame, read_spec, write_all
from agent.stage.priority import make_way
from agent.stage.types import StageSpec
from agent.stage.uplink import Uplink
from shard_export.library.errors import LibraryError
from shard_export.library.store import load_manifest

if TYPE_CHECKING:
    from agent.stage.grammar import Grammars

BEAT_S = 0.2
EXIT_LOAD, EXIT_LINK = 3, 4
_STDIN = 0
_decode_order = msgspec.msgpack.Decoder(DirectRoute | CutDirect | AdvanceEpoch).decode


@dataclass(frozen=True)
class Links:
    """What a stage is fed by and what it sends with; `cores` are for every thread that does not compute."""

    intake: Intake
    outlet: Outlet
    inlet: Inlet | None
    cores: set[int]

    def order(self, order: DirectRoute | CutDirect | AdvanceEpoch) -> None:
        """Do what the console wants of the direct links; whoever computes goes on in another epoch."""
        if isinstance(order, AdvanceEpoch):
            self.intake.advance(order)
            return
        if isinstance(order, DirectRoute):
            self.outlet.direct(order)
            return
        self.outlet.direct(None)
        if self.inlet is not None:
            self.inlet.cut()

    def advance(self, spec: StageSpec, report: bytes) -> None:
        """The stage is in another epoch: be fed there, then say so."""
        if self.inlet is not None:
            self.inlet.advance(spec.epoch, spec.stage)
        self.outlet.advance(report)


def main() -> int:
    """Load the stage that the first message describes and answer frames until stdin closes."""
    out = child.begin()
    try:
        spec = read_spec(_STDIN, StageSpec)
    except PipeClosed:
        return child.EXIT_CLOSED
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return child.EXIT_GARBAGE
    if spec.gentle:
        make_way()
    try:
        gate = Gate.open(Path(spec.gate)) if spec.gate else Gate.private()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"The stage's gate cannot be used: {error}\n")
        return child.EXIT_GARBAGE
    intake = Intake(drops_repeats=spec.direct is not None)
    outlet = Outlet(spec, lambda data: write_all(out, data))
    inlet = Inlet(spec, spec.direct, intake) if spec.direct is not None and spec.direct.listens else None
    beside = affinity.other_cores(spec.cores)
    links = Links(intake, outlet, inlet, beside)
    threading.Thread(target=_read, args=(links,), name="reader", daemon=True).start()
    threading.Thread(target=_beat, args=(gate,), name="beat", daemon=True).start()
    affinity.compute_here(spec.cores)
    with contextlib.suppress(PipeClosed):
        return _serve(spec, links, gate, out)
    return child.EXIT_CLOSED


def _serve(spec: StageSpec, links: Links, gate: Gate, out: int) -> int:
    # Imported on the pinned thread: the runtime's threads inherit the affinity of the thread that loads it.
    from agent.stage import steps
    from agent.stage.engines import load_selected

    started = time.perf_counter()
    try:
        with ThreadPoolExecutor(1, "grammars") as beside:
            # Now and not with the first grammar, for which all running answers would have to wait; the runtime compiles
            # without the interpreter's lock.
            reading = beside.submit(_read_grammars, spec)
            engine, selection = load_selected(spec)
        grammars = reading.result()
        load_ms = 1e3 * (time.perf_counter() - started)
        report = steps.describe(spec, engine, selection, load_ms, constrains=grammars is not None)
    except StageLoadError as error:
        write_all(out, steps.nack_frame(spec.stage, error.code, str(error), (spec.pipeline, spec.epoch, 0, 0)))
        return EXIT_LOAD
    engine.gate = gate
    addresses = _open_links(spec, links)
    report = msgspec.structs.replace(report, addresses=addresses)
    write_all(out, steps.report_frame(spec, report))
    runner, get, send = steps.StepRunner(spec, engine, grammars=grammars), links.intake.get, links.outlet.send
    while True:
        data, arrived_s = get()
        if isinstance(data, AdvanceEpoch):
            spec = runner.advance(data.epoch, data.stage)
            links.advance(spec, steps.report_frame(spec, report))
            continue
        try:
            send(runner.answer(data, arrived_s))
        except OSError as error:
            _end_by_link(str(error))


def _read_grammars(spec: StageSpec) -> Grammars | None:
    """Read what grammars need; without it the stage serves all others, and says so in its report."""
    from agent.stage import steps

    try:
        return steps.read_grammars(spec, load_manifest(Path(spec.folder)))
    except (GrammarUnusable, LibraryError) as error:
        sys.stderr.write(f"{error}\n")
        return None


def _beat(gate: Gate) -> None:
    """Say several times a second that this process lives; it does not while it is frozen."""
    while True:
        gate.beat()
        time.sleep(BEAT_S)


def _open_links(spec: StageSpec, links: Links) -> list[str]:
    """Open the stage's own link and its port for direct ones, if it may have them; returns the port's addresses."""
    uplink = Uplink.open(spec)
    if uplink is not None:
        links.outlet.relay = Outgoing(uplink.wire, _end_by_link, links.cores).send
        threading.Thread(target=_read_link, args=(uplink, links), name="link reader", daemon=True).start()
    if links.inlet is None:
        return []
    # Its threads inherit the cores of the thread that starts them.
    affinity.stay_beside(links.cores)
    try:
        return links.inlet.open()
    finally:
        affinity.compute_here(spec.cores)


def _read_link(uplink: Uplink, links: Links) -> None:
    """Feed the stage until the link ends, then end the process: the console counts the stage as lost."""
    affinity.stay_beside(links.cores)
    put = links.intake.put
    try:
        uplink.read(lambda data: put(kind_and_step(data)[1], data))
    except (OSError, FrameError, TooManySteps) as error:
        _end_by_link(str(error))
    _end_by_link("the console closed it")


def _end_by_link(reason: str) -> NoReturn:
    os.write(2, f"The stage's link to the console broke: {reason}\n".encode())
    os._exit(EXIT_LINK)


def _read(links: Links) -> None:
    """Take frames until stdin closes, then end the process: native inference cannot be interrupted otherwise."""
    affinity.stay_beside(links.cores)
    code = child.EXIT_CLOSED
    try:
        while True:
            data = read_frame(_STDIN)
            kind, step = kind_and_step(data)
            if kind == FrameType.DIRECT:
                links.order(_decode_order(decode(data).table))
            else:
                links.intake.put(step, data)
    except (PipeClosed, ConnectionResetError):
        pass
    except (FrameError, *UNREADABLE, TooManySteps) as error:
        os.write(2, f"The parent sent bytes that are not a frame: {error}\n".encode())
        code = child.EXIT_GARBAGE
    os._exit(code)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Not sys.exit: the reader thread may hold stdin's lock, and native threads need no farewell.
    os._exit(code)
