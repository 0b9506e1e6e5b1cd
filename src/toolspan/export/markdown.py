"""`--format markdown`: sessions as a readable document, with one heading per session.

Inputs and results are in fences longer than any run of backticks inside. Messages are block quotes with all markup
escaped, so no transcript text can become markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from toolspan.analysis.timing import from_epoch_ms
from toolspan.export.json import escape_control_chars, format_json, one_line
from toolspan.export.records import AgentRecord, CallRecord, MessageRecord, SessionRecord
from toolspan.export.session_export import ExportRow, SessionExport
from toolspan.redaction.redactor import format_counts
from toolspan.types.error_kinds import ADVICE

_BACKTICKS = re.compile(r"`+")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$!&@]|:(?=//))")
_BULLET = re.compile(r"(?m)^([ \t]*)([-+=])")
_NUMBER = re.compile(r"(?m)^([ \t]*\d{1,9})([.)])")
_INDENT = re.compile(r"(?m)^[ \t]+")
_MAX_TEXT_CHARS = 20_000
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


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield the document piece by piece: the heading of each session, then its rows."""
    session: SessionExport | None = None
    for session in sessions:
        yield "".join(_render_header(session.header)).encode("utf-8", "replace")
        if session.redaction_notice:
            yield f"*{escape_markdown(session.redaction_notice)}*\n\n".encode()
        for row in session.rows():
            yield ("".join(_render_row(row)) + "\n").encode("utf-8", "replace")
    if session is not None and session.redaction_counts:
        yield f"*Replaced: {format_counts(session.redaction_counts)}.*\n".encode()


def _render_header(header: SessionRecord) -> Iterator[str]:
    yield f"# {escape_markdown(one_line(header.title or header.id, 120))}\n\n"
    client = ", ".join((header.client, *header.versions, *header.models))
    facts = {
        "session": header.id,
        "folder": header.cwd,
        "branch": header.git_branch,
        "client": client,
        "began": _format_datetime(header.start),
        "ended": _format_datetime(header.end),
    }
    for name, value in facts.items():
        if value:
            yield f"- {name}: {escape_markdown(one_line(value, 300))}\n"
    yield "\n"


def _render_row(row: ExportRow) -> Iterator[str]:
    match row.record:
        case MessageRecord():
            message = row.record
            if message.opens and not row.depth:
                yield f"## {escape_markdown(one_line(message.text, 80))}\n\n"
            branch_note = ", left behind by a rewind" if message.branch == "abandoned" else ""
            yield f"**{_SPEAKERS[message.voice]}** {_format_time(message.start)}{branch_note}\n\n"
            for line in _truncate_text(escape_markdown(escape_control_chars(message.text))).split("\n"):
                yield f"> {line}\n"
        case AgentRecord():
            about = [row.record.role or "subagent", row.record.agent or ""]
            yield f"**↳ {escape_markdown(one_line(' '.join(about), 120))}**, calls: {row.record.calls}\n"
        case CallRecord():
            yield from _render_call(row.record, row.depth)


def _render_call(call: CallRecord, depth: int) -> Iterator[str]:
    about = one_line(call.target or "", 120)
    took = "" if call.duration_ms is None else f", {call.duration_ms:,} ms"
    yield f"#### {'↳ ' * depth}{escape_markdown(one_line(call.tool or 'orphan result', 80))}"
    yield f": {escape_markdown(about)}\n\n" if about else "\n\n"
    yield f"{call.state}{took} · {_format_time(call.start)} · {escape_markdown(one_line(call.id, 80))}\n\n"
    if call.problem:
        yield f"No longer readable: {escape_markdown(one_line(call.problem, 300))}\n\n"
    if call.error_kind is not None:
        advice = ADVICE[call.error_kind]
        message = escape_markdown(one_line(call.message or advice.cause, 300))
        solution = f" {advice.solution}." if advice.solution else ""
        yield f"**{escape_markdown(call.error_kind)}**: {message}.{solution}\n\n"
    if call.input is not None:
        yield "Input:\n\n" + fence_code(format_json(call.input, 2), "json")
    if call.result is not None:
        yield "\nResult:\n\n" + fence_code(call.result)
    for diff in call.diffs:
        yield f"\n{diff.kind} {escape_markdown(one_line(diff.path, 300))}:\n\n" + fence_code(diff.text, "diff")
    if call.events:
        yield "\n"
    for event in call.events:
        yield f"- {escape_markdown(one_line(f'{event.type} · {event.summary}', 400))}\n"


def escape_markdown(text: str) -> str:
    """Escape all Markdown markup in `text`."""
    bare = _NUMBER.sub(r"\1\\\2", _BULLET.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", text)))
    return _INDENT.sub(lambda match: "\u00a0" * len(match[0].expandtabs(4)), bare)


def fence_code(text: str, language: str = "") -> str:
    """Wrap text in a code fence that the text itself cannot close."""
    body = _truncate_text(escape_control_chars(text))
    longest = max((len(run) for run in _BACKTICKS.findall(body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{body.rstrip(chr(10))}\n{fence}\n"


def _truncate_text(text: str) -> str:
    if len(text) <= _MAX_TEXT_CHARS:
        return text
    return text[:_MAX_TEXT_CHARS] + f"\n… {len(text) - _MAX_TEXT_CHARS:,} more characters"


def _format_datetime(ms: int | None) -> str | None:
    return None if ms is None else from_epoch_ms(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def _format_time(ms: int | None) -> str:
    return "" if ms is None else from_epoch_ms(ms).strftime("%H:%M:%S")
