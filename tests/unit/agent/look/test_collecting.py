"""agent.look.collecting: garbage is collected, in the GUI thread and nowhere else."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from pytestqt.qtbot import QtBot

from agent.look import collecting
from agent.look.collecting import Collector


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


def test_cycles_end_on_the_gui_thread_whoever_made_the_garbage(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "EVERY_MS", 10)
    collector = Collector()
    ended: list[threading.Thread] = []

    def make_garbage() -> None:
        for _ in range(5 * gc.get_threshold()[0]):
            weakref.finalize(Cycle(), lambda: ended.append(threading.current_thread()))

    maker = threading.Thread(target=make_garbage)
    maker.start()
    maker.join()
    assert not ended, "nobody but the collector collects"
    qtbot.waitUntil(lambda: bool(ended))
    assert set(ended) == {threading.main_thread()}
    collector.stop()
    assert gc.isenabled()
    gc.disable()  # as the fixture left it
