"""Which engine runs a stage on a device: candidates in order of preference, and the first that proves itself.

Pure but for what the caller passes in: how to open an engine, and how to test an open one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from agent.stage.errors import StageLoadError
from agent.stage.types import EngineChoice, EngineName

PREFERRED: dict[str, list[EngineName]] = {"CPU": ["paged", "stateful"], "GPU": ["stateful", "paged"], "NPU": ["packed"]}
"""By kind of device. On a GPU the stateful graph is the form its plugin knows best."""


class Candidate(Protocol):
    """An open engine, as far as choosing needs it."""

    fused: bool

    def close(self) -> None: ...


C = TypeVar("C", bound=Candidate)


class Verdict(msgspec.Struct, frozen=True):
    """What a self-test found: a `problem` (empty: none), the milliseconds of one decode, and the kinds it tested."""

    problem: str
    decode_ms: float = 0.0
    tested: list[int] = []


class Selection(msgspec.Struct, frozen=True):
    """The engine that was taken, why in a phrase, why each one before it was not, and what its self-test found."""

    engine: EngineName
    reason: str
    refused: dict[EngineName, str]
    decode_ms: float
    tested: list[int] = []


def engines_of(device: str) -> list[EngineName]:
    """List the engines that run on a device such as `GPU.1`, the preferred one first; none for an unknown kind."""
    return PREFERRED.get(device.partition(".")[0], [])


def candidates(device: str, choice: EngineChoice) -> list[EngineName]:
    """List the engines to try: all of the device, or the named one and, where that is `paged`, what can stand in."""
    if choice == "auto":
        return engines_of(device)
    # Some attention does not survive the PagedAttention transformation: soft caps, keys and values of different size.
    return [choice, "stateful"] if choice == "paged" else [choice]


def select(
    device: str, choice: EngineChoice, open_engine: Callable[[EngineName], C], test: Callable[[EngineName, C], Verdict]
) -> tuple[C, Selection]:
    """Open the engines in order until one passes its test and fuses its attention; one engine is open at a time.

    If none is fused, the fastest that passed is opened again. Only what another engine may cure goes on to the next:
    any StageLoadError but `load` ends the search, as does running out of engines.
    """
    names, refused, unfused = candidates(device, choice), dict[EngineName, str](), list[tuple[float, EngineName]]()
    for name in names:
        try:
            engine = open_engine(name)
        except StageLoadError as error:
            if error.code != "load":
                raise
            refused[name] = str(error)
            continue
        verdict = test(name, engine)
        if not verdict.problem and (engine.fused or choice == name or len(names) - len(refused) == 1):
            reason = _reason(device, choice, name, engine, verdict)
            return engine, Selection(name, reason, refused, verdict.decode_ms, verdict.tested)
        engine.close()
        if verdict.problem:
            refused[name] = verdict.problem
        else:
            unfused.append((verdict.decode_ms, name))
    if not unfused:
        raise StageLoadError("load", _all_refused(device, refused))
    decode_ms, name = min(unfused)
    reason = f"{name} is the fastest of those that passed on {device}, {decode_ms:.2f} ms a token, and none is fused"
    return open_engine(name), Selection(name, reason, refused, decode_ms)


def _reason(device: str, choice: EngineChoice, name: EngineName, engine: Candidate, verdict: Verdict) -> str:
    if choice == name:
        return f"{name} was asked for"
    if choice != "auto":
        return f"{name} stands in for {choice}"
    fused = "fused" if engine.fused else "not fused"
    when = "" if verdict.tested else " before"
    return f"{name} passed its self-test on {device}{when}, {fused}, {verdict.decode_ms:.2f} ms a token"


def _all_refused(device: str, refused: dict[EngineName, str]) -> str:
    if not refused:
        return f"No engine runs on {device}; choose another device."
    said = " ".join(f"{name}: {why}" for name, why in refused.items())
    return f"No engine can run these layers on {device}: {said}"
