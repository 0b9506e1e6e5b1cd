"""A reply whose calls every server takes back, whatever model it comes from.

In: the events of a model that anybody may have written. Out: the same events; calls whose id was
there before, or has characters that servers refuse, have another one, everywhere. Names likewise.
Calls without an id or a name are left: they are no calls, and the loop says so.
"""

from collections.abc import Iterable
from contextlib import aclosing

from toolspan.llm.blocks import call_id, call_ids, tool_name
from toolspan.llm.history import Message
from toolspan.llm.model import (
    BlockDone,
    CallBegan,
    InputDelta,
    Model,
    ModelEvent,
    Request,
    Retrying,
    Stream,
)


async def mended(model: Model, request: Request) -> Stream:
    """The reply to a request, as it comes.

    Raises:
        ModelFailed: there will be no reply, or no more of it.
    """
    names = _Names(request.messages)
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            yield names.mend(event)


class _Names:
    """What the calls of a conversation are called."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._taken = set(call_ids(messages))
        self._open: dict[str, str] = {}
        """Calls that still come in: what they are called, by the model's own word."""

    def mend(self, event: ModelEvent) -> ModelEvent:
        """The event with ids and names that can be sent back."""
        match event:
            case CallBegan(wanted, tool) if wanted and tool:
                self._open[wanted] = made = self._new(wanted)
                return CallBegan(made, tool_name(tool))
            case InputDelta(wanted, text) if wanted in self._open:
                return InputDelta(self._open[wanted], text)
            case BlockDone({"type": "tool_use", "id": str(wanted), "name": str(tool)} as block) if (
                wanted and tool
            ):
                made = self._open.pop(wanted, "") or self._new(wanted)
                return BlockDone({**block, "id": made, "name": tool_name(tool)})
            case Retrying():
                self._taken -= set(self._open.values())
                self._open.clear()
            case _:
                pass
        return event

    def _new(self, wanted: str) -> str:
        made = call_id(wanted, self._taken)
        self._taken.add(made)
        return made
