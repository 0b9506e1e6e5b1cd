"""Read inputs and outputs of a rollout on demand.

A span keeps places, not bytes. A place that no longer holds its item, because the file was rewritten, raises
SourceError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from toolspan.formats import json_repair
from toolspan.formats.codex import records
from toolspan.formats.codex.calls import call_arguments, parse_output
from toolspan.formats.codex.records import ABSENT, SELF_CONTAINED_TYPES, RolloutItem, RolloutRecord, extract_calls
from toolspan.formats.decoding import extract_text
from toolspan.formats.lines import missing_call_error, reread_line
from toolspan.formats.source import Source
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.span import Call, Result

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


MISSING_ID_PREFIX = "#"
"""The prefix of ids that toolspan gives to calls without one."""


class RolloutBodyStore:
    """Reads the bodies of one rollout."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.end_locations: dict[CallId, int] = {}
        """Packed places of the events about the ends of calls."""

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON; text that is not JSON comes as a string."""
        if call.place is None:
            return b"{}"
        items = extract_calls(self._read_record(call.place).item)
        is_unnamed = call.id.startswith(MISSING_ID_PREFIX)
        names = (None,) if is_unnamed else (call.id,)
        item = next((item for item in items if (item.call_id or item.id) in names), None)
        if item is None:
            raise missing_call_error(call.place, call.id)
        return call_arguments(item)

    def arguments(self, call: Call) -> dict[str, object]:
        """Return the decoded input; empty if it is not an object."""
        from toolspan.types.inputs import decode_json_object

        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's type; models also call tools of other clients."""
        from toolspan.formats.codex.results import narrow_input
        from toolspan.formats.registry import narrow_foreign_input
        from toolspan.types.inputs import UnknownInput

        data = self.raw_input(call)
        tool_input = narrow_input(call.tool, data)
        return narrow_foreign_input(call.tool, data) if isinstance(tool_input, UnknownInput) else tool_input

    def content(self, result: Result) -> Any:
        """Return what the model read: a string or a list of blocks."""
        return json_repair.decode_readable(bytes(self._read_output(result)))

    def text(self, result: Result) -> str:
        """Return what the model read, as text; of JSON around an output, the output."""
        raw = self._read_output(result)
        text = extract_text(raw)
        return parse_output(raw).text if text.startswith('{"') else text

    def structured(self, result: Result) -> object:
        """Return the parsed output, completed by the event about the call's end."""
        from toolspan.formats.codex.results import narrow_result

        at = self.end_locations.get(result.id)
        event = self._read_record(SourceLocation.unpack(self.name, at)).item if at is not None else None
        return narrow_result(result.tool, self._read_output(result), event)

    def _read_output(self, result: Result) -> Raw:
        item = self._read_record(result.place).item
        if item.type in SELF_CONTAINED_TYPES:
            return item.result if item.result != ABSENT else item.action
        names = {item.call_id, item.tool_call_id, item.id} - {None}
        if result.id not in names and names:
            raise missing_call_error(result.place, result.id)
        return item_output(item)

    def _read_record(self, place: SourceLocation) -> RolloutRecord:
        return reread_line(self.source, place, records.decode_record).entry


def item_output(item: RolloutItem) -> Raw:
    """Return the output of an item, whatever its key."""
    for raw in (item.output, item.result, item.tools, item.content):
        if raw != ABSENT:
            return raw
    return ABSENT
