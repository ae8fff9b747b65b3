"""agent.update.trust: who is believed, at each level, and what is remembered."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.update.errors import ReleaseRefused
from agent.update.releases import Release, SignedRelease, decode_signed, encode_signed, judge
from agent.update.trust import verify
from installer.release_signing import make_root, new_key
from tests.support.releases import FUTURE, HERE, PAST, RELEASE_KEY, ROOT, ROOT_KEY, make_release, make_roots


def code_of(signed: SignedRelease, folder: Path, root: bytes = ROOT) -> str:
    """Why a release is refused here; every sentence is one."""
    with pytest.raises(ReleaseRefused) as caught:
        verify(signed, root, folder, lambda release: judge(release, HERE))
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    return caught.value.code


def sequences(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_release_that_is_vouched_for_is_read_as_it_was_signed(tmp_path: Path) -> None:
    signed = decode_signed(encode_signed(make_release(rollout_percent=10)))
    release = verify(signed, ROOT, tmp_path)
    assert (release.version, release.sequence, release.size_bytes) == ("1.1.0", 10, 1000)
    assert release.expires_s == FUTURE.timestamp()
    assert release.description.rollout_percent == 10
    assert sequences(tmp_path) == ["10"]


def test_the_same_release_may_be_offered_again(tmp_path: Path) -> None:
    assert verify(make_release(), ROOT, tmp_path) == verify(make_release(), ROOT, tmp_path)


def test_a_release_of_a_strangers_release_key_is_refused(tmp_path: Path) -> None:
    assert code_of(make_release(key=new_key()), tmp_path) == "signature"
    assert sequences(tmp_path) == []


@pytest.mark.parametrize("name", ["timestamp", "snapshot", "targets"])
def test_every_document_has_to_be_signed_by_the_release_key(tmp_path: Path, name: str) -> None:
    mixed = msgspec.structs.replace(make_release(), **{name: getattr(make_release(key=new_key()), name)})
    assert code_of(mixed, tmp_path) == "signature"


def test_a_release_key_that_a_strangers_root_vouches_for_is_refused(tmp_path: Path) -> None:
    stranger = new_key()
    root = make_root(2, [new_key()], [stranger.public_key()], FUTURE)
    assert code_of(make_release(key=stranger, roots={2: root}), tmp_path) == "signature"


def test_a_root_of_another_company_refuses_what_this_one_takes(tmp_path: Path) -> None:
    assert code_of(make_release(), tmp_path, make_roots(new_key(), new_key())) == "signature"


def test_a_newer_root_revokes_a_release_key_and_names_the_next(tmp_path: Path) -> None:
    fresh = new_key()
    second = make_root(2, [ROOT_KEY], [fresh.public_key()], FUTURE)
    verify(make_release(key=fresh, roots={2: second}), ROOT, tmp_path)
    assert code_of(make_release("1.2.0", sequence=11), tmp_path) == "signature"
    verify(make_release("1.2.0", key=fresh, sequence=11), ROOT, tmp_path)


def test_root_keys_are_changed_by_a_root_that_both_sign(tmp_path: Path) -> None:
    fresh = new_key()
    alone = make_root(2, [fresh], [RELEASE_KEY.public_key()], FUTURE)
    assert code_of(make_release(roots={2: alone}), tmp_path) == "signature"
    both = make_root(2, [fresh], [RELEASE_KEY.public_key()], FUTURE, former=[ROOT_KEY])
    verify(make_release(roots={2: both}), ROOT, tmp_path)


def test_a_root_that_is_out_of_order_is_refused(tmp_path: Path) -> None:
    third = make_root(3, [ROOT_KEY], [RELEASE_KEY.public_key()], FUTURE)
    assert code_of(make_release(roots={2: third}), tmp_path) == "root"


def test_two_of_three_root_keys_are_needed_if_the_root_says_so(tmp_path: Path) -> None:
    keys = [new_key() for _ in range(3)]
    first = make_root(1, keys, [RELEASE_KEY.public_key()], FUTURE, threshold=2)
    one = make_root(2, keys[:1], [RELEASE_KEY.public_key()], FUTURE)
    assert code_of(make_release(roots={2: one}), tmp_path, first) == "signature"
    verify(make_release(), first, tmp_path)


def test_what_expired_is_refused_at_each_level(tmp_path: Path) -> None:
    assert code_of(make_release(expires=PAST), tmp_path) == "expired"
    assert code_of(make_release(), tmp_path, make_roots(expires=PAST)) == "expired"


def test_a_replay_of_an_older_release_is_refused(tmp_path: Path) -> None:
    verify(make_release("1.2.0", sequence=11), ROOT, tmp_path)
    assert code_of(make_release("1.3.0", sequence=10), tmp_path) == "replay"
    assert sequences(tmp_path) == ["11"]


def test_another_release_of_the_same_number_is_refused(tmp_path: Path) -> None:
    verify(make_release("1.1.0"), ROOT, tmp_path)
    assert code_of(make_release("1.2.0"), tmp_path) == "replay"


def test_a_release_for_others_is_refused_and_does_not_move_the_number(tmp_path: Path) -> None:
    assert code_of(make_release(sequence=99, platform="plan9-mips"), tmp_path) == "platform"
    assert code_of(make_release(sequence=99, product="console"), tmp_path) == "product"
    assert code_of(make_release(sequence=99, channel="beta"), tmp_path) == "channel"
    verify(make_release(), ROOT, tmp_path)


def test_a_version_that_is_not_newer_or_leaps_too_far_is_refused(tmp_path: Path) -> None:
    assert code_of(make_release("1.0.0"), tmp_path) == "downgrade"
    assert code_of(make_release("0.9.9"), tmp_path) == "downgrade"
    assert code_of(make_release("3.0.0", minimum_version="2.0.0"), tmp_path) == "too_old"


def test_a_signed_release_that_asks_for_too_much_is_refused(tmp_path: Path) -> None:
    assert code_of(make_release(unpacked_bytes=1 << 40), tmp_path) == "size"
    assert code_of(make_release(entries=10**9), tmp_path) == "contents"
    assert code_of(make_release("latest"), tmp_path) == "version"
    assert code_of(make_release(platform="../x"), tmp_path) == "contents"


def test_too_many_or_too_large_documents_are_not_even_read() -> None:
    plain = make_release()
    for large in (
        msgspec.structs.replace(plain, targets=b" " * 33_000),
        msgspec.structs.replace(plain, targets=b" " * 200_000),
        msgspec.structs.replace(plain, roots=dict.fromkeys(range(100), b"")),
    ):
        with pytest.raises(ReleaseRefused) as caught:
            decode_signed(encode_signed(large))
        assert caught.value.code == "size"


def test_what_was_left_by_a_kill_is_cleared_and_a_torn_memory_forgets_nothing(tmp_path: Path) -> None:
    verify(make_release("1.2.0", sequence=11), ROOT, tmp_path)
    (tmp_path / ".left").mkdir()
    assert code_of(make_release("1.3.0", sequence=10), tmp_path) == "replay"
    assert sequences(tmp_path) == ["11"]


def test_a_root_document_that_is_none_is_named(tmp_path: Path) -> None:
    assert code_of(make_release(), tmp_path, b"{}") == "root"
    assert code_of(make_release(), tmp_path, make_release().targets) == "root"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_changed_byte_anywhere_is_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    signed = make_release()
    name = data.draw(st.sampled_from(["timestamp", "snapshot", "targets"]))
    document = bytearray(getattr(signed, name))
    document[data.draw(st.integers(0, len(document) - 1))] ^= data.draw(st.integers(1, 255))
    changed = msgspec.structs.replace(signed, **{name: bytes(document)})
    try:
        release: Release | None = verify(changed, ROOT, tmp_path_factory.mktemp("trusted"))
    except ReleaseRefused:
        release = None
    # What is around the signed bytes (spaces, the name of a field nobody reads) is not signed: it changes nothing.
    assert release is None or release == verify(signed, ROOT, tmp_path_factory.mktemp("trusted"))
