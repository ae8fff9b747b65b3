r"""What the machine's administrator wants without a console: group policy, below HKLM\Software\Policies\Fallow.

A value has the name of a row of the policy and one of three forms, by the row's kind: a number (switches are 1 or 0,
times are seconds), a text as people type it (`8GiB`, `Mon-Fri 20:00-06:00`), or a list of texts. It joins what the
console's policy says, the tightest wins, and it never expires. Windows itself keeps others from writing there.

Values that cannot be taken never loosen anything: while there is one, the administrator has paused this PC.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import ROWS, Kind, Wishes
from agent.volunteer.wishes import from_plain, from_text

log = logging.getLogger(__name__)

KEY: Final = r"Software\Policies\Fallow"
REFRESH_S: Final = 60.0
"""Windows renews group policy every hour and a half by itself; this only follows it soon."""
Value = int | str | list[str]
Form = Literal["number", "text", "list"]
FORMS: Mapping[Kind, Form] = {
    "switch": "number",
    "number": "number",
    "seconds": "number",
    "percent": "number",
    "bytes": "text",
    "schedule": "text",
    "names": "list",
}
"""How a row of each kind is kept: REG_DWORD, REG_SZ or REG_MULTI_SZ."""
HELD: Final = Wishes(paused=True)


class Source(Protocol):
    """Where the values are."""

    def read(self) -> Mapping[str, Value]:
        """Return all values by name; none, if no policy is set. Raises OSError."""
        ...


class GroupPolicy:
    """Reads a source again when what is known is a minute old; for one thread. Never raises."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._wishes, self._said = Wishes(), ""
        self._read_s = float("-inf")

    def wishes(self, now_s: float) -> Wishes:
        """Return what is wanted at this Unix time."""
        if not self._read_s <= now_s < self._read_s + REFRESH_S:
            self._read_s = now_s
            self._wishes, problem = self._look()
            if problem and problem != self._said:
                log.warning("%s", problem)
            self._said = problem
        return self._wishes

    def _look(self) -> tuple[Wishes, str]:
        try:
            return wishes_of(self._source.read())
        except OSError as error:
            return HELD, f"The group policy cannot be read ({error.strerror or error}), so this PC is paused."


def wishes_of(values: Mapping[str, Value]) -> tuple[Wishes, str]:
    """Return what the values ask for, and a sentence about the first that cannot be taken; empty: all can. Pure.

    Names that are no row are of a newer agent, and left alone.
    """
    taken: dict[str, Any] = {}
    for name, value in values.items():
        row = ROWS.get(name.lower())
        if row is None:
            continue
        try:
            taken[name.lower()] = _taken(name.lower(), FORMS[row.kind], value)
        except WishRefused as error:
            return HELD, f"The group policy is not taken, so this PC is paused: {error}"
    return Wishes(**taken), ""


def _taken(name: str, form: Form, value: Value) -> Any:
    kind = ROWS[name].kind
    if form == "number" and isinstance(value, int):
        if kind == "switch" and value not in (0, 1):
            raise WishRefused(f"{name} is 1 or 0, and {value} is neither.")
        return from_plain(name, bool(value) if kind == "switch" else value)
    if form == "text" and isinstance(value, str):
        return from_text(name, value)
    if form == "list" and isinstance(value, list):
        return from_plain(name, [one.strip() for one in value if one.strip()])
    raise WishRefused(f"{name} has to be kept as a {form}; set it through the policy's template.")


class Registry:
    """The values of the key on Windows, in the 64-bit view."""

    def __init__(self, winreg: Any = None) -> None:
        """`winreg` is the module of that name."""
        self._winreg = winreg or importlib.import_module("winreg")

    def read(self) -> dict[str, Value]:
        """Return all values; Windows keeps numbers, texts and lists apart by itself. Raises OSError."""
        reg = self._winreg
        try:
            key = reg.OpenKey(reg.HKEY_LOCAL_MACHINE, KEY, 0, reg.KEY_READ | reg.KEY_WOW64_64KEY)
        except FileNotFoundError:
            return {}
        with key:
            count = reg.QueryInfoKey(key)[1]
            return {name: value for name, value, _ in (reg.EnumValue(key, place) for place in range(count))}


def wishes_of_machine() -> Callable[[float], Wishes]:
    """Return what asks this machine's group policy; on other systems than Windows nobody says anything."""
    if sys.platform == "win32":
        return GroupPolicy(Registry()).wishes
    return lambda now_s: Wishes()
