"""Whose is each file of a bundle: a Python distribution's, Python's own, an operating system package's, or ours.

Runs in the venv that a bundle was frozen in, because there the RECORD files say what came with which distribution.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath
from typing import Literal

from installer.packaging.errors import LicenceMissing
from shard_export.library.counts import counted

Kind = Literal["distribution", "python", "system", "own"]
OWN, PYTHON = "fallow", "python"
_QT = ("LGPL-3.0.txt", "GPL-3.0.txt", "qt-third-party.txt")
_SUPPLEMENTS = {"pyside6-essentials": _QT, "shiboken6": _QT[:2], "tokenizers": ("Apache-2.0.txt",)}
"""Which of the texts in assets/licences belong to distributions that ship without theirs."""
_LICENCE_FILE = re.compile(r"(?i)^(licen[cs]es?|copying|copyright|notice|authors)\b.*")


@dataclass(frozen=True)
class Part:
    """What a licence and an entry of the parts list are about.

    `licence` is an SPDX expression where the part says one, else its own words, else empty; `texts` are files.
    """

    name: str
    version: str
    kind: Kind
    licence: str
    texts: tuple[Path, ...]
    homepage: str = ""


class Distributions:
    """The installed distributions under a folder, and the files that their RECORDs name."""

    def __init__(self, folders: Sequence[str], supplements: Path) -> None:
        """`supplements` is the folder with the texts that some distributions ship without."""
        self._supplements = supplements
        self._found: dict[str, metadata.Distribution] = {}
        self._owners: dict[Path, str] = {}
        for found in metadata.distributions(path=list(folders)):
            name = canonical(found.metadata["Name"])
            self._found[name] = found
            for file in found.files or ():
                self._owners[Path(str(found.locate_file(file))).resolve()] = name

    def owner(self, source: Path) -> str:
        """Return the distribution that brought a file, or an empty text."""
        return self._owners.get(source.resolve(), "")

    def part(self, name: str) -> Part:
        """Describe one distribution; its texts are what it ships, else what we keep for it."""
        found = self._found[name]
        head = found.metadata

        def stated(field: str) -> str:
            return str((head.get_all(field) or [""])[0])

        shipped = [Path(str(found.locate_file(file))) for file in found.files or () if _is_licence(file)]
        added = [self._supplements / text for text in _SUPPLEMENTS.get(name, ())]
        texts = sorted({*filter(Path.is_file, shipped), *added})
        classifiers = head.get_all("Classifier") or []
        licence = stated("License-Expression") or _classified(classifiers) or _short(stated("License"))
        return Part(name, found.version, "distribution", licence, tuple(texts), stated("Home-page"))


def _is_licence(file: PurePath) -> bool:
    return file.parts[0].endswith(".dist-info") and (
        "licenses" in file.parts[1:-1] or _LICENCE_FILE.match(file.name) is not None
    )


def canonical(name: str) -> str:
    """Return a distribution's name as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _short(words: str) -> str:
    """Return what an old licence field says unless it is a whole licence text."""
    return words if len(words) < 80 and "\n" not in words else ""


def _classified(classifiers: Iterable[str]) -> str:
    names = {
        "MIT License": "MIT",
        "BSD License": "BSD-3-Clause",
        "Apache Software License": "Apache-2.0",
        "ISC License (ISCL)": "ISC",
        "Python Software Foundation License": "PSF-2.0",
        "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    }
    ends = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
    return " OR ".join(names[end] for end in ends if end in names)


def python_part() -> Part:
    """Describe the running Python: interpreter, standard library, and what its build brought along."""
    places = [Path(sysconfig.get_path("stdlib")) / "LICENSE.txt", Path(sys.base_prefix) / "LICENSE.txt"]
    texts = tuple(place for place in places if place.is_file())[:1]
    version = ".".join(map(str, sys.version_info[:3]))
    return Part(PYTHON, version, "python", "PSF-2.0", texts, "https://www.python.org")


def is_of_python(source: Path) -> bool:
    """Whether a file is part of the running Python's own installation, distributions aside."""
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    if "site-packages" in source.parts or "dist-packages" in source.parts:
        return False
    if source.resolve().is_relative_to(standard) or source.name.startswith("libpython"):
        return True
    return sys.platform == "win32" and source.resolve().is_relative_to(Path(sys.base_prefix).resolve())


def system_owners(sources: Iterable[Path]) -> dict[Path, str]:
    """Ask Debian's database which package each file came with; files of none are left out, as on other systems."""
    asked: dict[Path, set[Path]] = {}
    for source in sources:
        for alias in _aliases(source):
            asked.setdefault(alias, set()).add(source)
    if not asked or sys.platform != "linux":
        return {}
    try:
        done = subprocess.run(["dpkg-query", "-S", *map(str, asked)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return {}
    owners = {}
    for line in done.stdout.splitlines():
        package, _, file = line.partition(": ")
        if Path(file) in asked and not line.startswith("diversion by"):
            owners.update(dict.fromkeys(asked[Path(file)], package.partition(",")[0]))
    return owners


def _aliases(source: Path) -> set[Path]:
    """Return the names under which a file may be known: through links, and with or without the merged /usr."""
    known = {source, source.resolve()}
    return known | {Path("/", *path.parts[2:]) for path in known if path.parts[:2] == ("/", "usr")}


def system_part(package: str, documents: Path = Path("/usr/share/doc")) -> Part:
    """Describe a Debian package by what its database and its copyright file say."""
    asked = ["dpkg-query", "-W", "-f", "${source:Package} ${Version} ${Homepage}", package]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    _, version, homepage = [*said.split(" "), "", ""][:3]
    name = package.partition(":")[0]
    text = documents / name / "copyright"
    return Part(name, version, "system", "", (text,) if text.is_file() else (), homepage)


def assign(
    files: Mapping[str, str], distributions: Distributions, ours: Sequence[Path]
) -> tuple[dict[str, str], dict[str, Part]]:
    """Find the part of each file: `files` are places in the bundle and where each came from.

    Returns the place's part by name, and the parts. Raises LicenceMissing.
    """
    owners: dict[str, str] = {}
    parts: dict[str, Part] = {}
    foreign: dict[str, Path] = {}
    for place, source in files.items():
        path = Path(source)
        name = distributions.owner(path)
        if name:
            owners[place] = name
            parts.setdefault(name, distributions.part(name))
        elif is_of_python(path):
            owners[place] = PYTHON
            parts.setdefault(PYTHON, python_part())
        elif any(path.resolve().is_relative_to(folder) for folder in ours):
            owners[place] = OWN
            parts.setdefault(OWN, distributions.part(OWN))
        else:
            foreign[place] = path
    found = system_owners(set(foreign.values()))
    unknown = sorted(place for place, path in foreign.items() if path not in found)
    if unknown:
        raise LicenceMissing(
            f"{counted(len(unknown), 'file belongs', 'files belong')} to nothing with a licence, the first "
            f"is {unknown[0]} "
            f"({foreign[unknown[0]]}); leave them out in trimming.py, or say in parts.py whose they are."
        )
    for place, path in foreign.items():
        package = found[path]
        name = f"{package.partition(':')[0]} (system)"
        owners[place] = name
        if name not in parts:
            parts[name] = system_part(package)
    bare = sorted(name for name, part in parts.items() if not part.texts)
    if bare:
        raise LicenceMissing(f"No licence text is known for {', '.join(bare)}; add it to assets/licences.")
    return owners, parts
