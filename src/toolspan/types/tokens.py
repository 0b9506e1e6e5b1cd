"""Token usage of messages."""

from __future__ import annotations

from msgspec import Struct


class Tokens(Struct, frozen=True, kw_only=True, gc=False):
    """Token usage of one message, or the sum over several."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )

    def max_with(self, other: Tokens) -> Tokens:
        """Return the field-wise maximum, because the records of one message repeat growing counts."""
        return Tokens(
            input_tokens=max(self.input_tokens, other.input_tokens),
            output_tokens=max(self.output_tokens, other.output_tokens),
            cache_creation_input_tokens=max(self.cache_creation_input_tokens, other.cache_creation_input_tokens),
            cache_read_input_tokens=max(self.cache_read_input_tokens, other.cache_read_input_tokens),
        )
