"""The threads behind the probes: one per source, never more, whatever the source does.

A source that hangs keeps its own thread and nothing else, and no second thread is started for it. An answer after the
deadline is dropped, as nobody knows when it was true. Until the next one in time the sample before it stays and grows
older, so that one slow moment is no change of the facts; after `KEEP_LATE_S` they are unknown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.volunteer.probes.base import Absent, Probe, ProbeError, Seen, SystemEvent, Watch

log = logging.getLogger(__name__)

DEADLINE_S = 0.5
KEEP_LATE_S = 10.0
"""How old a sample of a late source may become."""
ABSENT_INTERVAL_S = 30.0
"""How often to look whether a source has come: a desktop that starts after the agent, a bus name."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between two starts of a watch that failed; the pause doubles up to the longest."""


@dataclass(frozen=True)
class Sample:
    """The outcome of one read that began at `at_s` and took `took_s`: what was seen, or why nothing was."""

    at_s: float
    seen: Seen = field(default_factory=Seen)
    problem: str = ""
    absent: bool = False
    took_s: float = 0.0


class Worker:
    """Reads one probe again and again in a thread. `look`, `hurry` and `set_close` from any thread."""

    def __init__(
        self,
        probe: Probe,
        clock: Callable[[], float],
        on_sample: Callable[[Probe, Sample], None],
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`on_sample` is called in the worker's thread after each read in time."""
        self.probe = probe
        self._clock = clock
        self._on_sample = on_sample
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._close = False
        self._began_s: float | None = None
        self._sample: Sample | None = None
        self._late = ""
        self._thread = threading.Thread(target=self._work, name=f"probe-{probe.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Read at once instead of after the interval."""
        self._wake.set()

    def set_close(self, close: bool) -> None:
        """Ask closely (while serving), or seldom."""
        if close != self._close:
            self._close = close
            self._wake.set()

    def look(self) -> Sample:
        """Return the last sample in time; `problem` tells if the source is late since."""
        with self._lock:
            began_s, sample, problem = self._began_s, self._sample, self._late
        now_s = self._clock()
        if began_s is not None and now_s - began_s > self._deadline_s:
            problem = f"no answer for {now_s - began_s:.1f} s"
        if sample is None:
            return Sample(now_s, problem=problem or "not read yet")
        if not problem:
            return sample
        return replace(sample, problem=problem, seen=sample.seen if now_s - sample.at_s <= KEEP_LATE_S else Seen())

    def stop(self) -> None:
        """Ask the thread to end and let go of the source."""
        self._stopped.set()
        self._wake.set()
        self.probe.source.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; False: its source hangs, and the thread is left to end with the process."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            with self._lock:
                self._began_s = began_s = self._clock()
            sample = self._read(began_s)
            took_s = self._clock() - began_s
            in_time = took_s <= self._deadline_s
            with self._lock:
                self._began_s = None
                self._late = "" if in_time else f"answered only after {took_s:.1f} s"
                if in_time:
                    self._sample = sample = replace(sample, took_s=took_s)
            if self._stopped.is_set():
                break
            if in_time:
                self._on_sample(self.probe, sample)
            self._wake.wait(self._interval_s(sample))
        self.probe.source.finish()

    def _read(self, began_s: float) -> Sample:
        try:
            return Sample(began_s, self.probe.source.read())
        except Absent as error:
            return Sample(began_s, problem=str(error), absent=True)
        except ProbeError as error:
            return Sample(began_s, problem=str(error))
        except Exception as error:
            if not self._stopped.is_set():
                log.debug("Probe %s failed.", self.probe.name, exc_info=error)
            return Sample(began_s, problem=f"failed ({type(error).__name__}: {error})")

    def _interval_s(self, sample: Sample) -> float:
        if sample.absent:
            return ABSENT_INTERVAL_S
        close = self.probe.close_interval_s
        return close if self._close and close is not None else self.probe.interval_s


class WatchThread:
    """Keeps one watch running: begins again, later and later, when its connection ends."""

    def __init__(self, watch: Watch, say: Callable[[SystemEvent], None]) -> None:
        self.watch = watch
        self._say = say
        self._stopped = threading.Event()
        self._pause_s = FIRST_PAUSE_S
        self._thread = threading.Thread(target=self._work, name=f"watch-{watch.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self.watch.stop()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                self.watch.run(self._heard)
            except Absent as error:
                log.debug("Watch %s: %s", self.watch.name, error)
                self._pause_s = ABSENT_INTERVAL_S
            except ProbeError as error:
                log.debug("Watch %s: %s", self.watch.name, error)
            except Exception as error:
                if not self._stopped.is_set():
                    log.debug("Watch %s failed.", self.watch.name, exc_info=error)
            self._stopped.wait(self._pause_s)
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _heard(self, event: SystemEvent) -> None:
        self._pause_s = FIRST_PAUSE_S
        if not self._stopped.is_set():
            self._say(event)
