"""What an administrator types for a device means one device, or is refused with what to do."""

from __future__ import annotations

import pytest

from console.registry.device_names import DeviceNames
from console.registry.errors import NotFound

NAMES = DeviceNames([("0a1b2c3d", "WXYZ-2345"), ("0a1b9999", "ABCD-2345"), ("ffff0000", "ABCD-2345")])


@pytest.mark.parametrize("text", ["0a1b2c3d", "0a1b2", " 0A1B2C ", "WXYZ-2345", "wxyz2345"])
def test_an_id_its_beginning_or_the_code_names_a_device(text: str) -> None:
    assert NAMES.find(text) == "0a1b2c3d"


@pytest.mark.parametrize("text", ["ff", "", "0a1b2c3d4", "WXYZ"])
def test_nothing_is_named_by_too_little_or_by_what_no_device_has(text: str) -> None:
    with pytest.raises(NotFound, match="No device has"):
        NAMES.find(text)


@pytest.mark.parametrize("text", ["0a1b", "ABCD-2345"])
def test_what_two_devices_share_names_neither(text: str) -> None:
    with pytest.raises(NotFound, match="2 devices have"):
        NAMES.find(text)
