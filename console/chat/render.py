"""Markdown and code as HTML that Qt's rich text and browsers show. No I/O; nothing in it is loaded from anywhere.

The parser lets no HTML through, so what a model writes can only be text.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

MOST_HIGHLIGHTED = 10_000
"""Code that is longer than this is shown in one colour: colouring it would hold the window up for several frames."""


class Shades(NamedTuple):
    """The colours of rendered text: `style` is a Pygments style that can be read on `code`."""

    text: str
    quiet: str
    code: str
    border: str
    link: str
    style: str


LIGHT = Shades(text="#1b1f1a", quiet="#566053", code="#edefe9", border="#b9c0b3", link="#2f6b3c", style="default")


def markdown_html(source: str, shades: Shades) -> str:
    """Return a text as HTML; colours are written out, so that it can stand anywhere."""
    return str(_renderer(shades).render(source))


@lru_cache(maxsize=512)
def kept_html(source: str, shades: Shades) -> str:
    """Return the same, and keep it: for text that does not change any more."""
    return markdown_html(source, shades)


@lru_cache(maxsize=512)
def code_html(source: str, language: str, shades: Shades) -> str:
    """Return code as HTML without a frame, with colours if the language is known. Kept: messages come and go."""
    lexer = _lexer(language) if len(source) <= MOST_HIGHLIGHTED else None
    if lexer is None:
        return html.escape(source.rstrip("\n"))
    return str(highlight(source, lexer, _formatter(shades.style))).rstrip("\n")


@cache
def _renderer(shades: Shades) -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    rules: dict[str, Any] = {
        "fence": lambda tokens, place, options, env: _code(tokens[place], shades),
        "code_block": lambda tokens, place, options, env: _code(tokens[place], shades),
        "code_inline": lambda tokens, place, options, env: (
            f'<code style="background-color:{shades.code}">{html.escape(tokens[place].content)}</code>'
        ),
        # Pictures would have to be loaded: what they show is said instead, with where they are.
        "image": lambda tokens, place, options, env: html.escape(
            f"[{_plain(tokens[place].children or [])}: {tokens[place].attrs.get('src', '')}]"
        ),
        "table_open": lambda tokens, place, options, env: (
            f'<table cellspacing="0" cellpadding="4" style="border:1px solid {shades.border};border-collapse:collapse;'
            f'margin-top:6px;margin-bottom:6px">'
        ),
        "th_open": lambda tokens, place, options, env: _cell(tokens[place], "th", shades),
        "td_open": lambda tokens, place, options, env: _cell(tokens[place], "td", shades),
        "blockquote_open": lambda tokens, place, options, env: (
            f'<table cellspacing="0" cellpadding="0"><tr><td width="3" style="background-color:{shades.border}"></td>'
            f'<td style="color:{shades.quiet};padding-left:9px">'
        ),
        "blockquote_close": lambda tokens, place, options, env: "</td></tr></table>",
    }
    renderer: Any = made.renderer
    renderer.rules.update(rules)
    return made


def _code(token: Token, shades: Shades) -> str:
    language = token.info.split()[0] if token.info.split() else ""
    inside = code_html(token.content, language, shades)
    return f'<pre style="background-color:{shades.code};white-space:pre-wrap">{inside}</pre>'


def _cell(token: Token, tag: str, shades: Shades) -> str:
    # The parser says how a column is aligned as a style, and Qt takes only an attribute.
    side = str(token.attrs.get("style", "")).rpartition(":")[2]
    align = f' align="{side}"' if side in ("left", "right", "center") else ""
    return f'<{tag}{align} style="border:1px solid {shades.border}">'


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(token.content or _plain(token.children or []) for token in tokens)


# Not kept: a lexer may remember things, and a chat that is exported is coloured in another thread.
def _lexer(language: str) -> Lexer | None:
    try:
        found: Lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None
    return found


@cache
def _formatter(style: str) -> HtmlFormatter[str]:
    return HtmlFormatter(style=style, noclasses=True, nowrap=True)
