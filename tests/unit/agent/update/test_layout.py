"""agent.update.layout: versions side by side, and the name of the current one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent.update import layout
from agent.update.errors import InstallationBroken
from agent.update.layout import MANAGED, Installation, find_installation, who_manages
from tests.support.releases import make_installation, make_tree, versions_in


def runs(installation: Installation) -> str:
    program = installation.current_program()
    return subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout.strip()


def test_a_version_is_placed_and_switched_to(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    folder = installation.new_folder()
    make_tree(folder, "1.1.0")
    installation.place(folder, "1.1.0")
    assert (installation.current(), versions_in(installation)) == ("1.0.0", ["1.0.0", "1.1.0"])
    installation.switch("1.1.0")
    assert installation.current() == runs(installation) == "1.1.0"


def test_where_there_are_no_links_a_file_names_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Installation, "_links", False)
    monkeypatch.setattr(layout, "POINTER", "current.txt")
    installation = make_installation(tmp_path)
    assert (tmp_path / "current.txt").read_text() == "1.0.0"
    assert installation.current() == runs(installation) == "1.0.0"


def test_versions_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    for version in ("1.10.0", "1.9.0"):
        make_tree(installation.folder(version), version)
    (installation.versions / "notes").mkdir()
    (installation.versions / "1.2.0").mkdir()
    assert versions_in(installation) == ["1.0.0", "1.9.0", "1.10.0"]


def test_pruning_keeps_the_current_one_and_what_it_is_told(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    for version in ("0.8.0", "0.9.0", "1.1.0"):
        make_tree(installation.folder(version), version)
    installation.new_folder()
    (installation.versions / "notes").mkdir()
    installation.prune(["1.1.0"])
    assert sorted(path.name for path in installation.versions.iterdir()) == ["1.0.0", "1.1.0", "notes"]


def test_the_current_version_is_never_removed(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    installation.remove("1.0.0")
    assert runs(installation) == "1.0.0"


def test_what_is_no_version_cannot_become_the_current_one(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    with pytest.raises(InstallationBroken):
        installation.switch("1.1.0")
    with pytest.raises(InstallationBroken, match="no fallow-agent"):
        installation.place(installation.new_folder(), "1.1.0")
    (tmp_path / "current").unlink()
    with pytest.raises(InstallationBroken, match="does not name a version"):
        installation.current()
    (tmp_path / "current").symlink_to("versions/9.9.9")
    with pytest.raises(InstallationBroken, match="not whole"):
        installation.current()


def test_a_program_knows_whether_it_lies_among_versions(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    found = find_installation(installation.current_program())
    assert found is not None
    assert found.root == tmp_path.resolve()
    assert find_installation(make_tree(tmp_path / "plain", "1.0.0") / "fallow-agent") is None


def test_a_package_says_that_it_updates_the_program(tmp_path: Path) -> None:
    program = make_tree(tmp_path / "plain", "1.0.0") / "fallow-agent"
    assert who_manages(program) == ""
    (program.parent / MANAGED).write_text("deb\n")
    assert who_manages(program) == "deb"
