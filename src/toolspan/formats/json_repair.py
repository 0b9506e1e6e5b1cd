"""Decode and encode imperfect JSON, and recover the objects in damaged lines.

`decode_document` is for a line that should be one document, `recover_objects` for a line that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec


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
        return _run_on_fresh_stack(_decode_slowly, data)


def decode_readable(data: bytes) -> Any:
    """Decode a document, with replacement characters if it is not UTF-8. Never raises.

    Bytes that are not JSON are returned as a string.
    """
    try:
        return decode_document(data)
    except ValueError:
        readable = data.decode("utf-8", "replace")
    try:
        return decode_document(readable.encode())
    except ValueError:
        return readable


def _run_on_fresh_stack(work: Callable[[bytes], Any], data: bytes) -> Any:
    """Run a function on an empty stack, so that the maximum depth does not depend on the caller."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work, data).result()


def _decode_slowly(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_reject_constant, parse_float=_parse_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


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
    """The length in bytes."""
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
    ranges, clean = _find_objects(text)
    pieces, at, offset = [], 0, 0
    for start, end in ranges:
        offset += len(_encode_text(text[at:start]))
        raw = _encode_text(text[start:end])
        whole = _valid_json(raw)
        if whole is not None:
            pieces.append(RecoveredObject(offset, len(raw), whole))
        offset += len(raw)
        at = end
    return RecoveredLine(pieces, _classify_damage(data, text, len(pieces), clean=clean))


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _valid_json(raw: bytes) -> bytes | None:
    """Return `raw` if it can be decoded, the re-encoded object otherwise, or None if neither works."""
    try:
        decode_document(raw)
    except ValueError:
        try:
            return encode_document(_LENIENT_SCANNER.decode(raw.decode("utf-8", "replace")))
        except ValueError:
            return None
    return raw


def _find_objects(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Return the ranges of the objects, and whether only whitespace separates them."""
    ranges: list[tuple[int, int]] = []
    tries, at = 0, 0
    while tries < _MAX_TRIES:
        while at < len(text) and text[at] in _BLANK_CHARACTERS:
            at += 1
        if at >= len(text):
            break
        end = _object_end(text, at)
        if end is not None:
            ranges.append((at, end))
            at = end
            continue
        tries += 1
        at = _next_start(text, at)
        if at < 0:
            break
    return ranges, tries == 0


def _object_end(text: str, start: int) -> int | None:
    if text[start] != "{":
        return None
    try:
        _, end = _LENIENT_SCANNER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return end


def _next_start(text: str, at: int) -> int:
    """Return where the next record may begin: after the end of another, after NULs, or at its first key."""
    places = [
        place + lead
        for mark, lead in (('}{"', 1), ('\0{"', 1), ('{"parentUuid":', 0))
        if (place := text.find(mark, at + 1 - lead)) >= 0
    ]
    return min(places, default=-1)


def _classify_damage(data: bytes, text: str, count: int, *, clean: bool) -> str:
    if any("\udc80" <= c <= "\udcff" for c in text):
        return "invalid_utf8"
    if b"\0" in data:
        return "nul_bytes"
    if count > 1 and clean:
        return "glued_records"
    if count == 1 and clean:
        return "byte_order_mark" if data.startswith(b"\xef\xbb\xbf") else "control_characters"
    return "not_an_object" if _is_valid_json(data) else "torn_line"


def _is_valid_json(data: bytes) -> bool:
    try:
        decode_document(data)
    except ValueError:
        return False
    return True
