"""console.chat.blocks, render, sentences, tokens: text on its way to what is shown and said."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.chat.blocks import Block, Cutter, cut, parser, runs
from console.chat.records import Attachment, Facts, Message, Sampling, Setup
from console.chat.render import LIGHT, MOST_HIGHLIGHTED, code_html, markdown_html
from console.chat.sentences import Sentences
from console.chat.tokens import estimate, short_count, used

TEXT = "# h\n\nSome *text*\nmore\n\n- a\n- b\n\n  c\n\n```py\nx = 1\n\ny = 2\n```\n| a |\n|---|\n| 1 |\n\n> q\n\nend"
MARKDOWN = ["a", " ", "\n", "\n\n", "```", "```py\n", "- ", "| a |\n|-|\n", "    x", "> ", "~~~\n", "    ```\n"]
ENDS = ["\r", "\r\n", "\u2028", "\x85", "\f", "```\u2028\n"]
"""What ends a line, for the parser or only for others."""
WRITTEN = st.lists(st.sampled_from([*MARKDOWN, *ENDS]))


def test_a_text_is_cut_into_its_blocks_and_code_stands_alone() -> None:
    blocks = cut(TEXT)
    assert [block.source for block in blocks if block.code] == ["x = 1\n\ny = 2\n"]
    assert [block.language for block in blocks if block.code] == ["py"]
    joined = runs(blocks)
    assert [block.code for block in joined] == [False, True, False]
    assert runs([Block("x" * 2000), Block("y" * 2000)]) == [Block("x" * 2000), Block("y" * 2000)]


def words_of(blocks: list[Block]) -> list[str]:
    return "".join(block.source for block in blocks).split()


def state_of(cutter: Cutter) -> tuple[int, Block | None]:
    return len(cutter.closed), cutter.open


@given(WRITTEN, st.lists(st.integers(1, 9), min_size=1))
def test_a_text_that_grows_ends_as_the_blocks_of_the_whole(pieces: list[str], steps: list[int]) -> None:
    text = "".join(pieces)
    cutter, at, turn = Cutter(), 0, 0
    while at < len(text):
        before = list(cutter.closed)
        step = steps[turn % len(steps)]
        cutter.add(text[at : at + step])
        assert cutter.closed[: len(before)] == before
        at, turn = at + step, turn + 1
    cutter.end()
    assert words_of(cutter.closed) == words_of(cut(text))


@given(WRITTEN)
def test_a_text_is_cut_where_the_parser_cuts_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    code = [token for token in parser().parse(text) if token.level == 0 and token.type in ("fence", "code_block")]
    inside = {line for token in code if token.map for line in range(*token.map)}
    blocks = cut(text)
    assert [block.source for block in blocks if block.code] == [token.content for token in code]
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    shown = "\n".join(block.source for block in blocks if not block.code).split("\n")
    outside = [line for place, line in enumerate(lines) if place not in inside]
    assert [line for line in shown if line.strip(" \t")] == [line for line in outside if line.strip(" \t")]


def test_only_the_last_block_is_open_and_a_closed_fence_is_not() -> None:
    cutter = Cutter()
    cutter.add("one\n\ntwo")
    assert state_of(cutter) == (1, Block("two", closed=False))
    cutter.add("\n\n```py\nx = 1")
    assert state_of(cutter) == (2, Block("x = 1", code=True, language="py", closed=False))
    cutter.add("2\n```\n")
    assert state_of(cutter) == (3, None)
    assert cutter.closed[-1] == Block("x = 12\n", code=True, language="py")


def test_markdown_becomes_html_and_html_stays_text() -> None:
    shown = markdown_html("# T\n\n<b onclick=x>bold</b> **b** `c`\n\n| a |\n|---|\n| 1 |\n\n~~s~~", LIGHT)
    assert "<h1>T</h1>" in shown
    assert "&lt;b onclick=x&gt;" in shown
    assert "<table" in shown
    assert "<s>s</s>" in shown


@pytest.mark.parametrize(
    "text", ["![p](http://x/y.png)", "<img src='http://x'>", "![a](file:///etc/passwd)", "[x](javascript:alert(1))"]
)
def test_nothing_in_a_message_is_loaded_or_run(text: str) -> None:
    shown = markdown_html(text, LIGHT)
    assert "<img" not in shown
    assert 'href="javascript' not in shown


def test_code_has_colours_if_its_language_is_known_and_it_is_not_huge() -> None:
    assert "<span style" in code_html("x = 1", "python", LIGHT)
    assert code_html("a < b", "no such language", LIGHT) == "a &lt; b"
    assert "<span" not in code_html("x = 1\n" * MOST_HIGHLIGHTED, "python", LIGHT)


def test_sentences_are_said_when_they_are_finished_and_code_is_not_read_out() -> None:
    sentences = Sentences()
    said: list[str] = []
    for letter in "Hello **there**! It is\n3.5 m. \n```py\nx = 1. Y\n```\nDone.":
        said += sentences.add(letter)
    assert said == ["Hello there !", "It is 3.5 m.", "Code."]
    assert sentences.end() == ["Done."]


def test_tokens_are_counted_by_the_server_and_estimated_behind_that() -> None:
    facts = Facts(prompt_tokens=20, completion_tokens=10)
    path = [
        Message(id="1", chat_id="c", parent_id=None, role="user", text="x" * 32),
        Message(id="2", chat_id="c", parent_id="1", role="assistant", text="y", facts=facts),
    ]
    assert used(Setup(), path) == (30, False)
    assert used(Setup(), path, 8) == (30 + 4 + 4, True)
    assert used(Setup(), []) == (0, True)
    assert used(Setup(system="abcd" * 10), path[:1]) == (10 + 4 + 8, True)
    assert (estimate(""), estimate("a"), short_count(950), short_count(1234), short_count(32_000)) == (
        0, 1, "950", "1.2k", "32k",
    )  # fmt: skip


def test_a_file_is_fenced_so_that_nothing_in_it_ends_the_fence() -> None:
    message = Message(
        id="1", chat_id="c", parent_id=None, role="user", text="See:", attachments=[Attachment("a.md", "```\nx\n```")]
    )
    assert message.content() == "See:\n\na.md:\n````\n```\nx\n```\n````"


@given(st.text("`a\n"), st.lists(st.text("`a\n"), max_size=2))
def test_a_fence_is_longer_than_any_in_its_file_and_the_size_of_a_message_is_known_without_it(
    text: str, files: list[str]
) -> None:
    message = Message(
        id="1", chat_id="c", parent_id=None, role="user", text=text, attachments=[Attachment("f", t) for t in files]
    )
    content = message.content()
    usual = len(content)
    for file in files:
        fence = next("`" * length for length in itertools.count(3) if "`" * length not in file)
        assert f"f:\n{fence}\n{file}\n{fence}" in content
        usual -= 2 * (len(fence) - 3)
    assert 0 <= message.size() - usual <= 2


def test_the_meter_makes_no_message_and_looks_at_no_letter_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [Attachment("a", "y" * 400)]
    path = [Message(id="1", chat_id="c", parent_id=None, role="user", text="x", attachments=files)]
    expected = used(Setup(), path, 8)

    def never(_: Message) -> str:
        raise AssertionError("this takes as long as the files are")

    monkeypatch.setattr(Message, "content", never)
    assert used(Setup(), path, 8) == expected
    assert expected[0] >= 100


def test_figures_of_an_answer() -> None:
    facts = Facts(completion_tokens=11, first_token_ms=500, total_ms=1500, drafted=8, accepted=6)
    assert (facts.tokens_per_second, facts.acceptance) == (10.0, 0.75)
    assert (Facts().tokens_per_second, Facts().acceptance) == (0.0, None)
    assert Sampling(max_tokens=5, stop=["x"]).fields() == {"max_completion_tokens": 5, "stop": ["x"]}
