"""What all dialects' lines have in common: typed views of JSON objects, and text in them.

In: bytes or decoded objects, and a Struct that names the fields somebody needs. Out: as much of it
as fits, many lines at a time where nothing is odd; the same view laid over the object again, so
that a wrong view would show as a difference. Knows no client's fields. Read `fit_struct` first.
"""

import math
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from toolspan.wire import document

T = TypeVar("T", bound=Struct)
V = TypeVar("V")

UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a typed decoder raises when a line needs a closer look."""

_STRING = msgspec.json.Decoder(str)


def decode_lines(
    decoder: "msgspec.json.Decoder[T]", data: bytes | bytearray, start: int, stop: int
) -> tuple[list[T], list[int]] | None:
    """Many lines at once: views, and where in `data` their lines end.

    None when a line needs a closer look. Every line must begin with `{` and end with `}`: then no
    document can run over the end of a line, and as many documents as lines means one on each.
    """
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
        views = decoder.decode_lines(memoryview(data)[start:stop])
    except UNFIT:
        return None
    return (views, ends) if len(views) == len(ends) else None


_OPEN, _CLOSE, _QUOTE = b'{}"'


class Decoded(NamedTuple, Generic[V]):
    """A line's typed view, and the names of known fields whose values did not fit."""

    entry: V
    odd: tuple[str, ...]


class View(Generic[T]):
    """Lines as one Struct: read in two steps, the fast one first, and written back."""

    def __init__(self, shape: type[T]) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder(shape)
        self.decode_typed = self._decoder.decode
        """The first, fast step: raises one of UNFIT when a field has another type, or on damage."""

    def decode_whole(
        self, data: bytes | bytearray, start: int = 0, stop: int | None = None
    ) -> tuple[list[T], list[int]] | None:
        """Many lines at once: views, and where in `data` their lines end.

        None when a line needs a closer look.
        """
        return decode_lines(self._decoder, data, start, len(data) if stop is None else stop)

    def decode(self, data: bytes) -> Decoded[T]:
        """One line: all of it at once, or else what fits, and the names of what does not.

        Raises:
            ValueError: the bytes are not exactly one JSON object.
        """
        try:
            return Decoded(self.decode_typed(data), ())
        except UNFIT:
            return self.decode_loosely(data)

    def decode_loosely(self, data: bytes) -> Decoded[T]:
        """The second, slow step: take what fits and name what does not.

        Raises:
            ValueError: the bytes are not exactly one JSON object.
        """
        odd: list[str] = []
        return Decoded(fit_struct(decode_object(data), self._shape, "", odd), tuple(odd))

    def encode(self, view: T, data: bytes) -> bytes:
        """A line written anew: the view laid over what the line holds, unknown keys kept.

        Raises:
            ValueError: `data` is not exactly one JSON object.
        """
        found = decode_object(data)
        overlay(found, view)
        return document.encode(found)


def decode_object(data: bytes) -> dict[str, Any]:
    """One JSON object, decoded.

    Raises:
        ValueError: the bytes are not exactly one JSON object.
    """
    found = document.decode(data)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def fit_struct(found: dict[str, Any], shape: type[T], path: str, odd: list[str]) -> T:
    """As much of a decoded object as fits a Struct."""
    taken: dict[str, Any] = {}
    for known in msgspec.structs.fields(shape):
        if known.encode_name not in found:
            continue
        name = f"{path}{known.encode_name}"
        try:
            taken[known.name] = _fit(found[known.encode_name], known.type, name, odd)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
            odd.append(name)
    return shape(**taken)


def _fit(value: Any, wanted: Any, path: str, odd: list[str]) -> Any:
    if wanted is Raw:
        return Raw(document.encode(value))
    for option in get_args(wanted) or (wanted,):
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return fit_struct(value, option, f"{path}.", odd)
        if isinstance(value, list) and get_origin(option) is list:
            (shape,) = get_args(option)
            return [_fit_item(item, shape, f"{path}[{n}]", odd) for n, item in enumerate(value)]
    fitted = msgspec.convert(value, wanted)
    if isinstance(fitted, float) and not math.isfinite(fitted):
        raise ValueError("beyond what a float can hold")
    return fitted


def _fit_item(item: Any, shape: Any, path: str, odd: list[str]) -> Any:
    if shape is Raw:
        return Raw(document.encode(item))
    if isinstance(item, dict):
        return fit_struct(item, shape, f"{path}.", odd)
    odd.append(path)
    return shape()


def overlay(found: dict[str, Any], view: Struct) -> None:
    """Lay a typed view over what a line holds; unknown keys stay as they are."""
    for known in msgspec.structs.fields(type(view)):
        value = getattr(view, known.name)
        if value != known.default and known.encode_name in found:
            found[known.encode_name] = _laid_over(found[known.encode_name], value)


def _laid_over(below: Any, value: Any) -> Any:
    if isinstance(value, Raw):
        return document.decode(bytes(value)) if bytes(value) else below
    if isinstance(value, Struct):
        if isinstance(below, dict):
            overlay(below, value)
        return below
    if isinstance(value, list) and value and isinstance(value[0], Struct | Raw):
        return [_laid_over(part, item) for part, item in zip(below, value, strict=True)]
    if isinstance(below, Decimal) and isinstance(value, float) and float(below) == value:
        return below  # the same number, with all its digits
    return value


def text_of(raw: Raw) -> str:
    """A string field as text; an array of blocks as the texts in it; anything else as empty."""
    data = bytes(raw)
    if not data:
        return ""
    if data[0] == _QUOTE:
        try:
            return _STRING.decode(data)
        except UNFIT:
            pass
    return plain(document.decode_readable(data))


def plain(content: Any) -> str:
    """Message content as text: strings as they are, blocks by their text, others as a note."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_plain_block(block) for block in content)
    return ""


def _plain_block(block: Any) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else ""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    kind = block.get("type")
    if kind == "tool_reference":
        return f"[tool {block.get('tool_name')}]"
    return f"[{kind}]" if isinstance(kind, str) else ""
