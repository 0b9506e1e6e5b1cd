"""Decode and encode imperfect JSON, and recover the objects in damaged lines.

`decode_document` is for a line that should be one document, `recover_objects` for a line that is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec

from toolspan.types.inputs import decode_json_or_text


def _parse_number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("a number beyond all bounds") from error


_EXACT_DECODER = msgspec.json.Decoder(float_hook=_parse_number)
_NUMBER_ENCODER = msgspec.json.Encoder(decimal_format="number")
_RECOVER_LIMIT = 64 << 20
_MAX_TRIES = 64
_BLANK_CHARACTERS = " \t\r\n\0\ufeff"
_LENIENT_SCANNER = json.JSONDecoder(strict=False, parse_float=_parse_number, parse_constant=lambda _: None)


def decode_document(data: bytes) -> Any:
    """Decode a document, keeping the lone surrogates that clients sometimes write.

    Raises:
        ValueError: the bytes are not one JSON document.
    """
    try:
        return _EXACT_DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _decode_slowly(data)
    except RecursionError:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as thread:  # an empty stack, so that the depth limit is the same for all callers
            return thread.submit(_decode_slowly, data).result()


def decode_readable(data: bytes) -> Any:
    """Decode a document, with replacement characters if it is not UTF-8. Never raises.

    Bytes that are not JSON are returned as a string.
    """
    return decode_json_or_text(data, decode_document)


def _decode_slowly(data: bytes) -> Any:
    def reject_constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(data.decode("utf-8"), parse_constant=reject_constant, parse_float=_parse_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def encode_document(document: Any) -> bytes:
    """Encode a document as compact JSON, keeping the order of its keys.

    Raises:
        ValueError: the document is nested too deeply.
    """
    try:
        return _NUMBER_ENCODER.encode(document)
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError):
        pass
    try:
        return "".join(_iter_json_text(document)).encode("ascii")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _iter_json_text(document: Any) -> Iterator[str]:
    """Yield the JSON of a document that the fast encoder rejects, with lone surrogates escaped."""
    if isinstance(document, dict):
        comma = "{"
        for key, value in document.items():
            yield f"{comma}{json.dumps(key)}:"
            yield from _iter_json_text(value)
            comma = ","
        yield "}" if document else "{}"
    elif isinstance(document, list | tuple):
        comma = "["
        for value in document:
            yield comma
            yield from _iter_json_text(value)
            comma = ","
        yield "]" if document else "[]"
    else:
        yield str(document) if isinstance(document, Decimal) else json.dumps(document)


def is_same_json(first: bytes, second: bytes) -> bool:
    """Return whether two byte strings contain the same JSON; 1, 1.0 and true are different."""
    return encode_document(decode_document(first)) == encode_document(decode_document(second))


class RecoveredObject(NamedTuple):
    """An object in a damaged line."""

    offset: int
    length: int
    data: bytes
    """Valid JSON: the original bytes if they can be decoded."""


class RecoveredLine(NamedTuple):
    """The objects in a damaged line."""

    pieces: list[RecoveredObject]
    reason: str
    """The finding code for the kind of damage."""


def recover_objects(data: bytes) -> RecoveredLine:
    """Recover the JSON objects in a line that is not exactly one object. Never raises."""
    if len(data) > _RECOVER_LIMIT:
        return RecoveredLine([], "torn_line")
    text = data.decode("utf-8", "surrogateescape")
    ranges, is_clean = _find_objects(text)
    pieces, at, offset = [], 0, 0
    for start, end in ranges:
        offset += len(encode_escaped(text[at:start]))
        raw = encode_escaped(text[start:end])
        with suppress(ValueError):
            whole = raw
            if not is_json(raw):
                whole = encode_document(_LENIENT_SCANNER.decode(raw.decode("utf-8", "replace")))
            pieces.append(RecoveredObject(offset, len(raw), whole))
        offset += len(raw)
        at = end
    if any("\udc80" <= c <= "\udcff" for c in text):
        reason = "invalid_utf8"
    elif b"\0" in data:
        reason = "nul_bytes"
    elif len(pieces) > 1 and is_clean:
        reason = "glued_records"
    elif len(pieces) == 1 and is_clean:
        reason = "byte_order_mark" if data.startswith(b"\xef\xbb\xbf") else "control_characters"
    else:
        reason = "not_an_object" if is_json(data) else "torn_line"
    return RecoveredLine(pieces, reason)


def is_json(data: bytes) -> bool:
    """Return whether the bytes are one JSON document."""
    try:
        decode_document(data)
    except ValueError:
        return False
    return True


def encode_escaped(text: str) -> bytes:
    """Encode text that was decoded with `surrogateescape`."""
    return text.encode("utf-8", "surrogateescape")


def find_value_end(text: str, start: int) -> int | None:
    """Return the end of the JSON value at `start`, or None if it is not valid."""
    try:
        return _LENIENT_SCANNER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _find_objects(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Return the ranges of the objects, and whether only whitespace separates them."""
    ranges: list[tuple[int, int]] = []
    tries, at = 0, 0
    while tries < _MAX_TRIES:
        while at < len(text) and text[at] in _BLANK_CHARACTERS:
            at += 1
        if at >= len(text):
            break
        end = find_value_end(text, at) if text[at] == "{" else None
        if end is not None:
            ranges.append((at, end))
            at = end
            continue
        tries += 1
        # The next record may begin after the end of another, after NULs, or at its first key.
        starts = [
            place + lead
            for mark, lead in (('}{"', 1), ('\0{"', 1), ('{"parentUuid":', 0))
            if (place := text.find(mark, at + 1 - lead)) >= 0
        ]
        if not starts:
            break
        at = min(starts)
    return ranges, tries == 0
