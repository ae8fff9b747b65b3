"""agent.update.archives: what may be in an archive, and that nothing of it lands elsewhere."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.update.archives import Packed, is_inside, measure, pack, unpack
from agent.update.errors import ArchiveRefused
from tests.support.releases import make_archive, make_tree


def entry(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(data), kind, link
    return member, data


def write(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Packed:
    """Write an archive as it could be made by anybody, with figures that fit it."""
    with tarfile.open(path, "w:gz") as tar:
        for member, data in entries:
            tar.addfile(member, io.BytesIO(data))
    size, sha256 = measure(path)
    return Packed(size, sha256, sum(member.size for member, _ in entries), len(entries))


def refusal(archive: Path, packed: Packed, folder: Path) -> str:
    folder.mkdir()
    with pytest.raises(ArchiveRefused) as caught:
        unpack(archive, folder, packed)
    return str(caught.value)


def test_a_program_comes_out_as_it_went_in(tmp_path: Path) -> None:
    archive, packed = make_archive(tmp_path, "1.1.0")
    out = tmp_path / "out"
    out.mkdir()
    unpack(archive, out, packed)
    assert os.access(out / "fallow-agent", os.X_OK)
    assert not os.access(out / "_internal" / "data.bin", os.X_OK)
    assert (out / "_internal" / "link.bin").readlink() == Path("data.bin")
    assert (out / "_internal" / "data.bin").read_bytes() == b"1.1.0" * 20_000


def test_the_same_program_makes_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    _, one = make_archive(tmp_path / "one", "1.1.0")
    os.utime(tmp_path / "one" / "tree-1.1.0" / "fallow-agent", (0, 0))
    assert make_archive(tmp_path / "other", "1.1.0")[1] == one


@pytest.mark.parametrize(
    "bad",
    [
        entry("../evil", b"x"),
        entry("/etc/evil", b"x"),
        entry("a/../../evil", b"x"),
        entry("a\\evil", b"x"),
        entry("C:evil", b"x"),
        entry("a//evil", b"x"),
        entry("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        entry("link", kind=tarfile.SYMTYPE, link="../../evil"),
        entry("hard", kind=tarfile.LNKTYPE, link="good"),
        entry("pipe", kind=tarfile.FIFOTYPE),
        entry("disk", kind=tarfile.BLKTYPE),
    ],
    ids=lambda bad: f"{bad[0].name}-{bad[0].type.decode()}",
)
def test_an_entry_that_leads_elsewhere_is_refused(tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes]) -> None:
    archive = tmp_path / "a.tar.gz"
    packed = write(archive, entry("good", b"y"), bad)
    assert "The archive" in refusal(archive, packed, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "out"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    inside = [entry("real", kind=tarfile.DIRTYPE), entry("link", kind=tarfile.SYMTYPE, link="real")]
    packed = write(archive, *inside, entry("link/file", b"x"))
    assert "behind a link" in refusal(archive, packed, tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + b"\0",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    ],
    ids=["short", "half", "empty", "long", "changed"],
)
def test_a_changed_archive_is_refused_before_anything_is_unpacked(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    archive, packed = make_archive(tmp_path, "1.1.0")
    archive.write_bytes(change(archive.read_bytes()))
    assert "not the one that was signed" in refusal(archive, packed, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_archive_holds_neither_more_nor_less_than_was_signed(tmp_path: Path) -> None:
    archive, packed = make_archive(tmp_path, "1.1.0")
    for number, (unpacked, entries) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
        other = Packed(packed.size_bytes, packed.sha256, packed.unpacked_bytes + unpacked, packed.entries + entries)
        assert "than was signed" in refusal(archive, other, tmp_path / f"out{number}")


def test_what_is_no_archive_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for number, data in enumerate([b"no gzip", gzip.compress(b"no tar" * 500)]):
        path = tmp_path / f"{number}"
        path.write_bytes(data)
        size, sha256 = measure(path)
        assert "cannot be unpacked" in refusal(path, Packed(size, sha256, 10, 1), tmp_path / f"out{number}")


def test_nothing_odd_is_packed(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", "1.1.0")
    (tree / "out").symlink_to("/etc")
    with pytest.raises(ArchiveRefused, match="outside"):
        pack(tree, tmp_path / "a.tar.gz")


@given(st.text(alphabet="ab./\\:\0 ", max_size=12))
def test_a_name_that_is_inside_stays_inside_on_every_system(name: str) -> None:
    if is_inside(name):
        place = os.path.normpath(os.path.join("/folder", name))  # noqa: PTH118
        assert place.startswith("/folder/")
        assert "\\" not in name
        assert ":" not in name
