"""Inputs and results, read from the transcript when somebody asks.

A span keeps places, not bytes. The shelf reads a place again, finds the block by its id, and
narrows it. A place that no longer holds the block (the file was rewritten) raises SourceError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.formats.claude.records import CALL_BLOCK_TYPES
from toolspan.formats.decoding import content_to_text
from toolspan.formats.lines import missing_call_error, reread_line
from toolspan.formats.source import Source
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Call, Result

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


class TranscriptBodyStore:
    """The bodies of one transcript."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    def raw_input(self, call: Call) -> bytes:
        """The input as JSON; an empty object for an orphan result, whose input nobody recorded."""
        if call.place is None:
            return b"{}"
        blocks = self._read_bodies(call.place).blocks
        unnamed = [block for block in blocks if not block.id and block.type in CALL_BLOCK_TYPES]
        block = next((b for b in blocks if b.id == call.id and b.id), _nth_unnamed_block(unnamed, call.id))
        if block is None:
            raise missing_call_error(call.place, call.id)
        return bytes(block.input) or b"{}"

    def arguments(self, call: Call) -> dict[str, object]:
        """The input, decoded; empty when it is no object."""
        from toolspan.types.inputs import decode_json_object

        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """The input narrowed to its tool's type."""
        from toolspan.formats.claude.narrow import narrow_input

        return narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> Any:
        """What the model read: a string or a list of blocks."""
        return self._block_content(self._read_bodies(result.place), result)

    def text(self, result: Result) -> str:
        """What the model read, as text."""
        return content_to_text(self.content(result))

    def structured(self, result: Result) -> object:
        """The structured companion, typed; from the text where the client left it out."""
        from toolspan.formats.claude.narrow import narrow_result, narrow_text_result

        bodies = self._read_bodies(result.place)
        if bodies.structured is None:
            return narrow_text_result(result.tool, content_to_text(self._block_content(bodies, result)))
        return narrow_result(result.tool, bodies.structured)

    def _block_content(self, bodies: records.EntryBodies, result: Result) -> Any:
        blocks = bodies.blocks
        unnamed = [b for b in blocks if b.type == "tool_result" and not b.tool_use_id]
        block = next((b for b in blocks if b.tool_use_id == result.id), _nth_unnamed_block(unnamed, result.id))
        if block is None:
            raise missing_call_error(result.place, result.id)
        return json_repair.decode_readable(bytes(block.content))

    def _read_bodies(self, place: SourceLocation) -> records.EntryBodies:
        return reread_line(self.source, place, records.decode_bodies)


def _nth_unnamed_block(unnamed: list[records.BlockBody], name: str) -> records.BlockBody | None:
    """The block that pairing named `byte-OFFSET.NUMBER` because it has no id of its own."""
    number = name.rpartition(".")[2]
    if not name.startswith("byte-") or not number.isdecimal() or int(number) >= len(unnamed):
        return None
    return unnamed[int(number)]
