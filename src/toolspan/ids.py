"""Names of things, so that one kind of id is never passed for another."""

from typing import NewType

CallId = NewType("CallId", str)
SessionId = NewType("SessionId", str)
EntryId = NewType("EntryId", str)
