"""What a load test has to know of the service before it begins: the model, its tokens, how it is served. Blocking."""

from __future__ import annotations

import importlib.metadata

import msgspec

from console.api.admin import types as wire
from console.api.models import ModelList
from console.call import Call
from console.client import AdminClient
from console.errors import ClientError, ServiceRefused
from shard_export.library.counts import counted


class _Counted(msgspec.Struct, frozen=True):
    count: int


def context_of(client: AdminClient, model: str) -> int:
    """Return how many tokens a model's context holds. Raises ClientError for one that is not served to this key."""
    listed = client.ask(Call("GET", "/v1/models", msgspec.json.Decoder(ModelList).decode)).data
    for card in listed:
        if card.id == model:
            return card.context_tokens
    others = ", ".join(card.id for card in listed) or "none"
    raise ClientError(f"The model {model} is not served here; those that are: {others}.")


def count_tokens(client: AdminClient, model: str, text: str) -> int:
    """Return how many tokens a text is. Raises ClientError."""
    body = msgspec.json.encode({"model": model, "prompt": text})
    return client.ask(Call("POST", "/tokenize", msgspec.json.Decoder(_Counted).decode, body)).count


def served_as(client: AdminClient, model: str) -> list[str]:
    """Say each of a model's pipelines in a line; nothing for a key that may not look."""
    try:
        status = client.status()
    except ServiceRefused:
        return []
    return [_said(view) for view in status.pipelines if view.model == model]


def _said(view: wire.PipelineView) -> str:
    stages = ", ".join(f"{one.first}-{one.last - 1} on {one.device_name} ({one.engine})" for one in view.stages)
    asked = view.request
    return (
        f"{stages or 'no stages'}; {asked.numerics}, {counted(asked.streams, 'stream')}, context {asked.context}, "
        f"drafts {view.speculation.source}"
    )


def own_version() -> str:
    """Return the version of this program."""
    return importlib.metadata.version("fallow")
