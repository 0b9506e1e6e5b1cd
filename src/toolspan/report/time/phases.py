"""One call's time in phases: asked, waited for consent, held by hooks, ran.

In: a span, when the last call of its batch was asked for, and what hooks of ours noted of it while
it lived. Out: `Phases`, intervals in whole milliseconds that lie one after another between request
and result. A wait is `known` when it was noted or the records leave no doubt, `inferred` when the
tool says how long it ran itself, else `unknown`, and then nothing is made up: the time counts as
running. Pure. Read `phases` first; `phases_among` knows when batches were ready.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from toolspan.model.event import Hook, Permission
from toolspan.model.span import Span, moment
from toolspan.report.time.heard import Heard

Certainty = Literal["known", "inferred", "unknown"]
Phase = Literal["run", "hooks", "permission", "queued"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_SHORTEST_WAIT = 1_000
"""Nobody is asked, reads and answers in less: a smaller difference is the client's own work."""
_ASKING = frozenset(
    {"AskUserQuestion", "ExitPlanMode", "exit_plan_mode", "request_user_input",
     "request_permissions"}
)  # fmt: skip
"""Tools that do nothing but ask a person."""
_BEFORE = frozenset({"PreToolUse", "PermissionRequest"})
_AUTOMATIC = frozenset({"config", "hook"})
"""Sources of a decision for which nobody was asked."""


class Interval(NamedTuple):
    """A stretch of time, in milliseconds since the epoch, and what it was used for."""

    start: int
    end: int
    phase: Phase


class Phases(NamedTuple):
    """What a call's time was used for."""

    intervals: tuple[Interval, ...]
    certainty: Certainty
    """How well the wait for consent is known."""
    took: int | None = None
    """How long it took, as `Span.duration` has it: None when that is not known."""


def stamp(time: datetime | None) -> int | None:
    """A time as whole milliseconds since the epoch."""
    return None if time is None else (time - _EPOCH) // _MS


def when(ms: int) -> datetime:
    """The time of a stamp."""
    return _EPOCH + ms * _MS


def phases(span: Span, ready: int | None = None, heard: Heard | None = None) -> Phases:
    """The phases of a call; `ready` is when the last call of its batch was asked for.

    `heard` is what hooks of ours noted of it.
    """
    start, end = stamp(span.requested), stamp(span.finished)
    if start is None:
        return Phases((), "unknown", span.duration_ms)
    if end is None or end < start or span.made_up:
        held_up = tuple(held.interval for held in _held(span, start, start))
        return Phases(held_up, "unknown", span.duration_ms)
    held = list(_held(span, start, end)) if span.events else []
    whole = Interval(_after(held, start, end), end, "run")
    hooks = [one.interval for one in held]
    match span.state:
        case "blocked_by_hook":
            found = Phases((Interval(start, end, "hooks"),), "known")
        case "denied" if heard is not None and heard.asked is not None:
            asked = min(max(whole.start, heard.asked), end)
            found = _waited(hooks, whole, asked, end)
        case "denied":
            found = _with(hooks, whole, "permission", "inferred" if span.ambiguous else "known")
        case "cancelled":
            found = _with(hooks, whole, "queued", "known")
        case "succeeded" | "interrupted" | "timed_out" if span.tool in _ASKING:
            found = _with(hooks, whole, "permission", "known")
        case _:
            stop = min((one.start for one in hooks if one.start >= whole.start), default=end)
            whole = Interval(whole.start, min(stop, end), "run")
            noted = _noted(hooks, whole, heard)
            found = noted or _ran(span, hooks, whole, ready)
    return found._replace(took=span.duration_ms)


def phases_among(spans: Iterable[Span], heard: Mapping[str, Heard]) -> Callable[[Span], Phases]:
    """Tells the phases of each of these calls; a batch is ready when all of it was asked for."""
    ready: dict[str, int] = {}
    for span in spans:
        batch, asked = span.call.message_id or span.id, stamp(span.requested)
        if asked is not None:
            ready[batch] = max(asked, ready.get(batch, asked))

    def found(span: Span) -> Phases:
        return phases(span, ready.get(span.call.message_id or span.id), heard.get(span.id))

    return found


def _with(hooks: list[Interval], whole: Interval, phase: Phase, certainty: Certainty) -> Phases:
    return Phases((*hooks, whole._replace(phase=phase)), certainty)


def _noted(hooks: list[Interval], whole: Interval, heard: Heard | None) -> Phases | None:
    """The phases of a call that ran, from what was noted of it; None when that is not enough."""
    if heard is None or heard.began is None:
        return None
    asked = heard.asked
    if asked is None:
        asked = max(whole.start, heard.announced)
        if heard.began - asked < _SHORTEST_WAIT:
            return _with(hooks, whole, "run", "known")
    asked = min(max(whole.start, asked), whole.end)
    found = _waited(hooks, whole, asked, min(max(asked, heard.began), whole.end))
    # Some clients do not tell their hooks of questions that a program answers.
    return found if heard.asked is not None else found._replace(certainty="inferred")


def _waited(
    hooks: list[Interval], whole: Interval, asked: int, began: int, certainty: Certainty = "known"
) -> Phases:
    """A question from `asked` on, then a run from `began` on."""
    parts = (
        Interval(whole.start, asked, "queued"),
        Interval(asked, began, "permission"),
        Interval(began, whole.end, "run"),
    )
    return Phases((*hooks, *(one for one in parts if one.end > one.start)), certainty)


def _ran(span: Span, hooks: list[Interval], whole: Interval, ready: int | None) -> Phases:
    """The phases of a call that was run; `whole` is its time without hooks."""
    if _decided_alone(span):
        return _with(hooks, whole, "run", "known")
    own = span.result.reported_ms if span.result else None
    if own is None or not own >= 0 or span.background or span.call.kind == "agent":
        return _with(hooks, whole, "run", "unknown")
    start, end = whole.start, whole.end
    began = end - round(min(own, end - start))
    asked = min(max(start, ready or start), began)
    if began - asked < _SHORTEST_WAIT:
        return _with(hooks, whole, "run", "inferred")
    return _waited(hooks, whole, asked, began, "inferred")


def _decided_alone(span: Span) -> bool:
    """The client wrote down that a rule, a mode or a hook allowed it: nobody was asked."""
    decisions = (event for event in span.events if isinstance(event, Permission))
    return any(event.decision == "accept" and event.source in _AUTOMATIC for event in decisions)


class _Held(NamedTuple):
    """A hook's time, and whether it ran before the tool."""

    before: bool
    interval: Interval


def _held(span: Span, start: int, end: int) -> Iterator[_Held]:
    """When hooks ran, as far as it was written down; not before the request."""
    for event in span.events:
        at = stamp(moment(event.at)) if isinstance(event, Hook) else None
        if not isinstance(event, Hook) or at is None or at < start:
            continue
        before, took = event.point in _BEFORE, event.duration_ms
        if took is not None and took > 0:
            yield _Held(before, Interval(at - round(min(took, at - start)), at, "hooks"))
        elif event.outcome == "started" and not before and at < end:
            yield _Held(before, Interval(at, end, "hooks"))  # the result waited until it was done


def _after(held: list[_Held], start: int, end: int) -> int:
    """When the hooks before the tool had ended."""
    return max(
        (one.interval.end for one in held if one.before and one.interval.end <= end), default=start
    )
