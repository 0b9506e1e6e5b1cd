"""Inputs and results, read from the transcript when somebody asks.

A span keeps places, not bytes. These bodies read a place again, find the block by its id, and
narrow it. A place that no longer holds the block (the file was rewritten) raises SourceError.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from toolspan.errors import SourceError
from toolspan.model.place import Place
from toolspan.wire import claude, document
from toolspan.wire.source import Source

if TYPE_CHECKING:
    from toolspan.model.inputs import ToolInput


class StoredInput(Struct, frozen=True, gc=False):
    """The input of a call that stands in a transcript."""

    source: Source
    place: Place
    id: str
    tool: str

    def raw(self) -> bytes:
        """The input as JSON."""
        for block in _blocks(_entry(self.source, self.place)):
            if block.id == self.id and memoryview(block.input):
                return bytes(block.input)
        raise _gone(self.place, self.id)

    def typed(self) -> "ToolInput":
        """The input narrowed to its tool's type."""
        from toolspan.read.narrow import narrow_input

        return narrow_input(self.tool, self.raw())


class StoredResult(Struct, frozen=True, gc=False):
    """The result of a call that stands in a transcript."""

    source: Source
    place: Place
    id: str
    tool: str

    def content(self) -> Any:
        """What the model read: a string or a list of blocks."""
        return self._content(_entry(self.source, self.place))

    def _content(self, entry: claude.Entry) -> Any:
        for block in _blocks(entry):
            if block.tool_use_id == self.id:
                return document.decode(bytes(block.content)) if memoryview(block.content) else ""
        raise _gone(self.place, self.id)

    def text(self) -> str:
        """What the model read, as text."""
        return claude.plain(self.content())

    def raw_structured(self) -> bytes | None:
        """The structured companion as JSON; None when absent."""
        return _given(_entry(self.source, self.place).structured)

    def structured(self) -> object:
        """The structured companion, typed; from the text where the client left it out."""
        from toolspan.read.narrow import narrow_result, narrow_text_result

        entry = _entry(self.source, self.place)
        data = _given(entry.structured)
        if data is None:
            return narrow_text_result(self.tool, claude.plain(self._content(entry)))
        return narrow_result(self.tool, data)


class NoInput(Struct, frozen=True, gc=False):
    """The input of an orphan result: nobody recorded it."""

    def raw(self) -> bytes:
        """An empty object."""
        return b"{}"

    def typed(self) -> "ToolInput":
        """An input nothing is known of."""
        from toolspan.read.narrow import narrow_input

        return narrow_input("", b"{}")


def _entry(source: Source, place: Place) -> claude.Entry:
    try:
        return claude.decode(source.read(place.offset, place.length)).entry
    except ValueError as error:
        raise SourceError(f"{place}: the line has changed since it was read") from error


def _blocks(entry: claude.Entry) -> list[claude.Block]:
    content = entry.message.content if entry.message else None
    return content if isinstance(content, list) else []


def _given(raw: Raw) -> bytes | None:
    data = bytes(raw)
    return data if data and data != b"null" else None


def _gone(place: Place, call_id: str) -> SourceError:
    return SourceError(f"{place}: {call_id} is no longer there")
