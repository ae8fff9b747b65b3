"""What the tests of Linux' probes share: a private bus, and services on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.desktop_bus import MakeService, private_bus, services


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Give the environment of a program whose session's and system's bus is a private one."""
    with private_bus(tmp_path_factory.mktemp("bus")) as environment:
        yield environment


@pytest.fixture
def make(bus: dict[str, str]) -> Iterator[MakeService]:
    """Make services on the bus; they end with the test."""
    with services(bus) as made:
        yield made
