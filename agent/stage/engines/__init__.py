"""Engines: the same units run as a stateful graph or through paged attention, behind one interface."""

from __future__ import annotations

from pathlib import Path

from agent.stage.engines.base import Engine, Library, last_line
from agent.stage.engines.paged import PagedEngine
from agent.stage.engines.stateful import StatefulEngine
from agent.stage.errors import StageLoadError
from agent.stage.types import StageSpec

__all__ = ["Engine", "load"]


def load(spec: StageSpec) -> Engine:
    """Load a stage: assemble, compile, allocate. Takes seconds; raises StageLoadError.

    Pin the calling thread to `spec.cores` before this call: the runtime's threads inherit its affinity.
    """
    library = Library(Path(spec.folder))
    engine = PagedEngine if spec.engine == "paged" else StatefulEngine
    try:
        return engine(spec, library)
    except MemoryError as error:
        raise StageLoadError("memory", "This PC has too little memory for the stage; plan fewer layers.") from error
    except RuntimeError as error:
        raise StageLoadError(
            "load", f"The stage cannot be compiled for {spec.device}: {last_line(error)}; try another engine or device."
        ) from error
