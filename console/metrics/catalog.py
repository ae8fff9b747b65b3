"""Every metric of the console: its name, what it means, and its labels. Nothing else is exposed.

Labels have few values: models and pipelines are the administrator's, devices are those that serve, all others come from
lists in the code. No request, person or text is ever one. `work` is `answers` for steps that only continue answers and
`prompts` for those that read prompts (too). `pipeline` counts from 1, `stage` from 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

PIPELINE = ("model", "pipeline")
STAGE = ("model", "pipeline", "stage", "device")
WORK = "work"


class Family(NamedTuple):
    """A metric. Prometheus adds `_total` to a counter's name, and `_bucket`, `_count` and `_sum` to a histogram's."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()


CATALOG = (
    Family("fallow_build_info", "gauge", "Always 1; says which version runs.", ("version",)),
    # Requests
    Family("fallow_http_requests", "counter", "Requests answered, by what became of them: a status, or how a stream "
           "broke off.", ("endpoint", "method", "outcome")),
    Family("fallow_http_requests_running", "gauge", "Requests being answered now."),
    # Answers of a model
    Family("fallow_answers", "counter", "Answers by their end: stop, length, cancelled, refused, or an error's code.",
           ("model", "outcome")),
    Family("fallow_tokens", "counter", "Tokens of complete answers: of prompts, those of them that were cached, and "
           "of answers.", ("model", "kind")),
    Family("fallow_first_token_seconds", "histogram", "From a request to its first token.", ("model",)),
    Family("fallow_between_tokens_seconds", "histogram", "Between two tokens of an answer.", ("model",)),
    # Pipelines
    Family("fallow_pipeline_state", "gauge", "1 for the state a pipeline is in, 0 for the others.",
           (*PIPELINE, "state")),
    Family("fallow_last_token_age_seconds", "gauge", "Since a token last came through all stages; idle pipelines are "
           "probed every 15 seconds.", PIPELINE),
    Family("fallow_streams", "gauge", "Answers that run, and that wait for a place.", (*PIPELINE, "state")),
    Family("fallow_stream_places", "gauge", "Answers that may run at once.", PIPELINE),
    Family("fallow_queue_oldest_seconds", "gauge", "How long the one that waits longest has waited.", PIPELINE),
    Family("fallow_queue_wait_seconds", "histogram", "What those waited that got a place.", PIPELINE),
    Family("fallow_steps_in_flight", "gauge", "Steps on their way through the stages.", PIPELINE),
    Family("fallow_step_rows", "histogram", "Answers in one step: the batch size.", (*PIPELINE, WORK)),
    Family("fallow_stage_compute_seconds", "histogram", "Inference (and sampling) of one step on one stage.",
           (*STAGE, WORK)),
    Family("fallow_stage_queue_seconds", "histogram", "What a step waited at a stage for its turn.", (*STAGE, WORK)),
    Family("fallow_stage_link_seconds", "histogram", "What a step spent on the way to a stage and from it; stages that "
           "are linked directly share theirs.", (*STAGE, WORK)),
    Family("fallow_stage_link_bytes", "counter", "Bytes of steps that went through the console, to a stage or from "
           "it; direct links are not seen.", (*STAGE, "direction")),
    Family("fallow_stage_link_round_trip_seconds", "gauge", "The last ping between console and the PC of a stage.",
           STAGE),
    Family("fallow_drafted_tokens", "counter", "Tokens guessed ahead.", PIPELINE),
    Family("fallow_accepted_tokens", "counter", "Tokens guessed ahead that were right.", PIPELINE),
    Family("fallow_kv_blocks", "gauge", "Blocks of 32 positions in the caches: of running answers, kept of finished "
           "ones, free.", (*PIPELINE, "state")),
    Family("fallow_dropped_replies", "counter", "Answers of stages that answered nothing: late, repeated, unreadable.",
           PIPELINE),
    # What happens to pipelines
    Family("fallow_plan_changes", "counter", "How often a pipeline got other stages: deployed, or taken over.",
           ("model", "kind")),
    Family("fallow_recoveries", "counter", "Losses of PCs after which answers went on (recovered) or ended (given_up).",
           ("model", "outcome")),
    Family("fallow_recovery_seconds", "histogram", "How long answers stood still until others had taken over.",
           ("model",)),
    # The fleet
    Family("fallow_agents", "gauge", "PCs by state; every known PC is in exactly one.", ("state",)),
    Family("fallow_agents_held", "gauge", "PCs that are held, by reason; one may have several.", ("reason",)),
    Family("fallow_agent_yields", "counter", "PCs that went back to an owner while serving, by their first reason.",
           ("reason",)),
    Family("fallow_agents_lost", "counter", "PCs whose links ended, expected or not."),
    Family("fallow_stages_died", "counter", "Processes of stages that ended by themselves."),
    Family("fallow_frames_dropped", "counter", "Frames of agents that nobody wanted, by cause.", ("cause",)),
    Family("fallow_bulk_bytes", "counter", "Bytes of model files that PCs fetched from the console."),
    # The process
    Family("process_cpu_seconds", "counter", "Processor time of the console."),
    Family("process_resident_memory_bytes", "gauge", "Memory of the console."),
    Family("process_start_time_seconds", "gauge", "When the console began, Unix time."),
)  # fmt: skip
