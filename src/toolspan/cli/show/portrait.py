"""One call in full: what was asked, how it ended and why, what it changed, what stands around it.

In: a `Portrait`. Out: lines for people, or an object for programs. Knows no options and finds no
files; `find.py` does. Read `portrait_of` first, then `call_lines`.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.text import Text

from toolspan.cli.draw import diff_line, facts, joined, plain_line, plain_lines
from toolspan.cli.output import STATE_STYLE, clock, count, duration
from toolspan.cli.show.look import Look, call_text, event_note, said_text
from toolspan.cli.summary import diff_of, summary
from toolspan.model.inputs import UnknownInput, decode_anything
from toolspan.model.span import Span, moment
from toolspan.model.state import MEANING, SIGNS
from toolspan.read.facts import facts_of
from toolspan.read.messages import script
from toolspan.read.timeline import Batch, Said, Strand, Turn, timeline
from toolspan.read.transcript import Transcript
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.change import changes_of
from toolspan.report.files.story import diff_of_change
from toolspan.report.flow.chains import Chain, Link, chains
from toolspan.report.time.waits import noted_wait
from toolspan.report.words import words
from toolspan.wire.claude_results import UnknownResult
from toolspan.wire.paths import config_dir

_SHOWN_LINES = 40
_SHOWN_INPUT = 16
_MOST = 2_000
_WORDS_AROUND = 3
"""Things said that are told between a call and the one before or after it."""

_WAYS_BACK = 3
"""Files for which it is told how to get them back."""
_ID = 100
"""Letters of an id that are shown; a client's own have far fewer."""
_MARGIN = 40
"""Columns that what a neighbour is about keeps beside its id."""

Neighbour = Said | Span


class Portrait(Struct, frozen=True, kw_only=True):
    """One call and where it stands."""

    span: Span
    file: str
    cwd: str | None
    turn: Turn | None = None
    batch: Batch | None = None
    before: tuple[Neighbour, ...] = ()
    """What the same agent said and did right before, the last call included; oldest first."""
    after: tuple[Neighbour, ...] = ()
    diff: str | None = None
    """What it changed."""
    changed: tuple[str, ...] = ()
    """The files that it changed and did not make."""
    chain: Chain | None = None
    """What was done about its failure, or the failure that it took up."""
    others: tuple[str, ...] = ()
    """Other sessions that have a call with this id, the newest first."""


def portrait_of(span: Span, transcript: Transcript, others: tuple[str, ...] = ()) -> Portrait:
    """A call with what stands around it in its own file."""
    found = Portrait(
        span=span,
        file=transcript.file,
        cwd=transcript.info.cwd,
        diff=_diff(span, transcript),
        changed=_changed(span, transcript),
        others=others,
    )
    strands = list(timeline([script(transcript)]).strands())
    found = msgspec.structs.replace(found, chain=_chain(span, transcript, strands))
    for strand in strands:
        items = list(_flat(strand))
        at = next((n for n, one in enumerate(items) if _is(one, span.id)), None)
        if at is not None:
            found = msgspec.structs.replace(
                found,
                turn=next(turn for turn in strand.turns if span.id in _ids(turn)),
                batch=next(batch for batch in strand.batches if span.id in _ids(batch)),
                before=_nearest(items[:at][::-1])[::-1],
                after=_nearest(items[at + 1 :]),
            )
    return found


def _chain(span: Span, transcript: Transcript, strands: Sequence[Strand]) -> Chain | None:
    """The chain a call is part of: the one that its failure began, before one that it took up."""
    turns: dict[str, str] = {
        placed.span.id: placed.span.call.prompt_id or f"{strand.agent_id} {n}"
        for strand in strands
        for n, turn in enumerate(strand.turns)
        for placed in turn.calls
    }
    known = chains(transcript.spans, transcript.file, turns=turns)
    begun = (one for one in known if span.id in (one.start.id, *one.siblings))
    joins = (one for one in known if any(link.id == span.id for link in one.links))
    return next(chain.from_iterable((begun, joins)), None)


