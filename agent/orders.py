"""What tray and command line may ask of the running agent, and what is done about it. Event loop only."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from agent.children import NO_WINDOW, log_words
from agent.control import protocol as wire
from agent.control.errors import OrderRefused
from agent.control.log_orders import LogLevels, SetLogLevel
from agent.control.status import Status
from agent.history import History
from agent.logs.levels import LEVELS_HERE, LevelRefused
from agent.volunteer import states
from agent.volunteer.clock import steady_s
from agent.volunteer.duty import LONGEST_PAUSE_S, Volunteer
from agent.volunteer.errors import SettingsUnreadable, WishRefused
from agent.volunteer.policy import ROWS
from agent.volunteer.probes.board import Row, value_text
from agent.volunteer.reasons import ReasonCode

log = logging.getLogger(__name__)

SHORTEST_PAUSE_S = 60.0
TOMORROW_HOUR = 4
"""Nobody means midnight who says tomorrow late in the evening."""
DOCTOR_S = 600.0

Tell = Callable[[wire.Told], None]


class Life(Protocol):
    """What orders change beyond the volunteer: the agent's membership and its life; `agent.program.Program` is one."""

    def status(self) -> Status:
        """Describe the agent now."""
        ...

    def probes(self) -> list[Row]:
        """List what each probe sees."""
        ...

    async def enrol(self, invite: str, name: str, tell: Callable[[str, str], None]) -> str:
        """Join a fleet; returns a sentence. Raises OrderRefused."""
        ...

    async def cancel_enrolment(self) -> str:
        """Stop waiting for approval; returns a sentence. Raises OrderRefused."""
        ...

    async def leave(self) -> None:
        """Leave the fleet. Raises OrderRefused."""
        ...

    def stop(self) -> None:
        """End the agent."""
        ...

    async def check_updates(self, *, now: bool) -> str:
        """Ask the console for a newer version; returns a sentence."""
        ...


