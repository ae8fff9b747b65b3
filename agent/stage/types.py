"""Plain data of a step: what a stage is asked to do and what it says back.

Positions are logical: 0 is the first prompt token. Ids of streams are chosen by the console and never reused inside
one plan epoch.
"""

from __future__ import annotations

from typing import Literal, NewType

import msgspec

StreamId = NewType("StreamId", int)
PipelineId = NewType("PipelineId", int)
Epoch = NewType("Epoch", int)

Numerics = Literal["fast", "exact"]
EngineName = Literal["stateful", "paged", "packed"]
EngineChoice = Literal["auto", "stateful", "paged", "packed"]
"""`auto`: the device's engines in order of preference, the first that passes a self-test. A named engine is taken as
it is, except that `stateful` stands in where `paged` cannot express the model's attention."""

CacheChoice = Literal["auto", "u8", "half", "f32"]
"""How keys and values are kept: `half` is bf16 where the device computes in it, else f16; `auto` is f32 in `exact`, and
in `fast` what the device prefers (u8 with its scales on a CPU). `exact` takes no other than f32."""


class Sampling(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """How the tail picks a token: greedy when `temperature` is 0, else Gumbel-max keyed by `(seed, position)`.

    `seed` is 64 bits; `top_k` 0 and `top_p` 1 and `min_p` 0 switch the filters off. `repetition_penalty` weighs
    against every token of prompt and answer (1: off), `presence_penalty` and `frequency_penalty` against those of the
    answer, which begins at position `answer_start` (0: off). `logit_bias` adds to the logits of token ids; -100 bans
    and 100 leaves nothing else. `logprobs` asks for the log-probability of every sampled token and of that many best
    ones (-1: none). `grammar` says what the answer may be, as text that `agent.stage.grammar` reads (empty: anything).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    logprobs: int = -1
    answer_start: int = 0
    grammar: str = ""

    @property
    def needs_history(self) -> bool:
        """Whether the tail must know the stream's token ids: each of its rows carries them then."""
        return self._has_penalties or bool(self.grammar)

    @property
    def moves_logits(self) -> bool:
        """Whether bias or penalties change what the model says."""
        return self._has_penalties or bool(self.logit_bias)

    @property
    def _has_penalties(self) -> bool:
        return bool(self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty)


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One stream's share of a step.

    `first` is the logical position of the first token; `count` tokens follow. `truncate_to` drops every cached
    position >= it before the step runs (rejected drafts, edited prompts); -1 keeps all. `wants` is how many of the
    row's last positions must be sampled at the tail (0 for all but the final prefill chunk). `sampling` is sent
    with the first row of a stream and remembered by the tail; a relay never drops it. `ids` are the stream's token
    ids up to the row's last one, where `sampling.needs_history`: at least the row's own, and with them all before
    that the tail has not been told yet (a prompt whose cache was there already).
    """

    stream: StreamId
    first: int
    count: int
    truncate_to: int = -1
    wants: int = 1
    sampling: Sampling | None = None
    ids: list[int] | None = None


class Logprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of the model's own probabilities at one position: before bias, penalties and temperature.

    `top` are the best `(token id, log-probability)`, best first and on ties the lowest id; the chosen token is among
    them only if it is one of the best.
    """

    chosen: float
    top: list[tuple[int, float]]


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """The tail cannot go on with a stream; `message` is a sentence that says why. What it sampled means nothing."""

    stream: StreamId
    message: str


class StageTiming(msgspec.Struct, frozen=True, array_like=True):
    """What one stage spent on a step: `compute_us` inside inference and sampling, `queue_us` waiting for its turn.

    `sampling_us` is the part of `compute_us` in which a tail made tokens of logits; 0: it does not say.
    """

    compute_us: int
    queue_us: int
    sampling_us: int = 0


class Share(msgspec.Struct, frozen=True, array_like=True):
    """The new stream `stream` begins with the first `tokens` cached positions of `source`, as if it had run them.

    `stream` must be unknown to the stage and `tokens` between 1 and what the stage holds of `source`, which keeps
    its own. Neither sees what the other writes afterwards.
    """

    stream: StreamId
    source: StreamId
    tokens: int


class StepTable(msgspec.Struct, frozen=True, array_like=True):
    """The table of a STEP or TOKENS frame.

    A step first carries out `shares` in order, then releases the streams of `release` (their cache is freed), then
    runs `rows`, whose tokens lie on one flat axis in order. A stage that refuses the step (`bad_step`, `kv_full`) has
    done none of it. Each stage appends its timing and passes the table on; the tail answers with the same table.
    A step may have no rows at all: it still travels through all stages and is answered. In an answer
    `logprobs` is empty unless a stream asked for them; else it has one entry for every id, None where nobody asked.
    `refused` are the streams of the step that the tail gives up; all others are answered.
    """

    rows: list[Row]
    release: list[StreamId] = []
    timings: list[StageTiming] = []
    logprobs: list[Logprobs | None] = []
    shares: list[Share] = []
    refused: list[Refusal] = []


class Nack(msgspec.Struct, frozen=True, array_like=True):
    """A step failed at `stage` after its input was consumed: a short code and a sentence.

    Codes: `kv_full`, `bad_step` (the frame contradicts the stage's state), `engine` (inference failed), `gone` (the
    next stage cannot be reached), `stale` (old epoch), `yielded` (the PC was given back to its owner).
    """

    stage: int
    code: str
    message: str


class Credentials(msgspec.Struct, frozen=True):
    """What a program needs to show itself as this PC on a TLS link.

    `certificate` and `key` are files; the key is encrypted with `passphrase`, which no text of this shows.
    """

    certificate: str
    key: str
    passphrase: str
    authorities_pem: bytes

    def __repr__(self) -> str:
        return f"Credentials({self.certificate!r})"


class UplinkSpec(msgspec.Struct, frozen=True):
    """How a stage's child process reaches the console by itself: `host:port` addresses, and who it is there."""

    addresses: list[str]
    server_hostname: str
    credentials: Credentials


class DirectSpec(msgspec.Struct, frozen=True):
    """What direct links of a stage need. It listens on `host`, on the first free port of the range, if `listens`.

    `console_ahead_s` is the console's Unix time minus this PC's steady clock; `route_key` checks its tickets. A
    device's certificate has the URI prefix + id and the host name id + suffix.
    """

    device_id: str
    device_uri_prefix: str
    device_name_suffix: str
    host: str
    ports: tuple[int, int]
    listens: bool
    route_key: bytes
    console_ahead_s: float
    credentials: Credentials


class StageSpec(msgspec.Struct, frozen=True):
    """What a child process must load. `folder` holds the library layout of the units it needs, plus manifest.json.

    Layers `first <= i < last`. `context_tokens` is the longest stream and `streams` how many at once: together they
    size the cache, unless `kv_bytes` says how much memory it takes (0: unsaid); at least one longest stream must fit.
    `threads` 0 lets OpenVINO choose; `cores` pins the computing thread (empty: not pinned). `window_tokens` makes the
    `packed` engine keep a stream's first positions and so many of its last ones in all (0: all of them). With an
    `uplink` the stage speaks with the console itself, and with `direct` it may with the stages beside it.
    """

    folder: str
    first: int
    last: int
    pipeline: PipelineId
    epoch: Epoch
    stage: int
    engine: EngineChoice = "auto"
    numerics: Numerics = "fast"
    device: str = "CPU"
    context_tokens: int = 2048
    streams: int = 8
    threads: int = 0
    cores: list[int] = []
    cache: CacheChoice = "auto"
    kv_bytes: int = 0
    window_tokens: int = 0
    uplink: UplinkSpec | None = None
    direct: DirectSpec | None = None
    gate: str = ""
    """The file of the gate (`agent.stage.gate`) that says whether the stage may compute; empty: it always may."""
    tested: dict[EngineName, list[int]] = {}
    """Which kinds of layers each engine need not be tested with, by their attention windows: it passed here before."""
    gentle: bool = False
    """Whether the process makes way for every other program of this PC (`agent.stage.priority`)."""
    constrains: bool = True
    """Whether a tail reads what it takes to keep answers to grammars; a draft model needs none of it."""


class StageReport(msgspec.Struct, frozen=True):
    """What a child process says once its stage is ready.

    `kv_tokens` is the room of its cache over all streams and `kv_bytes` what it takes when it is full, with elements
    of the type `cache`; `memory_bytes` is the process with a full cache. `reason` says in a phrase why this engine
    runs, `refused` why each one before it does not.
    """

    library_digest: str
    first: int
    last: int
    engine: EngineName
    numerics: Numerics
    device: str
    fused: bool
    kv_tokens: int
    memory_bytes: int
    load_ms: float
    probe_ms: float
    openvino: str
    cache: str = ""
    kv_bytes: int = 0
    reason: str = ""
    refused: dict[EngineName, str] = {}
    infer_ms: int = 0
    """How long one inference may take, so that this PC's owner has it back in time; 0: as long as it likes."""
    addresses: list[str] = []
    """Where the stage listens for the one before it (`host:port`); empty: nowhere, use the relay."""
    tested: list[int] = []
    """The kinds of layers, by their attention windows, that this load tested the engine with; all passed."""
    constrains: bool = False
    """Whether it can keep an answer to a grammar: a tail with the model's tokenizer and what reads grammars."""

    @property
    def engine_note(self) -> str:
        """Why this engine runs and none before it, for people."""
        return "; ".join([self.reason, *(f"not {name}: {why}" for name, why in self.refused.items())])
