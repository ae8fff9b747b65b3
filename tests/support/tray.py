"""What tests of the tray ask of its program and its service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agent.control.protocol import Order
from agent.control.status import Status
from agent.tray.program import TrayProgram
from tests.support.fake_service import FakeService

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot


def fields(order: Order) -> tuple[object, ...]:
    """An order without its number."""
    return (type(order), *msgspec.structs.astuple(order)[1:])


def hear(program: TrayProgram, service: FakeService, qtbot: QtBot, status: Status) -> None:
    """Let the service say a status, and wait until the program has it."""
    service.say(status)
    qtbot.waitUntil(lambda: program.status == status)
