"""The model families that were checked against transformers, and the error for any other.

Nothing is coded per family: what differs is read from the model's layers and config. The table says what was tried,
and a test makes sure that it says no more than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from shard_export.library.errors import UnknownFamily

if TYPE_CHECKING:
    from collections.abc import Iterable

AttentionCode = Literal["sdpa", "eager"]
LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
"""transformers' names of layers whose whole state is keys and values."""


class Family(msgspec.Struct, frozen=True):
    """One transformers `model_type` and what was checked of it, on tiny random models in float32.

    `ropes` are the rotary kinds tried; `sliding` and `experts` whether such layers were; `paged` whether the model runs
    under paged attention, too; `max_error` the largest relative difference of logits that was seen, in two chunks
    through the cache and past the end of a window.
    """

    name: str
    attention: AttentionCode
    ropes: tuple[str, ...]
    sliding: bool
    experts: bool
    paged: bool
    max_error: float
    note: str = ""


CHECKED: tuple[Family, ...] = (
    Family("cohere", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=6e-07),
    Family(
        "deepseek_v3",
        "sdpa",
        ("default",),
        sliding=False,
        experts=True,
        paged=False,
        max_error=7e-07,
        note="the cache holds the latent keys; stateful engine only",
    ),
    Family("ernie4_5", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=5e-07),
    Family("exaone4", "sdpa", ("default",), sliding=True, experts=False, paged=True, max_error=8e-07),
    Family("gemma", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=2e-07),
    Family(
        "gemma2",
        "eager",
        ("default",),
        sliding=True,
        experts=False,
        paged=False,
        max_error=1e-06,
        note="softcapped scores are not fused; stateful engine only",
    ),
    Family("gemma3_text", "sdpa", ("default",), sliding=True, experts=False, paged=True, max_error=8e-07),
    Family("glm4", "sdpa", ("default", "partial"), sliding=False, experts=False, paged=True, max_error=9e-07),
    Family("gpt_neox", "sdpa", ("default", "partial"), sliding=False, experts=False, paged=True, max_error=6e-07),
    Family("gpt_oss", "eager", ("yarn",), sliding=True, experts=True, paged=True, max_error=6e-07),
    Family("granite", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=3e-05),
    Family("helium", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=6e-07),
    Family("hunyuan_v1_dense", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=8e-07),
    Family(
        "llama",
        "sdpa",
        ("default", "linear", "dynamic", "llama3", "yarn"),
        sliding=False,
        experts=False,
        paged=True,
        max_error=7e-07,
        note="dynamic up to max_position_embeddings, where its frequencies are the plain ones",
    ),
    Family("ministral", "sdpa", ("default",), sliding=True, experts=False, paged=True, max_error=7e-07),
    Family("mistral", "sdpa", ("default",), sliding=True, experts=False, paged=True, max_error=6e-07),
    Family("mixtral", "sdpa", ("default",), sliding=True, experts=True, paged=True, max_error=6e-07),
    Family("nemotron", "sdpa", ("default", "partial"), sliding=False, experts=False, paged=True, max_error=1e-06),
    Family("olmo2", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=8e-07),
    Family("olmoe", "sdpa", ("default",), sliding=False, experts=True, paged=True, max_error=6e-07),
    Family(
        "phi3",
        "sdpa",
        ("default", "partial", "longrope"),
        sliding=False,
        experts=False,
        paged=True,
        max_error=6e-07,
        note="longrope keeps the long factors when the context passes the original length",
    ),
    Family("qwen2", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=6e-07),
    Family("qwen3", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=1e-06),
    Family("qwen3_moe", "sdpa", ("default",), sliding=False, experts=True, paged=True, max_error=6e-07),
    Family("seed_oss", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=6e-07),
    Family("smollm3", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=7e-07),
    Family("stablelm", "sdpa", ("default", "partial"), sliding=False, experts=False, paged=True, max_error=8e-07),
    Family("starcoder2", "sdpa", ("default",), sliding=False, experts=False, paged=True, max_error=6e-07),
)
_LINEAR = "its linear-attention layers keep one recurrent state instead of keys and values, and it cannot be rewound"
REFUSED: dict[str, str] = {
    "lfm2": "its short convolutions keep a state of the last inputs, not keys and values, and it cannot be rewound",
    "qwen3_5": _LINEAR,
    "qwen3_5_text": _LINEAR,
    "qwen3_next": _LINEAR,
}
"""Families that people will ask for and why they cannot be exported."""

SUPPORTED = tuple(family.name for family in CHECKED)


def check_family(config: Any) -> None:
    """Raise UnknownFamily, with the reason where it is known, unless models of this config were checked."""
    kind = str(config.model_type)
    strange = set(_layer_types(config)) - LAYER_TYPES
    if kind in SUPPORTED and not strange:
        return
    state = f"its {min(strange)} layers keep another state than keys and values" if strange else ""
    raise unknown_family(kind, REFUSED.get(kind, state))


def attention_for(config: Any) -> AttentionCode:
    """Choose transformers' attention code: `sdpa`, which runtimes fuse, wherever it computes all the model asks for."""
    from transformers import AutoModelForCausalLM

    model_class = AutoModelForCausalLM._model_mapping.get(type(config), None)  # noqa: SLF001 - no public way to the class
    capped = getattr(config, "attn_logit_softcapping", None)
    return "sdpa" if getattr(model_class, "_supports_sdpa", False) and not capped else "eager"


def rope_kinds(config: Any) -> set[str]:
    """Name the rotary kinds a config asks for, `partial` when only a part of each head is turned."""
    settings = getattr(config, "rope_parameters", None) or {}
    each = settings.values() if all(isinstance(value, dict) for value in settings.values()) else [settings]
    kinds = {str(one.get("rope_type", "default")) for one in each}
    return kinds | {"partial" for one in each if one.get("partial_rotary_factor", 1.0) != 1.0}


def experts_per_token(config: Any) -> int:
    """Return how many experts a token is sent to, 0 in a dense model; all of them when the config does not say."""
    names = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "num_local_experts", "num_experts")
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), 0)


def unknown_family(kind: str, reason: str = "") -> UnknownFamily:
    """Make the error for a model that cannot be exported."""
    why = f" ({reason})" if reason else ""
    return UnknownFamily(
        f"Models of the family {kind} cannot be exported yet{why}; choose one of {', '.join(SUPPORTED)}."
    )


def _layer_types(config: Any) -> Iterable[str]:
    return getattr(config, "layer_types", None) or ()
