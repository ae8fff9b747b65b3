"""The checks of tests/conftest.py, on small noisy suites run by a pytest of their own."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
[pytest]
addopts = --strict-markers --import-mode=importlib
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
markers =
    begun_first: minutes of waiting
    expected_logs(logger, pattern): announced logs
    slow: minutes long
"""


@pytest.fixture
def run_suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run the given source as a test module under our conftest, in a process of its own."""

    def run(source: str, *arguments: str) -> pytest.RunResult:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
        pytester.makeconftest(f"{conftest}\nfrom tests.support import leaks\nleaks.GRACE_S = 0.3\n")
        pytester.makeini(SETTINGS)
        pytester.makepyfile(textwrap.dedent(source))
        return pytester.runpytest_subprocess(*arguments, timeout=60)

    return run


def test_a_quiet_suite_passes_without_its_slow_tests(run_suite: Callable[..., pytest.RunResult]) -> None:
    result = run_suite("""
        import asyncio, logging, subprocess, sys, threading, pytest

        def test_plain():
            logging.getLogger("agent").info("nothing to see")
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()
            assert subprocess.run([sys.executable, "-c", ""]).returncode == 0

        async def test_with_a_loop():
            await asyncio.gather(asyncio.create_task(asyncio.sleep(0)), asyncio.to_thread(int))

        @pytest.mark.slow
        def test_long():
            pass
    """)
    result.assert_outcomes(passed=2, skipped=1)


def test_each_kind_of_leftover_fails_its_test_and_no_other(run_suite: Callable[..., pytest.RunResult]) -> None:
    result = run_suite("""
        import asyncio, logging, pytest, signal, subprocess, sys, threading

        kept = []

        def test_log():
            logging.getLogger("agent.link").warning("the link is lost")

        def test_thread():
            kept.append(threading.Event())
            threading.Thread(target=kept[0].wait, name="forgotten", daemon=True).start()

        def test_process():
            kept.append(subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE))

        async def test_task():
            kept.append(asyncio.create_task(asyncio.Event().wait(), name="left behind"))

        def test_quiet_in_between():
            pass

        @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
        def test_signal(number):
            signal.signal(number, signal.SIG_IGN)

        def test_signals_are_as_they_were():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

        def test_unraisable():
            class Noisy:
                def __del__(self):
                    raise ValueError("nobody can catch this")
            Noisy()

        def test_thread_that_dies():
            def fail():
                raise ValueError("died in a thread")
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
    """)
    result.assert_outcomes(passed=8, errors=6, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*unexpected log: WARNING agent.link: the link is lost*",
            "*leaked thread: *forgotten*",
            "*leaked process: *sys.stdin.read()*",
            "*leaked task: *left behind*",
            "*leaked signal handler: SIGINT: *SIG_IGN*",
            "*leaked signal handler: SIGTERM: *SIG_IGN*",
            "*PytestUnraisableExceptionWarning*",
            "*PytestUnhandledThreadExceptionWarning*",
        ]
    )


@pytest.mark.skipif(sys.platform != "linux", reason="OpenVINO gives threads a stack for signals on Linux only")
def test_a_signal_after_runtimes_that_ended_out_of_order_is_handled(run_suite: Callable[..., pytest.RunResult]) -> None:
    result = run_suite("""
        import signal, openvino, pytest

        def test_ended_out_of_order():
            first, second = openvino.Core(), openvino.Core()
            for core in (first, second):
                core.get_property("CPU", "FULL_DEVICE_NAME")
            del core, first
            del second

        def test_signal():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    """)
    result.assert_outcomes(passed=2)


def test_what_a_window_leaves_is_destroyed_where_windows_live(
    run_suite: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PySide6")
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    result = run_suite(
        """
        import gc, threading, pytest
        from PySide6.QtCore import QTimer

        class Held:
            pass

        @pytest.fixture
        def held():
            held = Held()
            held.itself, held.timer = held, QTimer()
            held.timer.start(60_000)
            yield held

        def test_window(qapp, held, qtbot):
            pass

        def test_thread():
            thread = threading.Thread(target=gc.collect)
            thread.start()
            thread.join()
        """,
        "-o", "qt_api=pyside6", "-o", "qt_log_level_fail=WARNING",
    )  # fmt: skip
    result.assert_outcomes(passed=2)


def test_announced_logs_pass_and_must_come(run_suite: Callable[..., pytest.RunResult]) -> None:
    result = run_suite("""
        import logging, pytest

        def test_announced(expected_logs):
            expected_logs("console.fleet", "lost")
            logging.getLogger("console.fleet.hub").error("agent %s lost", 7)

        @pytest.mark.expected_logs("console", "may come")
        def test_announced_by_marker():
            logging.getLogger("console").warning("this may come")

        @pytest.mark.expected_logs("console", "may come")
        def test_marker_alone():
            pass

        def test_optional(expected_logs):
            expected_logs("console", required=False)

        def test_another_logger(expected_logs):
            expected_logs("console", required=False)
            logging.getLogger("consoles").warning("not below console")

        def test_never_comes(expected_logs):
            expected_logs("console.fleet", "lost")
    """)
    result.assert_outcomes(passed=6, errors=2)
    result.stdout.fnmatch_lines(
        ["*unexpected log: WARNING consoles: not below console*", "*announced log never came: console.fleet*"]
    )


@pytest.mark.parametrize("passed_on", [True, False])
def test_a_watched_library_is_heard_once_wherever_it_sends_its_logs(
    passed_on: bool, run_suite: Callable[..., pytest.RunResult]
) -> None:
    result = run_suite(f"""
        import logging

        logging.getLogger("transformers").propagate = {passed_on}

        def test_advice():
            logging.getLogger("transformers.rope").warning("we recommend")
    """)
    result.assert_outcomes(passed=1, errors=1)
    assert result.stdout.str().count("\nunexpected log: WARNING transformers.rope: we recommend") == 1


def test_slow_tests_run_when_asked_for(run_suite: Callable[..., pytest.RunResult]) -> None:
    result = run_suite(
        """
        import pytest

        @pytest.mark.slow
        def test_long():
            pass
        """,
        "--slow",
    )
    result.assert_outcomes(passed=1)


def test_what_mostly_waits_is_begun_first_and_the_rest_keeps_its_order(
    run_suite: Callable[..., pytest.RunResult],
) -> None:
    result = run_suite(
        """
        import pytest

        def test_b(): pass
        def test_a(): pass

        @pytest.mark.begun_first
        def test_soak(): pass
        """,
        "-v",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*::test_soak PASSED*", "*::test_b PASSED*", "*::test_a PASSED*"])
