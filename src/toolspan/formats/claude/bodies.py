"""Read inputs and results of a transcript on demand.

A span stores locations, not bytes. The body store reads the line at a location again, finds the block by its id
and decodes it. It raises SourceError if the file was rewritten and the block is no longer there.
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
    """Reads the inputs and results of one transcript."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON; an empty object for an orphan result, whose input is not recorded."""
        if call.place is None:
            return b"{}"
        blocks = self._read_bodies(call.place).blocks
        unnamed = [block for block in blocks if not block.id and block.type in CALL_BLOCK_TYPES]
        block = next((b for b in blocks if b.id == call.id and b.id), _nth_unnamed_block(unnamed, call.id))
        if block is None:
            raise missing_call_error(call.place, call.id)
        return bytes(block.input) or b"{}"

    def arguments(self, call: Call) -> dict[str, object]:
        """Return the decoded input; empty if it is not an object."""
        from toolspan.types.inputs import decode_json_object

        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's type."""
        from toolspan.formats.claude.narrow import narrow_input

        return narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> Any:
        """Return what the model read: a string or a list of blocks."""
        return self._block_content(self._read_bodies(result.place), result)

    def text(self, result: Result) -> str:
        """Return what the model read, as text."""
        return content_to_text(self.content(result))

    def structured(self, result: Result) -> object:
        """Return the structured result as its tool's type; parse it from the text if the client did not record it."""
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
    """Return the block with an id of the form `byte-OFFSET.NUMBER`, which pairing gives to blocks without one."""
    number = name.rpartition(".")[2]
    if not name.startswith("byte-") or not number.isdecimal() or int(number) >= len(unnamed):
        return None
    return unnamed[int(number)]
