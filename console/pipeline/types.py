"""What a generation takes and gives: plain data between the API and the coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from agent.stage.types import Sampling
from console.pipeline.dialects import Dialect
from console.pipeline.parts import StageTime, TimeParts

FinishReason = Literal["stop", "length"]
"""How a complete answer ended: by itself or at a stop string, or at a limit."""
Ending = Literal["stop", "length", "cancelled", "error"]
"""How any answer ended: complete, taken back by whoever asked or runs the model, or failed."""


class GenerationRequest(msgspec.Struct, frozen=True):
    """One answer to generate. `prompt_ids` already went through the chat template; `stop` are strings."""

    prompt_ids: list[int]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop: list[str] = []
    ignore_eos: bool = False
    grammar_from: str = ""
    """The parameter that asked for `sampling.grammar`."""
    key_id: str = ""
    """Whose request it is: the scheduler is fair between keys."""
    request_id: str = ""
    """What the client knows it by."""
    trace: int = 0
    """Which traced request it is of; 0: none."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens counted once: every prompt token, every sampled token (the EOS token included).

    `cached_tokens` of the prompt were in the caches already.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Timings(msgspec.Struct, frozen=True):
    """Milliseconds since the request was accepted; `parts` add up to `total_ms`, `slowest` says the largest of them."""

    queue_ms: float
    first_token_ms: float
    total_ms: float
    parts: TimeParts = TimeParts()
    slowest: str = ""


class ScoredToken(msgspec.Struct, frozen=True):
    """A token with its natural log-probability; `data` is its text, which may be a part of a code point."""

    token_id: int
    data: bytes
    logprob: float


class TokenLogprobs(msgspec.Struct, frozen=True):
    """What the model thought at one position: the sampled token, and the likeliest ones, best first."""

    chosen: ScoredToken
    top: list[ScoredToken]


class Text(msgspec.Struct, frozen=True, tag=True):
    """A piece of the answer that will not be taken back: whole code points, no part of a stop string.

    `logprobs` has one entry for each of `token_ids` if `sampling.logprobs` asked for them, and is empty otherwise.
    """

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] = []


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """No place is free yet: `ahead` other answers get one first. Comes again when that changes."""

    ahead: int


class Recovering(msgspec.Struct, frozen=True, tag=True):
    """A PC was lost; the answer goes on where it is once others have taken over. `reason` is a sentence."""

    reason: str


class Reading(msgspec.Struct, frozen=True, tag=True):
    """`done` of `total` tokens were handed to the PCs to read; comes for what needs more than one step."""

    done: int
    total: int


class Details(msgspec.Struct, frozen=True):
    """How an answer came about: the names of the PCs that computed it, in order, those that left included.

    Of the `drafted` tokens that were guessed ahead, `accepted` were right. `stages` says where the steps after the
    prompt spent their time, `slowest` which part of the whole answer took longest, and at which PC.
    """

    pcs: list[str] = []
    drafted: int = 0
    accepted: int = 0
    stages: list[StageTime] = []
    slowest: str = ""


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The answer is complete."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    details: Details = Details()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The answer cannot be completed: a code for programs, a sentence for people.

    Codes: `stage_lost`, `stage_failed`, `not_ready`, `overloaded` (the model is full), `too_many_waiting` (of this
    key), `cancelled` (the model was taken down meanwhile), `grammar_refused` (what the parameter `param` asks for
    turned out to be more than an answer can be kept to).
    """

    code: str
    message: str
    retryable: bool = True
    param: str = ""

    @property
    def reason(self) -> Ending:
        """What stands as `finish_reason` beside the error."""
        return "cancelled" if self.code == "cancelled" else "error"


Event = Text | Waiting | Reading | Recovering | Finished | Failed


class StageStatus(msgspec.Struct, frozen=True):
    """One stage of a live pipeline; `ms_per_token` is the measured compute time per decoded token (0 before any).

    `note` says why it runs this engine and no other.
    """

    device_id: str
    device_name: str
    first: int
    last: int
    engine: str
    fused: bool
    ms_per_step: float
    ms_per_token: float
    note: str = ""


class StageInfo(msgspec.Struct, frozen=True):
    """One stage as it was loaded: who runs layers `first <= i < last`, and how.

    `infer_ms` is how long an inference may take on a PC whose owner may come back; 0: as long as it likes.
    """

    device_id: str
    device_name: str
    first: int
    last: int
    engine: str
    fused: bool
    note: str = ""
    infer_ms: int = 0
    constrains: bool = False
    """Whether it can keep an answer to a grammar; asked of the last stage."""


class Readiness(msgspec.Struct, frozen=True):
    """The truth of the last token that went through all stages, `age_s` ago (-1: none ever did)."""

    ready: bool
    age_s: float
    reason: str = ""


class SpeculationStatus(msgspec.Struct, frozen=True):
    """How guessing ahead goes, over the recent rounds of all streams.

    `source` is `none`, `lookup` or the id of a draft model. `acceptance` is the share of drafts that were right,
    `drafts_per_round` the drafts a stream's round carried (K), `tokens_per_round` what it gave (1 without drafts).
    `reason` says why there are hardly any drafts, empty while there are some.
    """

    source: str = "none"
    acceptance: float = 0.0
    drafts_per_round: float = 0.0
    tokens_per_round: float = 0.0
    reason: str = ""


class QueuedAnswer(msgspec.Struct, frozen=True):
    """A request in the queue: whose, how many get their place before, and since when it waits."""

    key_id: str
    ahead: int
    waited_s: float


class PipelineStatus(msgspec.Struct, frozen=True):
    """What a live pipeline does right now.

    `tokens_per_second` counts the answer tokens of the last seconds. `overhead_ms_per_hop` is the median over recent
    decode steps of (round trip - sum of the stages' compute time) / number of stages: S stages have S links into them
    and the tail's reply, and all of that which is not inference is divided by S. When other steps were in flight, the
    time a step waited for its turn at a stage is taken off as well. Both are 0 before the first measurement.

    `pace` says in words into how many steps the answers are divided, how much of a prompt goes into one, and why.
    """

    stages: list[StageStatus]
    ready: bool
    reason: str
    last_token_age_s: float
    tokens_per_second: float
    overhead_ms_per_hop: float
    streams_running: int
    streams_waiting: int
    steps_in_flight: int
    dropped_replies: int
    speculation: SpeculationStatus = SpeculationStatus()
    endings: dict[Ending, int] = {}
    """How many answers ended how."""
    pace: str = ""
    kept_streams: int = 0
    """Finished streams that the caches keep because others may begin alike."""
    queue: list[QueuedAnswer] = []
    """Who waits, in the order of admission."""


class Generator(Protocol):
    """What the API sees of a deployed model.

    All calls on the service's event loop, but for those that make tokens of text and text of tokens: any thread.
    """

    model_id: str

    @property
    def context_tokens(self) -> int:
        """The longest prompt and answer together."""
        ...

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How the model writes what is not plain text."""
        ...

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Apply the chat template, which is shown the tools, and tokenize; BOS exactly once. Raises PromptError."""
        ...

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids below `vocab_size`: no special tokens but those that mark calls and thoughts."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the text of one token, perhaps a part of a code point; special tokens by their names."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Yield Waiting, Reading, Recovering and Text events, then exactly one Finished or Failed.

        Closing the iterator cancels the stream.

        Raises a PromptError before the first event: ContextExceeded when prompt and one token do not fit, UnknownToken
        for a bias on an id the model does not have, GrammarRefused where an answer cannot be kept to a grammar.
        """
        ...
