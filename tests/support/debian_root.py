"""A fresh Debian in a folder, in which packages are installed for real. Needs root, Linux and a mirror of Debian."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

BOOTSTRAP_S, APT_S = 900.0, 600.0
FRESH_S = 7 * 24 * 3600.0
RELEASE = "bookworm"
CACHE = Path(__file__).resolve().parents[2] / ".fallow" / "tests"
# Every command gets mounts of its own, which end with it: nothing has to be unmounted, whatever happens.
_ENTER = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
    "LANG": "C.UTF-8",
    "HOME": "/root",
}


class RootUnavailable(Exception):
    """No fresh Debian can be made here: the sentence says why."""


class DebianRoot:
    """The folder of a Debian, and commands in there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, words: Sequence[str], user: str = "root") -> list[str]:
        """Return what runs a command in there as a user."""
        as_user = [] if user == "root" else ["runuser", "-u", user, "--", "env", f"HOME={self._account(user)[0]}"]
        return ["unshare", "--mount", "sh", "-c", _ENTER, str(self.folder), *as_user, *words]

    def _account(self, user: str) -> tuple[str, int]:
        """Return a user's home and number."""
        lines = (self.folder / "etc/passwd").read_text().splitlines()
        return next((one[5], int(one[2])) for one in (line.split(":") for line in lines) if one[0] == user)

    def run(self, *words: str, user: str = "root", timeout_s: float = 120.0, **environment: str) -> str:
        """Run a command to its end and return what it printed; fails with that if the command does."""
        done = subprocess.run(
            self.command(words, user), env={**_ENVIRONMENT, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-4000:]}"
        return done.stdout

    def start(self, *words: str, user: str, log: Path, output: int | None = None) -> subprocess.Popen[bytes]:
        """Start a program in there; what it prints goes to a log of ours, standard output to `output` if given."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self.command(words, user), env={**_ENVIRONMENT, "PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
                stdout=output or file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def install(self, package: Path) -> str:
        """Install a package file, or upgrade to it, with what it depends on and nothing else."""
        inside = self.folder / "var/tmp" / package.name  # /tmp is another folder once systemd runs
        shutil.copyfile(package, inside)
        try:
            return self.run(
                "apt-get", "install", "-y", "--no-install-recommends", f"/var/tmp/{package.name}", timeout_s=APT_S
            )
        finally:
            inside.unlink()

    def remove(self, name: str, *, purge: bool = False) -> str:
        """Remove a package, or purge it."""
        return self.run("apt-get", "purge" if purge else "remove", "-y", name, timeout_s=APT_S)

    def holds(self, path: str) -> bool:
        """Whether there is something of this absolute name in there, a broken link included."""
        return os.path.lexists(self.folder / path.lstrip("/"))

    def named(self, word: str) -> list[str]:
        """Return all paths in there whose last part has a word in it, what a start of the machine clears aside."""
        found = self.run("find", "/", "-xdev", "-iname", f"*{word}*").split()
        return sorted(
            path for path in found if not path.startswith(("/var/log/", "/var/cache/", "/tmp/", "/proc/", "/dev/"))
        )


@contextlib.contextmanager
def debian_root(folder: Path) -> Iterator[DebianRoot]:
    """Unpack a minimal Debian into a folder, and delete it at the end. Raises RootUnavailable."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise RootUnavailable("a Debian root is made by root on Linux")
    if shutil.which("mmdebstrap") is None:
        raise RootUnavailable("mmdebstrap is not installed")
    archive = CACHE / f"debian-{RELEASE}.tar"
    if not archive.exists() or archive.stat().st_mtime < time.time() - FRESH_S:
        _bootstrap(archive)
    folder.mkdir()
    try:
        subprocess.run(
            ["tar", "--extract", "--preserve-permissions", "--file", archive, "--directory", folder], check=True
        )
        shutil.copyfile("/etc/resolv.conf", folder / "etc/resolv.conf")
        root = DebianRoot(folder)
        try:
            root.run("apt-get", "update", timeout_s=APT_S)
        except AssertionError as error:
            raise RootUnavailable(f"Debian's mirror does not answer: {str(error)[-200:]}") from None
        yield root
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bootstrap(archive: Path) -> None:
    """Make a minimal Debian as an archive that appears whole. Raises RootUnavailable."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(".partial.tar")
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", RELEASE, str(partial)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOOTSTRAP_S, check=False)
    if done.returncode:
        partial.unlink(missing_ok=True)
        why = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        raise RootUnavailable(f"mmdebstrap could not make a Debian root: {why[0]}")
    partial.replace(archive)
