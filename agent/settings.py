"""The agent's settings and data folder: `agent.toml`, what the command line overrides, and where things lie.

agent.toml     settings (optional)
identity/      key, certificate, authorities
store/         model files by SHA-256        stages/   what is loaded, as links into the store
state.json     what the running agent last said of itself
agent.lock     held while an agent runs or enrols
agent.log      what it logs, and full ones beside it as agent.log.1 and so on
gates/         one page a loaded stage, shared with its process      history.sqlite   what this PC contributed
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
import platformdirs

from agent.folder_lock import FolderBusy, FolderLock
from agent.kept import replace_file

LOG_NAME = "agent.log"

LinkState = Literal["starting", "connecting", "connected", "refused", "stopped"]


class SettingsError(Exception):
    """The settings cannot be used: one sentence, what happened and what to do."""

    exit_code = 15


class DataFolderBusy(SettingsError):
    """Another agent works in the data folder."""

    exit_code = 17


def lock_folder(folder: Path) -> FolderLock:
    """Keep other agents out of a data folder; release it at the end. Raises DataFolderBusy or OSError.

    Two agents in one folder would be two PCs with one identity, and the console would hold both.
    """
    lock = FolderLock(folder / "agent.lock")
    try:
        lock.acquire()
    except FolderBusy:
        raise DataFolderBusy(
            f"Another Fallow agent already works in {folder}; stop it, or choose another folder with --data."
        ) from None
    return lock


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be set in `agent.toml`. 0 and an empty list mean: no limit, OpenVINO's choice, not pinned."""

    volunteer: Literal["away", "always"] = "away"
    """`away`: work only while nobody needs this PC. `always`: look at nothing and always work, below no other program;
    for machines that do nothing else, such as servers and test fleets. The owner's orders count in both."""
    watts: float = 30.0
    """What computing takes beyond what this PC takes anyway, for the estimate of energy."""
    memory_mb: int = 0
    threads: int = 0
    cores: list[int] = []
    direct_links: bool = True
    """Whether this PC may talk to other PCs, if the console lets them: pass steps on, give and get model files."""
    direct_ports: tuple[int, int] = (8470, 8479)
    """First and last port to listen on for other PCs, the first for stage links alone; (0, 0): any free ones."""
    direct_address: str = ""
    """`IP:port` that other PCs are told to reach this one at, where something forwards it to the first of
    `direct_ports`; empty: the address this PC has towards the console."""
    store_gb: float = 0
    """What model files may take on the disk (10^9 bytes)."""
    fetch_mbit: float = 0
    """How fast model files may come and go, all together (10^6 bits a second), in `fetch_hours`."""
    update_channel: Literal["stable", "beta"] = "stable"
    """Which releases this agent updates itself to, where it does."""
    fetch_hours: tuple[int, int] = (0, 0)
    """When `fetch_mbit` applies: from one hour to another, local time; equal hours: always."""


class LoadedStage(msgspec.Struct, frozen=True):
    """One stage of the running agent, for people."""

    pipeline: int
    stage: int
    first: int
    last: int
    engine: str
    device: str


class AgentState(msgspec.Struct, frozen=True):
    """Content of state.json. `updated_s` is Unix time; `message` says why the agent is not connected."""

    link: LinkState
    process_id: int
    updated_s: float
    device_id: str = ""
    console_url: str = ""
    message: str = ""
    stages: list[LoadedStage] = []


def default_data_folder() -> Path:
    """Return this user's data folder: never a roaming one, because the identity belongs to this PC."""
    return platformdirs.user_data_path("fallow-agent", appauthor=False, roaming=False)


def load_settings(
    folder: Path,
    *,
    volunteer: str | None = None,
    memory_mb: int | None = None,
    threads: int | None = None,
    cores: list[int] | None = None,
) -> AgentSettings:
    """Read `agent.toml` and lay the given values over it. Raises SettingsError."""
    path = folder / "agent.toml"
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        values = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read ({error}); correct or delete it.") from None
    given = {"volunteer": volunteer, "memory_mb": memory_mb, "threads": threads, "cores": cores}
    values.update({name: value for name, value in given.items() if value is not None})
    try:
        settings = msgspec.convert(values, AgentSettings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"The agent's settings are not valid ({error}); correct {path} or the options.") from None
    _check(settings, path)
    return settings


def _check(settings: AgentSettings, path: Path) -> None:
    cores = os.cpu_count() or 1
    if not (0 <= settings.store_gb < 1e6 and 0 <= settings.fetch_mbit < 1e6):
        raise SettingsError(f"store_gb and fetch_mbit must not be negative; correct {path}.")
    if any(not 0 <= hour <= 24 for hour in settings.fetch_hours):
        raise SettingsError(f"fetch_hours are two hours between 0 and 24; correct {path}.")
    if not 0 <= settings.watts < 1e4:
        raise SettingsError(f"watts must lie between 0 and 10000; correct {path}.")
    if settings.memory_mb < 0 or settings.threads < 0:
        raise SettingsError(f"memory_mb and threads must not be negative; correct {path} or the options.")
    first, last = settings.direct_ports
    if not 0 <= first <= last <= 65535:
        raise SettingsError(f"direct_ports must be two ports, the lower one first; correct {path}.")
    if settings.direct_address and not _is_address(settings.direct_address):
        raise SettingsError(f"direct_address must be an IP address and a port, like 192.0.2.7:8470; correct {path}.")
    if any(not 0 <= core < cores for core in settings.cores):
        raise SettingsError(f"cores must lie between 0 and {cores - 1} on this PC; correct {path} or the options.")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    try:
        return bool(ipaddress.ip_address(host.strip("[]"))) and 0 < int(port) <= 65535
    except ValueError:
        return False


def write_state(folder: Path, state: AgentState) -> None:
    """Replace state.json at once, so that a reader never sees half of it. Raises OSError."""
    replace_file(folder / "state.json", msgspec.json.format(msgspec.json.encode(state)) + b"\n")


def read_state(folder: Path) -> AgentState | None:
    """Return what the agent last said, or None if it never ran. Raises SettingsError for a damaged file."""
    path = folder / "state.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=AgentState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(f"{path} cannot be read ({error}); start the agent again.") from None
