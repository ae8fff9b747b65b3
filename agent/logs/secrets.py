"""What no log and no report may hold: secrets by their shape or by their value. Pure.

Nobody logs them on purpose. This is the last line before a file, for what came into a message by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[hidden]"
LEAST_LETTERS = 6
"""Of a secret that is known by its value: a shorter one would be found in half of all words."""

_SHAPES = [
    # Invites (see agent.link.invite), keys and logins (see console.registry.bearers), and what a header carries.
    (re.compile(r"fallow\d{1,3}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9]+)?"), HIDDEN),
    (re.compile(r"fl[ws]-([0-9a-f]{12})-[A-Za-z0-9_-]{20,}"), rf"\1-{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), rf"\1 {HIDDEN}"),
    # Passwords of addresses, and the keys of chat links.
    (re.compile(r"(://[^\s/:@]*):[^\s/@]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"([#&?](?:key|token|password)=)[^\s&#'\"]+"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"(?i)(password|passphrase|passwd|pwd|secret|api[_-]?key|access[_-]?token|authorization|cookie)"
            r"(['\"]?\s*[:=]\s*)(?!\[hidden\])(?:b?'[^']*'|b?\"[^\"]*\"|[^\s'\",;&})\]]+)"
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
]


class Hider:
    """Takes secrets out of texts: whatever has the shape of one, and those it was told."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: list[str] = []
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Hide these, too. Any thread."""
        told = {*self._known, *(secret for secret in known if len(secret) >= LEAST_LETTERS)}
        # Longest first: what is left of a secret whose beginning was hidden would still be a part of one.
        self._known = sorted(told, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        for shape, instead in _SHAPES:
            text = shape.sub(instead, text)
        return text
