"""A bundle becomes the same fragment everywhere, and the packages hold together as far as shows without Windows."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli import build_parser
from agent.settings import default_data_folder
from installer.packaging.errors import PackagingError
from installer.packaging.msi import PROGRAMS, SOURCES, WXS, Order, written
from installer.packaging.wix import Scope, files_of, fragment, plan, product_version
from tests.support.wix_rules import WXS as NAMESPACE
from tests.support.wix_rules import faults, name_of

PLACES = [PurePosixPath(name) for name in (*PROGRAMS, "_internal/base.dll", "_internal/openvino/libs/a.dll", "LICENSE")]
BOTH = pytest.mark.parametrize("scope", WXS)
names = st.text("aBc._- é", min_size=1, max_size=6).filter(lambda name: name.strip(". ") == name)
trees = st.sets(
    st.lists(names, min_size=1, max_size=4).map(lambda parts: PurePosixPath(*parts)), min_size=1, max_size=12
)


def source(scope: Scope) -> str:
    """The package's own source, with an extension's prefix that the parser knows."""
    return (SOURCES / WXS[scope]).read_text("utf-8")


@BOTH
def test_a_package_holds_together(scope: Scope) -> None:
    assert not faults(source(scope), fragment(PLACES, scope))


@BOTH
@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ('Directory="ENROLFOLDER"', 'Directory="ENROLFOLDERS"', "ENROLFOLDERS is nowhere"),
        ("ComponentRef Id", "ComponentReference Id", "is not known"),
        ('Secure="yes"', 'Secret="yes"', "has no Secret"),
        ('On="uninstall"', 'On="remove"', "On=remove"),
        ('<ComponentRef Id="Invitation" />', "", "Invitation is in no feature"),
        ("[INSTALLFOLDER]fallow-tray", "[INSTALLDIR]fallow-tray", "[INSTALLDIR] is nowhere"),
        ('Action="RemoveOwnIdentity"', 'Action="RemoveIdentity"', "RemoveOwnIdentity is never run"),
        ('KeyPath="yes" />', "/>", "needs a GUID and one key"),
    ],
)
def test_what_does_not_hold_together_is_found(scope: Scope, right: str, wrong: str, fault: str) -> None:
    assert right in source(scope)
    assert any(fault in found for found in faults(source(scope).replace(right, wrong), fragment(PLACES, scope)))


@BOTH
def test_a_guid_that_is_used_twice_is_found(scope: Scope) -> None:
    whole = fragment(PLACES, scope)
    assert any("twice" in found for found in faults(source(scope), whole, whole))


def test_both_packages_have_identities_of_their_own() -> None:
    guids = [
        {element.get("Guid") or element.get("UpgradeCode") for element in ET.fromstring(text).iter()} - {None}
        for text in (source("machine"), source("user"))
    ]
    assert guids[0]
    assert not guids[0] & guids[1]


@BOTH
@given(places=trees)
def test_every_file_of_any_bundle_is_installed_once_and_the_same_each_time(
    scope: Scope, places: set[PurePosixPath]
) -> None:
    files = sorted(place for place in places if not any(place in other.parents for other in places))
    by_name = {str(place).lower() for place in files}
    if len(by_name) != len(files):
        return  # one file to Windows
    text = fragment(files, scope)
    assert text == fragment(files, scope)
    assert not faults(source(scope), text)
    sources = [element.get("Source", "") for element in ET.fromstring(text).iter(f"{NAMESPACE}File")]
    assert sorted(sources) == sorted("$(Bundle)\\" + str(place).replace("/", "\\") for place in files)
    assert [file.place for file in plan(files, scope)] == files


def test_files_for_everybody_are_repaired_alone_and_those_of_a_user_go_with_their_folder() -> None:
    assert len({file.component for file in plan(PLACES, "machine")}) == len(PLACES)
    assert len({file.component for file in plan(PLACES, "user")}) == len({place.parent for place in PLACES})


def test_every_folder_in_a_users_profile_is_removed() -> None:
    root = ET.fromstring(fragment(PLACES, "user"))
    folders = [element.get("Id") for element in root.iter(f"{NAMESPACE}Directory")]
    removed = [
        component.get("Directory")
        for component in root.iter(f"{NAMESPACE}Component")
        if any(name_of(child) == "RemoveFolder" for child in component)
    ]
    assert sorted(map(str, removed)) == sorted(["INSTALLFOLDER", *map(str, folders)])


def test_files_are_found_in_order_and_a_link_is_refused(tmp_path: Path) -> None:
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    assert files_of(tmp_path) == sorted(PLACES)
    (tmp_path / "link").symlink_to(tmp_path / "LICENSE")
    with pytest.raises(PackagingError, match="link"):
        files_of(tmp_path)


def test_no_bundle_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PackagingError, match=r"make it with installer/build\.py"):
        files_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("version", "shown"), [("0.1.0", "0.1.0"), ("1.20.300rc1", "1.20.300"), ("1.2.3.dev4", "1.2.3")]
)
def test_versions_become_what_windows_compares(version: str, shown: str) -> None:
    assert product_version(version) == shown


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "256.0.0", "1.0.70000"])
def test_versions_that_windows_cannot_compare_are_refused(version: str) -> None:
    with pytest.raises(PackagingError, match=r"write it as 1\.2\.3"):
        product_version(version)


@BOTH
def test_an_invitation_is_neither_logged_nor_an_argument(scope: Scope) -> None:
    root = ET.fromstring(source(scope))
    (enrol,) = (one for one in root.iter(f"{NAMESPACE}Property") if one.get("Id") == "ENROLL_FILE")
    assert (enrol.get("Hidden"), enrol.get("Secure")) == ("yes", "yes")
    used = [element for element in root.iter() if any("ENROLL_FILE" in value for value in element.attrib.values())]
    assert {name_of(element) for element in used} == {"Property", "CopyFile"}


@BOTH
def test_the_identity_is_removed_only_on_request_and_never_in_an_upgrade(scope: Scope) -> None:
    root = ET.fromstring(source(scope))
    asked = 'REMOVE="ALL" AND NOT UPGRADINGPRODUCTCODE AND REMOVE_IDENTITY="1"'
    custom = {element.get("Action"): element.get("Condition") for element in root.iter(f"{NAMESPACE}Custom")}
    removing = {action for action in custom if action and action.startswith("Remove") and "No" not in action}
    assert removing
    assert all(custom[action] == asked for action in removing)
    values = [element.get("Value", "") for element in root.iter(f"{NAMESPACE}SetProperty")]
    deleting = [value for value in values if "rd /s /q" in value]
    assert len(deleting) == len(removing)
    assert all(f"{default_data_folder().name}" in value for value in deleting)


def test_the_system_account_deletes_nothing_in_a_users_folder() -> None:
    root = ET.fromstring(source("machine"))
    impersonating = {one.get("Id"): one.get("Impersonate") for one in root.iter(f"{NAMESPACE}CustomAction")}
    for one in root.iter(f"{NAMESPACE}SetProperty"):
        if "LocalAppDataFolder" in one.get("Value", ""):
            assert impersonating[one.get("Id")] == "yes"
    assert "RemoveFolderEx" not in source("machine")


def test_the_task_starts_the_agent_where_the_package_puts_agent_and_invitation(tmp_path: Path) -> None:
    files = written(Order(tmp_path, "machine", "1.2.3", tmp_path / "work", tmp_path), PLACES)
    content = files[tmp_path / "work" / "agent-task.xml"]
    assert content[:2] in (b"\xff\xfe", b"\xfe\xff")
    task = ET.fromstring(content)
    spaced = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    command, arguments = task.findtext(".//t:Command", "", spaced), task.findtext(".//t:Arguments", "", spaced)
    assert command == '"%ProgramFiles%\\Fallow\\Agent\\fallow-agent.exe"'
    options = build_parser().parse_args(arguments.replace('"', "").split())
    assert (options.wait, str(options.invite_file)) == (True, "%ProgramData%\\Fallow\\enrol\\invite.txt")
    package = ET.fromstring(source("machine"))
    below = {one.get("Id"): one.get("Name") for one in package.iter(f"{NAMESPACE}Directory")}
    assert (below["FALLOWFOLDER"], below["INSTALLFOLDER"], below["ENROLFOLDER"]) == ("Fallow", "Agent", "enrol")
    (copied,) = package.iter(f"{NAMESPACE}CopyFile")
    assert copied.get("DestinationName") == "invite.txt"


def test_what_a_user_starts_at_login_is_started_with_arguments_that_it_takes() -> None:
    package = ET.fromstring(source("user"))
    values = {one.get("Name"): one.get("Value", "") for one in package.iter(f"{NAMESPACE}RegistryValue")}
    program, _, arguments = values["Fallow agent"].partition(" ")
    assert program == '"[INSTALLFOLDER]fallow-agent.exe"'
    options = build_parser().parse_args(arguments.replace('"', "").split())
    assert (options.wait, str(options.invite_file)) == (True, "[ENROLFOLDER]invite.txt")
