"""Makes a bundle: a venv of the role's own, PyInstaller in there, then licences and parts list."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from installer import qt_libraries
from installer.children import run_captured
from installer.environment import LibrariesMissing
from installer.packaging.errors import BuildFailed
from installer.packaging.roles import Role, modules_of

TOOLS_EXTRA = "package"
PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet")
_HERE = Path(__file__).resolve().parent
_LINKS = os.name == "posix"
"""Whether the programs of a bundle are one and links to it: each of its own would hold all our modules again."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Places:
    """Where one role is built: `work` may be deleted at any time, `bundle` is the result."""

    root: Path
    work: Path
    bundle: Path

    @property
    def venv(self) -> Path:
        return self.work / "venv"

    @property
    def python(self) -> Path:
        """The Python of the venv."""
        return self.venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def told(self) -> Path:
        """What bundle.spec is told."""
        return self.work / "told.json"

    @property
    def taken(self) -> Path:
        """What bundle.spec says it took."""
        return self.work / "taken.json"


def places_of(root: Path, role: Role) -> Places:
    """Return the places of a role in a source tree."""
    name = f"fallow-{role.name}"
    return Places(root, root / "build" / name, root / "dist" / name)


def project_version(root: Path) -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def freeze(role: Role, root: Path, say: Say) -> Path:
    """Make the bundle of a role and return its folder. Raises PackagingError or OSError."""
    places = places_of(root, role)
    places.work.mkdir(parents=True, exist_ok=True)
    say(f"{role.title}: preparing its environment")
    provide_libraries(role, root)
    wheel = prepare_venv(role, places)
    say(f"{role.title}: freezing (minutes)")
    told = told_of(role, places, wheel)
    places.told.write_text(json.dumps(told, indent=1), "utf-8")
    shutil.rmtree(places.bundle, ignore_errors=True)
    # Beside it nothing of this tree is found, which would be taken instead of what is installed in the venv.
    specification = Path(shutil.copy(_HERE / "bundle.spec", places.work))
    run(
        [places.python, "-I", "-m", "PyInstaller", "--noconfirm", "--clean", "--log-level", "WARN",
         "--distpath", places.bundle.parent, "--workpath", places.work / "pyinstaller", specification],
        places.work, f"Freezing the {role.title}", FALLOW_BUNDLE=str(places.told), PYTHONHASHSEED="0",
    )  # fmt: skip
    for program in role.programs[1:] if _LINKS else ():
        (places.bundle / program.name).symlink_to(role.programs[0].name)
    strip(places.bundle)
    say(f"{role.title}: licences and parts list")
    run([places.python, "-m", "installer.packaging.finishing", places.told, places.bundle], root, "Listing the parts")
    check_size(role, places.bundle, say)
    return places.bundle


def provide_libraries(role: Role, root: Path) -> None:
    """Make sure that what Qt links to is here to be taken along. Raises BuildFailed with the command that brings it."""
    if sys.platform != "linux" or "gui" not in role.extras:
        return
    try:
        qt_libraries.ensure(root, qt_libraries.FOR_BUNDLES)
    except LibrariesMissing as error:
        raise BuildFailed(str(error)) from None


def prepare_venv(role: Role, places: Places) -> Path:
    """Bring the venv to what pyproject.toml asks for this role, with this tree's own packages; return their wheel."""
    extras = sorted({*role.extras, TOOLS_EXTRA})
    wanted = fingerprint((places.root / "pyproject.toml").read_text("utf-8"), extras)
    stamp = places.venv / "fallow.stamp"
    ready = stamp.exists() and stamp.read_text("ascii") == wanted
    if not ready:
        run([sys.executable, "-m", "venv", "--clear", places.venv], places.work, "Making a venv")
        run([places.python, *PIP, "install", "--upgrade", "pip"], places.work, "Updating pip")
    wheels = places.work / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    run([places.python, *PIP, "wheel", "--no-deps", "--wheel-dir", wheels, places.root], places.work, "Making a wheel")
    (wheel,) = wheels.iterdir()
    if ready:
        run([places.python, *PIP, "install", "--force-reinstall", "--no-deps", wheel], places.work, "Installing it")
    else:
        named = f"{wheel}[{','.join(extras)}]"
        run([places.python, *PIP, "install", "--no-compile", named], places.work, "Installing what the bundle needs")
        stamp.write_text(wanted, "ascii")
    return wheel


