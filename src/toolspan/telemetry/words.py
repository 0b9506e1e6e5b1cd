"""What of a call's content may leave: nothing, or short pieces without secrets.

In: inputs, outputs, commands, reasons. Out: texts of at most 512 characters, 4,096 for all of one
call, with what looks like a secret blacked out: a net, not a wall. Read `Words.piece` first.
"""

from collections.abc import Mapping

import msgspec

from toolspan.model.secrets import SECRETS

PIECE = 512
TOTAL = 4_096
BLACKED_OUT = "[redacted]"
_LOOKED_AT = 4 * PIECE
"""So much of a text is searched for secrets; more could not be left after the cut."""


def redacted(text: str) -> str:
    """The text with what looks like a secret blacked out."""
    low = text.lower()
    for form in SECRETS:
        if form.may_be_in(low):
            text = form.replaced(text, lambda value: None if value == BLACKED_OUT else BLACKED_OUT)
    return text


class Words:
    """The content that may still be told of one call."""

    def __init__(self, *, allowed: bool) -> None:
        self._left = TOTAL if allowed else 0

    def told(self, values: Mapping[str, object]) -> dict[str, str]:
        """Those of the values that may be told, under their names; None says nothing."""
        pieces = {name: self.piece(value) for name, value in values.items()}
        return {name: piece for name, piece in pieces.items() if piece is not None}

    def piece(self, value: object) -> str | None:
        """A value as a short text; None when there is nothing to tell, or it may not be told."""
        if self._left <= 0 or value is None:
            return None
        text = value if isinstance(value, str) else _json(value)
        room = min(PIECE, self._left)
        text = redacted(text[:_LOOKED_AT])
        if len(text) > room:
            text = text[: room - 1] + "…"
        self._left -= len(text)
        return text


def size_of(value: object) -> int:
    """The bytes of a text, or of a value as JSON."""
    text = value if isinstance(value, str) else _json(value)
    return len(text.encode("utf-8", "replace"))


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):  # a tool's own value may be anything
        return str(type(value).__name__)
