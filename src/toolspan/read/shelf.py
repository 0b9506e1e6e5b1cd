"""Inputs and results, read from the transcript when somebody asks.

A span keeps places, not bytes. The shelf reads a place again, finds the block by its id, and
narrows it. A place that no longer holds the block (the file was rewritten) raises SourceError.
"""

from typing import TYPE_CHECKING, Any

from toolspan.model.place import Place
from toolspan.model.span import Call, Result
from toolspan.read.again import gone, read_again
from toolspan.wire import claude, document
from toolspan.wire.claude import CALL_BLOCKS
from toolspan.wire.source import Source

if TYPE_CHECKING:
    from toolspan.model.inputs import ToolInput


class TranscriptShelf:
    """The bodies of one transcript."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    def raw_input(self, call: Call) -> bytes:
        """The input as JSON; an empty object for an orphan result, whose input nobody recorded."""
        if call.place is None:
            return b"{}"
        blocks = self._bodies(call.place).blocks
        nameless = [block for block in blocks if not block.id and block.type in CALL_BLOCKS]
        block = next((b for b in blocks if b.id == call.id and b.id), _nth(nameless, call.id))
        if block is None:
            raise gone(call.place, call.id)
        return bytes(block.input) or b"{}"

    def arguments(self, call: Call) -> dict[str, object]:
        """The input, decoded; empty when it is no object."""
        from toolspan.model.inputs import decode_object

        return decode_object(self.raw_input(call))

    def typed_input(self, call: Call) -> "ToolInput":
        """The input narrowed to its tool's type."""
        from toolspan.wire.narrow import narrow_input

        return narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> Any:
        """What the model read: a string or a list of blocks."""
        return self._content(self._bodies(result.place), result)

    def text(self, result: Result) -> str:
        """What the model read, as text."""
        return claude.plain(self.content(result))

    def structured(self, result: Result) -> object:
        """The structured companion, typed; from the text where the client left it out."""
        from toolspan.wire.narrow import narrow_result, narrow_text_result

        bodies = self._bodies(result.place)
        if bodies.structured is None:
            return narrow_text_result(result.tool, claude.plain(self._content(bodies, result)))
        return narrow_result(result.tool, bodies.structured)

    def _content(self, bodies: claude.Bodies, result: Result) -> Any:
        blocks = bodies.blocks
        nameless = [b for b in blocks if b.type == "tool_result" and not b.tool_use_id]
        block = next((b for b in blocks if b.tool_use_id == result.id), _nth(nameless, result.id))
        if block is None:
            raise gone(result.place, result.id)
        return document.decode_readable(bytes(block.content))

    def _bodies(self, place: Place) -> claude.Bodies:
        return read_again(self.source, place, claude.decode_bodies)


def _nth(nameless: list[claude.Body], name: str) -> claude.Body | None:
    """The block that pairing named `byte-OFFSET.NUMBER` because it has no id of its own."""
    number = name.rpartition(".")[2]
    if not name.startswith("byte-") or not number.isdecimal() or int(number) >= len(nameless):
        return None
    return nameless[int(number)]