def _flat(strand: Strand) -> Iterator[Neighbour]:
    """What one agent said and did, in order; its subagents tell their own stories."""
    for item in chain.from_iterable(turn.items for turn in strand.turns):
        match item:
            case Said():
                yield item
            case Batch():
                yield from (placed.span for placed in item.calls)
            case Strand():
                continue


def _is(one: Neighbour, name: str) -> bool:
    return isinstance(one, Span) and one.id == name


def _nearest(items: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    """The words up to the next call, and that call."""
    found: list[Neighbour] = []
    for item in items:
        if isinstance(item, Span):
            return (*found[:_WORDS_AROUND], item)
        found.append(item)
    return tuple(found[:_WORDS_AROUND])


def _diff(span: Span, transcript: Transcript) -> str | None:
    """What a call changed; for files it made, the input says so already."""
    structured = span.result.structured if span.result else None
    told = diff_of(structured)
    if told is not None:
        return told
    changes = changes_of(span, transcript.info.cwd)
    if all(change.kind == "created" for change in changes):
        return None
    paths = {change.path for change in changes} | {change.moved_from for change in changes}
    archive = FileArchive([transcript], paths.__contains__)
    return "".join(diff_of_change(archive, change) for change in changes) or None


def _changed(span: Span, transcript: Transcript) -> tuple[str, ...]:
    changes = changes_of(span, transcript.info.cwd)
    return tuple(dict.fromkeys(one.path for one in changes if one.kind != "created"))


def _ids(part: Turn | Batch) -> list[str]:
    return [placed.span.id for placed in part.calls]


def period(start: datetime | None, end: datetime | None) -> str:
    """From when to when, and how long that is."""
    if start is None or end is None:
        return clock(start or end)
    took = duration(max((end - start).total_seconds(), 0) * 1000)
    return f"{clock(start)} – {clock(end, date=start.date() != end.date())} ({took})"


def call_json(portrait: Portrait) -> dict[str, object]:
    """A call as one object."""
    span = portrait.span
    prompt = portrait.turn.prompt if portrait.turn else None
    return {
        "call": facts_of(span, portrait.file),
        "meaning": MEANING[span.state],
        "advice": span.advice._asdict() if span.advice else None,
        "events": span.events,
        "prompt": prompt.text if prompt else None,
        "input_type": type(span.input).__name__,
        "input": decode_anything(span.call.raw_input),
        "result": _result_json(span),
        "diff": portrait.diff,
        "before": _neighbour_id(portrait.before),
        "after": _neighbour_id(portrait.after),
        "around": {
            "before": [_neighbour_json(one, portrait.file) for one in portrait.before],
            "after": [_neighbour_json(one, portrait.file) for one in portrait.after],
        },
        "recovery": portrait.chain,
        "others": portrait.others,
    }


def _neighbour_id(neighbours: Sequence[Neighbour]) -> str | None:
    return next((one.id for one in neighbours if isinstance(one, Span)), None)


def _neighbour_json(one: Neighbour, file: str) -> object:
    return one.message if isinstance(one, Said) else facts_of(one, file)


def _result_json(span: Span) -> dict[str, object] | None:
    if span.result is None:
        return None
    structured = span.result.structured
    return {
        "text": span.result.text,
        "summary": summary(span),
        "structured_type": type(structured).__name__ if structured is not None else None,
        "structured": _structure(structured),
    }


def _structure(structured: object) -> object:
    """A structured result as plain JSON."""
    if isinstance(structured, UnknownResult):
        return structured.json()
    try:
        return decode_anything(msgspec.json.encode(structured))
    except (UnicodeEncodeError, TypeError):
        return repr(structured)


def call_lines(portrait: Portrait, look: Look) -> Iterator[Text]:
    """A call as lines."""
    span, width = portrait.span, look.width
    yield call_text(span, look)
    yield Text()
    yield from _call_facts(portrait, width)
    kind = "no known type" if isinstance(span.input, UnknownInput) else type(span.input).__name__
    yield from _section(joined("input", kind), _input_lines(span, look), look)
    if span.result is not None:
        text = plain_lines(span.result.text.rstrip("\n"))
        yield from _section(joined("result", summary(span)), _cut(text, look, _SHOWN_LINES), look)
    if portrait.diff:
        lines = _cut(plain_lines(portrait.diff.rstrip("\n")), look, _SHOWN_LINES * 2)
        yield from _section("diff", (diff_line(line.plain) for line in lines), look)
    if portrait.chain is not None:
        yield from _section(_chain_title(portrait.chain), _links(portrait, look), look)
    if portrait.before or portrait.after:
        yield from _section("around", _neighbours(portrait, look), look)
    yield from _ways_back(portrait)


def _ways_back(portrait: Portrait) -> Iterator[Text]:
    """How to undo what it did to files; not for names that a terminal would obey."""
    name = portrait.span.id[:_ID]
    paths = [path for path in portrait.changed if path.isprintable() and name.isprintable()]
    file = Path(portrait.file).absolute()
    known = file.is_relative_to(config_dir().absolute())
    where = "" if known else f" {shlex.quote(portrait.file)}"
    if paths:
        yield Text("\nTo take it back:")
    for path in paths[:_WAYS_BACK]:
        named = f"{shlex.quote(path)}{where if where.isprintable() else ''}"
        yield Text(f"  toolspan restore {named} --before {shlex.quote(name)}")


def _call_facts(portrait: Portrait, width: int) -> Iterator[Text]:
    span = portrait.span
    yield from facts("id", span.id, width)
    yield from facts("session", joined(span.call.session_id, span.call.agent_id), width)
    if portrait.others:
        some = ", ".join(name[:13] for name in portrait.others[:3])
        more = f"{count(len(portrait.others), 'older session')} with this id: {some} (--session)"
        yield from facts("also in", more, width, "yellow")
    prompt = portrait.turn.prompt if portrait.turn else None
    yield from facts("prompt", words(prompt) if prompt else None, width)
    flags = [name for name in _FLAGS if getattr(span, name)]
    state = f"{span.state}: {MEANING[span.state]}" + (f" ({', '.join(flags)})" if flags else "")
    yield from facts("state", state, width, STATE_STYLE[span.state])
    for evidence in span.evidence:
        told = f"{evidence.rule}: {evidence.text}" if evidence.text else evidence.rule
        yield from facts("evidence", told, width)
    yield from facts("error", joined(span.error_kind, span.message), width)
    if span.advice:
        yield from facts("cause", span.advice.cause, width)
        yield from facts("solution", span.advice.solution, width, "bold")
        yield from facts("retry", span.advice.retry, width)
    if span.result:
        code = span.result.exit_code
        yield from facts("exit code", None if code is None else str(code), width)
        yield from facts("saved to", span.result.persisted_path, _MOST)
    yield from facts("times", _call_times(span), width)
    for event in span.events:
        yield from facts("", event_note(event), width, "dim")
    yield from _standing(portrait, width)


_FLAGS = ("ambiguous", "background", "deferred", "synthetic")


def _call_times(span: Span) -> str:
    own = span.result.reported_ms if span.result else None
    told = f"the tool itself says {duration(own)}" if own is not None else None
    asked = noted_wait(span)
    waited = f"somebody was asked for {duration(asked)} of it" if asked is not None else None
    return joined(period(span.requested, span.finished), told, waited)


def _standing(portrait: Portrait, width: int) -> Iterator[Text]:
    """Where a call stands: in files, in its batch, on its branch, above its subagents."""
    span = portrait.span
    yield from facts("asked", str(span.call.place or "nobody recorded it"), _MOST)
    yield from facts("answered", str(span.result.place) if span.result else "never", _MOST)
    if portrait.batch and len(portrait.batch.calls) > 1:
        ids = _ids(portrait.batch)
        most = max(group.concurrency for group in portrait.batch.groups)
        how = "one after another" if portrait.batch.serial else f"up to {most} at once"
        yield from facts("batch", f"{ids.index(span.id) + 1} of {len(ids)}, {how}", width)
    if span.branch != "active":
        yield from facts("branch", span.branch, width)
    yield from facts("started by", span.call.parent_call, width)
    yield from facts("subagent", span.agent, width)
    for copy in span.copies[:4]:
        yield from facts("copy", f"{copy.what} at {copy.place}", _MOST)


def _section(title: str, lines: Iterable[Text], look: Look) -> Iterator[Text]:
    yield Text()
    head = f"── {plain_line(title, look.width)} "
    yield Text(head + "─" * max(look.width - len(head), 0), style="dim")
    yield from lines


def _input_lines(span: Span, look: Look) -> Iterator[Text]:
    found = decode_anything(span.call.raw_input)
    for key, value in found.items() if isinstance(found, dict) else [("", found)]:
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        lines = plain_lines(text or '""')
        if len(lines) == 1:
            yield from facts(str(key), text or '""', _MOST if look.full else look.width)
        else:
            yield from facts(str(key), count(len(lines), "line"), look.width, "dim")
            yield from (Text("  ") + line for line in _cut(lines, look, _SHOWN_INPUT))


def _cut(lines: Sequence[str], look: Look, most: int) -> Iterator[Text]:
    """Lines, as many and as much of each as people read, unless all is wanted."""
    if look.full:
        yield from (Text(line) for line in lines)
        return
    yield from (Text(line[:_MOST]) for line in lines[:most])
    if len(lines) > most:
        yield Text(f"… {count(len(lines) - most, 'more line')} (--full)", style="dim")


def _chain_title(found: Chain) -> str:
    name = (found.name or "nothing was tried").replace("_", " ")
    return joined("recovery", name, found.outcome, "possible evasion" if found.evasion else None)


def _links(portrait: Portrait, look: Look) -> Iterator[Text]:
    """The failure and the calls that took it up."""
    found = portrait.chain
    if found is None:
        return
    first = Link(
        id=found.start.id,
        tool=found.start.tool or "",
        state=found.start.state,
        error_kind=found.start.error_kind,
        role="attempt",
        target=found.start.target,
        batch=found.start.batch,
        requested=found.start.requested,
    )
    for link in (first, *found.links):
        line = Text().append(f"{clock(moment(link.requested), date=False):10}", style="dim")
        line.append(f"{SIGNS[link.state]} ", style=STATE_STYLE[link.state])
        line.append(f"{plain_line(link.tool, 60):5} ", style="bold")
        line.append(
            plain_line(joined(look.shortened(link.target or ""), link.error_kind), look.width)
        )
        name = plain_line(link.id, _ID)
        line.truncate(max(look.width - len(name) - 9, _MARGIN), overflow="ellipsis")
        line.append(f"  {name}", style="dim")
        yield line.append(" ◂ this") if link.id == portrait.span.id else line


def _neighbours(portrait: Portrait, look: Look) -> Iterator[Text]:
    for one in portrait.before:
        yield from _neighbour(one, "before", look)
    yield Text().append(f"{'':18}").append_text(call_text(portrait.span, look)).append("  ◂ this")
    for one in portrait.after:
        yield from _neighbour(one, "after", look)


def _neighbour(one: Neighbour, label: str, look: Look) -> Iterator[Text]:
    match one:
        case Said(message=message):
            if look.wants(message):
                yield _beside("", one.began, said_text(message, look), look)
        case Span():
            yield _beside(label, one.requested, call_text(one, look), look, one.id)


def _beside(label: str, at: datetime | None, text: Text, look: Look, name: str = "") -> Text:
    line = Text().append(f"{label:8}{clock(at, date=False):10}", style="dim").append_text(text)
    name = plain_line(name, _ID)
    if not look.full:
        line.truncate(max(look.width - len(name) - 2, _MARGIN), overflow="ellipsis")
    return line.append(f"  {name}", style="dim") if name else line
