"""Helpers for code that writes transcripts: JSON of arbitrary values, and private folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

_MAX_DEPTH = 100
"""Depth at which the fallback encoder stops, because a value may contain itself."""


def encode_json(value: object) -> bytes:
    """Encode a value as JSON. Never raises: parts that JSON cannot express become text or null."""
    try:
        return _ENCODER.encode(value)
    except Exception:  # noqa: BLE001 - tools return arbitrary objects, and their record must be written
        return _ENCODER.encode(_encodable_value(value, _MAX_DEPTH))


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, readable by the owner only.

    Raises:
        OSError: a folder cannot be created.
    """
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _encode_unknown(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return _value_text(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_unknown)


def _encodable_value(value: object, depth: int) -> object:
    """Return the nearest value that msgspec can encode."""
    if isinstance(value, str):
        return _join_surrogates(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return None
    try:
        if isinstance(value, msgspec.Struct):
            value = msgspec.structs.asdict(value)
        if isinstance(value, Mapping):
            return {_encodable_key(key): _encodable_value(part, depth - 1) for key, part in value.items()}
        if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
            return [_encodable_value(part, depth - 1) for part in value]
        return _join_surrogates(_value_text(value))
    except Exception:  # noqa: BLE001 - iterating or printing a foreign object may raise anything
        return None


def _encodable_key(key: object) -> str:
    return _join_surrogates(key if isinstance(key, str) else _value_text(key))


def _value_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs to one character and replace lone surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
