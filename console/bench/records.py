"""Load tests that are kept: one JSON file each, in the folder `bench` of the data folder. Blocking."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from agent.link.parsing import UNREADABLE
from console.bench.figures import Figures
from console.bench.load import Load
from console.data import prepare, write_whole
from console.errors import ClientError, UsageWrong

LAST = "last"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
MOST_BYTES = 4 << 20


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One load test. `served` says in a line for each pipeline how the model was deployed, where that could be read."""

    name: str
    made_s: float
    version: str
    load: Load
    levels: list[Figures]
    served: list[str] = []
    interrupted: bool = False


class Runs:
    """The load tests of a data folder. Raises ClientError kinds."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "bench"

    def all(self) -> list[Run]:
        """List them, the oldest first; files that are none are left out."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                found.append(_read(path))
            except (OSError, *UNREADABLE):
                continue
        return sorted(found, key=lambda run: run.made_s)

    def find(self, name: str, model: str = "") -> Run:
        """Return a run by its name; `last` is the latest whole one, of a model where one is given."""
        if name == LAST:
            whole = [run for run in self.all() if not run.interrupted and run.load.model == (model or run.load.model)]
            if not whole:
                raise ClientError(f"There is no earlier load test{f' of {model}' if model else ''}; run one first.")
            return whole[-1]
        path = self._path(name)
        try:
            return _read(path)
        except FileNotFoundError:
            raise ClientError(f"There is no load test {name}; see: fallow-console bench list") from None
        except (OSError, *UNREADABLE) as error:
            raise ClientError(f"The load test {path} cannot be read: {error}.") from None

    def check_free(self, name: str) -> None:
        """Raise UsageWrong for a name that cannot be one, or is taken."""
        if name == LAST or self._path(name).exists():
            raise UsageWrong(f"There is a load test {name} already; choose another --name.")

    def keep(self, run: Run) -> Path:
        """Write a run, for its owner only; returns where. Raises DataFolderUnusable."""
        path = self._path(run.name)
        prepare(self._folder)
        write_whole(path, msgspec.json.format(msgspec.json.encode(run)) + b"\n", mode=0o600)
        return path

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageWrong(f"{name[:100]!r} is no name of a load test; use letters, digits, dots and dashes.")
        return self._folder / f"{name}.json"


def name_for(model: str, stamp: str) -> str:
    """Return a name for a run of a model at a time."""
    return f"{_UNFIT.sub('-', model).strip('-._')[:60] or 'model'}-{stamp}"


def _read(path: Path) -> Run:
    with path.open("rb") as file:
        return msgspec.json.decode(file.read(MOST_BYTES), type=Run)
