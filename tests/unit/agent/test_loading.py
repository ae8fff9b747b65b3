"""A delivery leaves its files in the store and nothing else, however it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.link.messages import LayerRange
from agent.link.store import Store
from agent.link.transfer import FetchCut
from agent.loading import StageLoader
from agent.settings import AgentSettings


def make_loader(store: Store, fetch_range: Any) -> StageLoader:
    nobody: Any = None
    fetcher: Any = SimpleNamespace(fetch_range=fetch_range)
    return StageLoader(
        store, fetcher, AgentSettings(), nobody,
        memory=nobody, tested=nobody, uplink=nobody, check=lambda digest, signature: None,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["whole", "cut", "cancelled"])
async def test_a_delivery_keeps_no_folder_and_pins_nothing_when_it_is_over(tmp_path: Path, how: str) -> None:
    store, fetching = Store(tmp_path), asyncio.Event()

    async def fetch_range(digest: str, first: int, last: int, name: str) -> tuple[object, Path]:
        (tmp_path / "stages" / name).mkdir()
        store.pin(f"stage {name}", [digest])
        fetching.set()
        if how == "cut":
            raise FetchCut("The link keeps breaking.")
        if how == "cancelled":
            await asyncio.Event().wait()
        return object(), tmp_path

    loader = make_loader(store, fetch_range)
    delivering = asyncio.create_task(loader.deliver(LayerRange("ab" * 32, 0, 2), b""))
    await fetching.wait()
    if how == "cancelled":
        delivering.cancel()
    (problem,) = await asyncio.gather(delivering, return_exceptions=True)
    assert isinstance(problem, asyncio.CancelledError) if how == "cancelled" else bool(problem) == (how == "cut")
    assert list((tmp_path / "stages").iterdir()) == []
    assert store._pins == {}
