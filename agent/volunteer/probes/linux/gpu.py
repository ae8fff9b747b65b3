"""What programs ask of the GPU and NPU on Linux: engine time and memory from `/proc/PID/fdinfo`.

The kernel tells it per open file of a DRM device, for the processes of this user only: those of the desktop that
somebody looks at are among them. Field names: Documentation/gpu/drm-usage-stats.rst of the Linux kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.volunteer.probes.base import Absent, Seen, Unreadable
from agent.volunteer.probes.load import own_pids
from agent.volunteer.probes.reading import Simple

PROC = Path("/proc")
DEVICES = (Path("/dev/dri"), Path("/dev/accel"))
FULL_SCAN_S = 30.0
"""Every process's files are looked through this often; between, only new processes' and those known to use a device."""
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LEAST_SPAN_S = 0.2


@dataclass
class Client:
    """One user of a device: the processes that hold it, nanoseconds or cycles per engine, resident bytes by region."""

    device: str
    pids: set[int]
    busy_ns: dict[str, int] = field(default_factory=dict)
    cycles: dict[str, tuple[int, int]] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    resident_bytes: dict[str, int] = field(default_factory=dict)


def parse_fdinfo(text: str) -> tuple[str, Client] | None:
    """Return a client and its id, or None for what is no DRM file. Numbers that make no sense are left out. Pure."""
    fields = dict[str, str]()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if "drm-client-id" not in fields:
        return None
    client = Client(fields.get("drm-pdev") or fields.get("drm-driver", ""), set())
    for name, value in fields.items():
        number = _amount(value)
        if number is not None:
            _take(client, name, number, fields)
    return f"{client.device}/{fields['drm-client-id']}", client


def _take(client: Client, name: str, number: int, fields: Mapping[str, str]) -> None:
    for prefix, into in (
        ("drm-engine-capacity-", client.capacity),
        ("drm-engine-", client.busy_ns),
        ("drm-resident-", client.resident_bytes),
        ("drm-memory-", client.resident_bytes),  # the older name of the same, with amdgpu
    ):
        if name.startswith(prefix):
            into.setdefault(name.removeprefix(prefix), number)
            return
    if name.startswith("drm-cycles-"):
        engine = name.removeprefix("drm-cycles-")
        total = _amount(fields.get(f"drm-total-cycles-{engine}", ""))
        if total is not None:
            client.cycles[engine] = (number, total)


class GpuClients:
    """Finds every client of a DRM device that this user may see. One thread."""

    def __init__(self, clock: Callable[[], float], *, proc: Path = PROC, devices: Iterable[Path] = DEVICES) -> None:
        self._clock = clock
        self._proc = proc
        self._devices = tuple(devices)
        self._files: dict[int, set[str]] = {}
        self._pids: set[int] = set()
        self._full_at_s: float | None = None

    def read(self) -> dict[str, Client]:
        """Return the clients by id. Raises Absent on a PC without such a device."""
        if not any(folder.is_dir() for folder in self._devices):
            raise Absent("this PC has no GPU that the kernel drives")
        self._find()
        found = dict[str, Client]()
        for pid, names in list(self._files.items()):
            for name in list(names):
                try:
                    parsed = parse_fdinfo((self._proc / str(pid) / "fdinfo" / name).read_text("ascii", "replace"))
                except OSError:
                    parsed = None
                if parsed is None:
                    names.discard(name)  # closed, or another file by now
                    continue
                key, client = parsed
                found.setdefault(key, client).pids.add(pid)
            if not names:
                del self._files[pid]
        return found

    def _find(self) -> None:
        now_s = self._clock()
        pids = {int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit()}
        full = self._full_at_s is None or now_s - self._full_at_s >= FULL_SCAN_S
        if full:
            self._full_at_s = now_s
        for pid in pids if full else pids - self._pids:
            names = self._device_files(pid)
            if names:
                self._files[pid] = names
        for pid in self._files.keys() - pids:
            del self._files[pid]
        self._pids = pids

    def _device_files(self, pid: int) -> set[str]:
        folder = self._proc / str(pid) / "fd"
        found = set[str]()
        with contextlib.suppress(OSError):  # it ended, or belongs to somebody else
            for file in folder.iterdir():
                with contextlib.suppress(OSError):
                    if file.readlink().parent in self._devices:
                        found.add(file.name)
        return found


class OtherGpu(Simple):
    """The busiest engine's share that others use: since the last read, our own process tree left out."""

    def __init__(
        self, clients: GpuClients, clock: Callable[[], float], own: Callable[[], frozenset[int]] = own_pids
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._own = own
        self._before: dict[str, Client] | None = None
        self._at_s = 0.0
        self._percent: float | None = None
        self._tells = False
        """Whether the driver ever told of a program."""

    def read(self) -> Seen:
        now_s = self._clock()
        if self._percent is not None and now_s - self._at_s < LEAST_SPAN_S:
            return {"other_gpu_percent": self._percent}
        clients = self._clients.read()
        before, span_s = self._before, now_s - self._at_s
        self._before, self._at_s = clients, now_s
        self._tells = self._tells or bool(clients)
        if not self._tells:
            raise Unreadable("no program tells what it asks of a GPU")
        if before is None or span_s <= 0:
            raise Unreadable("two reads are needed")
        own = self._own()
        others = {key: client for key, client in clients.items() if not client.pids & own}
        self._percent = busiest_percent(before, others, span_s)
        return {"other_gpu_percent": self._percent}


def busiest_percent(before: Mapping[str, Client], after: Mapping[str, Client], span_s: float) -> float:
    """Return the busiest engine's share, 0-100, of the clients in `after`; one that is new counts from the next on."""
    shares = dict[tuple[str, str], float]()
    for key, client in after.items():
        old = before.get(key)
        if old is None:
            continue
        for engine, now_ns in client.busy_ns.items():
            share = (now_ns - old.busy_ns.get(engine, now_ns)) / (span_s * 1e9) / max(1, client.capacity.get(engine, 1))
            _add(shares, (client.device, engine), share)
        for engine, (cycles, total) in client.cycles.items():
            old_cycles, old_total = old.cycles.get(engine, (cycles, total))
            if total > old_total:
                share = (cycles - old_cycles) / (total - old_total) / max(1, client.capacity.get(engine, 1))
                _add(shares, (client.device, engine), share)
    return min(100.0, 100 * max(shares.values(), default=0.0))


def _add(shares: dict[tuple[str, str], float], key: tuple[str, str], share: float) -> None:
    shares[key] = shares.get(key, 0.0) + max(0.0, share)  # a counter that was reset is no work


def _amount(text: str) -> int | None:
    """Parse `123 ns`, `4096 KiB` or `7`; None for anything else."""
    number, _, unit = text.partition(" ")
    if not number.isdecimal() or len(number) > 20:
        return None
    return int(number) * UNITS.get(unit.strip(), 1)
