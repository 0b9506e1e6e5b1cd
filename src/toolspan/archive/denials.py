"""Calls that were refused, who refused them, and what the person said: `Archive.denials` and `toolspan denials`."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from toolspan.analysis.live_sessions import mark_running
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.prompts import PROMPT_JOB, FileWithPrompts
from toolspan.archive.selection import CallSelection
from toolspan.archive.sources import session_project
from toolspan.reading.history import CallTable
from toolspan.reading.rows import CallRow, has_client_id
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import ClientName

Refuser = Literal["user", "rule", "nobody", "classifier", "hook", "limit"]
"""Who refused a call. `nobody`: it needed approval, and there was no one to ask."""

SORT_COLUMNS = ("at", "session", "project", "tool", "by", "about", "reason")
SORT_ALIASES = {"time": "at", "about": "target", "target": "target"}
_REFUSERS: dict[ErrorKind, Refuser] = {
    "user_denied": "user",
    "rule_denied": "rule",
    "not_granted": "nobody",
    "permission_timeout": "nobody",
    "classifier_denied": "classifier",
    "hook_blocked": "hook",
    "limit_reached": "limit",
}


class Denial(Struct, frozen=True, kw_only=True):
    """A call that was refused."""

    at: str | None
    """Time of the refusal."""
    session: str | None
    project: str
    client: ClientName
    call: str
    """The call's id; empty if the client assigned none."""
    tool: str | None
    """Null if the request was not recorded."""
    target: str | None
    """The path, command, pattern or address."""
    by: Refuser
    reason: str | None
    """What the person said, or the message of the rule, classifier or hook; null if the person gave no reason."""
    next_prompt: str | None
    """The next prompt in the session, if a person refused the call without a reason."""
    agent: str | None
    """The subagent that made the request; null for the main agent."""
    file: str
    line: int | None


class Denials(Rows[Denial]):
    """Refused calls, latest last."""

    def __init__(self, rows: Sequence[Denial], total: int, refusers: dict[Refuser, int], calls: int) -> None:
        super().__init__(rows, total)
        self.refusers = refusers
        """The number of refused calls by who refused them, whether the rows include them or not."""
        self.calls = calls
        """The number of calls that the filter accepts, refused or not."""


def list_denials(
    engine: Engine,
    call_filter: Filter,
    *,
    every: bool = False,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Denials:
    """Return the calls that a person refused, latest last, or with `every` also those that rules and others refused.

    A limit keeps the latest, or the first ones of a sorted list.
    """
    files, is_joined = engine.read(PROMPT_JOB)
    table = CallTable(mark_running(file.calls for file in files))
    rows = CallSelection(table, is_joined, engine.reporter).filter_calls(call_filter)
    refused = [row for row in rows if row.error_kind in _REFUSERS and row.state not in ("succeeded", "failed")]
    projects = {file.file: session_project(session) for session in table.sessions for file in session.files}
    prompts = {file.file: file for file in files}
    denials = [
        _make_row(row, projects.get(row.file, ""), prompts[row.file])
        for row in refused
        if every or row.error_kind == "user_denied"
    ]
    denials.sort(key=lambda denial: denial.at or "")
    visible = arrange(denials, sort, limit)
    refusers = Counter(_REFUSERS[row.error_kind] for row in refused if row.error_kind)
    return Denials(
        visible, len(denials), dict(refusers.most_common()), sum(row.state != "orphan_result" for row in rows)
    )


def _make_row(row: CallRow, project: str, file: FileWithPrompts) -> Denial:
    by = _REFUSERS[row.error_kind] if row.error_kind else "user"
    return Denial(
        at=row.finished or row.requested,
        session=row.session,
        project=project,
        client=row.client,
        call=row.id if has_client_id(row) else "",
        tool=row.tool,
        target=row.target,
        by=by,
        reason=row.message,
        next_prompt=_find_next_prompt(row, file) if by == "user" and not row.message else None,
        agent=row.agent,
        file=row.file,
        line=row.result_line or row.request_line,
    )


def _find_next_prompt(row: CallRow, file: FileWithPrompts) -> str | None:
    """Return the prompt that followed a refusal in the same file."""
    lines = [prompt.line for prompt in file.prompts.prompts]
    n = bisect_right(lines, row.result_line or row.request_line or 0)
    return file.prompts.prompts[n].text if n < len(lines) else None
