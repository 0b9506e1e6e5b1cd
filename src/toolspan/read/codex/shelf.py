"""Inputs and outputs of a rollout, read from the file when somebody asks.

A span keeps places, not bytes. The shelf reads a place again and finds the item there by its id. A
place that no longer holds it (the file was rewritten or compressed) raises SourceError.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from toolspan.ids import CallId
from toolspan.model.place import Place
from toolspan.model.span import Call, Result
from toolspan.read.again import gone, read_again
from toolspan.wire import codex, document
from toolspan.wire.codex import NOTHING, SELF_CONTAINED, Item, Record, calls_of
from toolspan.wire.codex_calls import arguments_of
from toolspan.wire.codex_output import said
from toolspan.wire.source import Source
from toolspan.wire.views import text_of

if TYPE_CHECKING:
    from toolspan.model.inputs import ToolInput

NAMELESS = "#"
"""How the names begin that we give to calls without one."""


class RolloutShelf:
    """The bodies of one rollout."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.ends: dict[CallId, int] = {}
        """Where the events stand that tell of calls' ends, by call."""

    def raw_input(self, call: Call) -> bytes:
        """The input as JSON: an object; what the model wrote, as a string, when it is no JSON."""
        if call.place is None:
            return b"{}"
        items = calls_of(self._record(call.place).item)
        nameless = call.id.startswith(NAMELESS)
        names = (None,) if nameless else (call.id,)
        item = next((item for item in items if (item.call_id or item.id) in names), None)
        if item is None:
            raise gone(call.place, call.id)
        return arguments_of(item)

    def arguments(self, call: Call) -> dict[str, object]:
        """The input, decoded; empty when it is no object."""
        from toolspan.model.inputs import decode_object

        return decode_object(self.raw_input(call))

    def typed_input(self, call: Call) -> "ToolInput":
        """The input narrowed to its tool's type."""
        from toolspan.model.inputs import UnknownInput
        from toolspan.wire import codex_narrow, narrow

        data = self.raw_input(call)
        found = codex_narrow.narrow_input(call.tool, data)
        if isinstance(found, UnknownInput):  # models name tools of other clients too
            return narrow.narrow_input(call.tool, data)
        return found

    def content(self, result: Result) -> Any:
        """What the model read: a string or a list of blocks."""
        return document.decode_readable(bytes(self._output(result)))

    def text(self, result: Result) -> str:
        """What the model read, as text; of JSON around an output, the output."""
        raw = self._output(result)
        text = text_of(raw)
        return said(raw).text if text.startswith('{"') else text

    def structured(self, result: Result) -> object:
        """The output taken apart, and what the event of its end tells beside it."""
        from toolspan.wire.codex_narrow import narrow_result

        at = self.ends.get(result.id)
        event = self._record(Place.unpacked(self.name, at)).item if at is not None else None
        return narrow_result(result.tool, self._output(result), event)

    def _output(self, result: Result) -> Raw:
        item = self._record(result.place).item
        if item.type in SELF_CONTAINED:
            return item.result if item.result != NOTHING else item.action
        names = {item.call_id, item.tool_call_id, item.id} - {None}
        if result.id not in names and names:
            raise gone(result.place, result.id)
        return output_of(item)

    def _record(self, place: Place) -> Record:
        return read_again(self.source, place, codex.decode).entry


def output_of(item: Item) -> Raw:
    """The output of an item, under whichever name it stands."""
    for raw in (item.output, item.result, item.tools, item.content):
        if raw != NOTHING:
            return raw
    return NOTHING
