"""JSON documents of any quality: decode what decodes, recover what can be recovered.

`decode` is for a line that should be one document; `recover` is for a line that is not.
"""

import json
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

_EXACT = msgspec.json.Decoder(float_hook=Decimal)
_NUMBERS = msgspec.json.Encoder(decimal_format="number")
_RECOVER_LIMIT = 64 << 20
_TRIES = 64
_BLANK = " \t\r\n\0"
_SCANNER = json.JSONDecoder(strict=False)


def decode(data: bytes) -> Any:
    """The decoded document; half of a surrogate pair, which clients do write, is kept.

    Raises:
        ValueError: the bytes are not one JSON document.
    """
    try:
        return _EXACT.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_slowly(data)


def _decode_slowly(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def encode(document: Any) -> bytes:
    """A document as compact JSON, keys in their order."""
    try:
        return _NUMBERS.encode(document)
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError):
        return json.dumps(document, separators=(",", ":"), default=float).encode("ascii")


def equal(first: bytes, second: bytes) -> bool:
    """Whether two texts are the same JSON; 1, 1.0 and true are three different things."""
    return encode(decode(first)) == encode(decode(second))


class Recovered(NamedTuple):
    """What could be got out of a damaged line."""

    documents: list[tuple[int, bytes]]
    """Offset in the line and the bytes of each object."""
    reason: str
    """Why the line is damaged: a finding code."""


def recover(data: bytes) -> Recovered:
    """The JSON objects in a line that is not exactly one of them. Never raises."""
    if len(data) > _RECOVER_LIMIT:
        return Recovered([], "torn_line")
    text, valid = _as_text(data)
    found, clean = _scan(text)
    documents = [(_width(text[:start]), text[start:end].encode("utf-8", "surrogatepass"))
                 for start, end in found]  # fmt: skip
    return Recovered(documents, _reason(data, len(documents), valid=valid, clean=clean))


def _as_text(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), False


def _width(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _scan(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Where the objects stand, and whether nothing but blanks lies between them."""
    found: list[tuple[int, int]] = []
    clean = True
    at = 0
    for _ in range(_TRIES):
        while at < len(text) and text[at] in _BLANK + "\ufeff":
            at += 1
        if at >= len(text):
            break
        end = _object_end(text, at)
        if end is None:
            clean = False
            at = _next_start(text, at)
            if at < 0:
                break
        else:
            found.append((at, end))
            at = end
    return found, clean


def _object_end(text: str, start: int) -> int | None:
    if text[start] != "{":
        return None
    try:
        _, end = _SCANNER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return end


def _next_start(text: str, at: int) -> int:
    """Where the next object may begin: after the end of another one, or after NULs."""
    places = [place for mark in ('}{"', '\0{"') if (place := text.find(mark, at)) >= 0]
    return min(places) + 1 if places else -1


def _reason(data: bytes, count: int, *, valid: bool, clean: bool) -> str:
    if not valid:
        return "invalid_utf8"
    if b"\0" in data:
        return "nul_bytes"
    if count > 1 and clean:
        return "glued_records"
    if count == 1 and clean:
        return "byte_order_mark" if data.startswith(b"\xef\xbb\xbf") else "control_characters"
    return "torn_line"
