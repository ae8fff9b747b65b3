"""The board: all probes of this PC, what they see together, and the first sign of the owner as soon as it comes.

`snapshot` never waits for a source and never raises. `on_input` comes in a thread of the board, within milliseconds
where the desktop tells of input by itself, else within one `close_interval_s` of the presence probes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from agent.volunteer.clock import steady_s
from agent.volunteer.facts import Facts, Power, Reading
from agent.volunteer.probes.base import FactName, Probe, ProbeError, SystemEvent, Watch
from agent.volunteer.probes.load import ExclusiveApps
from agent.volunteer.probes.worker import DEADLINE_S, Sample, WatchThread, Worker

log = logging.getLogger(__name__)

_Said = TypeVar("_Said")

INPUT_TOLERANCE_S = 0.05
"""How far a source's reckoning of the last input may wander: Windows counts in steps of 16 ms."""
JOIN_S = 1.0


@dataclass(frozen=True)
class Row:
    """What one probe says of one fact, for people: `value` is None when it does not know, and `problem` says why."""

    fact: str
    probe: str
    value: object
    problem: str
    age_s: float


def value_text(row: Row) -> str:
    """Say in words what a probe sees, or why it does not."""
    if row.value is None:
        return f"? {row.problem}"
    value = row.value
    if isinstance(value, msgspec.Struct):
        text = ", ".join(f"{name} {_short(getattr(value, name))}" for name in value.__struct_fields__)
    elif isinstance(value, tuple):
        text = ", ".join(map(str, value)) or "none"
    else:
        text = _short(value)
    return f"{text} ({row.problem})" if row.problem else text


def _short(value: object) -> str:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


class ProbeBoard:
    """Runs probes and watches from `start` to `close`. Every method from any thread.

    `on_input(source)` and `on_event(event)` are called in threads of the board and must return soon. A clock other
    than the real one is for tests.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        watches: Sequence[Watch] = (),
        *,
        apps: ExclusiveApps | None = None,
        on_input: Callable[[str], None] = lambda _source: None,
        on_event: Callable[[SystemEvent], None] = lambda _event: None,
        clock: Callable[[], float] = steady_s,
        asleep_s: Callable[[], float] = lambda: 0.0,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`apps` is the source of `exclusive`; `asleep_s` tells how long this PC has slept since it was switched on."""
        self._apps = apps
        self._on_input = on_input
        self._on_event = on_event
        self._clock = clock
        self._asleep_s = asleep_s
        self._slept_s = 0.0
        self._inputs_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._workers = [Worker(probe, clock, self._sampled, deadline_s=deadline_s) for probe in probes]
        self._watches = [WatchThread(watch, self._heard_by(watch.name)) for watch in watches]

    def start(self) -> None:
        """Begin to read and to listen."""
        self._slept_since_last()
        for thread in self._threads():
            thread.start()

    def close(self) -> None:
        """End every thread that answers; one whose source hangs is left behind, and logged."""
        for thread in self._threads():
            thread.stop()
        late = [thread for thread in self._threads() if not thread.join(JOIN_S)]
        if late:
            log.info("%d probes hang and are left behind.", len(late))

    def watch_closely(self, close: bool) -> None:
        """Ask closely from now on, because this PC serves or loads; or seldom again."""
        for worker in self._workers:
            worker.set_close(close)

    def look_for(self, programs: Iterable[str]) -> None:
        """Name the programs that must have this PC for themselves: the policy's exclusive programs."""
        if self._apps is not None:
            self._apps.look_for(programs)

    def refresh(self) -> None:
        """Read everything now."""
        for worker in self._workers:
            worker.hurry()

    def snapshot(self) -> Facts:
        """Return what is known now."""
        now_s = self._clock()
        looked = [(worker.probe, worker.look()) for worker in self._workers]
        facts = {name: _merged(name, looked, now_s) for name in _MERGE}
        facts["power"] = _with_saver(facts["power"], facts.pop("power_saver"))
        return Facts(
            at_s=now_s,
            unix_s=time.time(),
            utc_offset_s=float(time.localtime().tm_gmtoff or 0),
            suspend_gap_s=Reading(self._slept_since_last(), "clock", 0.0),
            **facts,
        )

    def rows(self) -> list[Row]:
        """List what each probe says of each of its facts."""
        now_s = self._clock()
        found = []
        for worker in self._workers:
            sample = worker.look()
            for fact in worker.probe.tells:
                value = sample.seen.get(fact)
                problem = sample.problem or ("" if value is not None else "not told")
                found.append(Row(fact, worker.probe.name, value, problem, max(0.0, now_s - sample.at_s)))
        return sorted(found, key=lambda row: tuple(_MERGE).index(row.fact))

    def _threads(self) -> list[Worker | WatchThread]:
        return [*self._workers, *self._watches]

    def _slept_since_last(self) -> float:
        with self._lock:
            before_s = self._slept_s
            with contextlib.suppress(ProbeError):
                self._slept_s = self._asleep_s()
            return max(0.0, self._slept_s - before_s)

    def _tell(self, listener: Callable[[_Said], None], said: _Said) -> None:
        try:
            listener(said)
        except Exception:  # the edge of a thread that has to go on reading
            log.exception("Whoever listens to the probes failed.")

    def _sampled(self, probe: Probe, sample: Sample) -> None:
        """Find input between two reads of a presence source.

        The last input was between `at_s - idle_s` and `took_s` later. It was another one than the read before saw if
        the earliest it can have been is after the latest the other can have been: a slow answer alone is no input.
        """
        idle_s = sample.seen.get("idle_s")
        if idle_s is None or probe.last_resort:
            return
        earliest_s = sample.at_s - idle_s
        before_s = self._inputs_s.get(probe.name)
        self._inputs_s[probe.name] = earliest_s + sample.took_s
        if before_s is not None and earliest_s > before_s + INPUT_TOLERANCE_S:
            self._tell(self._on_input, probe.name)

    def _heard_by(self, name: str) -> Callable[[SystemEvent], None]:
        def heard(event: SystemEvent) -> None:
            if event in ("input", "unlocked"):
                self._tell(self._on_input, name)
            if event != "input":
                self._tell(self._on_event, event)
                self.refresh()

        return heard


