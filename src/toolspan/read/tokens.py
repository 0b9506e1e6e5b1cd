"""Counts tokens: per message the largest value of each field.

The blocks of one message stand on lines of their own, which repeat the counts or let them grow; the
plain sum over all lines is kept beside it to show the difference.
"""

import struct

from toolspan.model.tokens import Tokens
from toolspan.wire.claude import ApiMessage, Entry, Usage


class TokenCount:
    """The tokens of the messages so far."""

    def __init__(self) -> None:
        self.models: dict[str, None] = {}
        self._model: str | None = None
        self._name: str | None = None
        self._usage: Usage | None = None
        """Of the last line; the next one often repeats it."""
        self._packed = 0
        """The same, packed."""
        self._usages: dict[str, int] = {}
        """Tokens by message, packed: there are as many messages as calls."""
        self._raw = 0

    def add(self, entry: Entry, message: ApiMessage) -> None:
        """An assistant line and the message on it."""
        usage, model = message.usage, message.model
        if usage is None or model == "<synthetic>":
            return
        if model != self._model and model:
            self._model = model
            self.models[model] = None
        name = message.id or entry.request_id or entry.request_id_snake
        if name is None:
            name = f"#{len(self._usages)}"
        elif name == self._name:
            if message.id:
                message.id = self._name  # one object for all lines of a message
            if usage == self._usage:
                self._raw += self._packed
                return
        self._name, self._usage, self._packed = name, usage, _packed(usage)
        self._put(name, self._packed)

    def _put(self, name: str, packed: int) -> None:
        self._raw += packed
        before = self._usages.setdefault(name, packed)
        if before != packed:
            self._usages[name] = _most(before, packed)

    @property
    def messages(self) -> dict[str, Tokens]:
        """Tokens by message; messages without any id count one by one, as `#n`."""
        return {name: _unpacked(packed) for name, packed in self._usages.items()}

    @property
    def raw_sum(self) -> Tokens:
        """What adding up every line gives."""
        return _unpacked(self._raw)

    @property
    def sum(self) -> Tokens:
        """The sum over messages."""
        return _unpacked(sum(self._usages.values()))


_FIELDS = struct.Struct("<4Q")
_MOST_BITS = 48
"""No message has so many tokens, and many such messages still fit into a field."""

_GIVEN = ((1 << 64) - 1) << 64
"""Where the tokens of the answer stand."""


def _packed(usage: Usage) -> int:
    """Four counts in one number, which also adds up field by field; absurd ones count as none."""
    asked = usage.input_tokens or 0
    given = usage.output_tokens or 0
    made = usage.cache_creation_input_tokens or 0
    used = usage.cache_read_input_tokens or 0
    if (asked | given | made | used) >> _MOST_BITS:
        counts = (asked, given, made, used)
        asked, given, made, used = (n if not n >> _MOST_BITS else 0 for n in counts)
    return asked | given << 64 | made << 128 | used << 192


def _counts(packed: int) -> tuple[int, int, int, int]:
    return _FIELDS.unpack(packed.to_bytes(_FIELDS.size, "little"))


def _unpacked(packed: int) -> Tokens:
    asked, given, made, used = _counts(packed)
    return Tokens(
        input_tokens=asked,
        output_tokens=given,
        cache_creation_input_tokens=made,
        cache_read_input_tokens=used,
    )


def _most(first: int, second: int) -> int:
    """Field by field the larger of the two."""
    if not (first ^ second) & ~_GIVEN:  # most often only what is given grows
        return max(first, second)
    counts = map(max, _counts(first), _counts(second))
    return int.from_bytes(_FIELDS.pack(*counts), "little")
