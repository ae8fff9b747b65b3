"""console.builds.places: only what is below the root can be seen or named."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.api.admin.build_types import Entry
from console.builds import places as places_module
from console.builds.places import Places
from console.errors import BuildRefused
from tests.support.builds import make_played_checkpoint
from tests.support.libraries import make_library


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "models"
    make_played_checkpoint(root / "toy")
    make_library(root / "library")
    (root / "empty").mkdir()
    (root / ".hidden").mkdir()
    (root / "a.gguf").write_bytes(b"GGUF1")
    (root / "Notes.txt").write_text("hello")
    return root


def test_a_folder_shows_names_kinds_and_sizes(root: Path) -> None:
    folder = Places(root).look("")
    weights = (root / "toy" / "model.safetensors").stat().st_size
    assert folder.entries == [
        Entry("a.gguf", "gguf", 5),
        Entry("empty", "folder"),
        Entry("library", "library"),
        Entry("toy", "checkpoint", weights),
        Entry("Notes.txt", "file", 5),
    ]
    assert (folder.root, folder.path, folder.parent, folder.more) == (str(root), str(root), "", False)
    assert Places(root).look(str(root / "empty")).parent == str(root)


def test_what_is_opened_says_what_it_is_itself(root: Path) -> None:
    places = Places(root)
    kinds = [places.look(str(root / name)).kind for name in ("", "empty", "toy", "library")]
    assert kinds == ["folder", "folder", "checkpoint", "library"]
    file = places.look(str(root / "a.gguf"))
    assert (file.kind, file.path, file.parent, file.entries) == ("gguf", str(root / "a.gguf"), str(root), [])


def test_nothing_above_or_beside_the_root_is_shown(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (root / "way out").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root / "loop")
    (root / "way in").symlink_to(root / "empty")
    places = Places(root)
    for text in ("..", "/", str(tmp_path), str(root / ".." / "secret"), str(root / "way out"), "relative", "a\0b"):
        with pytest.raises(BuildRefused, match="is not below"):
            places.look(text)
    names = [entry.name for entry in places.look("").entries]
    assert "way in" in names
    assert "way out" not in names
    with pytest.raises(BuildRefused, match="cannot be listed"):
        places.look(str(root / "Notes.txt"))


def test_what_is_hidden_is_neither_entered_nor_written(root: Path) -> None:
    (root / ".hidden" / "keys").mkdir()
    (root / "toy" / ".cache").mkdir()
    (root / "shown").symlink_to(root / ".hidden" / "keys")
    places = Places(root)
    for name in (
        ".hidden",
        ".hidden/keys",
        ".hidden/new",
        ".new",
        "toy/.cache",
        "toy/.cache/new",
        "shown",
        "shown/new",
    ):
        for ask in (places.look, places.place):
            with pytest.raises(BuildRefused, match="is hidden"):
                ask(str(root / name))
    assert "shown" not in [entry.name for entry in places.look("").entries]
    below = Places(root / ".hidden")  # where the console was started with it, it is the folder for models
    assert below.place(str(root / ".hidden" / "keys")) == root / ".hidden" / "keys"


def test_a_folder_with_more_than_fits_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "MAX_ENTRIES", 2)
    folder = Places(root).look("")
    assert (len(folder.entries), folder.more) == (2, True)
