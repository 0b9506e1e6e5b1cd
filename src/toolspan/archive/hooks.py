"""What hooks did, how often and how long: `Archive.hooks`, `Archive.hook_runs` and `toolspan hooks`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from toolspan.analysis.hooks import HOOKS, FileHooks, RecordedHook, join_hooks
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import check_project, choose_sessions
from toolspan.archive.sources import session_project
from toolspan.errors import InvalidFilter
from toolspan.reading.facts import single_job
from toolspan.reading.lineage import group_sessions
from toolspan.types.span import HookOutcome
from toolspan.types.tool_kinds import tool_kind

_JOB = single_job(HOOKS)
SORT_COLUMNS = ("hook", "point", "runs", "blocked", "failed", "median", "longest", "total", "sessions", "last")
RUN_SORT_COLUMNS = ("at", "session", "point", "hook", "outcome", "duration", "tool")
SORT_ALIASES = {
    "hook": "command", "median": "median_ms", "longest": "longest_ms", "total": "total_ms", "time": "at",
    "duration": "duration_ms",
}  # fmt: skip


class HookRun(Struct, frozen=True, kw_only=True):
    """One run of a hook."""

    at: str | None
    session: str
    project: str
    point: str
    """The event: `PreToolUse`, `PostToolUse`, `SessionStart`, `Stop`, …"""
    name: str
    """The event with what it was about, such as `PreToolUse:Bash` or `SessionStart:resume`."""
    command: str | None
    """The command; `callback` for functions of the client and its plugins; null if the client did not record it."""
    outcome: HookOutcome
    """`started` if the client did not record how the run ended, as older versions do not."""
    effects: tuple[HookOutcome, ...]
    """Other effects: `context` or a `message` added, a `decision` made, the model `stopped`, the call `deferred`."""
    duration_ms: int | float | None
    exit_code: int | None
    text: str | None
    """The beginning of the output or of the objection."""
    call: str | None
    """The call for which it ran."""
    tool: str | None
    file: str
    line: int


class HookTotals(Struct, frozen=True, kw_only=True):
    """All runs of one hook: of one command at one event."""

    command: str | None
    """The command; `callback` for functions of the client and its plugins; null if the client did not record it."""
    point: str
    names: tuple[str, ...]
    """The event with what it was about, such as `PreToolUse:Bash`, most frequent first."""
    runs: int
    blocked: int
    """Number of calls that the hook refused."""
    failed: int
    """Number of runs that ended with an error."""
    effects: dict[str, int]
    """Number of other effects by kind: `context`, `message`, `decision`, `stopped`, `deferred`, `cancelled`."""
    timed: int
    """Number of runs whose duration is recorded."""
    total_ms: float | None
    median_ms: float | None
    longest_ms: float | None
    sessions: int
    first: str | None
    last: str | None
    objection: str | None
    """The latest text with which the hook blocked a call or failed."""
    slowest: HookRun | None
    """The run that took longest."""

    @property
    def name(self) -> str:
        """The command, or else what the hook was about."""
        return self.command or (self.names[0] if self.names else self.point)


def list_hook_runs(
    engine: Engine,
    call_filter: Filter,
    *,
    point: str | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Rows[HookRun]:
    """Return each run of a hook in order of time. A limit keeps the latest, or the first ones of a sorted list."""
    runs = _select_runs(engine, call_filter, point)
    return Rows(arrange(runs, sort, limit), len(runs))


def sum_hooks(
    engine: Engine,
    call_filter: Filter,
    *,
    point: str | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Rows[HookTotals]:
    """Return the sums for each hook. Those that usually take longest come first, and those without durations last."""
    by_hook: dict[tuple[str, str], list[HookRun]] = {}
    for run in _select_runs(engine, call_filter, point):
        by_hook.setdefault((run.point, run.command or run.name), []).append(run)
    rows = list(map(_sum_runs, by_hook.values()))
    rows.sort(key=lambda row: (-(row.median_ms or -1), -row.runs, row.name))
    if sort is not None:
        rows = sort.sort(rows)
    return Rows(rows[: limit or None], len(rows))


def _select_runs(engine: Engine, call_filter: Filter, point: str | None) -> list[HookRun]:
    if call_filter.state or call_filter.error:
        raise InvalidFilter("states and errors belong to calls; filter hooks by event, tool, session or time")
    files, _ = engine.read(_JOB)
    check_project(call_filter.project, [(file.file, file.info) for file in files])
    sessions = choose_sessions(group_sessions(files), call_filter)
    places = {file.file: (session.id, session_project(session)) for session in sessions for file in session.files}
    joined = [(file, run) for file, run in join_hooks(files) if file.file in places]
    runs = [
        _make_row(file, run, *places[file.file])
        for file, run in joined
        if _accepts_run(call_filter, file, run) and (point is None or run.point.casefold() == point.casefold())
    ]
    if not runs and joined:
        _explain_nothing(engine, call_filter, joined, point)
    return runs


def _accepts_run(call_filter: Filter, file: FileHooks, run: RecordedHook) -> bool:
    if (call_filter.tool or call_filter.kind) and run.tool is None:
        return False
    if call_filter.calls is not None and file.file not in call_filter.calls.get(run.call or "", ()):
        return False
    if call_filter.tool and not call_filter.accepts_tool(run.tool):
        return False
    if call_filter.kind and tool_kind(run.tool or "") not in call_filter.kind:
        return False
    if call_filter.agent is not None and not (file.info.agent_id or "").startswith(call_filter.agent):
        return False
    return call_filter.accepts_time(run.at)


def _explain_nothing(
    engine: Engine, call_filter: Filter, joined: Sequence[tuple[FileHooks, RecordedHook]], point: str | None
) -> None:
    points = sorted({run.point for _, run in joined})
    if point is not None and point.casefold() not in map(str.casefold, points):
        raise InvalidFilter(f"no hook ran at {point!r}; hooks ran at {', '.join(points)}")
    times = sorted(run.at for _, run in joined if run.at)
    if times and (call_filter.since or call_filter.until):
        engine.reporter.warn(f"no hooks in this period; hooks ran from {times[0][:10]} to {times[-1][:10]}")


def _make_row(file: FileHooks, run: RecordedHook, session: str, project: str) -> HookRun:
    return HookRun(
        at=run.at,
        session=session,
        project=project,
        point=run.point,
        name=run.name,
        command=run.command,
        outcome=run.outcome,
        effects=run.effects,
        duration_ms=run.duration_ms,
        exit_code=run.exit_code,
        text=run.text,
        call=run.call,
        tool=run.tool,
        file=file.file,
        line=run.line,
    )


def _sum_runs(runs: Sequence[HookRun]) -> HookTotals:
    from collections import Counter

    names = Counter(run.name for run in runs)
    timed = [run for run in runs if run.duration_ms is not None]
    durations = [run.duration_ms or 0 for run in timed]
    times = sorted(run.at for run in runs if run.at)
    effects = Counter(effect for run in runs for effect in run.effects)
    effects.update(run.outcome for run in runs if run.outcome == "cancelled")
    troubles = [run.text for run in runs if run.text and run.outcome in ("blocked", "error")]
    return HookTotals(
        command=runs[0].command,
        point=runs[0].point,
        names=tuple(name for name, _ in names.most_common()),
        runs=len(runs),
        blocked=sum(run.outcome == "blocked" for run in runs),
        failed=sum(run.outcome == "error" for run in runs),
        effects=dict(effects.most_common()),
        timed=len(timed),
        total_ms=sum(durations) if timed else None,
        median_ms=median(durations) if timed else None,
        longest_ms=max(durations) if timed else None,
        sessions=len({run.session for run in runs}),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        objection=troubles[-1] if troubles else None,
        slowest=max(timed, key=lambda run: run.duration_ms or 0) if timed else None,
    )
