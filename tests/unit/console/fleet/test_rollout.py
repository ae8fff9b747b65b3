"""console.fleet.rollout: who is offered what."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.update.releases import Here
from console.fleet.rollout import EARLY_PERCENT, Pc, choose, is_in_ring, place
from console.registry.records import ReleaseRecord, Ring
from tests.support.releases import HERE, describe

NOW_S = 1e9


def release(version: str = "1.1.0", ring: Ring = "broad", percent: int = 100, **changes: object) -> ReleaseRecord:
    record = ReleaseRecord(
        version, b"", describe(version), "ab" * 32, 1000, 10, NOW_S + 1, "file", ring, percent, NOW_S, None
    )
    return msgspec.structs.replace(record, **changes)


def pc(number: int = 0, *tags: str, here: Here = HERE) -> Pc:
    return Pc(f"device-{number}", here, tags)


def share(ring: Ring, percent: int) -> float:
    """Percent of 2,000 PCs without a tag."""
    return sum(is_in_ring(ring, percent, pc(number), "1.1.0") for number in range(2000)) / 20


def test_each_ring_holds_those_before_it() -> None:
    rings: list[Ring] = ["held", "canary", "early", "broad"]
    found = {tag: [is_in_ring(ring, 1, pc(0, tag), "1.1.0") for ring in rings] for tag in ("canary", "early")}
    assert found == {"canary": [False, True, True, True], "early": [False, False, True, True]}
    for number in range(200):
        entered = [is_in_ring(ring, 100, pc(number), "1.1.0") for ring in rings]
        assert entered == sorted(entered)


def test_shares_are_as_large_as_they_are_called() -> None:
    assert share("broad", 100) == 100
    assert share("canary", 100) == 0
    assert abs(share("broad", 30) - 30) < 4
    assert abs(share("early", 100) - EARLY_PERCENT) < 3
    assert abs(share("early", 5) - 5) < 2


@given(st.text(max_size=20), st.integers(1, 99))
def test_a_share_that_grows_only_adds_pcs(device: str, percent: int) -> None:
    one = Pc(device, HERE)
    assert 0 <= place(device, "1.1.0") < 100
    assert not is_in_ring("broad", percent, one, "1.1.0") or is_in_ring("broad", percent + 1, one, "1.1.0")


def test_it_is_not_the_same_pcs_that_are_first_every_time() -> None:
    first = [
        {number for number in range(500) if is_in_ring("broad", 20, pc(number), version)}
        for version in ("1.1.0", "1.2.0")
    ]
    assert first[0] != first[1]


def test_the_newest_version_that_fits_is_offered() -> None:
    releases = [release("1.1.0"), release("1.10.0"), release("1.9.0")]
    chosen = choose(releases, pc(), NOW_S)
    assert chosen is not None
    assert chosen.release_id == "1.10.0"


def test_of_the_same_version_the_one_signed_last_is_offered() -> None:
    chosen = choose([release(sequence=11, sha256="new"), release()], pc(), NOW_S)
    assert chosen is not None
    assert chosen.sha256 == "new"


@pytest.mark.parametrize(
    "unfit",
    [
        release("1.0.0"),
        release(withdrawn_s=NOW_S),
        release(expires_s=NOW_S),
        release(ring="held"),
        release(description=describe(platform="plan9-mips")),
        release(description=describe(channel="beta")),
        release(description=describe(product="console")),
        release(description=describe("2.0.0", minimum_version="1.5.0")),
    ],
    ids=["same version", "withdrawn", "expired", "held", "platform", "channel", "product", "too far"],
)
def test_what_does_not_fit_is_not_offered(unfit: ReleaseRecord) -> None:
    assert choose([unfit], pc(), NOW_S) is None


def test_a_version_between_is_offered_first_where_the_newest_leaps_too_far() -> None:
    far = release("2.0.0", description=describe("2.0.0", minimum_version="1.5.0"))
    between = release("1.5.0")
    chosen = choose([far, between], pc(), NOW_S)
    assert chosen is not None
    assert chosen.release_id == "1.5.0"
