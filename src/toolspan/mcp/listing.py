"""What a server says it has: a tool or a resource, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A tool as its server lists it; all of it is the server's word only."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    read_only: bool | None
    """The server's hint that it changes nothing; None: it says nothing about that."""
    inline_limit: int | None = None
    """Characters of a result that the server wants to stay in the conversation."""
