"""A fresh Debian whose systemd runs, in a container that shares the network of this machine.

Needs what `debian_root` needs, `systemd-nspawn`, and a kernel that lets root make containers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from tests.support.debian_root import APT_S, DebianRoot, RootUnavailable, debian_root

BOOT_S = 120.0
DONE = ("running", "degraded")
"""What systemd says of itself once a start is over."""
PACKAGES = ("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd")
# A group of its own in each tree of groups that systemd uses: two containers in one would be in each other's way.
# setpriv, so that it ends also where its tests were killed.
_START = 'for group in $0; do mkdir "$group"; echo $$ >"$group/cgroup.procs"; done; exec setpriv --pdeathsig TERM "$@"'


class BootedRoot(DebianRoot):
    """A Debian that has been started; `leader` is the process that is number 1 in there."""

    def __init__(self, folder: Path, leader: int) -> None:
        super().__init__(folder)
        self.leader = leader
        self._logged_in: set[str] = set()

    def command(self, words: Sequence[str], user: str = "root") -> list[str]:
        """Return what runs a command in there as a user, with what reaches that user's own systemd."""
        inside = ["nsenter", "--target", str(self.leader), "--all", "--root", "--wd"]
        if user == "root":
            return [*inside, *words]
        home, number = self._account(user)
        environment = [f"HOME={home}", *([f"XDG_RUNTIME_DIR=/run/user/{number}"] if user in self._logged_in else [])]
        return [*inside, "runuser", "-u", user, "--", "env", *environment, *words]

    def systemctl(self, *words: str, user: str = "root") -> str:
        """Tell the machine's systemd something, or that of a user who is logged in."""
        return self.run("systemctl", *(["--user"] if user != "root" else []), *words, user=user)

    def log_in(self, user: str) -> None:
        """Give a user what a login with a desktop gives: a systemd of their own, and a graphical session in it."""
        self.run("loginctl", "enable-linger", user)
        self._logged_in.add(user)
        socket = f"/run/user/{self._account(user)[1]}/systemd/private"
        _wait_for(lambda: self.holds_now(socket), f"the systemd of {user}")
        self.systemctl("start", "dbus.service", user=user)
        self.run(
            "systemd-run", "--user", "--unit=desktop", "--property=BindsTo=graphical-session.target",
            "--property=Before=graphical-session.target", "sleep", "infinity", user=user,
        )  # fmt: skip

    def holds_now(self, path: str) -> bool:
        """Whether there is something of this absolute name, also on what was mounted by the start."""
        done = subprocess.run(self.command(["test", "-e", path]), capture_output=True, check=False)
        return done.returncode == 0


@contextlib.contextmanager
def booted_root(folder: Path) -> Iterator[BootedRoot]:
    """Start a fresh Debian, and stop and delete it at the end. Raises RootUnavailable."""
    if shutil.which("systemd-nspawn") is None:
        raise RootUnavailable("systemd-nspawn is not installed (Debian: apt-get install systemd-container)")
    with debian_root(folder) as root:
        root.run("apt-get", "install", "-y", "--no-install-recommends", *PACKAGES, timeout_s=APT_S)
        name = f"fallow-{os.getpid()}"  # of two containers at once
        groups = [tree / name for tree in _trees()]
        started = ["sh", "-ec", _START, " ".join(map(str, groups))]
        with (folder.parent / "boot.log").open("wb") as log:
            container = subprocess.Popen(
                [*started, "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe",
                 f"--machine={name}", "-D", folder, "--boot"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            yield BootedRoot(folder, _leader(container, folder.parent / "boot.log"))
        finally:
            container.terminate()  # which stops what runs in there in order
            try:
                container.wait(BOOT_S)
            except subprocess.TimeoutExpired:
                container.kill()
                container.wait()
            for group in groups:
                _remove_groups(group)


def _leader(container: subprocess.Popen[bytes], log: Path) -> int:
    """Wait until all that a start does is done; returns the number of its first process."""

    def first() -> int:
        if container.poll() is not None:
            said = log.read_text("utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
            raise RootUnavailable(f"systemd-nspawn cannot start a Debian here: {said[-1]}")
        return next((child.pid for child in psutil.Process(container.pid).children()), 0)

    def has_started() -> bool:
        # Another one at first, which makes the container and ends.
        asked = ["nsenter", "--target", str(first()), "--all", "--root", "systemctl", "is-system-running"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() in DONE

    _wait_for(has_started, "the start of the container")
    return first()


def _trees() -> list[Path]:
    """Where systemd keeps groups of processes here: one tree, or on older systems up to two beside those of others."""
    whole = Path("/sys/fs/cgroup")
    if (whole / "cgroup.controllers").exists():
        return [whole]
    return [tree for tree in (whole / "systemd", whole / "unified") if tree.is_dir()]


def _remove_groups(group: Path) -> None:
    """Remove groups of processes that have ended."""
    if group.exists():
        for inner in [path for path in group.iterdir() if path.is_dir()]:
            _remove_groups(inner)
        with contextlib.suppress(OSError):
            group.rmdir()


def _wait_for(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + BOOT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RootUnavailable(f"{what} did not come within {BOOT_S:.0f} s")
        time.sleep(0.2)
