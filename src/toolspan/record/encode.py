"""Values to JSON that every reader takes.

In: what tools, hooks and models gave, of any quality. Out: compact JSON bytes, keys in their order.
Never raises: what has no JSON form is told in words. Half a surrogate pair becomes U+FFFD, because
a conversation that holds one is refused by the model's server for ever after.
"""

from collections.abc import Iterable, Mapping

import msgspec

_DEPTH = 100
"""Where the careful encoder stops: values that hold themselves have no end."""


def _as_json(value: object) -> object:
    """What a value of an unknown type is written as."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return _words(value)


_FAST = msgspec.json.Encoder(enc_hook=_as_json)


def encode(value: object) -> bytes:
    """A value as JSON."""
    try:
        return _FAST.encode(value)
    except Exception:  # noqa: BLE001 - values come from anybody's tools, and a line must be written
        return _FAST.encode(_plain(value, _DEPTH))


def _plain(value: object, depth: int) -> object:
    """The nearest value that encodes."""
    if isinstance(value, str):
        return well_formed(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return None
    try:
        return _plain_parts(value, depth - 1)
    except Exception:  # noqa: BLE001 - somebody's own container or description may do anything
        return None


def _plain_parts(value: object, depth: int) -> object:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return {_key(key): _plain(part, depth) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [_plain(part, depth) for part in value]
    return well_formed(_words(value))


def _key(key: object) -> str:
    return well_formed(key if isinstance(key, str) else _words(key))


def _words(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def well_formed(text: str) -> str:
    """A text without halves of surrogate pairs; two halves that belong together are joined."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
