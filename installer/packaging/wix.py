"""The files of a bundle as a WiX fragment: one for the files of everybody on a PC, one for those of a single user.

The same bundle gives the same text, identities included, on every machine, so that the next version's upgrade finds
what this one installed. Reads names only, never contents.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from xml.etree import ElementTree as ET

from installer.packaging.errors import PackagingError

NAMESPACE = "http://wixtoolset.org/schemas/v4/wxs"
Scope = Literal["machine", "user"]
_IDENTITIES = uuid.UUID("5f2c9a74-0d0e-5b7e-9a3e-6d1f0c7b8e21")
_USERS_KEY = r"Software\Fallow\Agent\Files"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
GROUP, ROOT = "BundleFiles", "INSTALLFOLDER"


@dataclass(frozen=True)
class Installed:
    """One file as it will be installed: its place in the bundle, and the component that holds it."""

    place: PurePosixPath
    component: str


def files_of(bundle: Path) -> list[PurePosixPath]:
    """Return the places of all files of a bundle, in order. Raises PackagingError if there is none or a link."""
    found = []
    for path in bundle.rglob("*"):
        if path.is_symlink():
            raise PackagingError(f"{path} is a link, which an MSI cannot hold; make the bundle on Windows.")
        if path.is_file():
            found.append(PurePosixPath(path.relative_to(bundle).as_posix()))
    if not found:
        raise PackagingError(f"There is no bundle in {bundle}; make it with installer/build.py.")
    return sorted(found)


def plan(places: Iterable[PurePosixPath], scope: Scope) -> list[Installed]:
    """Say which component holds which file.

    For everybody each file is a component of its own, which Windows can repair alone. In a user's profile a component
    needs a value of the registry as its key, so all files of a folder share one.
    """
    return [Installed(place, _id("c", scope, place if scope == "machine" else place.parent)) for place in places]


def fragment(places: Sequence[PurePosixPath], scope: Scope) -> str:
    """Write the fragment: folders below INSTALLFOLDER and the group BundleFiles. `$(Bundle)` is where the files are."""
    ET.register_namespace("", NAMESPACE)
    wix = ET.Element(f"{{{NAMESPACE}}}Wix")
    part = _below(wix, "Fragment")
    _folders(_below(part, "DirectoryRef", Id=ROOT), PurePosixPath(), sorted(_all_folders(places)))
    group = _below(part, "ComponentGroup", Id=GROUP)
    components: dict[str, ET.Element] = {}
    for file in plan(places, scope):
        component = components.get(file.component)
        if component is None:
            component = components[file.component] = _component(group, file, scope)
        source = "$(Bundle)\\" + str(file.place).replace("/", "\\")
        key = {"KeyPath": "yes"} if scope == "machine" else {}
        _below(component, "File", Id=_id("f", scope, file.place), Source=source, **key)
    if scope == "user":
        _remove_empty_folders(group, sorted(_all_folders(places) - {file.place.parent for file in plan(places, scope)}))
    ET.indent(wix)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(wix, "unicode") + "\n"


def product_version(version: str) -> str:
    """Return what Windows Installer compares of a version: three numbers. Raises PackagingError."""
    found = _VERSION.match(version)
    if found is None or any(int(part) > most for part, most in zip(found.groups(), (255, 255, 65535), strict=True)):
        raise PackagingError(f"{version!r} is no version that Windows Installer can compare; write it as 1.2.3.")
    return found[0]


def _component(group: ET.Element, file: Installed, scope: Scope) -> ET.Element:
    place = file.place if scope == "machine" else file.place.parent
    folder = _folder_id(file.place.parent)
    component = _below(group, "Component", Id=file.component, Directory=folder, Guid=_guid(scope, place))
    if scope == "user":
        _users_key(component, file.component)
        _below(component, "RemoveFolder", Id=_id("r", scope, place), On="uninstall")
    return component


def _remove_empty_folders(group: ET.Element, folders: Sequence[PurePosixPath]) -> None:
    """A folder in a profile that only holds folders is removed by a component of its own, as Windows wants it."""
    for folder in folders:
        name = _id("c", "user", folder)
        component = _below(group, "Component", Id=name, Directory=_folder_id(folder), Guid=_guid("user", folder))
        _users_key(component, name)
        _below(component, "RemoveFolder", Id=_id("r", "user", folder), On="uninstall")


def _users_key(component: ET.Element, name: str) -> None:
    key = {"Root": "HKCU", "Key": _USERS_KEY, "Name": name, "Type": "integer", "Value": "1", "KeyPath": "yes"}
    _below(component, "RegistryValue", **key)


def _all_folders(places: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    return {folder for place in places for folder in place.parents} | {PurePosixPath()}


def _folders(parent: ET.Element, above: PurePosixPath, folders: Sequence[PurePosixPath]) -> None:
    for folder in folders:
        if folder.parent == above and folder != above:
            made = _below(parent, "Directory", Id=_folder_id(folder), Name=folder.name)
            _folders(made, folder, folders)


def _folder_id(folder: PurePosixPath) -> str:
    return ROOT if folder == PurePosixPath() else _id("d", "machine", folder)


def _id(kind: str, scope: Scope, place: PurePosixPath) -> str:
    return f"{kind}_{uuid.uuid5(_IDENTITIES, f'{scope}/{place}'.lower()).hex}"


def _guid(scope: Scope, place: PurePosixPath) -> str:
    # Windows takes names that differ in case for one; so does this.
    return f"{{{uuid.uuid5(_IDENTITIES, f'component/{scope}/{place}'.lower())}}}".upper()


def _below(parent: ET.Element, name: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, f"{{{NAMESPACE}}}{name}", attributes)
