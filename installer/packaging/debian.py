"""A Debian package out of a bundle: which file goes where, what it depends on, and the files that dpkg reads.

Everything here is the text of a package or its layout; `debbuild.py` writes it down and calls Debian's tools.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_LINUX = Path(__file__).resolve().parent / "linux"
_UNITS = "usr/lib/systemd"
OPTIONAL_LIBRARIES = frozenset({"libOpenCL.so.1"})
"""Without it a stage does not find graphics cards; it is recommended by name."""
_QT = re.compile("/(PySide6|shiboken6)/")


@dataclass(frozen=True)
class Package:
    """A package of one role. `integration` maps files of linux/ROLE/ to their places.

    `depends` and so on are what no binary links to. Of what they link to, a `headless` package only recommends what its
    windows alone need, so that a machine without a desktop does without a desktop's libraries.
    """

    role: str
    launcher: str
    """The name of its launcher, and of its icon: two packages may not hold the same file."""
    summary: str
    description: str
    integration: Mapping[str, str]
    headless: bool = False
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    suggests: tuple[str, ...] = ()
    conffiles: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"fallow-{self.role}"

    @property
    def home(self) -> str:
        """Where the bundle goes."""
        return f"usr/lib/{self.name}"

    @property
    def scripts(self) -> list[str]:
        """The maintainer scripts that there are."""
        return [name for name in ("prerm", "postinst", "postrm") if (self.source / name).exists()]

    @property
    def source(self) -> Path:
        return _LINUX / self.role


_BUNDLE_OVERRIDES = (
    "# The bundle holds the libraries it was tested with: OpenVINO and Qt as their makers built them, with the paths",
    "# they find each other by. None is changed here; LGPL ones have to stay replaceable.",
    "{name}: embedded-library *",
    "{name}: custom-library-search-path *",
    "{name}: unstripped-binary-or-object *",
    "{name}: hardening-no-fortify-functions *",
    "{name}: hardening-no-pie *",
    "{name}: hardening-no-bindnow *",
    "{name}: hardening-no-relro *",
    "{name}: shared-library-lacks-prerequisites *",
    "{name}: shared-library-lacks-stack-section *",
    "{name}: library-not-linked-against-libc *",
    "{name}: sharedobject-in-library-directory-missing-soname *",
    "{name}: exit-in-shared-library *",
    "{name}: specific-address-in-shared-library *",
    "{name}: spelling-error-in-binary *",
    "{name}: binary-has-unneeded-section *",
    "# Texts of licences belong beside what they are about: they are asked for by the parts list of the same bundle.",
    "{name}: extra-license-file *",
    "{name}: package-contains-documentation-outside-usr-share-doc *",
    "# Units live in /usr/lib from the release after bookworm on; systemd reads both places.",
    "{name}: systemd-service-in-odd-location *",
    "# Whoever builds the package is its maintainer: DEBFULLNAME and DEBEMAIL.",
    "{name}: bogus-mail-host *",
    "# It is not made from a Debian source package, so there is no bug of Debian's to close.",
    "{name}: initial-upload-closes-no-bugs *",
)

AGENT = Package(
    role="agent",
    launcher="fallow-tray",
    summary="lets a resting PC work on a large language model",
    description=(
        "Fallow puts an organisation's resting PCs to work: each volunteers a stage of a large language model while "
        "its owner is away, and together they answer chats that no single one of them could.\n"
        "This package holds the agent, its command line, and the icon in the tray with which the owner decides."
    ),
    integration={
        "fallow-tray.desktop": "usr/share/applications/fallow-tray.desktop",
        "fallow-tray-autostart.desktop": "etc/xdg/autostart/fallow-tray.desktop",
        "metainfo.xml": "usr/share/metainfo/io.fallow.tray.metainfo.xml",
        "user.service": f"{_UNITS}/user/fallow-agent.service",
        "system.service": f"{_UNITS}/system/fallow-agent.service",
    },
    headless=True,
    depends=("adduser", "init-system-helpers (>= 1.52)"),
    recommends=("ocl-icd-libopencl1 | libopencl1",),
    suggests=("fallow-chat", "intel-opencl-icd", "gnome-keyring | libpam-kwallet5"),
    conffiles=("etc/xdg/autostart/fallow-tray.desktop",),
    overrides=(
        "# The managers and icons of people who are logged in: nothing else reaches them.",
        "{name}: maintainer-script-calls-systemctl *",
    ),
)
CONSOLE = Package(
    role="console",
    launcher="fallow-console",
    summary="runs a fleet of PCs that share a large language model",
    description=(
        "Fallow puts an organisation's resting PCs to work: together they serve large language models that no single "
        "one of them could.\n"
        "This package holds the console: the service that PCs dial into, its OpenAI-compatible API, its command line "
        "and its window."
    ),
    integration={
        "fallow-console.desktop": "usr/share/applications/fallow-console.desktop",
        "metainfo.xml": "usr/share/metainfo/io.fallow.console.metainfo.xml",
        "system.service": f"{_UNITS}/system/fallow-console.service",
        "default": "etc/default/fallow-console",
    },
    headless=True,
    depends=("adduser", "init-system-helpers (>= 1.52)"),
    suggests=("fallow-chat", "postgresql", "python3-venv"),
    conffiles=("etc/default/fallow-console",),
)
CHAT = Package(
    role="chat",
    launcher="fallow-chat",
    summary="chat window for the language models of an organisation",
    description=(
        "Fallow puts an organisation's resting PCs to work: together they serve large language models that no single "
        "one of them could.\n"
        "This package holds the window in which people chat with these models."
    ),
    integration={
        "fallow-chat.desktop": "usr/share/applications/fallow-chat.desktop",
        "metainfo.xml": "usr/share/metainfo/io.fallow.chat.metainfo.xml",
    },
    suggests=("gnome-keyring | libpam-kwallet5",),
)
PACKAGES = {package.role: package for package in (AGENT, CONSOLE, CHAT)}


def control(
    package: Package, version: str, architecture: str, *, size_kib: int, linked: Mapping[str, str], maintainer: str
) -> str:
    """Return the control file; `linked` is what its binaries link to, as `Depends` and `Recommends`."""
    relations = {
        "Depends": ", ".join(filter(None, [linked.get("Depends", ""), *package.depends])),
        "Recommends": ", ".join(filter(None, [linked.get("Recommends", ""), *package.recommends])),
        "Suggests": ", ".join(package.suggests),
    }
    lines = [
        f"Package: {package.name}",
        f"Version: {version}",
        f"Architecture: {architecture}",
        f"Maintainer: {maintainer}",
        f"Installed-Size: {size_kib}",
        *(f"{field}: {value}" for field, value in relations.items() if value),
        "Section: net",
        "Priority: optional",
        f"Description: {package.summary}",
    ]
    for number, paragraph in enumerate(package.description.splitlines()):
        lines += [" ."] if number else []
        lines += [f" {line}" for line in textwrap.wrap(paragraph, 78)]
    return "\n".join([*lines, ""])


def copyright_text(package: Package) -> str:
    """Return the machine-readable copyright file; the licences of the bundle's parts are in the bundle."""
    return "\n".join(
        [
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/",
            "Upstream-Name: fallow",
            f"Comment: Parts of others below /{package.home}/_internal have licences of their own:",
            f" /{package.home}/licences/INDEX.txt lists the parts, the texts are beside it.",
            "",
            "Files: *",
            "Copyright: 2026 The Fallow contributors",
            "License: Apache-2.0",
            " The text is in /usr/share/common-licenses/Apache-2.0.",
            "",
        ]
    )


