"""What the handlers of one point say together, and the report on each of them.

In: what each said, in the order of the settings. Out: one `Before` or `After`. Deny before defer
before ask before allow; of several new inputs the last one counts that goes with the decision; all
words are kept. Which handler said what is in the reports, whatever became of it. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, structs

from toolspan.hooks.heard import Heard
from toolspan.hooks.points import After, Before, Point, Replaced, Report
from toolspan.hooks.said import Said
from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.model.event import HookOutcome
from toolspan.model.live import Content
from toolspan.profile import HookValues


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A handler that was run."""

    point: Point
    name: str
    """The point and what it was about."""
    command: str
    source: str
    heard: Heard
    said: Said
    duration_ms: float
    timeout_ms: float
    variables: Path | None = None
    """Where it could leave some for later commands."""


_RANK: dict[type, int] = {Allow: 1, Ask: 2, Deny: 3}


def stronger(one: Decision | None, other: Decision | None) -> Decision | None:
    """Deny before ask before allow before no opinion; the first of equals."""
    if one is None or other is None:
        return one or other
    return other if _RANK[type(other)] > _RANK[type(one)] else one


def both_before(first: Before, second: Before) -> Before:
    """What two say before a call; of two inputs the later one counts."""
    decision = stronger(first.decision, second.decision)
    return Before(
        decision=decision,
        input=second.input if second.input is not None else first.input,
        defer=(first.defer or second.defer) and not isinstance(decision, Deny),
        updates=first.updates + second.updates,
        contexts=first.contexts + second.contexts,
        stop=first.stop or second.stop,
        reports=first.reports + second.reports,
    )


def both_after(first: After, second: After) -> After:
    """What two say after a call; of two outputs the later one counts."""
    return After(
        output=second.output or first.output,
        contexts=first.contexts + second.contexts,
        feedback=first.feedback + second.feedback,
        by=first.by + second.by,
        stop=first.stop or second.stop,
        retry=first.retry or second.retry,
        news=first.news + second.news,
        reports=first.reports + second.reports,
    )


def merge_before(ran: Sequence[Ran], values: HookValues) -> Before:
    """What is said before a call."""
    decision = _decision(ran, values)
    return Before(
        decision=decision,
        input=_input(ran, decision),
        defer=any(one.said.defer for one in ran) and not isinstance(decision, Deny),
        updates=tuple(update for one in ran for update in one.said.updates),
        contexts=tuple(text for one in ran for text in one.said.contexts),
        stop=next((one.said.stop for one in ran if one.said.stop), None),
        reports=tuple(report for one in ran for report in reports_on(one)),
    )


def _decision(ran: Sequence[Ran], values: HookValues) -> Decision | None:
    decision: Decision | None = None
    # An exit code says no without words of its own: an answer is asked first.
    for one in sorted(ran, key=lambda one: one.said.by_exit):
        decision = stronger(decision, one.said.decision)
    if isinstance(decision, Deny) and values.last_reason:
        last = ran[-1].said.decision
        return Deny(last.reason if isinstance(last, Deny) else None, "hook")
    return decision


def _input(ran: Sequence[Ran], decision: Decision | None) -> "dict[str, object] | None":
    for one in reversed(ran):
        said = one.said
        agrees = said.decision is None or type(said.decision) is type(decision)
        if said.input is not None and agrees:
            return dict(said.input)
    return None


def merge_after(ran: Sequence[Ran], values: HookValues) -> After:
    """What is said after a call, or at a point that is about none."""
    objecting = [one for one in ran if one.said.block is not None]
    output = None
    for one in ran:
        output = _output(one, values) or output
    return After(
        output=output,
        contexts=tuple(text for one in ran for text in one.said.contexts),
        feedback=tuple(one.said.block for one in objecting if one.said.block is not None),
        by=tuple(one.command for one in objecting),
        stop=next((one.said.stop for one in ran if one.said.stop), None),
        retry=any(one.said.retry for one in ran),
        reports=tuple(report for one in ran for report in reports_on(one)),
    )


def _output(one: Ran, values: HookValues) -> Replaced | None:
    mcp = one.name.partition(":")[2].startswith("mcp__")
    given = one.said.output if values.updates_output else UNSET
    if given is UNSET and mcp:
        given = one.said.mcp_output
    if given is UNSET:
        return None
    return Replaced(_content(given), given) if mcp else Replaced(None, given)


def _content(value: object) -> Content | None:
    """What a server's tool would give the model, if the value is that."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and "type" in one for one in value):
        return value
    return None


def reports_on(one: Ran) -> Iterator[Report]:
    """What there is to tell of a handler: how it went, and what it did."""
    said = one.said
    yield from _course(one)
    if said.message:
        yield structs.replace(_report(one, "message"), text=said.message)
    if said.stop:
        yield structs.replace(_report(one, "stopped"), text=said.stop)
    if said.defer:
        yield structs.replace(_report(one, "deferred"), name=one.source)


def _course(one: Ran) -> Iterator[Report]:
    """How it went."""
    heard, said = one.heard, one.said
    failed = said.error is not None or heard.end != "ended"
    objects = said.block is not None or isinstance(said.decision, Deny)
    if heard.end == "timed_out":
        yield structs.replace(
            _report(one, "cancelled"), timed_out=True, timeout_ms=one.timeout_ms, text=said.error
        )
    elif failed and not objects:
        yield structs.replace(_report(one, "error"), text=said.error)
    if one.point == "PermissionRequest" and said.decision is not None:
        yield structs.replace(_report(one, "decision"), text=_word(said))
        return
    if said.answered and (said.by_exit or not objects) and not _ends_after_call(one):
        yield _report(one, "decision" if one.point != "PermissionRequest" else "success")
    if objects:
        reason = said.decision.reason if isinstance(said.decision, Deny) else said.block
        yield structs.replace(_report(one, "blocked"), text=reason)
    elif not said.answered and not failed:
        yield structs.replace(_report(one, "success"), text=said.words)


def _ends_after_call(one: Ran) -> bool:
    """Clients tell of a handler that stops the turn after a call only that."""
    return one.said.stop is not None and one.point.startswith("PostToolUse")


def _word(said: Said) -> str | None:
    if said.defer:
        return "defer"
    match said.decision:
        case Allow():
            return "allow"
        case Deny():
            return "deny"
        case Ask():
            return "ask"
        case None:
            return "block" if said.block is not None else None


def _report(one: Ran, outcome: HookOutcome) -> Report:
    heard = one.heard
    return Report(
        point=one.point,
        name=one.name,
        outcome=outcome,
        command=one.command,
        exit_code=heard.exit_code,
        duration_ms=one.duration_ms,
        stdout=heard.stdout,
        stderr=heard.stderr,
        decision=_word(one.said),
        source=one.source,
    )
