"""The licences in a bundle: every file belongs to a part, and every part's texts are there to read.

`licences/` holds a folder of texts for each part, `INDEX.txt` for people and `files.json` for programs; `NOTICE.txt`
says what the LGPL obliges to.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from installer.packaging.errors import LicenceMissing
from installer.packaging.parts import OWN, PYTHON, Part
from shard_export.library.counts import counted

FOLDER, MAN, NOTICE, SBOM = "licences", "man", "NOTICE.txt", "sbom.cdx.json"
INTERNAL = "_internal"
_COMMON = Path("/usr/share/common-licenses")
_COMMON_NAME = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])")
_MADE = {f"{INTERNAL}/base_library.zip": PYTHON, f"{INTERNAL}/programs.json": OWN}
"""What PyInstaller and we write while freezing: the standard library's first modules, and the names of programs."""


def attribute(bundle: Path, owners: Mapping[str, str], programs: Iterable[str]) -> dict[str, str]:
    """Name the part of every file in a bundle, by its place there. `owners` are places below `_internal`.

    A program is PyInstaller's own start code with our modules behind it. Raises LicenceMissing.
    """
    known = {**_MADE, **{f"{INTERNAL}/{place}": part for place, part in owners.items()}}
    known.update(dict.fromkeys(programs, "pyinstaller"))
    found, unknown = {}, []
    for path in sorted(bundle.rglob("*")):
        place = path.relative_to(bundle).as_posix()
        if (path.is_dir() and not path.is_symlink()) or place.startswith(f"{FOLDER}/") or place in {NOTICE, SBOM}:
            continue
        target = path.resolve().relative_to(bundle.resolve()).as_posix() if path.is_symlink() else place
        part = known.get(target) or known.get(place) or (OWN if place.startswith(f"{MAN}/") else None)
        if part is None:
            unknown.append(place)
        else:
            found[place] = part
    if unknown:
        raise LicenceMissing(
            f"{counted(len(unknown), 'file of the bundle has', 'files of the bundle have')} no licence "
            f"entry, the first is {unknown[0]}; "
            "say in licences.py whose they are."
        )
    return found


def write_texts(bundle: Path, parts: Mapping[str, Part], files: Mapping[str, str]) -> None:
    """Copy the texts of all parts, and list who owns what.

    Raises LicenceMissing for a text that is referred to and not here.
    """
    folder = bundle / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    common: set[str] = set()
    for part in parts.values():
        own = folder / folder_of(part)
        own.mkdir()
        for text, name in zip(part.texts, text_names(part.texts), strict=True):
            shutil.copyfile(text, own / name)
            if part.kind == "system":
                common |= set(_COMMON_NAME.findall(text.read_text("utf-8", "replace")))
    for name in sorted(common):
        if not (_COMMON / name).is_file():
            raise LicenceMissing(
                f"A package's licence refers to {_COMMON / name}, which is not there; install base-files."
            )
        (folder / "common").mkdir(exist_ok=True)
        shutil.copyfile(_COMMON / name, folder / "common" / f"{name}.txt")
    (folder / "INDEX.txt").write_text(index(parts, files), "utf-8")
    (folder / "files.json").write_text(json.dumps(files, indent=0, sort_keys=True) + "\n", "utf-8")
    (bundle / NOTICE).write_text(notice(parts), "utf-8")


def folder_of(part: Part) -> str:
    """Return the name of the folder with a part's texts."""
    return re.sub(r"[^A-Za-z0-9.+-]", "_", f"{part.name}-{part.version}")


def text_names(texts: Iterable[Path]) -> list[str]:
    """Name the copies of texts: by their own names, numbered where two are the same."""
    seen: Counter[str] = Counter()
    names = []
    for text in texts:
        seen[text.name] += 1
        names.append(text.name if seen[text.name] == 1 else f"{text.stem}-{seen[text.name]}{text.suffix}")
    return names


def index(parts: Mapping[str, Part], files: Mapping[str, str]) -> str:
    """Return the list of parts for people."""
    count = Counter(files.values())
    lines = ["What this program is made of. The texts of the licences are in the folders beside this file.", ""]
    for name, part in sorted(parts.items()):
        where = counted(count[name], "file") if count[name] else "in the programs"
        lines.append(f"{part.name} {part.version}: {part.licence or 'see its text'} ({where}) -> {folder_of(part)}/")
    return "\n".join([*lines, ""])


def notice(parts: Mapping[str, Part]) -> str:
    """Return what users of the LGPL parts have to be told."""
    lesser = sorted(f"{part.name} {part.version}" for part in parts.values() if "LGPL" in part.licence)
    lines = [
        "Fallow is licensed under the Apache License 2.0. It comes with software of others: licences/INDEX.txt lists",
        "each part with its licence, licences/files.json says which file belongs to which part.",
    ]
    if lesser:
        lines += [
            "",
            f"It uses under the GNU Lesser General Public License, version 3: {', '.join(lesser)}.",
            "These are separate libraries and modules, not changed by us. You may replace the shared ones by your own",
            "builds of the same interface: put the files in their places below _internal/; nothing checks or refuses",
            "them. You may take the programs apart for that, and for finding faults in such changes. Everything needed",
            "to make these programs anew, with other versions of the libraries, is in Fallow's source:",
            "installer/build.py. The source of Qt and of Qt for Python is at",
            "https://download.qt.io/official_releases/qt/ and https://download.qt.io/official_releases/QtForPython/.",
        ]
    return "\n".join([*lines, ""])
