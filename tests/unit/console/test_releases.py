"""console.releases: what is refused leaves nothing behind, and what was withdrawn stays withdrawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from agent.update.releases import encode_signed, own_platform
from console.errors import ReleaseUnusable
from console.fleet.distribution import Distribution
from console.fleet.releases import ReleasePost
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from console.registry.releases import Releases
from console.releases import ReleaseShelf
from tests.support.releases import PAST, make_archive, make_release


class QuietPost:
    """Has nobody to offer anything to."""

    async def publish(self) -> None:
        """Tell nobody."""


class Shelf:
    """A shelf with its registry, what it serves, and a folder of signed releases."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry, self.distribution = registry, Distribution()
        self.kept, self.folder = folder / "kept", folder
        post = cast(ReleasePost, QuietPost())
        self.shelf = ReleaseShelf(registry, self.distribution, post, self.kept)

    def signed(self, number: str = "1.1.0", **changes: object) -> Path:
        archive, packed = make_archive(self.folder, number)
        archive.rename(self.folder / f"fallow-agent-{number}-{own_platform()}.tar.gz")
        file = self.folder / f"{number}.release"
        file.write_bytes(encode_signed(make_release(number, packed, **changes)))  # type: ignore[arg-type]
        return file

    @property
    def copies(self) -> list[Path]:
        return sorted(self.kept.glob("*"))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Shelf]:
    with Registry.open(tmp_path / "r.sqlite") as registry:
        yield Shelf(registry, tmp_path)


async def test_a_release_that_was_withdrawn_is_not_taken_again(made: Shelf) -> None:
    file = made.signed()
    record = await made.shelf.add(file, CONSOLE)
    assert len(made.copies) == 1
    await made.shelf.withdraw(record.release_id, CONSOLE)
    assert made.copies == []
    with pytest.raises(ReleaseUnusable, match="was withdrawn; sign and add a newer one"):
        await made.shelf.add(file, CONSOLE)
    assert (made.copies, made.distribution.find(record.sha256)) == ([], None)
    await made.shelf.open()
    assert made.distribution.find(record.sha256) is None
    assert (await made.shelf.list())[0][0] == made.registry.releases.list()[0]


async def test_one_that_another_console_withdraws_meanwhile_is_not_kept(
    made: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made.signed()
    record = await made.shelf.add(file, CONSOLE)
    await made.shelf.withdraw(record.release_id, CONSOLE)
    monkeypatch.setattr(Releases, "check_not_withdrawn", lambda *_: None)  # it looked before that happened
    with pytest.raises(ReleaseUnusable, match="was withdrawn"):
        await made.shelf.add(file, CONSOLE)
    assert made.copies == []


async def test_one_that_is_no_use_is_not_copied(made: Shelf) -> None:
    with pytest.raises(ReleaseUnusable, match="has expired"):
        await made.shelf.add(made.signed(expires=PAST), CONSOLE)
    assert made.copies == []
    assert made.registry.releases.list() == []


async def test_the_same_release_may_be_added_twice(made: Shelf) -> None:
    file = made.signed()
    first = await made.shelf.add(file, CONSOLE)
    assert await made.shelf.add(file, CONSOLE) == first
    assert made.distribution.find(first.sha256) == (made.copies[0], first.size_bytes)
