"""Decode JSON objects into typed views, and extract text from them.

The fast path decodes many lines at once. A line with a known field of an unexpected type is decoded
again by `fit_struct`, which keeps the fields that match.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from toolspan.formats import json_repair

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput

T = TypeVar("T", bound=Struct)
V = TypeVar("V")

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions that a typed decoder raises for a line that needs the slow path."""

_STRING_DECODER = msgspec.json.Decoder(str)


_OPEN, _CLOSE, _QUOTE = b'{}"'


class DecodedLine(NamedTuple, Generic[V]):
    """The typed view of a line, and the names of known fields whose values have the wrong type."""

    entry: V
    mismatches: tuple[str, ...]


def decode_input(kind: type[ToolInput] | None, data: bytes) -> ToolInput:
    """Decode a tool's input as `kind`, as leniently as clients do, or return `UnknownInput`. Never raises."""
    from toolspan.types.inputs import UnknownInput

    try:
        if kind is not None:
            return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    return UnknownInput(data=data)


def unknown_input_keys(kind: type[ToolInput] | None, data: bytes) -> tuple[str, ...]:
    """Return the keys of an input for which its type has no field."""
    from toolspan.types.inputs import decode_json_or_text

    decoded = decode_json_or_text(data)
    if kind is None or not isinstance(decoded, dict):
        return ()
    known_keys = {field.encode_name for field in msgspec.structs.fields(kind)}
    return tuple(str(key) for key in decoded if key not in known_keys)


def sane_count(count: int | None) -> int:
    """Return a token count, or 0 for a missing or impossible one."""
    return count if count is not None and 0 <= count < 1 << 48 else 0


@functools.cache
def known_keys(client: str) -> dict[str, frozenset[str]]:
    """Return the keys that a client has been observed to write, by kind of object."""
    import tomllib  # perf: only `doctor` needs it

    with Path(__file__).with_name("known_keys.toml").open("rb") as file:
        return {kind: frozenset(keys) for kind, keys in tomllib.load(file)[client].items()}


