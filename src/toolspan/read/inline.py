"""Subagents that old clients kept inside the session's own file.

Such lines are marked as aside but name no agent. The first one repeats the prompt its call was
given, the others follow by their parents: that ties each line to the call that started it.
"""

from toolspan.ids import CallId
from toolspan.read.voice import said
from toolspan.wire.claude import Entry


class InlineAgents:
    """Which call started the subagent that speaks."""

    def __init__(self) -> None:
        self._errands: dict[str, CallId] = {}
        self._owners: dict[str, CallId] = {}

    def send(self, call_id: CallId, prompt: object) -> None:
        """A call gave a subagent this prompt; of equal ones the first waits longest."""
        if isinstance(prompt, str):
            self._errands.setdefault(prompt.strip(), call_id)

    def owner(self, entry: Entry) -> CallId | None:
        """The call behind a line of a subagent, and behind the lines that follow it."""
        if entry.uuid in self._owners:
            return self._owners[entry.uuid]
        found = self._owners.get(entry.parent_uuid) if entry.parent_uuid else None
        if found is None and entry.type == "user":
            found = self._errands.pop((said(entry) or "").strip(), None)
        if found is not None and entry.uuid is not None:
            self._owners[entry.uuid] = found
        return found
