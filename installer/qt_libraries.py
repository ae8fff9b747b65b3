"""The libraries of the operating system that Qt's own wheels leave out, on Linux."""

from __future__ import annotations

import ctypes
import os
import shutil
from typing import TYPE_CHECKING

from installer.children import run_captured
from installer.environment import LibrariesMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# soname -> Debian package
PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}
# What else has to be on the machine that makes a bundle, or the bundle's windows would not start on other desktops.
FOR_BUNDLES = {
    **PACKAGES,
    "libX11-xcb.so.1": "libx11-xcb1",
    "libX11.so.6": "libx11-6",
    "libfreetype.so.6": "libfreetype6",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb.so.1": "libxcb1",
}


def loadable(soname: str) -> bool:
    """Tell whether the dynamic loader finds a library: a file for another architecture would not help Qt."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def missing_libraries(packages: Mapping[str, str] = PACKAGES) -> list[str]:
    """List the sonames that Qt would look for in vain."""
    return [soname for soname in packages if not loadable(soname)]


def install_command(missing: Iterable[str]) -> list[str]:
    """Give the command that brings the missing sonames on Debian, Ubuntu and their kin."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *sorted({FOR_BUNDLES[name] for name in missing})]


def provide(missing: list[str], folder: Path, *, root_user: bool, has_apt: bool) -> None:
    """Install what is missing, or raise `LibrariesMissing` with the command that does."""
    if not missing:
        return
    command = install_command(missing)
    if not has_apt:
        raise LibrariesMissing(f"The windows need libraries: install the packages that bring {', '.join(missing)}.")
    if not root_user:
        raise LibrariesMissing(f"The windows need libraries: run 'sudo {' '.join(command)}' and this command again.")
    run_captured(["apt-get", "update", "-qq"], folder)  # should it fail, the list that is there may do
    code, _ = run_captured(["env", "DEBIAN_FRONTEND=noninteractive", *command, "-qq"], folder)
    if code:
        raise LibrariesMissing(f"apt-get could not install libraries for the windows: run '{' '.join(command)}'.")


def ensure(folder: Path, packages: Mapping[str, str] = PACKAGES) -> None:
    """Make sure that Qt finds its libraries; raises `LibrariesMissing`."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    provide(missing_libraries(packages), folder, root_user=is_root, has_apt=shutil.which("apt-get") is not None)