class Orders:
    """Carries out orders. `now` is Unix time in the local zone."""

    def __init__(
        self,
        folder: Path,
        volunteer: Volunteer,
        history: History,
        life: Life,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now().astimezone(),
    ) -> None:
        self._folder, self._volunteer, self._history, self._life, self._now = folder, volunteer, history, life, now

    def status(self) -> Status:
        """Describe the agent now."""
        return self._life.status()

    async def carry_out(self, order: wire.Order, tell: Tell) -> wire.Answer:
        """Do what a client asks. Raises OrderRefused."""
        try:
            return await self._ways[type(order)](self, order, tell)
        except SettingsUnreadable as error:
            raise OrderRefused(str(error), "failed") from None
        except WishRefused as error:
            raise OrderRefused(str(error), "bad_value") from None

    async def _pause(self, order: wire.Pause, _: Tell) -> wire.Answer:
        if order.until == "resumed":
            self._pause_until(None)
            return wire.Done(order.id, "Paused until you resume.")
        for_s = order.for_s
        if order.until == "tomorrow":
            now = self._now()
            morning = now.replace(hour=TOMORROW_HOUR, minute=0, second=0, microsecond=0)
            for_s = ((morning if morning > now else morning + dt.timedelta(days=1)) - now).total_seconds()
        elif not SHORTEST_PAUSE_S <= for_s <= LONGEST_PAUSE_S:
            raise OrderRefused("A pause lasts between a minute and seven days; or pause until you resume.", "bad_value")
        self._pause_until(steady_s() + for_s)
        end = self._now() + dt.timedelta(seconds=for_s)
        return wire.Done(order.id, f"Paused until {end:%A %H:%M}.")

    def _pause_until(self, until_s: float | None) -> None:
        try:
            self._volunteer.order(states.Pause(until_s))
        except SettingsUnreadable as error:
            raise OrderRefused(f"This PC is paused, but only until its agent ends. {error}", "failed") from None

    async def _resume(self, order: wire.Resume, _: Tell) -> wire.Answer:
        self._volunteer.order(states.Resume())
        by_admin = any(reason.code is ReasonCode.PAUSED_BY_ADMIN for reason in self._volunteer.state.reasons)
        return wire.Done(order.id, "Your pause has ended; the administrator's goes on." if by_admin else "Resumed.")

    async def _release(self, order: wire.Release, _: Tell) -> wire.Answer:
        self._volunteer.order(states.Release())
        return wire.Done(order.id, "The memory is given back now.")

    async def _contribute(self, order: wire.ContributeNow, _: Tell) -> wire.Answer:
        if not self._volunteer.policy.contribute_now:
            raise OrderRefused("The policy does not let this PC start before its time.", "not_allowed")
        self._volunteer.order(states.ContributeNow())
        return wire.Done(order.id, "Starts as soon as nobody touches this PC for a moment.")

    async def _switch(self, order: wire.SwitchDevice, _: Tell) -> wire.Answer:
        if order.device not in {device.name for device in self.status().devices}:
            raise OrderRefused(f"This PC has no device {order.device[:40]!r}; see: fallow-agent status", "unknown")
        off = set(self._volunteer.keeper.owner.wishes.devices_off or ())
        off = off - {order.device} if order.on else off | {order.device}
        self._volunteer.keeper.change("devices_off", sorted(off) or None)
        self._volunteer.policy_changed()
        (shown,) = (device for device in self.status().devices if device.name == order.device)
        if order.on and not shown.on:
            who = "the administrator does" if shown.set_by == "admin" else "your other settings do"
            return wire.Done(order.id, f"Kept, but {who} not let {order.device} be used.")
        return wire.Done(order.id, f"{order.device} is {'used' if order.on else 'not used any more'}.")

    async def _set(self, order: wire.ChangeSetting, _: Tell) -> wire.Answer:
        if order.field not in ROWS:
            raise OrderRefused(f"There is no setting {order.field[:40]!r}; see: fallow-agent policy", "unknown")
        self._volunteer.keeper.change(order.field, order.value)
        self._volunteer.policy_changed()
        row = next(row for row in self.status().policy if row.field == order.field)
        if order.value is not None and row.set_by != "employee" and row.value != order.value:
            return wire.Done(order.id, f"Kept, but {row.set_by} is tighter: {row.value}.")
        return wire.Done(order.id, "Kept.")

    async def _query(self, order: wire.QueryHistory, _: Tell) -> wire.Answer:
        ask = self._history.hours if order.by == "hour" else self._history.days
        return wire.History(order.id, ask(order.from_s, order.to_s))

    async def _doctor(self, order: wire.RunDoctor, _: Tell) -> wire.Answer:
        # In a process of its own: it loads a layer, and the agent should stay small.
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agent", "doctor", "--data", str(self._folder), "--json",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            creationflags=NO_WINDOW,
        )  # fmt: skip
        try:
            async with asyncio.timeout(DOCTOR_S):
                out, err = await child.communicate()
            log_words(log, "doctor", err)
            found = msgspec.convert(json.loads(out)["findings"], list[wire.FindingShown])
        except (TimeoutError, ValueError, KeyError) as error:
            raise OrderRefused("The doctor did not finish; run `fallow-agent doctor`.", "failed") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        return wire.Findings(order.id, found)

    async def _probes(self, order: wire.AskProbes, _: Tell) -> wire.Answer:
        rows = self._life.probes()
        shown = [
            wire.ProbeShown(row.fact, "" if row.value is None else value_text(row), row.probe, row.age_s)
            for row in rows
        ]
        return wire.Probes(order.id, shown)

    async def _log_level(self, order: SetLogLevel, _: Tell) -> wire.Answer:
        try:
            if order.level:
                LEVELS_HERE.set(order.logger, order.level, order.for_s)
                log.info("%s is logged from %s on.", order.logger, order.level)
        except LevelRefused as error:
            raise OrderRefused(str(error), "bad_value") from None
        return LogLevels(order.id, LEVELS_HERE.all())

    async def _enrol(self, order: wire.Enrol, tell: Tell) -> wire.Answer:
        said = await self._life.enrol(
            order.invite, order.name, lambda phase, text: tell(wire.Told(order.id, phase, text))
        )
        return wire.Done(order.id, said)

    async def _cancel_enrolment(self, order: wire.CancelEnrolment, _: Tell) -> wire.Answer:
        return wire.Done(order.id, await self._life.cancel_enrolment())

    async def _leave(self, order: wire.Leave, _: Tell) -> wire.Answer:
        await self._life.leave()
        return wire.Done(order.id, "This PC has left the fleet.")

    async def _quit(self, order: wire.Quit, _: Tell) -> wire.Answer:
        if not self._volunteer.policy.quit_allowed:
            raise OrderRefused("The administrator does not let this agent be ended; pause it instead.", "not_allowed")
        # After the answer has left.
        asyncio.get_running_loop().call_later(0.1, self._life.stop)
        return wire.Done(order.id, "The agent ends.")

    async def _check_update(self, order: wire.CheckUpdate, _: Tell) -> wire.Answer:
        return wire.Done(order.id, await self._life.check_updates(now=order.now))

    _ways: dict[type, Callable[..., Awaitable[wire.Answer]]] = {  # noqa: RUF012 - written here, once
        wire.Pause: _pause,
        wire.Resume: _resume,
        wire.Release: _release,
        wire.ContributeNow: _contribute,
        wire.SwitchDevice: _switch,
        wire.ChangeSetting: _set,
        wire.QueryHistory: _query,
        wire.RunDoctor: _doctor,
        wire.AskProbes: _probes,
        wire.Enrol: _enrol,
        wire.CancelEnrolment: _cancel_enrolment,
        wire.Leave: _leave,
        wire.Quit: _quit,
        wire.CheckUpdate: _check_update,
        SetLogLevel: _log_level,
    }
