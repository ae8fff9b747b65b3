"""agent.control.protocol: what passes over the local control socket."""

from __future__ import annotations

import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.control import protocol
from agent.control.protocol import (
    LENGTH,
    MAX_REQUEST_BYTES,
    ControlProtocolError,
    Enrol,
    Greeting,
    Order,
    Pause,
    Subscribe,
)
from agent.control.status import Contribution, PolicyRow, PolicyValue, Status


def make_status(**changes: typing.Any) -> Status:
    status = Status(
        now_s=0.0, phase="held", icon="waiting", headline="", reasons=[], countdown=None, link="connected",
        link_message="", console_url="", device_id="", fleet_name="", device_code="", devices=[], stages=[],
        contribution=Contribution(), policy=[], policy_revision=0, pause_until_s=None, may_contribute_now=False,
        may_quit=True, seen_by_console={},
    )  # fmt: skip
    return msgspec.structs.replace(status, **changes)


def test_every_order_has_an_id_to_answer_to() -> None:
    orders = typing.get_args(Order)
    assert len(orders) > 10
    assert all(order.__struct_fields__[0] == "id" for order in orders)


def test_a_message_begins_with_its_length() -> None:
    data = protocol.encode(Pause(7, "time", 900.0))
    assert LENGTH.unpack(data[:4]) == (len(data) - 4,)
    assert protocol.decode_order(data[4:]) == Pause(7, "time", 900.0)


@pytest.mark.parametrize("value", [True, 3, 0.5, "never", ["a.exe"], None])
def test_a_policy_value_keeps_its_type(value: PolicyValue) -> None:
    sent = make_status(policy=[PolicyRow("any", "switch", value, "admin", {"employee": value})])
    got = protocol.decode_from_service(protocol.encode(sent)[4:])
    assert got == sent
    assert isinstance(got, Status)
    assert type(got.policy[0].value) is type(value)


def test_a_pause_until_resumed_has_no_end() -> None:
    got = protocol.decode_from_service(protocol.encode(make_status(pause_until_s=float("inf")))[4:])
    assert isinstance(got, Status)
    assert got.pause_until_s == float("inf")


def test_a_newer_clients_extra_fields_are_ignored() -> None:
    body = msgspec.msgpack.encode({"type": "Subscribe", "id": 4, "since_version": 9})
    assert protocol.decode_order(body) == Subscribe(4)


@given(st.binary(max_size=200))
def test_what_is_no_message_is_refused(body: bytes) -> None:
    for decode in (protocol.decode_greeting, protocol.decode_order, protocol.decode_from_service):
        try:
            decoded = decode(body)
        except ControlProtocolError:
            continue
        assert isinstance(decoded, msgspec.Struct)


def test_a_service_message_is_no_order() -> None:
    with pytest.raises(ControlProtocolError, match="cannot be read"):
        protocol.decode_order(protocol.encode(Greeting(1, "1.0", "tray"))[4:])


def test_the_longest_invite_fits() -> None:
    assert len(protocol.encode(Enrol(1, "f" * 64 * 1024))) < MAX_REQUEST_BYTES


def test_an_invite_is_not_shown() -> None:
    assert "cfl1secret" not in repr(Enrol(1, "cfl1secret"))
