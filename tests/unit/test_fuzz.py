"""Bytes nobody vouches for: some in every run, and a million, guided by what they reach, in the slow ones."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import TARGET_NAMES
from tests.fuzz.targets import TARGETS

GUIDED_RUNS = 250_000
"""Of each target."""


@st.composite
def altered(draw: st.DrawFn, name: str) -> bytes:
    """A good input, cut, doubled, flipped and filled a little, as transmission and attackers do."""
    data = bytearray(draw(st.sampled_from(TARGETS[name].seeds())))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        match draw(st.integers(0, 3)):
            case 0:
                data[start:end] = draw(st.binary(max_size=12))
            case 1:
                data[start:end] = b""
            case 2:
                data[start:start] = data[start:end]
            case _:
                data[start:end] = bytes(byte ^ 1 << start % 8 for byte in data[start:end])
    return bytes(data)


def test_the_command_knows_every_target() -> None:
    assert set(TARGET_NAMES) == set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_good_inputs_are_read(name: str) -> None:
    for seed in TARGETS[name].seeds():
        TARGETS[name].check(seed)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    TARGETS[name].check(data.draw(altered(name) | st.binary(max_size=400)))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "nested",
    [
        b'{"unknown":' + b"[" * 100_000,
        b'{"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\x82\xa4type\xa9Heartbeat\xa1x" + b"\x91" * 100_000 + b"\xc0",
        b"\x82\xa4type\xa4Poll\xa1x" + b"\x81\xa1x" * 100_000 + b"\xc0",
        b"\x94\xa1a\x00\x00" + b"\x91" * 100_000 + b"\xc0",
    ],
    ids=["json without end", "json", "control message", "enrolment message", "table"],
)
def test_nesting_without_end_is_refused(name: str, nested: bytes) -> None:
    TARGETS[name].check(nested)
    TARGETS[name].check(nested[:-1] + msgspec.msgpack.encode({}))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_guided_inputs_find_no_crash_and_no_hang(name: str) -> None:
    pytest.importorskip("atheris", reason="atheris is made for Linux on x86-64 only")
    command = [sys.executable, "-m", "tests.fuzz", name, "--runs", str(GUIDED_RUNS)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert f"Done {GUIDED_RUNS} runs" in done.stderr
