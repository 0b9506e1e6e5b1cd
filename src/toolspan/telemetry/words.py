"""What of a call's content may leave: nothing, or short pieces without secrets.

In: inputs, outputs, commands, reasons. Out: texts of at most 512 characters, 4,096 for all of one
call, with what looks like a secret blacked out. Blacking out is a net, not a wall: it knows the
usual shapes of keys and the usual names of secrets. Read `Words.piece` first.
"""

import re
from collections.abc import Mapping

import msgspec

PIECE = 512
TOTAL = 4_096
BLACKED_OUT = "[redacted]"
_LOOKED_AT = 4 * PIECE
"""So much of a text is searched for secrets; more could not be left after the cut."""

_SECRET_NAME = (
    r"(?:api[_-]?key|secret|token(?!s)|passw(?:or)?d|passphrase|credential|private[_-]?key"
    r"|access[_-]?key|authorization|cookie|[_-]pwd|[_-]auth(?!or)|[_-]key)"
)
_SECRETS = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    re.compile(r"(?<=://)[^/\s@\"'\\]+(?=@)"),  # user and password of an address
    re.compile(r"(?i)(?<=\bbearer\s)\s*[\w.~+/=-]+|(?<=\bbasic\s)\s*[\w.~+/=-]{8,}"),
    re.compile(
        r"sk-[\w-]{12,}|[rs]k_(?:live|test)_\w{8,}|gh[oprsu]_\w{16,}|github_pat_\w{16,}"
        r"|glpat-[\w-]{12,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w-]{20,}|xox[abeoprs]-[\w-]{8,}"
        r"|npm_\w{20,}|pypi-[\w-]{16,}|hf_\w{16,}|eyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?"
    ),
)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\"(?:[^"\\])*|[^\s"',;&}\])]+)"""
_NAMED = (
    # password=…, "apiKey": "…", Authorization: …
    re.compile(rf"(?i)((?<![\w.-])[\w.-]*{_SECRET_NAME}[\w.-]*(?:\\*[\"'])?\s*[:=]\s*){_VALUE}"),
    # SIGNING_KEY=…, MY_KEY_2=…
    re.compile(rf"((?<![\w.-])[\w.-]*KEY[A-Z0-9_]*\s*=\s*){_VALUE}"),
    # --password …, --token …
    re.compile(rf"(?i)(--?[\w-]*{_SECRET_NAME}[\w-]*\s+){_VALUE}"),
)


def redacted(text: str) -> str:
    """The text with what looks like a secret blacked out."""
    for pattern in _SECRETS:
        text = pattern.sub(BLACKED_OUT, text)
    for pattern in _NAMED:
        text = pattern.sub(lambda found: found[1] + BLACKED_OUT, text)
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
