"""The text half of the parity gates: conversations must become the tokens transformers makes of them.

What is compared is the codec the console serves with, loaded from the files just written, so a template that needs a
name we do not give it, a tokenizer file that lost a rule or a second BOS shows before anything is published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shard_export.library.errors import ChatUnusable, CheckpointError, PromptRefused, TokensDiffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shard_export.library.chat import ChatCodec

Messages = list[dict[str, str]]


def _turns(*contents: str, system: str | None = None) -> Messages:
    roles = ("user", "assistant")
    turns = [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]
    return turns if system is None else [{"role": "system", "content": system}, *turns]


CONVERSATIONS: dict[str, Messages] = {
    "one question": _turns("What is the capital of France?"),
    "a system message": _turns("Hello", system="You answer in one sentence."),
    "an empty system message": _turns("Hello", system=""),
    "several turns": _turns("Hi", "Hello! How can I help?", "Add 2 and 3.", "5", "And 4?", system="Be brief."),
    "spaces at the ends": _turns("  two before, one after ", " answer\n", "\n\tlines and tabs\r\n  ", system=" x "),
    "many scripts": _turns(
        "Grüße, naïve café — 日本語 العربية हिन्दी 👩‍👩‍👧 🇫🇷 e\u0301 \u00a0\u200b\ufeff", "👍🏽", "\U0001d518"
    ),
    "code and markup": _turns(
        'def f(x):\n    return {"a": [1, 2], \'b\': x<3 & x>1}\n\n\n<p class="q">\\n</p> {{ x }}'
    ),
    "numbers and runs": _turns("3.14159 1,000,000 0x1F        aaaaaaaaaaaaaaaa !!!???... a_b-c/d\\e"),
    "an empty question": _turns(""),
    "the assistant first": [{"role": "assistant", "content": "Welcome."}, {"role": "user", "content": "Thanks"}],
    "two questions in a row": [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}],
    "a tool's answer": [*_turns("Weather?"), {"role": "tool", "content": "rain"}],
}
"""What is asked of every template. Some refuse some of them; then both sides must refuse."""

_SHOWN = 6


def check_rendering(tokenizer: Any, codec: ChatCodec, template: str) -> int:
    """Compare a codec with the transformers tokenizer it was saved from and return how many texts were compared.

    Raises TokensDiffer with the first differing ids.
    """
    special = [str(token) for token in tokenizer.all_special_tokens[:4]]
    conversations = dict(CONVERSATIONS)
    conversations["special tokens in a question"] = _turns(f"a{''.join(special)}b {' '.join(special)} c")
    if codec.can_chat:
        for name, messages in conversations.items():
            _compare_conversation(name, messages, tokenizer, codec, template)
    texts = {name: "\n".join(turn["content"] for turn in messages) for name, messages in conversations.items()}
    for name, text in texts.items():
        theirs = codec.with_one_bos(
            list(tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids)
        )
        ours = codec.encode_text(text)
        _compare(f"the plain text of {name}", ours, theirs)
        if codec.decode(ours) != _decoded(tokenizer, ours):
            raise TokensDiffer(_sentence(f"The text of {name} is decoded to other characters than by transformers"))
    return len(texts) + (len(conversations) if codec.can_chat else 0)


def loaded(load: Callable[[], ChatCodec]) -> ChatCodec:
    """Load the codec of a library under way; what is wrong with it is wrong with the checkpoint."""
    try:
        return load()
    except ChatUnusable as error:
        raise CheckpointError(str(error)) from error


def _compare_conversation(name: str, messages: Messages, tokenizer: Any, codec: ChatCodec, template: str) -> None:
    for is_last in (False, True):
        ours, theirs = _ours(codec, messages), _theirs(tokenizer, codec, messages, template)
        # A clock inside the template may have moved on between the two.
        if ours == theirs or (is_last or "strftime_now" not in template):
            break
    if (ours is None) != (theirs is None):
        who = "Fallow refuses and transformers renders" if ours is None else "transformers refuses and Fallow renders"
        raise TokensDiffer(_sentence(f"The conversation with {name} is one that {who}"))
    if ours is not None and theirs is not None:
        _compare(f"the conversation with {name}", ours, theirs)


def _ours(codec: ChatCodec, messages: Messages) -> list[int] | None:
    try:
        return codec.encode_chat(messages)
    except PromptRefused:
        return None


def _theirs(tokenizer: Any, codec: ChatCodec, messages: Messages, template: str) -> list[int] | None:
    import jinja2

    try:
        ids = tokenizer.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError):
        return None
    return codec.with_one_bos(list(ids))


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _compare(what: str, ours: list[int], theirs: list[int]) -> None:
    if ours == theirs:
        return
    pairs = zip(ours, theirs, strict=False)
    place = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(theirs)))
    shown = " instead of ".join(str(ids[place : place + _SHOWN]) for ids in (ours, theirs))
    raise TokensDiffer(
        _sentence(
            f"{what[0].upper()}{what[1:]} becomes other tokens than in transformers from place {place} on ({shown})"
        )
    )


def _sentence(what: str) -> str:
    return f"{what}, so nothing was published; this tokenizer cannot be exported by this version."
