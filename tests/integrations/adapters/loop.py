"""The common interface of the loops of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from toolspan import Runner, Session


class CallRequest(NamedTuple):
    """A call that the model of a loop asks for."""

    tool: str
    id: str
    given: dict[str, object]


class Picture(NamedTuple):
    """A picture that the model of a loop is shown."""

    media_type: str
    data: bytes


class CallReport(NamedTuple):
    id: str
    failed: bool
    content: str | Picture


class Loop(Protocol):
    """The results in a loop whose model asks for these calls, a turn each."""

    async def __call__(self, host: Session | Runner, /, *turns: Sequence[CallRequest]) -> Sequence[CallReport]: ...


def call(tool: str, call_id: str, **fields: object) -> CallRequest:
    return CallRequest(tool, call_id, fields)