def fingerprint(project_file: str, extras: list[str]) -> str:
    """Name what a venv with these extras holds: the requirements and the Python."""
    project = tomllib.loads(project_file)["project"]
    needed = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return hashlib.sha256(json.dumps([needed, sys.version]).encode()).hexdigest()


def told_of(role: Role, places: Places, wheel: Path) -> dict[str, object]:
    """Return what bundle.spec is told, and write the names its programs know."""
    known = places.work / "programs.json"
    names = {program.name: program.module for program in role.programs}
    known.write_text(json.dumps({"programs": names, "children": role.children}), "utf-8")
    assets = places.root / "assets"
    return {
        "name": places.bundle.name,
        "title": role.title,
        "version": project_version(places.root),
        "entry": str(shutil.copy(_HERE / "entry.py", places.work)),
        "trimming": str(_HERE / "trimming.py"),
        "taken": str(places.taken),
        "ours": [str(assets), str(_HERE), str(places.work)],
        "supplements": str(assets / "licences"),
        "programs": [asdict(program) for program in role.programs],
        "frozen": [asdict(program) for program in (role.programs[:1] if _LINKS else role.programs)],
        "modules": modules_of(role),
        "excluded": role.excluded,
        "openvino": "openvino" not in role.excluded,
        "package_data": role.data,
        "dropped": role.dropped,
        "data": [
            (str(known), "."),
            *([(str(wheel), ".")] if role.brings_wheel else []),
            (str(assets / "icons"), "assets/icons"),
            (str(assets / "translations"), "assets/translations"),
        ],
    }


def strip(bundle: Path) -> None:
    """Take out what only debuggers read; some builds of Python and of modules in Rust keep it."""
    if sys.platform != "linux" or shutil.which("strip") is None:
        return
    internal = bundle / "_internal"
    binaries = [*internal.glob("libpython*.so*"), *internal.glob("python3*/lib-dynload/*.so")]
    binaries += internal.glob("cryptography/hazmat/bindings/*.so")
    run(["strip", "--strip-unneeded", *binaries], bundle, "Stripping binaries")


def run(command: list[Path | str], folder: Path, title: str, **environment: str) -> None:
    """Run one step; raises BuildFailed with its last line if it fails."""
    words = [str(word) for word in command]
    # What lies on a developer's own path would count as installed.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    code, output = run_captured(words, folder, {**inherited, **environment})
    if code:
        lines = [line for line in output.splitlines() if line.strip()]
        cause = f" ({lines[-1].strip()})" if lines else ""
        raise BuildFailed(f"{title} failed{cause}; see the lines above.")


def size_bytes(folder: Path) -> int:
    """Return what the files of a folder hold, links not counted."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def check_size(role: Role, bundle: Path, say: Say) -> None:
    """Say how large a bundle is. Raises BuildFailed if that is more than its role may be."""
    size_mb = size_bytes(bundle) / 1e6
    say(f"{role.title}: {size_mb:.0f} MB in {bundle}")
    if role.limit_mb and size_mb > role.limit_mb:
        raise BuildFailed(f"The {role.title} has {size_mb:.0f} MB, more than {role.limit_mb}; trim it in trimming.py.")


def check_starts(bundle: Path, role: Role) -> None:
    """Start each program of a bundle once, to show its help. Raises BuildFailed."""
    for program in role.programs:
        name = f"{program.name}.exe" if os.name == "nt" else program.name
        done = subprocess.run(
            [bundle / name, "--help"], capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        )  # fmt: skip
        if done.returncode:
            raise BuildFailed(
                f"{program.name} does not start ({done.stderr.strip()[-300:]}); see modules_of in roles.py."
            )
