"""Names of things, so that one kind of id is never passed for another."""

from typing import NewType

CallId = NewType("CallId", str)
"""Names a call, and the result that answers it."""
SessionId = NewType("SessionId", str)
"""Names a conversation."""
EntryId = NewType("EntryId", str)
"""Names a line of a transcript."""