def _least(values: Sequence[Any]) -> Any:
    return min(values)


def _most(values: Sequence[Any]) -> Any:
    return max(values)


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _union(values: Sequence[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for names in values for name in names}))


_MERGE: dict[FactName, Callable[[Sequence[Any]], Any]] = {
    "idle_s": _least,
    "locked": any,
    "displays_off": _first,
    "remote_session": any,
    "session_switched": any,
    "fullscreen": any,
    "presentation": any,
    "inhibitors": _union,
    "other_cpu_percent": _most,
    "other_gpu_percent": _most,
    "exclusive": _union,
    "memory": _first,
    "power": _first,
    "power_saver": any,
    "heat": _first,
    "metered": _first,
    "disk_free_bytes": _first,
}
"""How the sources that know a fact become one value: the owner's side of every doubt."""


def _merged(name: FactName, looked: Sequence[tuple[Probe, Sample]], now_s: float) -> Reading[Any]:
    """Merge one fact. Its age is that of the oldest answer in it, so one late source makes the whole doubtful."""
    telling = [(probe, sample) for probe, sample in looked if name in probe.tells]
    better = [(probe, sample) for probe, sample in telling if not probe.last_resort and not sample.absent]
    chosen = [(probe, sample) for probe, sample in (better or telling) if name in sample.seen]
    if not chosen:
        return Reading()
    value = _MERGE[name]([sample.seen[name] for _, sample in chosen])
    age_s = max(0.0, now_s - min(sample.at_s for _, sample in chosen))
    return Reading(value, "+".join(probe.name for probe, _ in chosen), age_s)


def _with_saver(power: Reading[Power], saver: Reading[bool]) -> Reading[Power]:
    if power.value is None or not saver.value:
        return power
    return Reading(msgspec.structs.replace(power.value, saver=True), power.source, power.age_s)