class TypedDecoder(Generic[T]):
    """Decoder for lines of one Struct type, which also encodes views over their original lines."""

    def __init__(self, shape: type[T]) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder(shape)
        self.decode_typed = self._decoder.decode
        """The fast path: raises one of `DECODE_ERRORS` if a field has the wrong type or the JSON is invalid."""

    def decode_many(
        self, data: bytes | bytearray, start: int = 0, stop: int | None = None
    ) -> tuple[list[T], list[int]] | None:
        """Decode many lines at once, and return the views and the offsets in `data` at which their lines end.

        Returns None if a line needs the slow path. Every line must begin with `{` and end with `}`, so
        that no document can span two lines and equal numbers of documents and lines mean one document
        per line.
        """
        stop = len(data) if stop is None else stop
        ends = []
        at = start
        while (end := data.find(b"\n", at, stop)) >= 0:
            if data[at] != _OPEN or data[end - 1] != _CLOSE:
                return None
            ends.append(end)
            at = end + 1
        if at != stop:
            return None
        try:
            views = self._decoder.decode_lines(memoryview(data)[start:stop])
        except DECODE_ERRORS:
            return None
        return (views, ends) if len(views) == len(ends) else None

    def decode(self, data: bytes) -> DecodedLine[T]:
        """Decode one line, leaving out fields whose values have the wrong type.

        Raises:
            ValueError: the bytes are not exactly one JSON object.
        """
        try:
            return DecodedLine(self.decode_typed(data), ())
        except DECODE_ERRORS:
            return self.decode_loosely(data)

    def decode_loosely(self, data: bytes) -> DecodedLine[T]:
        """Decode one line on the slow path, and list the fields whose values have the wrong type."""
        mismatches: list[str] = []
        return DecodedLine(fit_struct(decode_object(data), self._shape, "", mismatches), tuple(mismatches))

    def encode(self, view: T, data: bytes) -> bytes:
        """Encode a view over its original line, so that unknown keys are kept."""
        decoded = decode_object(data)
        apply_view(decoded, view)
        return json_repair.encode_document(decoded)


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode one JSON object.

    Raises:
        ValueError: the bytes are not exactly one JSON object.
    """
    decoded = json_repair.decode_document(data)
    if not isinstance(decoded, dict):
        raise ValueError("not a JSON object")
    return decoded


def fit_struct(decoded: dict[str, Any], shape: type[T], path: str, mismatches: list[str]) -> T:
    """Convert a decoded object to a Struct, and add the paths of values with the wrong type to `mismatches`."""
    taken: dict[str, Any] = {}
    for field_info in msgspec.structs.fields(shape):
        if field_info.encode_name not in decoded:
            continue
        name = f"{path}{field_info.encode_name}"
        try:
            taken[field_info.name] = _fit_value(decoded[field_info.encode_name], field_info.type, name, mismatches)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
            mismatches.append(name)
    return shape(**taken)


def _fit_value(value: Any, expected_type: Any, path: str, mismatches: list[str]) -> Any:
    if expected_type is Raw:
        return Raw(json_repair.encode_document(value))
    for option in get_args(expected_type) or (expected_type,):
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return fit_struct(value, option, f"{path}.", mismatches)
        if isinstance(value, list) and get_origin(option) is list:
            (shape,) = get_args(option)
            return [_fit_item(item, shape, f"{path}[{n}]", mismatches) for n, item in enumerate(value)]
    fitted = msgspec.convert(value, expected_type)
    if isinstance(fitted, float) and not math.isfinite(fitted):
        raise ValueError("beyond what a float can hold")
    return fitted


def _fit_item(item: Any, shape: Any, path: str, mismatches: list[str]) -> Any:
    if shape is Raw:
        return Raw(json_repair.encode_document(item))
    if isinstance(item, dict):
        return fit_struct(item, shape, f"{path}.", mismatches)
    mismatches.append(path)
    return shape()


def apply_view(decoded: dict[str, Any], view: Struct) -> None:
    """Write a typed view into a decoded line, leaving unknown keys unchanged."""
    for field_info in msgspec.structs.fields(type(view)):
        value = getattr(view, field_info.name)
        if value != field_info.default and field_info.encode_name in decoded:
            decoded[field_info.encode_name] = _merge_value(decoded[field_info.encode_name], value)


def _merge_value(below: Any, value: Any) -> Any:
    if isinstance(value, Raw):
        return json_repair.decode_document(bytes(value)) if bytes(value) else below
    if isinstance(value, Struct):
        if isinstance(below, dict):
            apply_view(below, value)
        return below
    if isinstance(value, list) and value and isinstance(value[0], Struct | Raw):
        return [_merge_value(part, item) for part, item in zip(below, value, strict=True)]
    if isinstance(below, Decimal) and isinstance(value, float) and float(below) == value:
        return below  # the same number, with all its digits
    return value


def extract_text(raw: Raw) -> str:
    """Return the text of a string or an array of blocks, or an empty string for any other value."""
    data = bytes(raw)
    if not data:
        return ""
    if data[0] == _QUOTE:
        try:
            return _STRING_DECODER.decode(data)
        except DECODE_ERRORS:
            pass
    return content_to_text(json_repair.decode_readable(data))


def content_to_text(content: Any) -> str:
    """Return message content as text, with a short note in place of each block that is not text."""
    if isinstance(content, str):
        return content
    return "\n".join(_block_to_text(block) for block in content) if isinstance(content, list) else ""


def _block_to_text(block: Any) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else ""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    kind = block.get("type")
    if kind == "tool_reference":
        return f"[tool {block.get('tool_name')}]"
    return f"[{kind}]" if isinstance(kind, str) else ""


def iter_strings(body: bytes | Raw) -> Iterator[str]:
    """Yield every string value in a JSON document; nothing if it is invalid."""
    data = bytes(body)
    try:
        pending = [json_repair.decode_document(data)] if data else []
    except ValueError:
        return
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))
        elif isinstance(value, list):
            pending.extend(reversed(value))


class TaskNotice(NamedTuple):
    """A notification about a background task."""

    task_id: str | None
    call_id: str | None
    status: str | None
    summary: str | None


_NOTICE = r"(?s)<(task|bash)-notification>(.*?)(?:</\1-notification>|\Z)"
_TAG = r"(?s)<(task-id|shell-id|tool-use-id|status|summary)>(.*?)</\1>"


def parse_task_notices(text: str) -> list[TaskNotice]:
    """Return the task notifications that a client inserted into `text`.

    Old clients record the shell instead of the call that started it.
    """
    if "-notification>" not in text:
        return []
    all_tags = [dict(re.findall(_TAG, body)) for _, body in re.findall(_NOTICE, text)]
    return [
        TaskNotice(
            tags.get("task-id") or tags.get("shell-id"),
            tags.get("tool-use-id"),
            tags.get("status"),
            tags.get("summary"),
        )
        for tags in all_tags
    ]
