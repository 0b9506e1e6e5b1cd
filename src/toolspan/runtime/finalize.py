"""The end of a call: what cut it short, and the one `Finished` that every call leaves."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from msgspec import structs

from toolspan.errors import exception_text
from toolspan.runtime import outcome as denial
from toolspan.runtime.outcome import DID_NOT_STOP, Outcome, content_text, refused_outcome, strip_error_tags
from toolspan.runtime.output_limits import sanitize_text
from toolspan.runtime.pending_call import PendingCall, RunnerContext
from toolspan.types.events import Finished
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Event, Evidence, Hook, Permission, Result, Span


def finalize_unstarted(pending: PendingCall, context: RunnerContext) -> Finished:
    """End a call that is still in the queue."""
    return finalize_call(pending, stopped_outcome(pending, context), context)


def stopped_outcome(pending: PendingCall, context: RunnerContext) -> Outcome:
    """Somebody ended the call."""
    refusals = context.profile.refusals
    if pending.cancelled_by == "sibling":
        return denial.sibling_failed_outcome()
    if pending.cancelled_by == "discarded":
        return denial.discarded_outcome()
    if pending.started_at is None:
        return denial.cancelled_outcome(refusals)
    outcome = denial.interrupted_outcome(refusals, _partial_output(pending))
    if not context.isolated_tasks.is_abandoned(pending.call.id):
        return outcome
    return structs.replace(outcome, reason=f"{outcome.reason}; {DID_NOT_STOP}")


def _partial_output(pending: PendingCall) -> str | None:
    """What the call has to show so far."""
    if pending.tool_context is None or pending.tool_context.partial is None:
        return None
    try:
        return sanitize_text(pending.tool_context.partial())
    except Exception:  # noqa: BLE001 - a tool's own function; without it there is nothing to show
        return None


def internal_error_outcome(pending: PendingCall, error: BaseException) -> Outcome:
    """The runner itself failed; the call still gets its one result."""
    text = f"Tool execution error: {type(error).__name__}: {exception_text(error)}"
    return refused_outcome(sanitize_text(text), kind="internal", reason=f"the runner failed on {pending.call.tool}")


def finalize_call(pending: PendingCall, outcome: Outcome, context: RunnerContext) -> Finished:
    """Give the call its one result, and tell everybody."""
    at, call, body_store, persisted = (context.clock(), pending.call, pending.body_store, outcome.persisted)
    body_store.content_ = outcome.content
    body_store.structured_ = outcome.structured
    result = Result(
        id=call.id,
        tool=call.tool,
        at=0,
        finished_at=format_timestamp(at),
        is_error=outcome.is_error,
        exit_code=outcome.exit_code,
        denial_kind=outcome.denial_kind,
        persisted_path=None if persisted is None else str(persisted),
        truncated=persisted is not None,
        background_task=outcome.background_task,
        body_store=body_store,
    )
    span = Span(
        call=call,
        result=result,
        state=outcome.state,
        evidence=_make_evidence(outcome.reason),
        error_kind=outcome.kind,
        message=_message_preview(outcome) if outcome.is_error else None,
        events=_span_events(pending, outcome) if outcome.contexts or pending.decision_event else (),
        background=outcome.background_task is not None,
        agent=outcome.agent,
    )
    if outcome.deferred:
        span = structs.replace(span, result=None, deferred=True)
    finished = Finished(
        span=span,
        content=outcome.content,
        structured=outcome.structured,
        decision=pending.decision_event,
        companions=outcome.companions,
        contexts=outcome.contexts,
        structured_output=outcome.structured_output,
        beside=outcome.extra_keys,
        stop=outcome.stop,
        cwd=str(_cwd_after(outcome, context)),
        duration_ms=(at - (pending.started_at or pending.requested_at)) * 1e3,
        at=at,
    )
    if pending.held_progress is not None:
        context.emit(pending.held_progress)
    pending.modify = outcome.modify
    pending.finished = finished
    pending.tool_context = None  # it knows the batch, which knows the job: let go, they need no collector
    context.emit(finished)
    return finished


@lru_cache(maxsize=16)
def _make_evidence(reason: str) -> tuple[Evidence, ...]:
    """What a state rests on: a few words, most of them again and again."""
    return (Evidence(reason),)


_LIVE_LOCATION = SourceLocation("live", 0, 0, 0)
"""What happens live stands in no file."""


def _span_events(pending: PendingCall, outcome: Outcome) -> tuple[Event, ...]:
    """What happened around the call, as a reader would tell it."""
    hooks = [
        Hook(
            point=hook_context.point,
            name=hook_context.name,
            outcome="blocked" if hook_context.model_text else "context",
            text=hook_context.text,
            place=_LIVE_LOCATION,
        )
        for hook_context in outcome.contexts
    ]
    if pending.decision_event is None:
        return tuple(hooks)
    decision = "accept" if pending.decision_event.allowed else "reject"
    return (*hooks, Permission(decision=decision, source=pending.decision_event.source, place=_LIVE_LOCATION))


def _cwd_after(outcome: Outcome, context: RunnerContext) -> Path:
    """Where the call leaves the session; its modifier itself is applied in call order, later."""
    if outcome.modify is None:
        return context.call_context.cwd
    try:
        return outcome.modify(context.call_context).cwd
    except Exception:  # noqa: BLE001 - told of when it is applied
        return context.call_context.cwd


def _message_preview(outcome: Outcome) -> str:
    return strip_error_tags(content_text(outcome.content)).strip()[:240]


def format_timestamp(at: float) -> str:
    """A time as transcripts write it."""
    return _format_millisecond(round(at * 1_000))


@lru_cache(maxsize=4)
def _format_millisecond(at: int) -> str:
    """The text of a millisecond: a busy session asks for the same one again and again."""
    second, thousandth = divmod(at, 1_000)
    return f"{datetime.fromtimestamp(second, UTC).isoformat()[:-6]}.{thousandth:03}Z"
