"""Calls that ran, or tried to run, risky commands: `Archive.risky` and `toolspan risky`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from toolspan.analysis.live_sessions import mark_running
from toolspan.analysis.risks import RISK_JOB, RISK_KINDS, RiskKind
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter, choose_name
from toolspan.archive.selection import CallSelection
from toolspan.reading.history import CallTable
from toolspan.types.session import ClientName
from toolspan.types.state import State

SORT_COLUMNS = ("requested", "risk", "state", "session", "call", "command")
SORT_ALIASES = {"call": "id", "id": "id"}
_NEVER_RAN = frozenset({"denied", "blocked_by_hook", "cancelled", "requested"})


class RiskyCommand(Struct, frozen=True, kw_only=True):
    """One risky part of a command line. A line with several has several rows."""

    risk: RiskKind
    reason: str
    """The effect of the part, such as `removes folders`."""
    part: str
    """The program with its arguments."""
    command: str
    """The whole command line, up to 2,000 characters."""
    is_understood: bool
    """False if the line may do more than was found in it."""
    prompt: str | None
    """The beginning of the prompt of the turn."""
    id: str
    """The call."""
    tool: str
    state: State
    ran: bool
    """False if the command was refused or never started."""
    permission: str | None
    """The recorded permission decision."""
    requested: str | None
    session: str | None
    agent: str | None
    project: str | None
    client: ClientName
    file: str


def find_risky(
    engine: Engine,
    call_filter: Filter,
    *,
    risk: Sequence[str] = (),
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Rows[RiskyCommand]:
    """Return the risky parts of command lines in order of time. `risk` selects kinds.

    A limit keeps the latest parts, or the first ones of a sorted list.

    Raises:
        InvalidFilter: a kind of risk is unknown.
    """
    chosen = {choose_name(name, RISK_KINDS) for name in risk} or set(RISK_KINDS)
    files, joined = engine.read(RISK_JOB)
    risky = {(file.summary.file, call.call): call for file in files for call in file.calls}
    call_table = CallTable(mark_running(file.summary for file in files))
    folders = {file.summary.file: file.summary.info.cwd for file in files}
    rows = [
        RiskyCommand(
            risk=part.kind,
            reason=part.reason,
            part=part.part,
            command=call.command,
            is_understood=call.is_understood,
            prompt=call.prompt,
            id=row.id,
            tool=row.tool or "",
            state=row.state,
            ran=row.state not in _NEVER_RAN,
            permission=row.permission,
            requested=row.requested,
            session=row.session,
            agent=row.agent,
            project=folders.get(row.file),
            client=row.client,
            file=row.file,
        )
        for row in CallSelection(call_table, joined, engine.reporter).filter_calls(call_filter)
        if (call := risky.get((row.file, row.id))) is not None
        for part in sorted(call.risks, key=attrgetter("kind"))
        if part.kind in chosen
    ]
    return Rows(arrange(rows, sort, limit), len(rows))
