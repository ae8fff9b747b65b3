"""The administrator's policy: what is taken, what is refused and why, and what stays on the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link.authorities import read_authorities
from agent.link.keystore import Keystore
from agent.volunteer.documents import LIFE_S, MAX_BODY_BYTES, PolicyBody, PolicyDocument, encode_body, judge_document
from agent.volunteer.errors import PolicyRefused, SettingsUnreadable, WishRefused
from agent.volunteer.keeping import POLICY_NAME, SETTINGS_NAME, PolicyKeeper, forget_policy
from agent.volunteer.policy import Wishes
from console.registry.authority import Authority
from console.registry.signing import Signer
from tests.support.enrolment import Clock

NOW_S = Clock().now_s
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("a") / "a", Keystore.files_only("a"), now=Clock())


@pytest.fixture(scope="module")
def signer(authority: Authority) -> Signer:
    return Signer(authority, Clock())


def make_body(**changes: Any) -> PolicyBody:
    values: dict[str, Any] = {
        "schema": 1, "fleet": "fleet", "device": "pc", "revision": 7, "issued_s": NOW_S, "expires_s": NOW_S + LIFE_S,
        "wishes": Wishes(idle_start_s=600.0),
    }  # fmt: skip
    return PolicyBody(**(values | changes))


def signed(signer: Signer, body: PolicyBody | bytes) -> PolicyDocument:
    data = body if isinstance(body, bytes) else encode_body(body)
    return PolicyDocument(data, signer.sign_policy(data))


def judge(
    authority: Authority, document: PolicyDocument, *, now_s: float = NOW_S, last: PolicyBody | None = None
) -> PolicyBody:
    roots = read_authorities(authority.authorities_pem)
    return judge_document(document, fleet="fleet", device="pc", authorities=roots, now_s=now_s, last=last)


def refused(authority: Authority, document: PolicyDocument, **options: Any) -> str:
    with pytest.raises(PolicyRefused) as caught:
        judge(authority, document, **options)
    assert str(caught.value).endswith(".")
    return caught.value.code


def test_a_good_document_is_taken_and_a_newer_one_after_it(authority: Authority, signer: Signer) -> None:
    first = judge(authority, signed(signer, make_body()))
    assert first.wishes.idle_start_s == 600.0
    assert judge(authority, signed(signer, make_body(revision=8)), last=first).revision == 8


def test_a_pc_that_got_another_tag_takes_other_wishes_of_the_same_revision(
    authority: Authority, signer: Signer
) -> None:
    other = make_body(issued_s=NOW_S + 1, wishes=Wishes(enabled=False))
    assert judge(authority, signed(signer, other), last=make_body()).wishes == Wishes(enabled=False)


def test_the_same_revision_is_taken_again_with_a_later_end(authority: Authority, signer: Signer) -> None:
    first = judge(authority, signed(signer, make_body()))
    later = make_body(issued_s=NOW_S + DAY_S, expires_s=NOW_S + DAY_S + LIFE_S)
    assert judge(authority, signed(signer, later), last=first, now_s=NOW_S + DAY_S) == later


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"schema": 2}, "schema"),
        ({"fleet": "other"}, "fleet"),
        ({"device": "another"}, "device"),
        ({"issued_s": NOW_S + DAY_S, "expires_s": NOW_S + 2 * DAY_S}, "future"),
        ({"issued_s": NOW_S - 2 * DAY_S, "expires_s": NOW_S - DAY_S}, "expired"),
        ({"expires_s": NOW_S + 1000 * DAY_S}, "malformed"),
        ({"expires_s": NOW_S - 1}, "malformed"),
        ({"revision": 6}, "revision"),
        ({"revision": 0}, "value"),
        ({"revision": 2**60}, "value"),
        ({"wishes": Wishes(idle_start_s=601.0)}, "revision"),
        ({"wishes": Wishes(idle_start_s=-1.0)}, "value"),
        ({"wishes": Wishes(cpu_busy_percent=1e308)}, "value"),
        ({"wishes": Wishes(memory_max_bytes=2**60)}, "value"),
        ({"wishes": Wishes(schedule=((9, 3),))}, "value"),
        ({"wishes": Wishes(devices=frozenset({"TPU"}))}, "value"),
        ({"wishes": Wishes(exclusive_programs=frozenset(map(str, range(10_000))))}, "value"),
        ({"wishes": Wishes(exclusive_programs=frozenset({"x" * 200}))}, "value"),
    ],
)
def test_a_document_with_something_wrong_is_refused(
    authority: Authority, signer: Signer, changes: dict[str, Any], code: str
) -> None:
    assert refused(authority, signed(signer, make_body(**changes)), last=make_body()) == code


@pytest.mark.parametrize(
    ("replaced", "by", "code"),
    [
        ('"idle_start_s":600.0', '"idle_start_s":NaN', "malformed"),
        ('"idle_start_s":600.0', '"idle_start_s":1e999', "malformed"),
        ('"idle_start_s":600.0', '"idle_start_s":"soon"', "malformed"),
        ('"idle_start_s":600.0', '"schedule":[[1,2,3]]', "malformed"),
        ("}", "", "malformed"),
    ],
)
def test_bytes_that_are_signed_and_still_no_policy_are_refused(
    authority: Authority, signer: Signer, replaced: str, by: str, code: str
) -> None:
    text = encode_body(make_body()).decode()
    assert replaced in text
    assert refused(authority, signed(signer, text.replace(replaced, by).encode())) == code


def test_rows_of_a_newer_console_are_ignored(authority: Authority, signer: Signer) -> None:
    body = json.loads(encode_body(make_body()))
    body["wishes"]["moon_phase"] = "full"
    assert judge(authority, signed(signer, json.dumps(body).encode())).wishes == Wishes(idle_start_s=600.0)


def test_nobody_else_can_sign_and_nothing_can_be_changed(authority: Authority, signer: Signer, tmp_path: Path) -> None:
    good = signed(signer, make_body())
    stranger = Signer(Authority.open(tmp_path / "b", Keystore.files_only("b"), now=Clock()), Clock())
    assert refused(authority, signed(stranger, make_body())) == "signature"
    assert refused(authority, PolicyDocument(good.body, b"")) == "signature"
    assert refused(authority, PolicyDocument(good.body.replace(b"600", b"060"), good.signature)) == "signature"
    assert refused(authority, PolicyDocument(good.body, signer.sign(good.body.decode()))) == "signature"
    assert refused(authority, PolicyDocument(b" " * 5_000_000, good.signature)) == "size"


@settings(max_examples=30)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_noise_is_refused(authority: Authority, body: bytes, signature: bytes) -> None:
    refused(authority, PolicyDocument(body, signature))


def make_keeper(folder: Path, authority: Authority, *, now_s: float = NOW_S, device: str = "pc") -> PolicyKeeper:
    roots = read_authorities(authority.authorities_pem)
    return PolicyKeeper(folder, fleet="fleet", device=device, authorities=lambda: roots, now_s=now_s)


class TestKeeping:
    def test_both_sides_survive_a_restart(self, tmp_path: Path, authority: Authority, signer: Signer) -> None:
        keeper = make_keeper(tmp_path, authority)
        keeper.take(signed(signer, make_body()), NOW_S)
        keeper.change("schedule", "Mon-Fri 20:00-06:00")
        keeper.keep_pause(-1.0)
        again = make_keeper(tmp_path, authority)
        assert (again.revision, again.owner.pause_until_unix_s, again.problems) == (7, -1.0, {})
        assert again.merged(NOW_S) == keeper.merged(NOW_S)
        assert again.merged(NOW_S).set_by["idle_start_s"] == "admin"

    def test_a_refused_document_leaves_the_last_good_one(
        self, tmp_path: Path, authority: Authority, signer: Signer
    ) -> None:
        keeper = make_keeper(tmp_path, authority)
        keeper.take(signed(signer, make_body()), NOW_S)
        with pytest.raises(PolicyRefused):
            keeper.take(signed(signer, make_body(revision=3, wishes=Wishes())), NOW_S)
        assert make_keeper(tmp_path, authority).merged(NOW_S).policy.idle_start_s == 600.0

    def test_an_expired_policy_restrains_and_loosens_nothing(
        self, tmp_path: Path, authority: Authority, signer: Signer
    ) -> None:
        wishes = Wishes(idle_start_s=60.0, memory_max_percent=20.0, enabled=False)
        make_keeper(tmp_path, authority).take(signed(signer, make_body(wishes=wishes)), NOW_S)
        later_s = NOW_S + LIFE_S + 500 * DAY_S
        policy = make_keeper(tmp_path, authority, now_s=later_s).merged(later_s).policy
        assert (policy.idle_start_s, policy.memory_max_percent, policy.enabled) == (300.0, 20.0, False)

    def test_a_torn_file_is_replaced_by_the_one_before(
        self, tmp_path: Path, authority: Authority, signer: Signer, expected_logs: Any
    ) -> None:
        expected_logs("agent.volunteer.keeping", "cannot be used")
        keeper = make_keeper(tmp_path, authority)
        for revision in (7, 8):
            keeper.take(signed(signer, make_body(revision=revision)), NOW_S)
        keeper.change("enabled", False)
        keeper.change("idle_start_s", 900)
        for name in (POLICY_NAME, SETTINGS_NAME):
            path = tmp_path / name
            path.write_bytes(path.read_bytes()[:-20])
        again = make_keeper(tmp_path, authority)
        assert (again.revision, again.settings_unreadable) == (7, False)
        assert again.owner.wishes == Wishes(enabled=False)
        assert set(again.problems) == {POLICY_NAME, SETTINGS_NAME}
        again.change("enabled", False)
        assert SETTINGS_NAME not in again.problems

    def test_lost_settings_hold_the_pc_until_they_are_saved_again(
        self, tmp_path: Path, authority: Authority, expected_logs: Any
    ) -> None:
        expected_logs("agent.volunteer.keeping", "cannot be used")
        (tmp_path / SETTINGS_NAME).write_bytes(b'{"wishes":')
        keeper = make_keeper(tmp_path, authority)
        assert keeper.settings_unreadable
        keeper.change("enabled", True)
        assert not keeper.settings_unreadable

    def test_a_pause_does_not_save_anything_over_lost_settings(
        self, tmp_path: Path, authority: Authority, expected_logs: Any
    ) -> None:
        expected_logs("agent.volunteer.keeping", "cannot be used")
        (tmp_path / SETTINGS_NAME).write_bytes(b'{"wishes":')
        keeper = make_keeper(tmp_path, authority)
        keeper.keep_pause(-1.0)
        assert keeper.settings_unreadable
        assert (tmp_path / SETTINGS_NAME).read_bytes() == b'{"wishes":'
        keeper.change("enabled", True)
        assert make_keeper(tmp_path, authority).owner.pause_until_unix_s == -1.0

    def test_a_policy_of_another_pc_or_a_huge_file_is_not_used(
        self, tmp_path: Path, authority: Authority, signer: Signer, expected_logs: Any
    ) -> None:
        expected_logs("agent.volunteer.keeping", "another PC")
        expected_logs("agent.volunteer.keeping", "damaged")
        make_keeper(tmp_path, authority).take(signed(signer, make_body()), NOW_S)
        assert make_keeper(tmp_path, authority, device="copy").revision == 0
        (tmp_path / POLICY_NAME).write_bytes(b"\x82" * 5_000_000)
        assert make_keeper(tmp_path, authority).revision == 0

    def test_a_pc_that_left_its_fleet_has_no_administrator(
        self, tmp_path: Path, authority: Authority, signer: Signer
    ) -> None:
        keeper = make_keeper(tmp_path, authority)
        for revision in (7, 8):
            keeper.take(signed(signer, make_body(revision=revision)), NOW_S)
        assert PolicyKeeper(tmp_path, now_s=NOW_S).revision == 0
        forget_policy(tmp_path)
        assert make_keeper(tmp_path, authority).revision == 0
        assert list(tmp_path.iterdir()) == []

    def test_a_disk_that_takes_nothing_keeps_what_was(
        self, tmp_path: Path, authority: Authority, signer: Signer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keeper = make_keeper(tmp_path, authority)
        keeper.change("enabled", False)

        def full(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("agent.volunteer.keeping.write_private", full)
        with pytest.raises(SettingsUnreadable, match="No space left"):
            keeper.change("enabled", True)
        with pytest.raises(PolicyRefused, match="holds only until") as caught:
            keeper.take(signed(signer, make_body()), NOW_S)
        assert caught.value.code == "disk"
        assert keeper.merged(NOW_S).policy.enabled is False
        assert make_keeper(tmp_path, authority).owner.wishes == Wishes(enabled=False)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("moon_phase", 1), ("enabled", "yes"), ("idle_start_s", True), ("idle_start_s", float("nan")),
            ("idle_start_s", 1e9), ("devices", ["TPU"]), ("devices", "CPU"), ("schedule", "whenever"),
            ("memory_max_bytes", float("inf")), ("exclusive_programs", [1, ["x"]]),
        ],
    )  # fmt: skip
    def test_a_wish_that_is_not_possible_is_refused_and_changes_nothing(
        self, tmp_path: Path, authority: Authority, name: str, value: Any
    ) -> None:
        keeper = make_keeper(tmp_path, authority)
        with pytest.raises(WishRefused):
            keeper.change(name, value)
        assert list(tmp_path.iterdir()) == []

    def test_a_wish_can_be_taken_back(self, tmp_path: Path, authority: Authority) -> None:
        keeper = make_keeper(tmp_path, authority)
        keeper.change("exclusive_programs", ["obs", " game "])
        assert keeper.merged(NOW_S).policy.exclusive_programs == {"obs", "game"}
        keeper.change("exclusive_programs", None)
        assert keeper.owner.wishes == Wishes()


def test_the_longest_possible_policy_fits_a_control_message(signer: Signer) -> None:
    wishes = Wishes(exclusive_programs=frozenset(f"{number:0128d}" for number in range(1000)))
    assert len(msgspec.msgpack.encode(signed(signer, make_body(wishes=wishes)))) < MAX_BODY_BYTES
