"""What a WiX source may look like, as far as ours go: which elements, where, which attributes; and what must agree.

Facts of the schema http://wixtoolset.org/schemas/v4/wxs and of the Util extension, for the elements that we use. What
is not listed here is a fault: look it up in WiX's reference before it is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

WXS = "{http://wixtoolset.org/schemas/v4/wxs}"
UTIL = "{http://wixtoolset.org/schemas/v4/wxs/util}"

_ALLOWED: dict[str, tuple[str, str]] = {
    # element: (parents, attributes)
    "Wix": ("", ""),
    "Package": (
        "Wix",
        "Name Manufacturer Version Language Scope UpgradeCode InstallerVersion Id ProductCode Compressed",
    ),
    "Fragment": ("Wix", "Id"),
    "SummaryInformation": ("Package", "Description Manufacturer Keywords Codepage"),
    "MajorUpgrade": ("Package", "DowngradeErrorMessage Schedule AllowSameVersionUpgrades AllowDowngrades"),
    "MediaTemplate": ("Package", "EmbedCab CompressionLevel CabinetTemplate MaximumUncompressedMediaSize"),
    "Launch": ("Package Fragment", "Condition Message"),
    "Property": ("Package Fragment", "Id Value Secure Hidden Admin"),
    "RegistrySearch": ("Property", "Id Root Key Name Type Bitness"),
    "Feature": ("Package Feature Fragment", "Id Title Description Level AllowAbsent AllowAdvertise Display"),
    "ComponentGroupRef": ("Feature ComponentGroup", "Id Primary"),
    "ComponentRef": ("Feature ComponentGroup", "Id Primary"),
    "ComponentGroup": ("Package Fragment", "Id Directory Subdirectory"),
    "Component": ("Package Fragment ComponentGroup Directory DirectoryRef", "Id Directory Guid Condition Permanent"),
    "File": ("Component", "Id Source KeyPath Name"),
    "CreateFolder": ("Component", "Directory"),
    "PermissionEx": ("CreateFolder File RegistryKey RegistryValue", "Id Sddl Condition"),
    "CopyFile": (
        "Component File",
        "Id SourceProperty SourceDirectory SourceName DestinationDirectory DestinationName Delete",
    ),
    "RemoveFile": ("Component", "Id Name On Directory Property"),
    "RemoveFolder": ("Component", "Id On Directory Property"),
    "RegistryValue": ("Component RegistryKey", "Id Root Key Name Type Value KeyPath Action"),
    "Shortcut": ("Component File", "Id Directory Name Target Arguments WorkingDirectory Description Icon Advertise"),
    "StandardDirectory": ("Package Fragment", "Id"),
    "Directory": ("StandardDirectory Directory DirectoryRef Package Fragment", "Id Name"),
    "DirectoryRef": ("Package Fragment", "Id"),
    "SetProperty": ("Package Fragment", "Id Value Before After Sequence Condition Action"),
    "CustomAction": (
        "Package Fragment",
        "Id BinaryRef DllEntry Execute Impersonate Return Directory ExeCommand FileRef HideTarget",
    ),
    "InstallExecuteSequence": ("Package Fragment", ""),
    "Custom": ("InstallExecuteSequence", "Action Before After Condition"),
    "util:CloseApplication": (
        "Package Fragment",
        "Id Target CloseMessage TerminateProcess Timeout RebootPrompt EndSessionMessage Condition Description Property",
    ),
}
_STANDARD_FOLDERS = frozenset(
    {"CommonAppDataFolder", "LocalAppDataFolder", "ProgramFiles64Folder", "ProgramMenuFolder", "WindowsFolder"}
)
_STANDARD_PROPERTIES = frozenset({"System64Folder"}) | _STANDARD_FOLDERS
_STANDARD_ACTIONS = frozenset({"InstallInitialize", "InstallFiles", "RemoveFiles", "InstallFinalize"})
_CHOICES = {
    "Execute": {"immediate", "deferred", "rollback", "commit"},
    "Return": {"check", "ignore", "asyncNoWait", "asyncWait"},
    "Scope": {"perMachine", "perUser", "perUserOrMachine"},
    "On": {"install", "uninstall", "both"},
    "Root": {"HKLM", "HKCU", "HKMU", "HKCR", "HKU"},
    "Sequence": {"both", "execute", "first", "ui"},
}  # fmt: skip
_GUID = re.compile(r"\{[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}\}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,71}")
_USED = re.compile(r"\[(#?)([A-Za-z_0-9]+)\]")


def faults(*sources: str) -> list[str]:
    """Name what is wrong with the sources of one package, taken together."""
    roots = [ET.fromstring(source) for source in sources]
    found = [fault for root in roots for fault in _shape_faults(root)]
    elements = [element for root in roots for element in root.iter()]
    return [*found, *_identity_faults(elements), *_reference_faults(elements)]


def name_of(element: ET.Element) -> str:
    """Return an element's name as written here."""
    return element.tag.replace(WXS, "").replace(UTIL, "util:")


