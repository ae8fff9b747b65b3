"""Writes a Debian package down, looks up what it depends on, and has dpkg-deb make it."""

from __future__ import annotations

import email.utils
import gzip
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from installer.packaging import debian, licences, parts
from installer.packaging.debian import Package
from installer.packaging.entry import MANAGED
from installer.packaging.errors import BuildFailed
from installer.packaging.freezing import Say, project_version, size_bytes
from installer.packaging.roles import ROLES
from installer.qt_libraries import FOR_BUNDLES

TOOLS = {"dpkg-deb": "dpkg", "dpkg-query": "dpkg", "dpkg": "dpkg", "objdump": "binutils"}
"""What is called, and the Debian packages these come with."""


def build_package(package: Package, bundle: Path, root: Path, say: Say, revision: int = 1) -> Path:
    """Make `dist/NAME_VERSION_ARCH.deb` out of a bundle. Raises PackagingError or OSError."""
    result = file_of(package, root, revision)
    _, version, architecture = result.stem.rsplit("_", 2)
    with tempfile.TemporaryDirectory(prefix="fallow-deb-") as folder:
        tree = Path(folder) / "tree"
        say(f"{package.name}: laying out {version}")
        lay_out(package, bundle, root, tree, version)
        say(f"{package.name}: looking up what it links to")
        linked = linked_to(package, tree)
        text = debian.control(
            package, version, architecture,
            size_kib=size_bytes(tree) // 1024, linked=linked, maintainer=maintainer(),
        )  # fmt: skip
        _write(tree / "DEBIAN/control", text)
        say(f"{package.name}: packing")
        # More takes minutes and saves a tenth.
        result.parent.mkdir(exist_ok=True)
        partial = result.with_suffix(".partial")  # what was cut short must not be taken for a package
        _said(["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(tree), str(partial)], root)
        partial.replace(result)
    say(f"{package.name}: {result.stat().st_size / 1e6:.0f} MB in {result}")
    return result


def file_of(package: Package, root: Path, revision: int) -> Path:
    """Return where a package is made, or was. Raises BuildFailed where Debian's tools are not installed."""
    for tool, origin in TOOLS.items():
        if shutil.which(tool) is None:
            raise BuildFailed(f"{tool} is not installed; run: apt-get install {origin}")
    version = debian.debian_version(project_version(root), revision)
    architecture = _said(["dpkg", "--print-architecture"], root).strip()
    return root / "dist" / f"{package.name}_{version}_{architecture}.deb"


def maintainer() -> str:
    """Return who builds, as Debian's tools are told."""
    name, address = os.environ.get("DEBFULLNAME", "Fallow"), os.environ.get("DEBEMAIL", "packages@fallow.invalid")
    return f"{name} <{address}>"


def lay_out(package: Package, bundle: Path, root: Path, tree: Path, version: str) -> None:
    """Put everything where it will be on a PC, and the files for dpkg except `control` beside it."""
    shutil.copytree(bundle, tree / package.home, symlinks=True)
    for path in (tree / package.home).rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or (path.parent == tree / package.home and _is_elf(path)) else 0o644)
    # So that an agent leaves updates of itself to whoever updates the system.
    _write(tree / package.home / MANAGED, "deb\n")
    (tree / "usr/bin").mkdir(parents=True)
    for program in programs(tree / package.home):
        (tree / "usr/bin" / program.name).symlink_to(f"../lib/{package.name}/{program.name}")
    for name, place in package.integration.items():
        _copy(package.source / name, tree / place)
    _copy(root / "assets/icons/fallow.svg", tree / f"usr/share/icons/hicolor/scalable/apps/{package.launcher}.svg")
    _lay_out_manual(package, tree / package.home / licences.MAN, tree / "usr/share/man/man1")
    _document(package, root, tree, version)
    for script in package.scripts:
        _copy(package.source / script, tree / "DEBIAN" / script, 0o755)
    if package.conffiles:
        _write(tree / "DEBIAN/conffiles", "".join(f"/{file}\n" for file in package.conffiles))
    for folder in [tree, *(path for path in tree.rglob("*") if path.is_dir() and not path.is_symlink())]:
        folder.chmod(0o755)


def _lay_out_manual(package: Package, pages: Path, folder: Path) -> None:
    """Move the man pages where `man` looks; two programs that are the same module share one."""
    for source in sorted(pages.glob("*.1")):
        _pack(folder / f"{source.name}.gz", source.read_bytes())
    shutil.rmtree(pages)
    page_of: dict[str, str] = {}
    for program in ROLES[package.role].programs:
        page = f"{program.name}.1.gz"
        shared = page_of.setdefault(program.module, page)
        if shared != page and (folder / shared).exists():
            (folder / page).symlink_to(shared)


def _document(package: Package, root: Path, tree: Path, version: str) -> None:
    documents = tree / "usr/share/doc" / package.name
    when = email.utils.formatdate(float(os.environ.get("SOURCE_DATE_EPOCH", (root / "CHANGELOG.md").stat().st_mtime)))
    _write(documents / "copyright", debian.copyright_text(package))
    _pack(documents / "changelog.Debian.gz", debian.changelog(package, version, maintainer(), when).encode())
    if (package.source / "README.Debian").exists():
        text = (package.source / "README.Debian").read_text("utf-8").replace("VERSION", project_version(root))
        _write(documents / "README.Debian", text)
    _write(tree / "usr/share/lintian/overrides" / package.name, debian.overrides(package))


def linked_to(package: Package, tree: Path) -> dict[str, str]:
    """Find what the bundle's binaries need of the system, apart from each other.

    dpkg-shlibdeps does the same, at a second for each binary. Raises BuildFailed for a library that is not here.
    """
    home = tree / package.home
    needs = {
        path.relative_to(home).as_posix(): debian.needs_of(_said(["objdump", "-p", str(path)], home))
        for path in elf_files(home)
    }
    windows: list[str] = []
    if package.headless:
        windows = debian.of_windows({place: need.libraries for place, need in needs.items()})
    have = {place.rpartition("/")[2] for place in needs} | {path.name for path in home.rglob("*") if path.is_symlink()}
    wanted: dict[str, dict[str, set[str]]] = {"Depends": {}, "Recommends": {}}
    for place, need in needs.items():
        kind = wanted["Recommends" if place in windows else "Depends"]
        for library in set(need.libraries) - have - debian.OPTIONAL_LIBRARIES:
            kind.setdefault(library, set()).update(need.versions.get(library, ()))
    packages = _packages_of(sorted({library for kind in wanted.values() for library in kind}))
    return {kind: _relation(libraries, packages) for kind, libraries in wanted.items()}


def _packages_of(libraries: list[str]) -> dict[str, str]:
    """Find the packages of this system's libraries. Raises BuildFailed for one that is not here."""
    shown = (line.split() for line in _said(["/sbin/ldconfig", "-p"], Path("/")).splitlines() if "=>" in line)
    files = {words[0]: Path(words[-1]) for words in reversed(list(shown))}
    owners = parts.system_owners(files[library] for library in libraries if library in files)
    lacking = [library for library in libraries if files.get(library) not in owners]
    if lacking:
        known = FOR_BUNDLES.get(lacking[0])
        advice = f"run: apt-get install {known}" if known else "install its package."
        raise BuildFailed(f"The bundle links to {lacking[0]}, which no package here has; {advice}")
    return {library: owners[files[library]] for library in libraries}


def _relation(libraries: Mapping[str, set[str]], packages: Mapping[str, str]) -> str:
    """Write what a package depends on: each other package, since the version that has all that is asked of it."""
    since: dict[str, str] = {}
    for library, versions in libraries.items():
        package = packages[library]
        symbols = Path(f"/var/lib/dpkg/info/{package}.symbols")
        found = debian.lowest_version(symbols.read_text("utf-8"), library, versions) if symbols.exists() else ""
        name = package.partition(":")[0]
        since[name] = max(since.get(name, ""), found, key=debian.comparable)
    return ", ".join(f"{name} (>= {version})" if version else name for name, version in sorted(since.items()))


def programs(home: Path) -> list[Path]:
    """Return the programs of a bundle."""
    return sorted(path for path in home.iterdir() if path.is_file() and _is_elf(path))


def elf_files(folder: Path) -> list[Path]:
    """Return the programs and shared libraries in a folder, links not counted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path))


def _is_elf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _said(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise BuildFailed(f"{command[0]} failed: {lines[-1]}")
    return done.stdout


def _copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, "utf-8")
    target.chmod(0o644)


def _pack(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(content, 9, mtime=0))
    target.chmod(0o644)


def lintian(packages: Iterable[Path], root: Path) -> list[str]:
    """Return what lintian finds wrong, errors and warnings that no override explains."""
    done = subprocess.run(
        ["lintian", "--fail-on", "none", *map(str, packages)], cwd=root, capture_output=True, text=True, check=False
    )
    return [line for line in done.stdout.splitlines() if line.startswith(("E:", "W:"))]
