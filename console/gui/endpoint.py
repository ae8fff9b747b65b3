"""How programs reach a model: what is copied for them. Pure; no Qt here."""

from __future__ import annotations

import json
import shlex

from console.access import Access


def base_url(access: Access) -> str:
    """Return what OpenAI clients take for their base URL."""
    return f"{access.url}/v1"


def curl(access: Access, model: str) -> str:
    """Return a command that asks a model; the key is for whoever uses it to put into FALLOW_KEY."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    parts = ["curl", f"{base_url(access)}/chat/completions"]
    if access.authority is not None and access.url.startswith("https"):
        parts += ["--cacert", str(access.authority)]
    parts += ["-H", "Content-Type: application/json", "-d", body]
    # In double quotes, so that the shell fills the key in.
    return f'{shlex.join(parts)} -H "Authorization: Bearer $FALLOW_KEY"'
