"""console.builds.book."""

from __future__ import annotations

import asyncio
from pathlib import Path

from console.api.admin.build_types import Build, BuildRequest
from console.builds.book import Book
from console.builds.records import KEPT, Records


async def test_two_that_forget_old_builds_at_once_do_not_stumble_over_each_other(tmp_path: Path) -> None:
    records = Records(tmp_path / "builds")
    book = Book(records)
    await book.open()
    request = BuildRequest(source="/s", out="/o")
    for number in range(KEPT + 5):
        await book.put(Build(build_id=f"{number:012x}", request=request, model_id="toy", state="built"))
    await asyncio.gather(book.forget_old(), book.forget_old(), book.forget_old())
    assert [build.build_id for build in book.all()] == [f"{number:012x}" for number in range(5, KEPT + 5)]
    assert len(records.open()) == KEPT
