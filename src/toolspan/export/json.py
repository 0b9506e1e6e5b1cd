"""`--format json`: one object per call and line, with the fields of `CallRecord` and exact texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import MsgspecError, Struct
from msgspec import json as fast

from toolspan.export.session_export import SessionExport
from toolspan.formats import json_repair

TOO_DEEP = "[nested too deeply]"


def encode_json(value: Struct | dict[str, object]) -> bytes:
    """Return a value as compact JSON. Values nested too deeply are replaced by a note."""
    try:
        return fast.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, MsgspecError):
        pass
    try:
        return json_repair.encode_document(_to_json_value(value, 512))
    except (ValueError, RecursionError):
        return json_repair.encode_document(_to_json_value(value, 32))


def _to_json_value(value: object, max_depth: int) -> object:
    """Convert a value to JSON values, down to a depth."""
    if max_depth < 0:
        return TOO_DEEP
    match value:
        case Struct():
            named = {item: getattr(value, item) for item in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return _to_json_value({"type": tag, **named} if tag else named, max_depth)
        case dict():
            return {str(key): _to_json_value(item, max_depth - 1) for key, item in value.items()}
        case list() | tuple():
            return [_to_json_value(item, max_depth - 1) for item in value]
        case _:
            return value


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield a line for every call."""
    for session in sessions:
        for call in session.calls():
            yield encode_json(call) + b"\n"
