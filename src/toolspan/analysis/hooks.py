"""The hooks that ran in one file: for calls, and when sessions started or stopped.

`HOOKS` are the facts of one file. Clients record the start, the end and the effects of a hook in separate places, and
older ones only some of them. `_merge_records` makes one run of the records about each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolspan.reading.facts import FactKind, FileReading
from toolspan.reading.lineage import CopyTracker, Lineages
from toolspan.types.session import SessionInfo
from toolspan.types.span import Hook, HookOutcome, Span

_OBJECTION = re.compile(r"(?:Error: )?((\w+):\S+) hook error: \[(.*?)\]:\s*(.*)", re.DOTALL)
"""The result of a call that a hook command blocked, which names the command."""
_RUN_OUTCOMES: frozenset[HookOutcome] = frozenset({"started", "success", "error", "blocked", "cancelled"})
"""Outcomes of a run. The others are effects of a run, which has a record of its own."""
_MAX_TEXT = 400


class RecordedHook(Struct, frozen=True, array_like=True, gc=False):
    """One run of a hook."""

    point: str
    name: str
    command: str | None
    outcome: HookOutcome
    effects: tuple[HookOutcome, ...]
    """What the hook did besides: `context`, `message`, `decision`, `stopped` or `deferred`."""
    at: str | None
    duration_ms: int | float | None
    exit_code: int | None
    text: str | None
    call: str | None
    """The call for which it ran."""
    tool: str | None
    line: int


class FileHooks(Struct, frozen=True, kw_only=True):
    """The hooks that ran in one file, in its order."""

    file: str
    info: SessionInfo
    runs: list[RecordedHook]
    has_content: bool = False
    """True if the file contains calls or hooks."""
    problem: str | None = None


def _measure(reading: FileReading) -> FileHooks:
    transcript = reading.transcript
    spans: dict[str, Span] = {span.id: span for span in transcript.spans}
    runs: list[RecordedHook] = []
    recorded = transcript.hooks
    for name, hooks in recorded.items():
        runs += _merge_records(hooks, spans.get(name))
    for span in spans.values():
        if span.state == "blocked_by_hook" and span.id not in recorded:
            runs += _find_objection(span, ())
    runs.sort(key=lambda run: run.line)
    has_content = bool(runs or spans)
    return FileHooks(file=transcript.file, info=transcript.info, runs=runs, has_content=has_content)


HOOKS = FactKind(
    name="hooks",
    measure=_measure,
    facts_type=FileHooks,
    unreadable=lambda file, problem: FileHooks(file=file, info=SessionInfo(), runs=[], problem=problem),
    finds_causes=False,
)


def _merge_records(hooks: Sequence[Hook], span: Span | None) -> list[RecordedHook]:
    """Return the runs of hooks for one call or event."""
    runs: list[RecordedHook] = []
    started: dict[tuple[str, str | None], list[int]] = {}
    """The indexes of the runs whose end has not been found, by hook point and command."""
    for hook in hooks:
        if hook.outcome == "started":
            started.setdefault((hook.point, hook.command), []).append(len(runs))
            runs.append(_make_run(hook, span))
        elif hook.outcome in _RUN_OUTCOMES:
            waiting = started.get((hook.point, hook.command)) or (started.get((hook.point, None)) or [])
            if waiting:
                runs[waiting.pop(0)] = _make_run(hook, span)
            else:
                runs.append(_make_run(hook, span))
    for hook in hooks:
        if hook.outcome not in _RUN_OUTCOMES:
            _add_effect(runs, hook, span)
    if span is not None and span.state == "blocked_by_hook" and not any(run.outcome == "blocked" for run in runs):
        return _find_objection(span, runs)
    return runs


def _make_run(hook: Hook, span: Span | None) -> RecordedHook:
    return RecordedHook(
        point=hook.point,
        name=hook.name,
        command=hook.command,
        outcome=hook.outcome if hook.outcome in _RUN_OUTCOMES else "success",
        effects=() if hook.outcome in _RUN_OUTCOMES else (hook.outcome,),
        at=hook.at,
        duration_ms=hook.duration_ms,
        exit_code=hook.exit_code,
        text=hook.text or None,
        call=span.id if span is not None else None,
        tool=span.tool or None if span is not None else None,
        line=hook.place.line,
    )


def _add_effect(runs: list[RecordedHook], hook: Hook, span: Span | None) -> None:
    """Add an effect to the last run before it with the same name or at the same point, or else as a run."""
    before = [n for n, run in enumerate(runs) if run.point == hook.point and run.line <= hook.place.line]
    own = [n for n in before if runs[n].name == hook.name] or before
    if not own:
        runs.append(_make_run(hook, span))
        return
    run = runs[own[-1]]
    runs[own[-1]] = replace(run, effects=(*run.effects, hook.outcome), text=hook.text or run.text)


def _find_objection(span: Span, runs: Iterable[RecordedHook]) -> list[RecordedHook]:
    """Return the runs with the one that blocked the call, which only the result shows."""
    runs = list(runs)
    objection = _OBJECTION.match(span.message or "")
    name, point, command, text = objection.groups() if objection else (None, "PreToolUse", None, span.message)
    text = text[:_MAX_TEXT] if text else None
    own = [n for n, run in enumerate(runs) if run.point == point and (command is None or run.command == command)]
    own.sort(key=lambda n: "decision" not in runs[n].effects)
    if own:
        runs[own[0]] = replace(runs[own[0]], outcome="blocked", text=text)
        return runs
    place = span.result.place if span.result else span.call.place
    blocked = RecordedHook(
        point=point,
        name=name or f"{point}:{span.tool}",
        command=command,
        outcome="blocked",
        effects=(),
        at=span.result.finished_at if span.result else span.call.requested_at,
        duration_ms=None,
        exit_code=None,
        text=text,
        call=span.id,
        tool=span.tool or None,
        line=place.line if place else 0,
    )
    return [*runs, blocked]


def join_hooks(files: Sequence[FileHooks]) -> list[tuple[FileHooks, RecordedHook]]:
    """Return each run once with its file, in order of time. A run that a fork or resume copied counts in the first."""
    lineages = Lineages()
    for file in files:
        lineages.add(file.file, file.info)
    copies = CopyTracker(lineages)
    joined = [
        (file, run)
        for file in sorted(files, key=lambda file: lineages.rank(file.file))
        for run in copies.take_new(file.file, file.runs, key=_copy_key)
    ]
    return sorted(joined, key=lambda item: (item[1].at or "", item[0].file, item[1].line))


def _copy_key(run: RecordedHook) -> tuple[object, ...]:
    # Several hooks may run the same command for the same event, at the same time.
    return run.at or "", run.name, run.command, run.call, run.duration_ms, run.line if not run.at else 0
