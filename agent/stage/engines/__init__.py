"""Engines: the same units as a stateful graph, through paged attention or as a static graph, behind one interface."""

from __future__ import annotations

from pathlib import Path

from agent.stage.engines.base import Engine, last_line
from agent.stage.engines.library import Library
from agent.stage.engines.packed import PackedEngine
from agent.stage.engines.paged import PagedEngine
from agent.stage.engines.selection import Selection, Verdict, select
from agent.stage.engines.selftest import decode_ms, find_problem, sample_layers
from agent.stage.engines.stateful import StatefulEngine
from agent.stage.errors import StageError, StageLoadError
from agent.stage.types import EngineName, StageSpec

__all__ = ["Engine", "load", "load_selected", "open_engine"]

_ENGINES: dict[EngineName, type[Engine]] = {"paged": PagedEngine, "stateful": StatefulEngine, "packed": PackedEngine}


def load(spec: StageSpec) -> Engine:
    """Load a stage: assemble, compile, allocate. Takes seconds; raises StageLoadError.

    Pin the calling thread to `spec.cores` before this call: the runtime's threads inherit its affinity.
    """
    return load_selected(spec)[0]


def load_selected(spec: StageSpec) -> tuple[Engine, Selection]:
    """Like `load`, and say which engine it became and why."""
    library = Library(Path(spec.folder))

    def test(name: EngineName, engine: Engine) -> Verdict:
        def open_small(small: StageSpec) -> Engine:
            return type(engine)(small, library)

        kinds = _untested(spec, library, name)
        try:
            problem = find_problem(spec, library, open_small, kinds)
            return Verdict(problem, 0.0 if problem else decode_ms(engine), sorted(kinds))
        except (StageError, RuntimeError) as error:
            return Verdict(f"Its self-test could not run: {last_line(error)}.")

    return select(spec.device, spec.engine, lambda name: open_engine(name, spec, library), test)


def _untested(spec: StageSpec, library: Library, engine: EngineName) -> dict[int, int]:
    """Choose the layers to test: none for an engine that was named, as whoever names it wants this one."""
    if spec.engine != "auto":
        return {}
    kinds = sample_layers(library.manifest, spec.first, spec.last)
    return {window: index for window, index in kinds.items() if window not in spec.tested.get(engine, [])}


def open_engine(name: EngineName, spec: StageSpec, library: Library) -> Engine:
    """Load a stage with the engine of that name and no other. Raises StageLoadError."""
    try:
        return _ENGINES[name](spec, library)
    except MemoryError as error:
        raise StageLoadError("memory", "This PC has too little memory for the stage; plan fewer layers.") from error
    except RuntimeError as error:
        raise StageLoadError(
            "load", f"The stage cannot be compiled for {spec.device}: {last_line(error)}; try another engine or device."
        ) from error
