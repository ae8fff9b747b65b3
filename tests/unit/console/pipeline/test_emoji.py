"""No piece of an answer ends inside an emoji, and nothing else waits for long."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich._emoji_codes import EMOJI

from console.pipeline.emoji import MAX_HELD_CHARS, EmojiHolder, open_emoji

FAMILY = "👩‍👩‍👧"
KINDS = {
    "joined": FAMILY,
    "joined after a presentation mark": "🏳️‍🌈",
    "joined with a skin tone": "👩🏽‍🚀",
    "skin tone": "👍🏿",
    "flag": "🇫🇷",
    "flag of tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "keycap": "1️⃣",
    "keycap of a sign": "#️⃣",
    "text symbol as a picture": "❤️",
    "old symbol": "©️",
    "with a combining mark": "😀\u20e0",
    "kiss of four": "👩🏻‍❤️‍💋‍👨🏿",
}


def pieces(texts: Iterable[str]) -> list[str]:
    holder = EmojiHolder()
    found = [*(holder.push(text) for text in texts), holder.flush()]
    return [piece for piece in found if piece]


@pytest.mark.parametrize("emoji", KINDS.values(), ids=KINDS.keys())
def test_an_emoji_that_comes_code_point_by_code_point_goes_out_whole(emoji: str) -> None:
    found = pieces([*"Hi ", *emoji, *" you"])
    assert "".join(found) == f"Hi {emoji} you"
    assert any(emoji in piece for piece in found), found


def test_every_known_emoji_goes_out_whole_between_others() -> None:
    known = sorted({emoji for emoji in EMOJI.values() if not emoji.isascii()})
    assert len(known) > 2500
    holder = EmojiHolder()
    for emoji in known:
        assert "".join(holder.push(char) for char in emoji[:-1]) == "", emoji
        assert emoji in holder.push(emoji[-1]) + holder.push("a"), emoji


def test_of_several_emoji_only_the_last_one_waits() -> None:
    assert pieces(["🙂🙃", "😀", "!"]) == ["🙂", "🙃", "😀!"]
    assert pieces(["🇫", "🇷🇩", "🇪", "🇮🇹"]) == ["🇫🇷", "🇩🇪", "🇮🇹"]


def test_half_a_flag_at_the_end_of_an_answer_is_delivered() -> None:
    assert pieces(["x🇫"]) == ["x", "🇫"]


@pytest.mark.parametrize("text", ["plain", "a→b", "日本語", "e\u0301", "x²", "नमस्ते", "", "end.", "🇫🇷"])
def test_what_no_emoji_begins_with_is_not_held(text: str) -> None:
    assert open_emoji(text) == 0


def test_a_digit_waits_one_piece_because_a_keycap_may_follow() -> None:
    assert pieces(["4", "2", " is"]) == ["4", "2 is"]


def test_a_chain_that_never_ends_is_not_held_for_ever() -> None:
    holder = EmojiHolder()
    out = [holder.push("👩‍") for _ in range(1000)]
    assert max(map(len, out)) <= MAX_HELD_CHARS
    assert len("".join(out)) >= 2000 - MAX_HELD_CHARS


EMOJI_AND_TEXT = st.lists(st.sampled_from([*KINDS.values(), *"ab 1#\u200d\ufe0f\n"]) | st.characters(), max_size=12)


@given(EMOJI_AND_TEXT, st.data())
def test_pieces_joined_are_the_text_and_none_is_lost(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    cuts = [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]
    assert "".join(pieces(cuts)) == text


@given(st.lists(st.sampled_from([*KINDS.values(), "ab", " "]), max_size=8), st.data())
def test_no_piece_ends_inside_an_emoji_however_the_text_was_cut(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    cuts = [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]
    allowed, at = {0}, 0
    for part in parts:
        inner = range(at + 1, at + len(part)) if part == "ab" else ()
        at += len(part)
        allowed |= {at, *inner}
    at = 0
    for piece in pieces(cuts):
        at += len(piece)
        assert at in allowed, (parts, cuts)
