"""installer.release: keys that are made, root documents, and releases that an agent takes."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.update.layout import Installation, find_installation
from agent.update.permission import ROOT_NAME, find_means
from installer.release import KEY_VARIABLE, main
from tests.support.releases import make_tree

PASSPHRASE = "correct horse battery"
Release = Callable[..., str]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Release:
    """Run a command in `tmp_path`, with passphrases on standard input; returns what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)

    def run(*words: str, fails: int = 0, says: str = f"{PASSPHRASE}\n" * 4) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(says))
        assert main(words) == fails
        said = capsys.readouterr()
        return said.err if fails else said.out

    return run


def make_bundle(folder: Path, version: str = "1.1.0") -> Path:
    """A program's folder with the root document that `make_keys` made."""
    tree = make_tree(folder / "bundle", version)
    shutil.copyfile(folder / "roots" / "1.root.json", tree / ROOT_NAME)
    return tree


def make_keys(release: Release) -> None:
    for name in ("root.key", "release.key"):
        release("keys", name)
    release("root", "--root-key", "root.key", "--release-key", "release.key.pub", "--roots", "roots")


SIGN = ("sign", "bundle", "--release-version", "1.1.0", "--minimum", "1.0.0", "--roots", "roots", "--out", "out")
FILE = "out/fallow-agent-1.1.0-plan9-mips.release"
PLATFORM = ("--platform", "plan9-mips")


def test_from_keys_to_a_release_that_is_checked_to_its_last_file(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    make_bundle(tmp_path)
    release(*SIGN, *PLATFORM, "--key", "release.key", "--sequence", "7")
    said = release("verify", FILE, "--root", "roots/1.root.json")
    assert "agent 1.1.0 for plan9-mips, release 7" in said
    archive = tmp_path / "out" / "fallow-agent-1.1.0-plan9-mips.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-1])
    assert "not the one that was signed" in release("verify", FILE, "--root", "roots/1.root.json", fails=1)


def test_a_private_key_is_its_owner_s_alone_and_encrypted(release: Release, tmp_path: Path) -> None:
    release("keys", "root.key")
    private = (tmp_path / "root.key").read_bytes()
    assert b"ENCRYPTED PRIVATE KEY" in private
    assert stat.S_IMODE((tmp_path / "root.key").stat().st_mode) == 0o600
    assert "never replaced" in release("keys", "root.key", fails=1)
    assert (tmp_path / "root.key").read_bytes() == private
    assert "fewer than 12" in release("keys", "other.key", fails=1, says="short\n")
    assert not (tmp_path / "other.key").exists()


def test_a_wrong_passphrase_signs_nothing_and_is_not_said_again(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    make_bundle(tmp_path)
    wrong = release(*SIGN, "--key", "release.key", fails=1, says="wrong horse battery\n")
    assert "passphrase is wrong" in wrong
    assert "horse" not in wrong
    assert not (tmp_path / "out").exists()


def test_the_key_may_be_named_by_the_environment(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(release)
    make_bundle(tmp_path)
    assert "No release key" in release(*SIGN, fails=1)
    monkeypatch.setenv(KEY_VARIABLE, "release.key")
    release(*SIGN, *PLATFORM)
    assert (tmp_path / FILE).exists()


def test_a_key_that_the_root_does_not_name_signs_nothing(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    make_bundle(tmp_path)
    release("keys", "stranger.key")
    assert "not signed by a release key" in release(*SIGN, *PLATFORM, "--key", "stranger.key", fails=1)
    assert not (tmp_path / FILE).exists()


def test_a_version_that_could_not_be_updated_again_is_not_signed(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    bundle = make_bundle(tmp_path)
    (bundle / ROOT_NAME).write_text("nothing")
    assert "cannot be read" in release(*SIGN, "--key", "release.key", fails=1)
    (bundle / ROOT_NAME).unlink()
    assert "last update" in release(*SIGN, "--key", "release.key", fails=1)
    assert "last update" in release("portable", "bundle", "--release-version", "1.0.0", "--out", "x.tar.gz", fails=1)
    assert not (tmp_path / "out").exists()


def test_a_release_key_is_replaced_by_the_next_root(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    make_bundle(tmp_path)
    release("keys", "fresh.key")
    release("root", "--root-key", "root.key", "--release-key", "fresh.key.pub", "--roots", "roots")
    assert "not signed" in release(*SIGN, *PLATFORM, "--key", "release.key", fails=1)
    release(*SIGN, *PLATFORM, "--key", "fresh.key")
    assert "1.1.0" in release("verify", FILE, "--root", "roots/1.root.json")


def test_a_root_key_is_replaced_only_together_with_the_one_before(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    make_bundle(tmp_path)
    release("keys", "next.key")
    words = ("root", "--root-key", "next.key", "--release-key", "release.key.pub", "--roots", "roots")
    assert "--former-key" in release(*words, fails=1)
    release(*words, "--former-key", "root.key")
    release(*SIGN, *PLATFORM, "--key", "release.key")
    assert "1.1.0" in release("verify", FILE, "--root", "roots/1.root.json")


@pytest.mark.skipif(sys.platform == "win32", reason="the archive of a first installation holds a link")
def test_a_first_installation_by_hand_can_update_itself(release: Release, tmp_path: Path) -> None:
    make_keys(release)
    make_bundle(tmp_path, "1.0.0")
    release("portable", "bundle", "--release-version", "1.0.0", "--out", "first.tar.gz")
    with tarfile.open("first.tar.gz") as tar:
        tar.extractall(tmp_path / "home", filter="data")
    program = tmp_path / "home" / "fallow-agent" / "current" / "fallow-agent"
    assert subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout == "1.0.0\n"
    installation = find_installation(program)
    assert isinstance(installation, Installation)
    assert installation.current() == "1.0.0"
    means = find_means(program, tmp_path / "nothing")
    assert means.root == (tmp_path / "roots" / "1.root.json").read_bytes()
    assert os.fspath(ROOT_NAME) in [path.name for path in program.resolve().parent.iterdir()]
