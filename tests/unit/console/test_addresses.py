"""console.addresses: what works on one PC only."""

from __future__ import annotations

import pytest

from console.addresses import is_loopback, is_this_pc, reach_text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_an_address_of_the_pc_itself_is_told_apart(host: str) -> None:
    assert is_loopback(host)
    url = f"https://[{host}]:8460" if ":" in host else f"https://{host}:8460"
    assert is_this_pc(url)
    assert "on this PC only" in reach_text(url)


@pytest.mark.parametrize("url", ["https://console.example:8460", "https://10.0.0.7", "https://[2001:db8::1]", ""])
def test_other_addresses_need_no_word(url: str) -> None:
    assert not is_this_pc(url)
    assert reach_text(url) == ""


def test_what_is_no_address_is_not_this_pc() -> None:
    assert not is_this_pc("https://[::1")
