"""agent.update.permission: where self-update is off, and which root counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.update.layout import MANAGED
from agent.update.permission import ROOT_NAME, find_means, only_administrators_write
from tests.support.releases import make_installation, make_tree

needs_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root owns files as root")


def test_a_program_among_versions_with_a_root_beside_it_updates_itself(tmp_path: Path) -> None:
    installation = make_installation(tmp_path)
    program = installation.program("1.0.0")
    (program.parent / ROOT_NAME).write_bytes(b"the builder's")
    means = find_means(program, tmp_path / "nothing")
    assert (means.root, means.why_off) == (b"the builder's", "")
    assert means.installation is not None
    assert means.installation.root == tmp_path.resolve()


def test_why_it_is_off_is_a_sentence(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    plain = make_tree(tmp_path / "plain", "1.0.0") / "fallow-agent"
    assert "no bundle among versions" in find_means(plain, nothing).why_off
    program = make_installation(tmp_path / "side").program("1.0.0")
    assert "no root document" in find_means(program, nothing).why_off
    (program.parent / ROOT_NAME).write_bytes(b" " * 40_000)
    assert "too large" in find_means(program, nothing).why_off
    (program.parent / MANAGED).write_text("deb")
    means = find_means(program, nothing)
    assert means.why_off == "Self-update is off: this agent was installed by deb, which updates it."
    assert means.installation is None


def test_a_folder_that_this_user_may_not_change_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_installation(tmp_path).program("1.0.0")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "may not change" in find_means(program, tmp_path / "nothing").why_off


@needs_root
def test_a_company_s_own_root_counts_instead_of_the_packaged_one(tmp_path: Path) -> None:
    program = make_installation(tmp_path / "side").program("1.0.0")
    (program.parent / ROOT_NAME).write_bytes(b"the builder's")
    own = tmp_path / ROOT_NAME
    own.write_bytes(b"the company's")
    own.chmod(0o644)
    assert find_means(program, own).root == b"the company's"
    own.chmod(0o666)
    means = find_means(program, own)
    assert "others than administrators" in means.why_off
    assert means.root == b""


@needs_root
def test_only_what_administrators_write_is_theirs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o644)
    assert only_administrators_write(file)
    os.chown(file, 1000, 0)
    assert not only_administrators_write(file)
