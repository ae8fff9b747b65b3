"""What the service does as a program, beside serving."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from console.serving import shorten_collections


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_what_is_there_by_now_is_not_looked_at_again() -> None:
    before = [object]  # a container, as code and tables are
    shorten_collections()
    after = [object]
    looked_at = {id(one) for one in gc.get_objects()}
    assert id(before) not in looked_at
    assert id(after) in looked_at
