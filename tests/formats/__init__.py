"""Tests of the transcript formats."""

from __future__ import annotations

import json

import msgspec


def holds(narrowed: object, value: object) -> bool:
    """Return whether a typed value encodes to the JSON it was made from, apart from defaults."""
    encoded = json.loads(msgspec.json.encode(narrowed))
    if isinstance(value, list) or "data" in encoded:  # which the first field holds
        encoded = next(iter(encoded.values()))
    return _contains(encoded, value)


def _contains(encoded: object, given: object) -> bool:
    if isinstance(encoded, dict) and isinstance(given, dict):
        return all(key in encoded and _contains(encoded[key], value) for key, value in given.items())
    if isinstance(encoded, list) and isinstance(given, list):
        return len(encoded) == len(given) and all(map(_contains, encoded, given))
    return encoded == given
