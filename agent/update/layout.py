"""Versions side by side in one folder, and which one is the program. Blocking; raises OSError.

    ROOT/versions/1.4.0/       a whole program, its folder as it was built
    ROOT/versions/.../         a name that begins with a dot is something unfinished, or on its way out
    ROOT/current               the version that proved itself last: a link, or on Windows a file with its name
    ROOT/update/               how far an update is (progress.json) and what is trusted (trusted/)

A version appears in `versions` whole, by a rename; `current` is replaced by a rename as well. So whatever is killed
when, `current` names a whole version.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from agent.update.errors import InstallationBroken, ReleaseRefused
from agent.update.files import sync_folder, sync_tree, write_whole
from agent.update.releases import parse_version

PROGRAM = "fallow-agent.exe" if sys.platform == "win32" else "fallow-agent"
POINTER = "current.txt" if sys.platform == "win32" else "current"
MAX_POINTER_BYTES = 100
MANAGED = "managed"
"""A file beside the program: whoever installed it (its first line says who) also updates it."""


class Installation:
    """One folder of versions; `program` is the name of the executable in each."""

    def __init__(self, root: Path, program: str = PROGRAM) -> None:
        self.root = root
        self.versions = root / "versions"
        self.work = root / "update"
        self.trusted = self.work / "trusted"
        self._name = program
        self._pointer = root / POINTER

    def prepare(self) -> None:
        """Make the folder an update works in."""
        self.work.mkdir(exist_ok=True)

    def folder(self, version: str) -> Path:
        """Where a version lies or would lie."""
        return self.versions / version

    def program(self, version: str) -> Path:
        """Where a version's executable lies or would lie."""
        return self.folder(version) / self._name

    def current_program(self) -> Path:
        """Where the executable of the current version is found from outside, through what names that version.

        Never what a running program starts itself by: what it loads later would come from another version.
        """
        return (self._pointer / self._name) if self._links else self.program(self.current())

    @property
    def _links(self) -> bool:
        return sys.platform != "win32"

    def current(self) -> str:
        """Return the version that proved itself last. Raises InstallationBroken."""
        try:
            if self._links:
                name = Path(os.readlink(self._pointer)).name  # noqa: PTH115 - Path.readlink is the same and longer
            else:
                name = self._pointer.read_bytes()[:MAX_POINTER_BYTES].decode("ascii").strip()
            parse_version(name)
        except (OSError, ValueError, ReleaseRefused):
            raise InstallationBroken(f"{self._pointer} does not name a version; install the program again.") from None
        if not self.program(name).is_file():
            raise InstallationBroken(f"{self.folder(name)} is not whole; install the program again.")
        return name

    def has(self, version: str) -> bool:
        """Whether a version is here, whole."""
        return self.program(version).is_file()

    def new_folder(self) -> Path:
        """Make an empty folder for a version to be unpacked into; nobody takes it for one."""
        return Path(tempfile.mkdtemp(prefix=".new-", dir=self.versions))

    def place(self, unpacked: Path, version: str) -> None:
        """Let an unpacked folder be a version. Raises InstallationBroken if it holds no program."""
        program = unpacked / self._name
        if program.is_symlink() or not program.is_file():
            raise InstallationBroken(f"The release holds no {self._name}; build it again.")
        unpacked.chmod(0o755)
        sync_tree(unpacked)
        if self.folder(version).exists():
            self._discard(self.folder(version))
        unpacked.rename(self.folder(version))
        sync_folder(self.versions)

    def switch(self, version: str) -> None:
        """Make a version the current one, at once. Raises InstallationBroken if it is not here."""
        if not self.has(version):
            raise InstallationBroken(f"{version} is not in {self.versions}; install it again.")
        if not self._links:
            write_whole(self._pointer, version.encode())
            return
        fresh = self.root / f".{POINTER}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path("versions") / version)
        fresh.replace(self._pointer)
        sync_folder(self.root)

    def remove(self, version: str) -> None:
        """Delete a version that is not the current one."""
        if version != self.current() and self.folder(version).exists():
            self._discard(self.folder(version))

    def prune(self, keep: Collection[str]) -> None:
        """Delete every version but these, and what killed updates left. The current one stays in any case."""
        keep = {*keep, self.current()}
        for path in list(self.versions.iterdir()):
            if path.name.startswith("."):
                _remove(path)
            elif path.name not in keep and _is_version(path.name):
                self._discard(path)

    def clear(self) -> None:
        """Delete what killed updates left."""
        for path in self.versions.glob(".*"):
            _remove(path)

    def _discard(self, folder: Path) -> None:
        """Delete a version; it is none any more before its first file goes."""
        going = Path(tempfile.mkdtemp(prefix=".old-", dir=self.versions))
        folder.rename(going / folder.name)
        _remove(going)


def find_installation(program: Path) -> Installation | None:
    """Return the installation that a running program belongs to; None: it does not lie among versions."""
    folder = program.resolve().parent
    if folder.parent.name != "versions" or not _is_version(folder.name):
        return None
    return Installation(folder.parent.parent, program.name)


def running_program() -> Path:
    """Return this process's program: the executable of a bundle, else the script that was started."""
    return Path(sys.executable if getattr(sys, "frozen", False) else sys.argv[0])


def who_manages(program: Path) -> str:
    """Return who else updates this program ("deb", "msi"); empty: nobody."""
    try:
        with (program.resolve().parent / MANAGED).open("rb") as file:
            words = file.read(100).decode("utf-8", "replace").split()
    except OSError:
        return ""
    return words[0] if words else "a package"


def _is_version(name: str) -> bool:
    try:
        parse_version(name)
    except ReleaseRefused:
        return False
    return True


def _remove(path: Path) -> None:
    """Delete a tree, also what is not writable in it."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
        return
    if sys.platform == "win32":
        for inside in path.rglob("*"):
            inside.chmod(stat.S_IWRITE)
    shutil.rmtree(path, ignore_errors=True)
