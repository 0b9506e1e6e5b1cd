"""`--format markdown`: a session as a document that people read.

In: stories. Out: Markdown, one document with a heading per session. What tools and models wrote
stands in fences that are longer than any run of backticks inside, words in block quotes with all
markup escaped: nothing a transcript holds becomes markup. Read `_session` first.
"""

import json
import re
from collections.abc import Iterable, Iterator

from toolspan.export.record import (
    AgentRecord,
    CallRecord,
    EventRecord,
    MessageRecord,
    SessionRecord,
)
from toolspan.export.story import Row, Story
from toolspan.export.visible import one_line, visible
from toolspan.model.kind import ADVICE
from toolspan.report.time.phases import when

_TICKS = re.compile(r"`+")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$!&@]|:(?=//))")
_BULLET = re.compile(r"(?m)^([ \t]*)([-+=])")
_NUMBER = re.compile(r"(?m)^([ \t]*\d{1,9})([.)])")
_INDENT = re.compile(r"(?m)^[ \t]+")
_LONGEST = 20_000
_SPEAKERS = {
    "prompt": "User",
    "command": "User, a command",
    "text": "Model",
    "thinking": "Model, thinking",
    "injected": "Client, to the model",
    "summary": "Summary",
    "notification": "Notification",
    "interrupt": "Interrupted",
    "error": "Error",
    "system": "Client",
}


def write(stories: Iterable[Story]) -> Iterator[bytes]:
    """The stories, one after another."""
    for story in stories:
        for part in _session(story):
            yield part.encode("utf-8", "replace")


def _session(story: Story) -> Iterator[str]:
    yield from _head(story.head)
    for row in story.rows():
        yield "".join(_row(row)) + "\n"


def _head(head: SessionRecord) -> Iterator[str]:
    yield f"# {escaped(one_line(head.title or head.id, 120))}\n\n"
    client = ", ".join((head.dialect, *head.versions, *head.models))
    facts = {
        "session": head.id,
        "folder": head.cwd,
        "branch": head.git_branch,
        "client": client,
        "began": _moment(head.start),
        "ended": _moment(head.end),
    }
    for name, value in facts.items():
        if value:
            yield f"- {name}: {escaped(one_line(value, 300))}\n"
    yield "\n"


def _row(row: Row) -> Iterator[str]:
    match row.record:
        case MessageRecord():
            yield from _message(row.record, row.depth)
        case AgentRecord():
            about = [row.record.role or "subagent", row.record.agent or ""]
            yield f"**↳ {escaped(one_line(' '.join(about), 120))}**, calls: {row.record.calls}\n"
        case CallRecord():
            yield from _call(row.record, row.depth)


def _message(message: MessageRecord, depth: int) -> Iterator[str]:
    speaker = _SPEAKERS[message.voice]
    left = ", left behind by a rewind" if message.branch == "abandoned" else ""
    if message.opens and not depth:
        yield f"## {escaped(one_line(message.text, 80))}\n\n"
    yield f"**{speaker}** {_clock(message.start)}{left}\n\n"
    for line in _cut(escaped(visible(message.text))).split("\n"):
        yield f"> {line}\n"


def _call(call: CallRecord, depth: int) -> Iterator[str]:
    mark = "↳ " * depth
    about = one_line(call.target or "", 120)
    took = "" if call.duration_ms is None else f", {call.duration_ms:,} ms"
    yield f"#### {mark}{escaped(one_line(call.tool or 'orphan result', 80))}"
    yield f": {escaped(about)}\n\n" if about else "\n\n"
    yield f"{call.state}{took} · {_clock(call.start)} · {escaped(one_line(call.id, 80))}\n\n"
    yield from _trouble(call)
    if call.input is not None:
        yield "Input:\n\n" + fenced(_json(call.input), "json")
    if call.result is not None:
        yield "\nResult:\n\n" + fenced(call.result)
    for diff in call.diffs:
        yield f"\n{diff.kind} {escaped(one_line(diff.path, 300))}:\n\n" + fenced(diff.text, "diff")
    if call.events:
        yield "\n" + "".join(f"- {escaped(_event(event))}\n" for event in call.events)


def _trouble(call: CallRecord) -> Iterator[str]:
    if call.problem:
        yield f"Not readable any more: {escaped(one_line(call.problem, 300))}\n\n"
    if call.error_kind is None:
        return
    advice = ADVICE[call.error_kind]
    said = escaped(one_line(call.message or advice.cause, 300))
    yield f"**{escaped(call.error_kind)}**: {said}. {advice.solution}.\n\n"


def _event(event: EventRecord) -> str:
    took = None if event.duration_ms is None else f"{event.duration_ms:,.0f} ms"
    times = None if event.count is None else f"×{event.count}"
    parts = (event.type, event.name, event.who, event.outcome, times, took, event.text)
    return one_line(" · ".join(part for part in parts if part), 400)


def escaped(text: str) -> str:
    """A text in which nothing is markup."""
    bare = _NUMBER.sub(r"\1\\\2", _BULLET.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", text)))
    return _INDENT.sub(lambda found: "\u00a0" * len(found[0].expandtabs(4)), bare)


def fenced(text: str, language: str = "") -> str:
    """A text in a fence that it cannot close."""
    shown = _cut(visible(text))
    longest = max((len(run) for run in _TICKS.findall(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown.rstrip(chr(10))}\n{fence}\n"


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return text[:_LONGEST] + f"\n… {len(text) - _LONGEST:,} more characters"


def _json(value: object) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        return "[nested too deeply]"


def _moment(ms: int | None) -> str | None:
    return None if ms is None else when(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def _clock(ms: int | None) -> str:
    return "" if ms is None else when(ms).strftime("%H:%M:%S")