def changelog(package: Package, version: str, maintainer: str, when: str) -> str:
    """Return a changelog of one entry; `when` is a date as of RFC 2822."""
    return (
        f"{package.name} ({version}) stable; urgency=medium\n\n"
        f"  * Release {version.partition('-')[0]}; see CHANGELOG.md.\n\n"
        f" -- {maintainer}  {when}\n"
    )


def overrides(package: Package) -> str:
    """Return the lintian overrides, each with its reason."""
    return "\n".join([*(line.format(name=package.name) for line in (*_BUNDLE_OVERRIDES, *package.overrides)), ""])


@dataclass(frozen=True)
class Needs:
    """What a binary links to: names of libraries, and of each the versions of its interface that are asked for."""

    libraries: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]


def needs_of(said: str) -> Needs:
    """Read what `objdump -p` printed of a binary."""
    libraries: list[str] = []
    versions: dict[str, tuple[str, ...]] = {}
    library = ""
    for words in map(str.split, said.splitlines()):
        match words:
            case ["NEEDED", name]:
                libraries.append(name)
            case ["required", "from", name]:
                library = name.rstrip(":")
            case [_, _, _, version] if library:
                versions[library] = (*versions.get(library, ()), version)
    return Needs(tuple(libraries), versions)


def lowest_version(symbols: str, library: str, versions: Iterable[str]) -> str:
    """Return since which version a package's library has all the wanted versions of its interface; empty: since ever.

    `symbols` is the package's file for dpkg: a line like `libc.so.6 libc6`, and below it what appeared when, among it
    the versions themselves: ` GLIBC_2.34@GLIBC_2.34 2.34`.
    """
    since: dict[str, str] = {}
    ours = False
    for line in symbols.splitlines():
        if not line.startswith((" ", "|", "*")):
            ours = line.split(" ")[0] == library
        elif ours and (words := line.split())[0] in {f"{version}@{version}" for version in versions}:
            since[words[0]] = words[1]
    return max(since.values(), key=comparable, default="")


def comparable(version: str) -> list[int]:
    """Return the numbers in a version, which sort as it does."""
    return [int(number) for number in re.findall(r"\d+", version)]


def of_windows(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the binaries that only windows use: Qt, and the bundled libraries that nothing but Qt links to.

    `needs` are the binaries by their places in a bundle, and the names of the libraries that each links to.
    """
    place_of = {place.rpartition("/")[2]: place for place in needs}
    libraries = {
        place
        for place in needs
        if place.startswith("_internal/lib") and place.count("/") == 1 and "libpython" not in place
    }
    seen: set[str] = set()
    left = [place for place in needs if place not in libraries and not _QT.search(place)]
    while left:
        place = left.pop()
        if place not in seen:
            seen.add(place)
            left += [place_of[name] for name in needs[place] if name in place_of]
    return sorted(set(needs) - seen)


def debian_version(version: str, revision: int) -> str:
    """Return a package's version: `0.2.0rc1` of Python sorts before `0.2.0`, which Debian writes `0.2.0~rc1`."""
    upstream = re.sub(r"(?<=[0-9])\.?(a|b|rc|dev)(?=[0-9])", r"~\1", version)
    return f"{upstream}-{revision}"
