"""How a release's archive comes to this PC: like a model file, from PCs that have it already or from the console."""

from __future__ import annotations

from pathlib import Path

from agent.link.closing import LinkDown
from agent.link.fetch import Fetcher
from agent.link.store_errors import StoreError
from agent.link.transfer import FetchError
from agent.update.updates import Fetch, FetchProblem
from shard_export.library.manifest import FileRecord


def fetch_with(fetcher: Fetcher) -> Fetch:
    """Return what brings a release's archive into the store. It may make room for other files at any time."""

    async def fetch(sha256: str, size_bytes: int) -> Path:
        try:
            return await fetcher.fetch_one(FileRecord("", size_bytes, sha256))
        except (FetchError, StoreError, LinkDown) as error:
            raise FetchProblem(str(error)) from error

    return fetch