def _shape_faults(parent: ET.Element) -> Iterator[str]:
    for element in parent:
        name = name_of(element)
        if name not in _ALLOWED:
            yield f"{name} is not known"
            continue
        parents, attributes = (words.split() for words in _ALLOWED[name])
        if name_of(parent) not in parents:
            yield f"{name} below {name_of(parent)}"
        yield from (f"{name} has no {one}" for one in element.attrib if one not in attributes)
        yield from (
            f"{name} {one}={value}" for one, value in element.items() if one in _CHOICES and value not in _CHOICES[one]
        )
        yield from _shape_faults(element)


def _identity_faults(elements: list[ET.Element]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    guids: set[str] = set()
    for element in elements:
        name, own = name_of(element), element.get("Id")
        guid = element.get("Guid") or element.get("UpgradeCode")
        if guid and not _GUID.fullmatch(guid):
            yield f"{guid} is no GUID"
        if guid in guids:
            yield f"{guid} is used twice"
        guids.update([guid] if guid else [])
        if name == "Component":
            keys = [child for child in element if child.get("KeyPath") == "yes"]
            if not guid or len(keys) != 1:
                yield f"component {own} needs a GUID and one key"
        if own is None or name.endswith("Ref") or name in ("SetProperty", "StandardDirectory"):
            continue
        if not _IDENTIFIER.fullmatch(own):
            yield f"{own} is no identifier"
        table = "Directory" if name == "StandardDirectory" else name
        if (table, own) in seen:
            yield f"{name} {own} is there twice"
        seen.add((table, own))


def _reference_faults(elements: list[ET.Element]) -> Iterator[str]:
    def ids(*names: str) -> set[str]:
        return {element.attrib["Id"] for element in elements if name_of(element) in names and "Id" in element.attrib}

    folders = ids("Directory", "StandardDirectory") | _STANDARD_FOLDERS
    actions = ids("CustomAction")
    properties = ids("Property") | folders | _STANDARD_PROPERTIES
    known = {"Directory": folders, "WorkingDirectory": folders, "DestinationDirectory": folders, "Action": actions,
             "SourceProperty": ids("Property"), "Before": actions | _STANDARD_ACTIONS,
             "After": actions | _STANDARD_ACTIONS}  # fmt: skip
    refs = {"ComponentRef": ids("Component"), "ComponentGroupRef": ids("ComponentGroup"), "DirectoryRef": folders,
            "SetProperty": actions, "StandardDirectory": _STANDARD_FOLDERS}  # fmt: skip
    for element in elements:
        name = name_of(element)
        for attribute, there in known.items():
            value = element.get(attribute)
            if value is not None and not (name == "RegistryValue" or value in there):
                yield f"{name} {attribute}={value} is nowhere"
        if name in refs and element.attrib["Id"] not in refs[name]:
            yield f"{name} {element.attrib['Id']} is nowhere"
        for attribute in ("Value", "ExeCommand", "Target"):
            for file, used in _USED.findall(element.get(attribute, "")):
                if used not in (ids("File") if file else properties):
                    yield f"[{file}{used}] is nowhere"
    yield from _unused(elements, ids("Component"), actions)


def _unused(elements: list[ET.Element], components: set[str], actions: set[str]) -> Iterator[str]:
    referred = {element.get("Id") for element in elements if name_of(element) == "ComponentRef"}
    grouped = {child.get("Id") for element in elements if name_of(element) == "ComponentGroup" for child in element}
    groups = {element.get("Id") for element in elements if name_of(element) == "ComponentGroup"}
    taken = {element.get("Id") for element in elements if name_of(element) == "ComponentGroupRef"}
    yield from (f"component {one} is in no feature" for one in sorted(components - referred - grouped))
    yield from (f"group {one} is in no feature" for one in sorted(map(str, groups - taken)))
    scheduled = {element.get("Action") for element in elements if name_of(element) == "Custom"}
    yield from (f"{one} is never run" for one in sorted(actions - scheduled))
