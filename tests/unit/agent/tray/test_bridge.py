"""agent.tray.bridge: the windows' one way to the service, over the real socket."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.control.protocol import Answer, Done, Enrol, Pause, Refused, Resume, Told
from agent.tray import single
from agent.tray.bridge import Bridge
from tests.support.fake_service import FakeService, fake_service, make_status
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot


def test_the_status_comes_and_comes_again_when_it_changes(bridge: Bridge, service: FakeService, qtbot: QtBot) -> None:
    with qtbot.waitSignal(bridge.status_came) as first:
        bridge.start()
    assert first.args == [service.agent.now]
    with qtbot.waitSignal(bridge.status_came) as second:
        service.say(make_status(phase="serving"))
    assert second.args[0].phase == "serving"


def test_an_order_is_answered_on_the_gui_thread(bridge: Bridge, service: FakeService, qtbot: QtBot) -> None:
    heard: list[tuple[Answer, threading.Thread]] = []
    with qtbot.waitSignal(bridge.status_came):
        bridge.start()
    bridge.order(
        lambda id_: Pause(id_, "time", 900.0), lambda answer: heard.append((answer, threading.current_thread()))
    )
    qtbot.waitUntil(lambda: bool(heard))
    assert isinstance(heard[0][0], Done)
    assert heard[0][1] is threading.main_thread()
    assert [type(order) for order in service.orders] == [Pause]


def test_a_refusal_is_an_answer(bridge: Bridge, service: FakeService, qtbot: QtBot) -> None:
    service.refuse(Resume, "An administrator paused this PC.")
    heard: list[Answer] = []
    with qtbot.waitSignal(bridge.status_came):
        bridge.start()
    bridge.order(Resume, heard.append)
    qtbot.waitUntil(lambda: bool(heard))
    assert heard == [Refused(0, "not_allowed", "An administrator paused this PC.")]


def test_an_order_that_takes_its_time_says_how_far_it_is(bridge: Bridge, service: FakeService, qtbot: QtBot) -> None:
    told: list[Told] = []
    heard: list[Answer] = []
    with qtbot.waitSignal(bridge.status_came):
        bridge.start()
    bridge.order(lambda id_: Enrol(id_, "fallow1.x"), heard.append, told.append)
    qtbot.waitUntil(lambda: bool(told))
    assert (told[0].phase, told[0].text, heard) == ("pending", "ABCD-EFGH-K", [])
    service.approve()
    qtbot.waitUntil(lambda: bool(heard))


def test_without_a_service_it_says_so_once_and_goes_on_looking(bridge: Bridge, folder: Path, qtbot: QtBot) -> None:
    lost: list[str] = []
    bridge.lost.connect(lost.append)
    with qtbot.waitSignal(bridge.lost):
        bridge.start()
    with fake_service(folder), qtbot.waitSignal(bridge.status_came):
        pass
    assert lost[:1] == [""]


def test_it_comes_back_when_the_service_does(bridge: Bridge, service: FakeService, qtbot: QtBot) -> None:
    with qtbot.waitSignal(bridge.status_came):
        bridge.start()
    with qtbot.waitSignal(bridge.lost):
        service.stop()
    with qtbot.waitSignal(bridge.status_came):
        service.start()


def test_an_order_without_a_service_is_refused(bridge: Bridge, folder: Path, qtbot: QtBot) -> None:
    heard: list[Answer] = []
    bridge.start()
    bridge.order(Resume, heard.append)
    qtbot.waitUntil(lambda: bool(heard))
    assert isinstance(heard[0], Refused)
    assert "not running" in heard[0].message


def test_an_order_under_way_ends_with_the_service(bridge: Bridge, service: FakeService, qtbot: QtBot) -> None:
    heard: list[Answer] = []
    with qtbot.waitSignal(bridge.status_came):
        bridge.start()
    bridge.order(lambda id_: Enrol(id_, "fallow1.x"), heard.append)
    qtbot.waitUntil(lambda: bool(service.orders))
    service.stop()
    qtbot.waitUntil(lambda: bool(heard))
    assert isinstance(heard[0], Refused)


def test_somebody_who_started_the_service_need_not_wait(folder: Path, qtbot: QtBot) -> None:
    patient = Bridge(folder, retry_s=600.0)
    try:
        with qtbot.waitSignal(patient.lost):
            patient.start()
        with fake_service(folder), qtbot.waitSignal(patient.status_came):
            patient.look_now()
    finally:
        patient.stop()


def test_a_second_start_is_heard_before_its_wish_is_carried_out(
    bridge: Bridge, folder: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single, "ANSWER_WAIT_S", 30)
    heard, answers, answered = list[bool](), list[bool](), threading.Event()

    def second_start() -> None:
        answers.append(asyncio.run(single.hand_over(folder, "show")))
        answered.set()

    # A window that takes as long to build as the second start waits for its answer.
    bridge.wished.connect(lambda _: heard.append(answered.wait(PATIENCE_S)))
    bridge.start()
    other = threading.Thread(target=second_start)
    other.start()
    qtbot.waitUntil(lambda: bool(heard))
    other.join()
    assert (heard, answers) == ([True], [True])


@pytest.mark.usefixtures("service")
def test_it_stops_in_the_middle_of_anything(bridge: Bridge, qtbot: QtBot) -> None:
    with qtbot.waitSignal(bridge.status_came):
        bridge.start()
    bridge.order(lambda id_: Enrol(id_, "fallow1.x"))
    bridge.stop()
    bridge.stop()
    bridge.look_now()
    bridge.order(Resume)


def test_a_bridge_that_never_started_can_be_stopped(bridge: Bridge) -> None:
    bridge.stop()
