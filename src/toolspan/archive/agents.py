"""Subagents, one row each, as a tree: `Archive.agents` and `toolspan agents`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.agents import AGENTS, StartedAgent
from toolspan.analysis.live_sessions import mark_running
from toolspan.analysis.usage import (
    UNKNOWN,
    USAGE,
    UsageRequest,
    agent_types_by_id,
    group_usage,
    join_requests,
    sum_rows,
)
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection
from toolspan.archive.sources import session_project
from toolspan.prices import load_prices
from toolspan.reading.facts import CALLS, tuple_job
from toolspan.reading.history import CallTable
from toolspan.reading.rows import CallRow
from toolspan.types.session import ClientName, Tokens
from toolspan.types.span import parse_timestamp
from toolspan.types.state import State

SORT_COLUMNS = ("id", "type", "name", "session", "project", "started", "duration", "requests", "cost", "calls",
                "unsuccessful")  # fmt: skip
SORT_ALIASES = {
    "duration": "duration_ms", "duration_ms": "duration_ms", "cost": "cost_usd", "cost_usd": "cost_usd",
    "failed": "unsuccessful",
}  # fmt: skip
_JOB = tuple_job(CALLS, USAGE, AGENTS)


class AgentRow(Struct, frozen=True, kw_only=True):
    """One subagent."""

    id: str
    """The id of the subagent, or of the call that started it if the client assigned none. `show` accepts both."""
    parent: str | None
    """The row of the subagent that started this one; null if the main conversation did."""
    depth: int
    """0 for subagents of the main conversation, 1 for their subagents, and so on."""
    type: str
    """The type of subagent; `unknown` if it was not recorded."""
    name: str | None
    """The description in the call that started it."""
    prompt: str | None
    """The beginning of its prompt."""
    call: str | None
    """The call that started it; null for subagents that the client started by itself."""
    state: State | None
    """The state of that call."""
    session: str
    project: str
    client: ClientName
    models: tuple[str, ...]
    started: str | None
    ended: str | None
    duration_ms: int | None
    """Time from its first to its last record."""
    requests: int
    tokens: Tokens
    cost_usd: float | None
    """At list prices; null if no model has a price."""
    calls: int
    unsuccessful: int
    file: str
    """The transcript of the subagent, or the one that contains its messages."""


def list_agents(
    engine: Engine, call_filter: Filter, *, sort: SortOrder | None = None, limit: int | None = None
) -> Rows[AgentRow]:
    """Return the subagents of the sessions in order of time, each before those that it started.

    Numbers are those of whole subagents. A limit keeps the latest subagents, or the first ones of a sorted list.
    """
    results, joined = engine.read(_JOB)
    call_table = CallTable(mark_running(summary for summary, *_ in results))
    selection = CallSelection(call_table, joined, engine.reporter)
    described = {call: agent for *_, agents in results for call, agent in agents.started.items()}
    prompts = {summary.file: agents.prompt for summary, _, agents in results}
    drafts = _draft_agents(call_table, described, prompts)
    usages = [usage for _, usage, _ in results]
    owners = {request: call for *_, agents in results for request, call in agents.requests.items()}
    requests: defaultdict[str, list[UsageRequest]] = defaultdict(list)
    by_call = {draft.call: draft.id for draft in drafts.values() if draft.call}
    for request in join_requests(usages):
        owner = request.agent_id or by_call.get(owners.get(request.id, ""))
        if owner in drafts:
            requests[owner].append(request)
    types = agent_types_by_id(usages)
    sessions = selection.filter_sessions(call_filter)
    accepted = {session.id for session in sessions}
    rows = [
        _add_usage(row, requests[row.id], types)
        for row in drafts.values()
        if row.session in accepted and call_filter.accepts_time(row.started)
        if call_filter.agent is None or row.id.startswith(call_filter.agent)
    ]
    return Rows(arrange(rows if sort is not None else _order_as_tree(rows), sort, limit), len(rows))


def _draft_agents(
    call_table: CallTable, described: Mapping[str, StartedAgent], prompts: Mapping[str, str | None]
) -> dict[str, AgentRow]:
    """Return a row for each subagent, by its id, without types and requests."""
    starts = {row.id: row for row in call_table.calls if row.kind == "agent"}
    by_agent = {row.started_agent: row for row in starts.values() if row.started_agent}
    members: defaultdict[str, list[CallRow]] = defaultdict(list)
    for row in call_table.calls:
        if row.agent is not None:
            members[row.agent].append(row)
        elif row.parent_call in starts and row.continues is None:
            members[starts[row.parent_call].started_agent or row.parent_call].append(row)
    files = {file.info.agent_id: file for file in call_table.files if file.info.agent_id}
    projects = {session.id: session_project(session) for session in call_table.sessions}
    session_of = {file.file: session.id for session in call_table.sessions for file in session.files}
    names = dict.fromkeys((*(row.started_agent or row.id for row in starts.values()), *members, *files))
    by_prompt: dict[tuple[str | None, str], list[CallRow]] = {}  # of old clients, which record no other link
    for row in sorted(starts.values(), key=lambda row: row.requested or "", reverse=True):
        if row.started_agent is None and row.id in described and (prompt := described[row.id].prompt):
            by_prompt.setdefault((session_of.get(row.file), prompt.strip()), []).append(row)
    rows: dict[str, AgentRow] = {}
    for name in names:
        file, calls = files.get(name), members[name]
        parents = [row.parent_call for row in calls if row.parent_call] + [file.started_by if file else None]
        start = by_agent.get(name) or starts.get(name) or next((starts[id] for id in parents if id in starts), None)
        if start is None and file is not None and (prompt := prompts.get(file.file)):
            same = by_prompt.get((session_of.get(file.file), prompt))
            start = same.pop() if same else None
        if file is None and not calls and (start is None or start.started_agent is None):
            continue  # the call failed before it started a subagent
        about = described.get(start.id) if start else None
        path = file.file if file else (calls[0] if calls else start).file  # type: ignore[union-attr]
        session = session_of.get(path) or (start.session if start else None) or ""
        times = [time for row in calls for time in (row.requested, row.finished) if time]
        if file is not None:
            times += [time for time in (file.info.started_at, file.info.ended_at) if time]
        first, last = min(times, default=start.requested if start else None), max(times, default=None)
        begin, end = parse_timestamp(first), parse_timestamp(last)
        rows[name] = AgentRow(
            id=name,
            parent=(start.agent or start.parent_call) if start else None,
            depth=0,
            type=(about.type if about else None) or UNKNOWN,
            name=about.name if about else None,
            prompt=(about.prompt if about else None) or prompts.get(path),
            call=start.id if start else None,
            state=start.state if start else None,
            session=session,
            project=projects.get(session, ""),
            client=file.info.client if file else (calls[0] if calls else start).client,  # type: ignore[union-attr]
            models=file.info.models if file else (),
            started=first,
            ended=last,
            duration_ms=round((end - begin).total_seconds() * 1000) if begin and end else None,
            requests=0,
            tokens=Tokens(),
            cost_usd=None,
            calls=sum(row.state != "orphan_result" for row in calls),
            unsuccessful=sum(row.is_unsuccessful for row in calls),
            file=path,
        )
    return rows


def _add_usage(row: AgentRow, requests: Sequence[UsageRequest], types: Mapping[str, str]) -> AgentRow:
    models = tuple(dict.fromkeys(request.model for request in requests))
    usage = sum_rows("", group_usage(requests, "model", prices=load_prices(None), zone=None))
    agent_type = row.type if row.type != UNKNOWN else types.get(row.id, UNKNOWN)
    return replace(
        row,
        type=agent_type,
        models=models or row.models,
        requests=usage.requests,
        tokens=usage.tokens,
        cost_usd=usage.cost_usd,
    )


def _order_as_tree(rows: Iterable[AgentRow]) -> list[AgentRow]:
    """Return the rows in order of time, each followed by the subagents that it started."""
    ordered = sorted(rows, key=lambda row: (row.started or "", row.id))
    known = {row.id for row in ordered}
    children: defaultdict[str | None, list[AgentRow]] = defaultdict(list)
    for row in ordered:
        children[row.parent if row.parent in known and row.parent != row.id else None].append(row)
    tree: list[AgentRow] = []
    open_rows = [(row, 0) for row in reversed(children.pop(None, []))]
    while open_rows:
        row, depth = open_rows.pop()
        tree.append(replace(row, depth=depth))
        open_rows += [(child, depth + 1) for child in reversed(children.pop(row.id, []))]
    return tree + [row for left in children.values() for row in left]
