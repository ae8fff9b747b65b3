"""How a model writes is seen in what its chat template makes of a conversation."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer

from console.pipeline.dialects import CALL_CLOSES, CALL_OPENS, THOUGHT_MARKS, Dialect
from console.pipeline.errors import PromptError
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from tests.support.byte_tokens import EOS, byte_tokenizer

TURNS = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
TAGGED = (
    "{% if tools %}Tools: {% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    ' Write <tool_call>{"name": .., "arguments": ..}</tool_call>{% endif %}' + TURNS + "assistant: "
)
BARE = (
    "{% if tools is not none %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    'Respond in the format {"name": function name, "parameters": dictionary of values}.{% endif %}' + TURNS
)
CODED = "{% for tool in tools or [] %}{{ tool.function.name }}<tool_call><function=x>{% endfor %}" + TURNS
USER = [{"role": "user", "content": "Hi"}]
TOOL = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}]


def tokenizer_of(template: str, *, added: tuple[str, ...] = (), special: bool = False) -> ModelTokenizer:
    tokenizer: Tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(text, special=special) for text in added])
    return ModelTokenizer(ToolCodec(tokenizer, template=template), eos_ids=[EOS])


@pytest.mark.parametrize(
    ("template", "calls", "takes_tools"),
    [(TURNS, "tagged", False), (TAGGED, "tagged", True), (BARE, "bare", True), (CODED, "tagged", False)],
)
def test_tools_are_shown_by_a_template_whose_calls_can_be_read(template: str, calls: str, takes_tools: bool) -> None:
    dialect = tokenizer_of(template).dialect
    assert (dialect.calls, dialect.takes_tools) == (calls, takes_tools)


def test_a_model_without_a_template_or_that_refuses_is_plain() -> None:
    assert tokenizer_of("").dialect == Dialect()
    assert tokenizer_of("{{ raise_exception('no') }}").dialect == Dialect()


def test_thoughts_are_known_by_their_tokens_or_by_the_end_of_the_prompt() -> None:
    think = THOUGHT_MARKS[0]
    assert tokenizer_of(TURNS).dialect.thinks is None
    known = tokenizer_of(TURNS, added=think).dialect
    assert (known.thinks, known.opened, known.tokens) == (think, False, frozenset(think))
    opened = tokenizer_of(TURNS + "<think>\n").dialect
    assert (opened.thinks, opened.opened, opened.tokens) == (think, True, frozenset())


@pytest.mark.parametrize("special", [True, False])
def test_marks_that_are_tokens_are_seen_in_the_text(special: bool) -> None:
    tokenizer = tokenizer_of(TAGGED, added=(CALL_OPENS, CALL_CLOSES), special=special)
    ids = tokenizer.encode_text(f"a{CALL_OPENS}é{CALL_CLOSES}")
    assert len(ids) == 5
    assert tokenizer.decode([*ids, EOS]) == f"a{CALL_OPENS}é{CALL_CLOSES}"
    stream = tokenizer.text_stream()
    assert "".join(map(stream.push, ids)) + stream.flush() == f"a{CALL_OPENS}é{CALL_CLOSES}"


def test_tools_calls_and_results_reach_the_template() -> None:
    tokenizer = tokenizer_of(TAGGED)
    shown = tokenizer.decode(tokenizer.encode_chat(USER, TOOL))
    assert '"name": "look"' in shown
    assert tokenizer.decode(tokenizer.encode_chat(USER)) == "user: Hi\nassistant: "
    assert "tool: 5" in tokenizer.decode(tokenizer.encode_chat([{"role": "tool", "content": "5"}]))
    with pytest.raises(PromptError, match="no chat template"):
        tokenizer_of("").encode_chat(USER, TOOL)
