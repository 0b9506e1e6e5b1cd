"""The end of a call: what cut it short, and the one `Finished` that every call leaves."""

from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from msgspec import structs

from toolspan.errors import words_of
from toolspan.model.event import Event, Hook, Permission
from toolspan.model.live import Finished
from toolspan.model.place import Place
from toolspan.model.span import Evidence, Result, Span
from toolspan.run import denial
from toolspan.run.desk import Desk, Job
from toolspan.run.ending import UNSTOPPED, Ending, refused, text_of, untagged
from toolspan.run.outbound import clean


def settle_unstarted(job: Job, desk: Desk) -> Finished:
    """End a call that is still in the queue."""
    return settle(job, cut_short(job, desk), desk)


def cut_short(job: Job, desk: Desk) -> Ending:
    """Somebody ended the call."""
    refusals = desk.profile.refusals
    if job.cancelled == "sibling":
        return denial.sibling_failed()
    if job.cancelled == "discarded":
        return denial.discarded()
    if job.started is None:
        return denial.cancelled(refusals)
    ending = denial.interrupted(refusals, _partial(job))
    if not desk.rooms.is_left(job.call.id):
        return ending
    return structs.replace(ending, reason=f"{ending.reason}; {UNSTOPPED}")


def _partial(job: Job) -> str | None:
    """What the call has to show so far."""
    if job.view is None or job.view.partial is None:
        return None
    try:
        return clean(job.view.partial())
    except Exception:  # noqa: BLE001 - a tool's own function; without it there is nothing to show
        return None


def broken(job: Job, error: BaseException) -> Ending:
    """The runner itself failed; the call still gets its one result."""
    text = f"Tool execution error: {type(error).__name__}: {words_of(error)}"
    return refused(clean(text), kind="internal", reason=f"the runner failed on {job.call.tool}")


def settle(job: Job, ending: Ending, desk: Desk) -> Finished:
    """Give the call its one result, and tell everybody."""
    at, call, shelf, persisted = desk.clock(), job.call, job.shelf, ending.persisted
    shelf.content_ = ending.content
    shelf.structured_ = ending.structured
    result = Result(
        id=call.id,
        tool=call.tool,
        at=0,
        finished_at=iso(at),
        is_error=ending.flag,
        exit_code=ending.exit_code,
        denial_kind=ending.denial,
        persisted_path=None if persisted is None else str(persisted),
        truncated=persisted is not None,
        background_task=ending.background_task,
        shelf=shelf,
    )
    span = Span(
        call=call,
        result=result,
        state=ending.state,
        evidence=_evidence(ending.reason),
        error_kind=ending.kind,
        message=_first_words(ending) if ending.flag else None,
        events=_events(job, ending) if ending.contexts or job.decided else (),
        background=ending.background_task is not None,
        agent=ending.agent,
    )
    if ending.deferred:
        span = structs.replace(span, result=None, deferred=True)
    finished = Finished(
        span=span,
        content=ending.content,
        structured=ending.structured,
        decision=job.decided,
        companions=ending.companions,
        contexts=ending.contexts,
        structured_output=ending.structured_output,
        beside=ending.beside,
        stop=ending.stop,
        cwd=str(_cwd_after(ending, desk)),
        duration_ms=(at - (job.started or job.requested)) * 1e3,
        at=at,
    )
    if job.news is not None:
        desk.emit(job.news)
    job.modify = ending.modify
    job.finished = finished
    job.view = None  # it knows the batch, which knows the job: let go, they need no collector
    desk.emit(finished)
    return finished


@lru_cache(maxsize=16)
def _evidence(reason: str) -> tuple[Evidence, ...]:
    """What a state rests on: a few words, most of them again and again."""
    return (Evidence(reason),)


_NOWHERE = Place("live", 0, 0, 0)
"""What happens live stands in no file."""


def _events(job: Job, ending: Ending) -> tuple[Event, ...]:
    """What happened around the call, as a reader would tell it."""
    hooks = [
        Hook(
            point=one.point,
            name=one.name,
            outcome="blocked" if one.words else "context",
            text=one.text,
            place=_NOWHERE,
        )
        for one in ending.contexts
    ]
    if job.decided is None:
        return tuple(hooks)
    word = "accept" if job.decided.allowed else "reject"
    return (*hooks, Permission(decision=word, source=job.decided.source, place=_NOWHERE))


def _cwd_after(ending: Ending, desk: Desk) -> Path:
    """Where the call leaves the session; its modifier itself is applied in call order, later."""
    if ending.modify is None:
        return desk.context.cwd
    try:
        return ending.modify(desk.context).cwd
    except Exception:  # noqa: BLE001 - told of when it is applied
        return desk.context.cwd


def _first_words(ending: Ending) -> str:
    return untagged(text_of(ending.content)).strip()[:240]


def iso(at: float) -> str:
    """A time as transcripts write it."""
    return _millisecond(round(at * 1_000))


@lru_cache(maxsize=4)
def _millisecond(at: int) -> str:
    """The text of a millisecond: a busy session asks for the same one again and again."""
    second, thousandth = divmod(at, 1_000)
    return f"{datetime.fromtimestamp(second, UTC).isoformat()[:-6]}.{thousandth:03}Z"
