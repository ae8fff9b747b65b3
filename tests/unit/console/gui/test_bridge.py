"""console.gui.bridge and feed: questions to a real service over TLS, answers on the GUI thread."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from httpx2 import URL
from pytestqt.qtbot import QtBot

from agent.link.keystore import Keystore
from console import calls
from console.access import Access
from console.api.admin import types as wire
from console.call import LineCall
from console.client import AdminClient
from console.errors import ClientError, ServiceRefused, ServiceUnreachable
from console.gui.bridge import Bridge
from console.gui.feed import Feed
from console.registry.authority import Authority
from tests.support.console_thread import ConsoleThread, console_thread


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    with console_thread(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def bridge(console: ConsoleThread, qtbot: QtBot) -> Iterator[Bridge]:
    yield from running(console.access())


def running(access: Access) -> Iterator[Bridge]:
    bridge = Bridge(access)
    bridge.start()
    yield bridge
    bridge.stop()


def test_an_answer_comes_and_a_refusal_in_its_place(bridge: Bridge, qtbot: QtBot) -> None:
    heard: list[Any] = []
    found: list[bool] = []
    bridge.found.connect(lambda: found.append(True))
    bridge.ask(calls.who_am_i(), heard.append)
    qtbot.waitUntil(lambda: bool(heard and found))
    assert "admin" in heard[0].scopes
    failed: list[ClientError] = []
    bridge.ask(calls.approve("0" * 32), heard.append, failed.append)
    qtbot.waitUntil(lambda: bool(failed))
    assert isinstance(failed[0], ServiceRefused)
    assert failed[0].status == 404
    assert len(heard) == 1


def test_lines_come_one_by_one_and_their_end(bridge: Bridge, qtbot: QtBot) -> None:
    made: list[object] = []
    for name in ("one", "two"):
        bridge.ask(calls.create_key(name), made.append)
    qtbot.waitUntil(lambda: len(made) == 2)
    lines: list[object] = []
    ends: list[ClientError | None] = []
    bridge.follow(calls.export_audit(), lines.append, ends.append)
    qtbot.waitUntil(lambda: bool(ends))
    assert ends == [None]
    assert len(lines) >= 2
    bridge.follow(calls.deploy(wire.DeployRequest(model="nobody")), lines.append, ends.append)
    qtbot.waitUntil(lambda: len(ends) == 2)
    assert isinstance(ends[1], ClientError)


def test_a_line_that_is_not_understood_is_an_end_that_says_so(bridge: Bridge, qtbot: QtBot) -> None:
    ends: list[ClientError | None] = []
    made: list[object] = []
    bridge.ask(calls.create_key("another"), made.append)
    qtbot.waitUntil(lambda: bool(made))
    odd = LineCall("GET", calls.export_audit().path, msgspec.json.Decoder(int).decode)
    bridge.follow(odd, made.append, ends.append)
    qtbot.waitUntil(lambda: bool(ends))
    assert "gave an answer that is not understood" in str(ends[0])


def test_an_old_token_is_told(console: ConsoleThread, qtbot: QtBot) -> None:
    told: list[str] = []
    for bridge in running(replace(console.access(), token="nobody's")):
        bridge.expired.connect(told.append)
        bridge.ask(calls.status())
        qtbot.waitUntil(lambda: bool(told))


def test_a_service_that_is_away_is_told_once_and_its_return_too(console: ConsoleThread, qtbot: QtBot) -> None:
    told: list[str] = []
    failed: list[ClientError] = []
    for bridge in running(replace(console.access(), url="https://127.0.0.1:9")):
        bridge.lost.connect(told.append)
        for _ in range(3):
            bridge.ask(calls.status(), on_failed=failed.append)
        qtbot.waitUntil(lambda: len(failed) == 3)
        assert all(isinstance(error, ServiceUnreachable) for error in failed)
        assert len(told) == 1
        assert "does not answer" in told[0]


def test_a_cancelled_question_is_answered_to_nobody(bridge: Bridge, qtbot: QtBot) -> None:
    heard: list[object] = []
    bridge.ask(calls.status(), heard.append, heard.append).cancel()
    bridge.ask(calls.who_am_i(), heard.append)
    qtbot.waitUntil(lambda: bool(heard))
    assert isinstance(heard[0], wire.Me)
    all_heard(bridge, qtbot)
    assert len(heard) == 1


def all_heard(bridge: Bridge, qtbot: QtBot) -> None:
    """Wait until nothing is under way, and all that came of it was taken up."""
    for ready in (lambda: True, lambda: not bridge._tasks):
        qtbot.waitUntil(ready)
        taken: list[bool] = []
        bridge.to_loop(bridge.post, taken.append, True)
        qtbot.waitUntil(lambda taken=taken: bool(taken))  # type: ignore[misc]


def test_a_feed_asks_while_it_is_watched_and_keeps_the_last_answer(bridge: Bridge, qtbot: QtBot) -> None:
    feed = Feed(bridge, calls.status(), 0.01)
    heard: list[object] = []
    feed.came.connect(heard.append)
    assert (feed.latest, feed.age_s) == (None, None)
    feed.watch()
    feed.watch()
    qtbot.waitUntil(lambda: len(heard) > 3)
    feed.leave()
    feed.leave()
    all_heard(bridge, qtbot)
    heard.clear()
    other = Feed(bridge, calls.status(), 0.01)
    others: list[object] = []
    other.came.connect(others.append)
    other.watch()
    qtbot.waitUntil(lambda: len(others) > 10)
    other.leave()
    all_heard(bridge, qtbot)
    assert not heard
    assert isinstance(feed.latest, wire.Status)
    assert feed.age_s is not None


def test_a_feed_keeps_what_it_heard_while_the_service_is_away(tmp_path: Path, qtbot: QtBot) -> None:
    with console_thread(tmp_path) as console:
        bridge = Bridge(console.access())
        bridge.start()
        feed = Feed(bridge, calls.status(), 0.01)
        feed.watch()
        qtbot.waitUntil(lambda: feed.latest is not None)
    qtbot.waitUntil(lambda: feed.error is not None)
    assert isinstance(feed.latest, wire.Status)
    assert isinstance(feed.error, ServiceUnreachable)
    bridge.stop()


def test_a_certificate_counts_once_its_file_has_it(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, qtbot: QtBot
) -> None:
    heard: list[object] = []
    failed: list[ClientError] = []
    with console_thread(tmp_path_factory.mktemp("secured"), api_host="0.0.0.0") as secured:
        access = secured.access()
        assert access.authority is not None
        roots = tmp_path / "roots.pem"
        other = Authority.open(tmp_path / "other", Keystore.files_only("test")).authorities_pem
        roots.write_bytes(other)
        for bridge in running(replace(access, url=f"https://127.0.0.1:{URL(access.url).port}", authority=roots)):
            bridge.ask(calls.status(), heard.append, failed.append)
            qtbot.waitUntil(lambda: bool(failed))
            assert "is not trusted" in str(failed[0])
            assert not heard
            roots.write_bytes(other + access.authority.read_bytes())
            bridge.ask(calls.status(), heard.append, failed.append)
            qtbot.waitUntil(lambda: len(heard) + len(failed) == 2)
    assert isinstance(heard[0], wire.Status)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "https://10.0.0.300"}, "is no address of a service"),
        ({"token": "schlüssel"}, "copy all of it once more"),
    ],
)
def test_what_cannot_be_asked_is_a_failure_that_says_why(
    console: ConsoleThread, qtbot: QtBot, change: dict[str, Any], said: str
) -> None:
    failed: list[Any] = []
    for bridge in running(replace(console.access(), **change)):
        bridge.ask(calls.status(), on_failed=failed.append)
        feed = Feed(bridge, calls.status(), 3600.0)
        feed.failed.connect(failed.append)
        feed.now()
        bridge.follow(calls.export_audit(), failed.append, failed.append)
        qtbot.waitUntil(lambda: len(failed) == 3)
    assert all(said in str(error) for error in failed)


def test_both_clients_keep_lines_whole_that_have_other_ends_of_lines_in_them(
    bridge: Bridge, console: ConsoleThread, qtbot: QtBot
) -> None:
    name = "one\u2028two\u2029three\x85four"
    made: list[object] = []
    bridge.ask(calls.create_key(name), made.append)
    qtbot.waitUntil(lambda: bool(made))
    heard: list[bytes] = []
    ends: list[object] = []
    bridge.follow(calls.export_audit(), heard.append, ends.append)
    qtbot.waitUntil(lambda: bool(ends))
    with AdminClient.for_data_folder(console.folder) as client:
        *same, _ = client.export_audit()  # the last line is that of the export before
    assert same == heard
    assert [json.loads(line)["sequence"] for line in heard] == list(range(1, len(heard) + 1))
    assert name in {json.loads(line)["detail"].get("name") for line in heard}


def test_a_certificate_that_cannot_be_read_is_named(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    failed: list[ClientError] = []
    for bridge in running(replace(console.access(), authority=tmp_path / "nowhere.pem")):
        bridge.ask(calls.status(), on_failed=failed.append)
        qtbot.waitUntil(lambda: bool(failed))
    assert "nowhere.pem cannot be used: No such file" in str(failed[0])
