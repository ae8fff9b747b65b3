from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from console.pipeline.text import StopHolder, TextStream

SPECIAL = 256


def decode_bytes(ids: Sequence[int]) -> str:
    """As byte-level decoders do: one mark per unfinished code point, special tokens without text."""
    return bytes(i for i in ids if i < SPECIAL).decode("utf-8", errors="replace")


def decode_fallback(ids: Sequence[int]) -> str:
    """As byte-fallback decoders do: a whole run of bytes that is not UTF-8 becomes one mark per byte."""
    raw = bytes(i for i in ids if i < SPECIAL)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(raw)


def pieces_of(ids: Sequence[int], decode: object = decode_bytes) -> list[str]:
    stream = TextStream(decode)  # type: ignore[arg-type]  # one of the two functions above
    return [*(stream.push(token) for token in ids), stream.flush()]


def test_an_emoji_split_over_tokens_comes_whole() -> None:
    pieces = pieces_of([*"a😀b".encode()])
    assert [piece for piece in pieces if piece] == ["a", "😀", "b"]


def test_an_unfinished_code_point_at_the_end_is_left_out() -> None:
    assert "".join(pieces_of([97, *"😀".encode()[:3]])) == "a"
    assert "".join(pieces_of([97, *"😀é".encode()[:5]], decode_fallback)) == "a😀"


def test_special_tokens_between_the_bytes_of_an_emoji_change_nothing() -> None:
    first, *rest = "😀".encode()
    assert "".join(pieces_of([97, SPECIAL, first, SPECIAL, *rest, SPECIAL])) == "a😀"


def test_runs_of_special_tokens_stay_cheap() -> None:
    longest = 0

    def watch(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode_bytes(ids)

    assert "".join(pieces_of([97, *[SPECIAL] * 500, 98], watch)) == "ab"
    assert longest < 40


def test_an_answer_that_is_not_utf8_is_not_held_back_for_ever() -> None:
    pieces = pieces_of([0xFF] * 100)
    assert pieces.count("") < 100
    assert "".join(pieces) == "\ufffd" * 96


@given(st.text())
def test_pieces_joined_are_the_whole_text(text: str) -> None:
    pieces = pieces_of([*text.encode()])
    assert "".join(pieces).rstrip("\ufffd") == text.rstrip("\ufffd")
    assert all("\ufffd" not in piece or "\ufffd" in text for piece in pieces)


@given(st.text(max_size=30))
def test_byte_fallback_never_leaks_a_mark(text: str) -> None:
    text = text.rstrip("\ufffd")
    assert "".join(pieces_of([*text.encode()], decode_fallback)) == text


def cut(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, bool]:
    holder = StopHolder(stops)
    text = "".join(holder.push(piece) for piece in pieces)
    return text + holder.flush(), holder.stopped


def test_a_stop_string_over_several_pieces_is_cut_and_nothing_of_it_leaks() -> None:
    holder = StopHolder(["\nUser:"])
    assert [holder.push(piece) for piece in ("Hi", "\nUs", "er", ": x")] == ["Hi", "", "", ""]
    assert holder.stopped
    assert holder.flush() == ""


def test_a_false_start_is_delivered() -> None:
    assert cut(["a\n", "Us", "ual"], ["\nUser:"]) == ("a\nUsual", False)
    assert cut(["aaa", "b"], ["aab"]) == ("a", True)


def test_what_is_held_at_the_end_is_delivered() -> None:
    assert cut(["stop", " here<"], ["<|"]) == ("stop here<", False)


def test_empty_stop_strings_stop_nothing() -> None:
    assert cut(["abc"], [""]) == ("abc", False)


ABC = st.text("abc", max_size=12)


@given(ABC, st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.lists(st.integers(0, 12), max_size=5))
def test_the_cut_does_not_depend_on_the_pieces(text: str, stops: list[str], borders: list[int]) -> None:
    marks = [0, *sorted(borders), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(marks)]
    assert cut(pieces, stops) == cut([*text], stops)
    assert all(stop not in cut([*text], stops)[0] for stop in stops)
