"""The bodies of a live call: what the reader fetches from a transcript, kept in memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from toolspan.types.events import Content
from toolspan.types.span import Call, Result

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


class LiveBodyStore:
    """One call's input and result."""

    __slots__ = ("arguments_", "content_", "structured_")

    name = "live"

    def __init__(self, arguments: Mapping[str, object]) -> None:
        self.arguments_ = arguments
        self.content_: Content = ""
        self.structured_: object | None = None

    def arguments(self, call: Call) -> Mapping[str, object]:  # noqa: ARG002 - holds one call only
        """The input, decoded; not to be changed, for others go by it too."""
        return MappingProxyType(dict(self.arguments_))

    def raw_input(self, call: Call) -> bytes:  # noqa: ARG002
        """The input as JSON."""
        return msgspec.json.encode(self.arguments_)

    def typed_input(self, call: Call) -> ToolInput:
        """The input narrowed to its tool's type."""
        from toolspan.formats.claude.narrow import narrow_input

        return narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> object:  # noqa: ARG002
        """What the model read: a string or a list of blocks."""
        return self.content_

    def text(self, result: Result) -> str:  # noqa: ARG002
        """What the model read, as text."""
        if isinstance(self.content_, str):
            return self.content_
        from toolspan.formats.decoding import content_to_text

        return content_to_text(self.content_)

    def structured(self, result: Result) -> object:
        """The machine-readable companion, narrowed to its tool's type."""
        from toolspan.formats.claude.narrow import narrow_result, narrow_text_result

        if self.structured_ is None:
            return narrow_text_result(result.tool, self.text(result))
        return narrow_result(result.tool, msgspec.json.encode(self.structured_))
