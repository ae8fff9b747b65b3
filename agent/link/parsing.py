"""What parsing the bytes of others may raise: every reader of messages, tables and manifests catches these."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""msgspec answers nesting of some hundred levels, in a field it would only skip, with a RecursionError."""
