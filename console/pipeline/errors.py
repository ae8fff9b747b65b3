"""Errors of a pipeline and of what is asked of it.

PipelineError
 ├─ PromptError            the request itself is wrong: HTTP 400, a retry cannot help
 │   ├─ ContextExceeded    the prompt and one token are longer than the context
 │   ├─ UnknownToken       `logit_bias` names a token id that the model does not have
 │   └─ GrammarRefused     answers of this model cannot be kept to a grammar
 ├─ QueueFull              too many requests wait already: try again later
 │   └─ KeyQueueFull       too many of the same API key: others may still ask
 └─ TokenizerUnusable      the library's tokenizer or chat template cannot be loaded
"""

from __future__ import annotations

from shard_export.library.counts import counted


class PipelineError(Exception):
    """Base of the package: `str(error)` is one sentence saying what happened and what to do."""


class PromptError(PipelineError):
    """The request itself is wrong; a retry cannot help."""


class ContextExceeded(PromptError):
    """The prompt and at least one answer token do not fit into `context_tokens`."""

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"The prompt has {counted(prompt_tokens, 'token')}, but this model's context holds "
            f"{context_tokens} together with"
            " the answer: shorten the conversation."
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class UnknownToken(PromptError):
    """`logit_bias` names a token id that the model does not have."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(f"`logit_bias` names a token id outside of 0..{vocab_size - 1}: use ids of this model.")


class GrammarRefused(PromptError):
    """Answers of this model cannot be kept to a grammar, which the parameter `param` asks for."""

    def __init__(self, param: str) -> None:
        super().__init__("The PC with the model's last layers cannot keep answers to a grammar: update its agent.")
        self.param = param


class QueueFull(PipelineError):
    """Too many requests wait already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"{counted(waiting, 'request is', 'requests are')} waiting for this model already: try again in a moment."
        )
        self.waiting = waiting


class KeyQueueFull(QueueFull):
    """Too many requests of one API key wait already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.args = (
            counted(waiting, "request of this key is", "requests of this key are")
            + " waiting for this model already: wait for some to end.",
        )


class TokenizerUnusable(PipelineError):
    """The library's tokenizer or chat template cannot be loaded."""
