"""agent.support.bundle: what is collected, and a file that appears whole, for its owner, never over another."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent.settings import SettingsError
from agent.support import bundle
from agent.support.bundle import (
    MANIFEST,
    Part,
    SupportError,
    after_lines,
    before_lines,
    check_new,
    collect,
    last_of,
    write_bundle,
)
from agent.support.cleaning import Cleaner
from agent.support.machine import common_parts

CANARY = "canary-secret"


def broken(error: Exception) -> Any:
    def make() -> object:
        raise error

    return make


def collected(*parts: Part) -> tuple[bundle.Manifest, dict[str, bytes]]:
    return collect("fallow-test", parts, Cleaner([CANARY]))


def test_the_manifest_says_what_each_file_is_for_and_why_one_is_missing() -> None:
    manifest, files = collected(
        Part("a.json", "of a", lambda: {"x": CANARY}),
        Part("b.txt", "of b", lambda: f"b {CANARY}"),
        Part("c.json", "of c", broken(SettingsError(f"It is {CANARY}."))),
        Part("d.json", "of d", broken(KeyError(CANARY))),
    )
    assert list(files) == [MANIFEST, "a.json", "b.txt"]
    assert CANARY.encode() not in b"".join(files.values())
    assert json.loads(files[MANIFEST])["files"][0] == {
        "name": "a.json", "purpose": "of a", "size_bytes": len(files["a.json"]), "problem": "",
    }  # fmt: skip
    assert [member.problem for member in manifest.files[2:]] == [
        "It could not be made: It is [hidden].", "It could not be made: KeyError",
    ]  # fmt: skip
    said = after_lines(Path("x.zip"), manifest)
    assert "x.zip holds 2 files" in said[0]
    assert "  d.json: It could not be made: KeyError" in said


def test_what_will_be_in_it_is_said_before() -> None:
    said = before_lines([Part("a.json", "of a", dict)])
    assert "  a.json: of a" in said
    assert "prompts" in said[-1]


def test_a_bundle_is_a_zip_for_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "bundle.zip"
    before = os.umask(0)
    try:
        write_bundle(out, {"a/b.txt": b"x" * 1000, "c.json": b"{}"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with zipfile.ZipFile(out) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == ["a/b.txt", "c.json"]
    assert list(tmp_path.iterdir()) == [out]


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    taken, dangling = tmp_path / "taken.zip", tmp_path / "dangling.zip"
    taken.write_text("mine")
    dangling.symlink_to(tmp_path / "nowhere")
    for out in (taken, dangling):
        with pytest.raises(SupportError, match="is there already"):
            write_bundle(out, {})
    assert taken.read_text() == "mine"
    with pytest.raises(SupportError, match="is not there"):
        check_new(tmp_path / "nowhere" / "x.zip")


def test_one_that_came_meanwhile_stays_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "bundle.zip"
    monkeypatch.setattr(bundle, "check_new", lambda out: out.write_text("another's"))
    with pytest.raises(SupportError, match="is there already"):
        write_bundle(out, {"a": b""})
    assert out.read_text() == "another's"
    assert list(tmp_path.iterdir()) == [out]


def test_a_disk_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(self: Path, target: Path) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    out = tmp_path / "bundle.zip"
    write_bundle(out, {"a": b"x"})
    assert list(tmp_path.iterdir()) == [out]


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SupportError, match="No space left on device"):
        write_bundle(tmp_path / "bundle.zip", {"a": b"x"})
    assert list(tmp_path.iterdir()) == []


def test_of_a_long_log_the_last_whole_lines_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.log"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    assert last_of(file).startswith("line 0\n")
    monkeypatch.setattr(bundle, "MOST_LOG_BYTES", 50)
    lines = last_of(file).splitlines()
    assert lines[-1] == "line 99"
    assert all(line.startswith("line ") for line in lines)


def test_facts_of_this_pc_and_versions_are_there_without_its_name(tmp_path: Path) -> None:
    _, files = collected(*common_parts(tmp_path))
    assert json.loads(files["versions.json"])["packages"]["fallow"]
    facts = json.loads(files["pc.json"])
    assert facts["memory_bytes"] > 0
    assert os.uname().nodename not in files["pc.json"].decode()
