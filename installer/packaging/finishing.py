"""`python -m installer.packaging.finishing TOLD BUNDLE`, in the venv of a role: man pages, licences, parts list."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from installer.man_pages import write_man_pages
from installer.packaging import licences, sbom
from installer.packaging.errors import PackagingError
from installer.packaging.parts import Distributions, assign
from installer.programs import PROGRAMS


def finish(told_file: Path, bundle: Path) -> None:
    """Write man pages, licences, notice and parts list into a bundle. Raises PackagingError or OSError."""
    told = json.loads(told_file.read_text("utf-8"))
    taken = json.loads(Path(told["taken"]).read_text("utf-8"))
    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    distributions = Distributions(folders, Path(told["supplements"]))
    # A package without a file of its own (a namespace) has nothing that could be licensed.
    modules = {f"module {name}": source for name, source in taken["modules"].items() if source not in ("-", "", None)}
    ours = [Path(folder).resolve() for folder in told["ours"]]
    owners, parts = assign({**taken["files"], **modules}, distributions, ours)
    parts.setdefault("pyinstaller", distributions.part("pyinstaller"))
    parts.setdefault("fallow", distributions.part("fallow"))
    programs = [program["name"] for program in told["programs"]]
    write_man_pages(bundle / licences.MAN, [program for program in PROGRAMS if program.name in programs])
    programs += [f"{name}.exe" for name in programs]
    files = licences.attribute(bundle, owners, programs)
    licences.write_texts(bundle, parts, files)
    document = sbom.parts_list(bundle.name, told["version"], parts, files, bundle)
    (bundle / licences.SBOM).write_text(document + "\n", "utf-8")


def main() -> int:
    """Run on the arguments; expected failures become one line."""
    try:
        finish(Path(sys.argv[1]), Path(sys.argv[2]))
    except PackagingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
