from __future__ import annotations

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from agent.link.channel import PENDING_WAIT_S, REFUSED_WAIT_S, Backoff, Dialler, link_error
from agent.link.closing import (
    MAX_REASON_BYTES,
    CloseCode,
    DuplicateSession,
    FrameRefused,
    LinkCut,
    LinkDown,
    LinkDraining,
    LinkRefused,
    LinkStalled,
    NotApproved,
    NotRecognised,
    UpgradeNeeded,
    close_reason,
    error_of,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (CloseCode.BAD_FRAME, FrameRefused), (1009, FrameRefused), (CloseCode.NOT_RECOGNISED, NotRecognised),
        (CloseCode.NOT_APPROVED, NotApproved), (CloseCode.STALLED, LinkStalled),
        (CloseCode.DUPLICATE, DuplicateSession),
        (CloseCode.UPGRADE, UpgradeNeeded), (CloseCode.DRAINING, LinkDraining), (1006, LinkCut), (1001, LinkCut),
        (None, LinkCut),
    ],
)  # fmt: skip
def test_every_close_code_is_an_error_with_a_sentence(code: int | None, kind: type[LinkDown]) -> None:
    error = error_of(code, None)
    assert type(error) is kind
    assert str(error)[0].isupper()
    assert str(error).endswith(".")


def test_the_consoles_own_sentence_wins() -> None:
    error = error_of(4403, close_reason("suspended", "An administrator has suspended this PC."))
    assert (error.code, str(error)) == ("suspended", "An administrator has suspended this PC.")


def test_a_reason_that_was_cut_is_still_a_sentence() -> None:
    reason = close_reason("unknown", "ä" * 200)
    assert len(reason.encode()) <= MAX_REASON_BYTES
    assert str(error_of(4401, reason)).endswith(").")


def test_what_the_other_side_said_goes_before_what_we_said() -> None:
    assert isinstance(link_error(ConnectionClosedError(Close(4403, "x: Y."), Close(1000, ""), True)), NotApproved)
    assert isinstance(link_error(ConnectionClosedError(None, Close(1009, "too big"))), FrameRefused)
    assert isinstance(link_error(ConnectionClosedError(None, None)), LinkCut)


def test_waits_grow_to_a_minute_and_start_again_after_a_working_link() -> None:
    longest = Backoff(uniform=lambda low, high: high)
    cut = LinkCut("cut")
    waits = [longest.next_wait_s(cut) for _ in range(8)]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]
    longest.reset()
    assert longest.next_wait_s(cut) == 2
    shortest = Backoff(uniform=lambda low, high: low)
    assert [shortest.next_wait_s(cut) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("kind", [NotApproved, NotRecognised])
def test_a_refused_pc_asks_every_quarter_of_an_hour(kind: type[LinkRefused]) -> None:
    backoff = Backoff(uniform=lambda low, high: 1.0)
    assert backoff.next_wait_s(kind("no", "banned")) == REFUSED_WAIT_S
    assert backoff.next_wait_s(kind("no", "pending")) == PENDING_WAIT_S


async def test_without_an_address_there_is_nothing_to_dial() -> None:
    import ssl

    with pytest.raises(LinkCut, match="enrol"):
        await Dialler([], ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "console.x.invalid").dial("/control")
