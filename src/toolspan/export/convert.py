"""Continue a session with another client, or as a short summary: `toolspan convert`.

`convert_session` writes a native session of another client. `summarize_session` writes the summary, without a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from toolspan.analysis.file_history.changes import FileChange, changes_of, command_of
from toolspan.analysis.file_history.content import PatchEffect, WriteEffect
from toolspan.analysis.recovery import chain_endings
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.session import read_session, resolve_names
from toolspan.errors import NotFound, ToolspanError
from toolspan.export.session_export import SessionExport
from toolspan.export.steps import SessionStep, read_steps
from toolspan.formats.conversation import Conversation, PortableCall, Prompt, Reply
from toolspan.formats.registry import all_formats, get_format
from toolspan.types import inputs
from toolspan.types.span import Span, parse_timestamp

_PORTABLE_INPUTS = (
    inputs.ReadInput, inputs.WriteInput, inputs.EditInput, inputs.MultiEditInput, inputs.GrepInput, inputs.GlobInput,
)  # fmt: skip
_PROMPT_VOICES = frozenset({"prompt", "summary", "notification", "interrupt"})
_NO_RESULT = "No result was recorded."
_BRIEF_CHARS = 8_000
_MAX_GOAL, _MAX_PROMPT, _MAX_LINE, _MAX_LAST = 1_500, 300, 160, 1_500
_MAX_PROMPTS, _MAX_FILES, _MAX_FAILURES = 12, 30, 8


class Handoff(Struct, frozen=True, kw_only=True):
    """A session that was written for another client."""

    client: str
    session: str
    path: str
    resume_command: str | None
    source: str
    messages: int
    """The number of prompts and replies."""
    calls: int
    """The number of calls that the client can see as its own."""
    calls_as_text: int
    """The number of calls that became text, because the client has no equivalent."""


def convert_session(
    names: Sequence[str],
    to: str,
    *,
    last: bool = False,
    cwd: str | None = None,
    home: Path | None = None,
    brief: bool = False,
    reporter: Reporter = SILENT,
) -> Handoff:
    """Write a session as a native session of the client `to`, below its folder or `home`, and leave the original.

    With `brief`, the new session begins with a summary instead of the conversation.

    Raises:
        NotFound: there is no such session, or it has no messages.
        ToolspanError: sessions of that client cannot be written.
        OSError: the file cannot be written.
    """
    target = get_format(to)
    if not target.is_writable:
        known = ", ".join(item.name for item in all_formats() if item.is_writable)
        raise ToolspanError(f"sessions of {target.title} cannot be written; choose one of {known}")
    session = _read(names, last=last, reporter=reporter)
    folder = cwd or session.header.cwd or str(Path.cwd())
    items = tuple(_conversation_items(session))
    if brief:
        at = items[-1].at if items else datetime.now(UTC)
        items = (Prompt(text=_make_summary(session), at=at),)
    if not items:
        raise NotFound(f"{session.header.id}: the session has no messages")
    source = get_format(session.header.client)
    conversation = Conversation(items=items, cwd=folder, title=session.header.title, source=source.title)
    written = target.write_session(conversation, home)
    calls = [call for item in items if isinstance(item, Reply) for call in item.calls]
    mapped = sum(target.equivalent_call(call) is not None for call in calls)
    return Handoff(
        client=to,
        session=written.id,
        path=str(written.path),
        resume_command=target.resume_command(written.id, written.path),
        source=session.header.id,
        messages=len(items),
        calls=mapped,
        calls_as_text=len(calls) - mapped,
    )


def summarize_session(names: Sequence[str], *, last: bool = False, reporter: Reporter = SILENT) -> str:
    """Return a summary of a session in Markdown, with at most 8,000 characters.

    Raises:
        NotFound: there is no such session.
    """
    return _make_summary(_read(names, last=last, reporter=reporter))


def _read(names: Sequence[str], *, last: bool, reporter: Reporter) -> SessionExport:
    target = resolve_names(names, last=last, reporter=reporter)
    if not isinstance(target, list):
        raise NotFound("this is a call; name its session instead")
    return SessionExport(read_session(target, reporter))


# --- The conversation


def _conversation_items(session: SessionExport) -> Iterator[Prompt | Reply]:
    """Yield what the model would see if the session was resumed, without the client's own instructions."""
    at = parse_timestamp(session.transcripts[0].info.started_at) or datetime.now(UTC)
    for step in read_steps(session).steps:
        at = max(at, parse_timestamp(step.at) or at)
        if step.branch != "active":
            continue
        if step.source != "agent":
            if step.voice in _PROMPT_VOICES and step.text.strip():
                yield Prompt(text=step.text, at=at)
            continue
        calls = tuple(_portable_call(span, session.header.cwd) for span in step.spans)
        if step.text.strip() or calls:
            yield Reply(text=step.text, calls=calls, at=at, model=step.model)


def _portable_call(span: Span, cwd: str | None) -> PortableCall:
    changes = changes_of(span, cwd)
    return PortableCall(
        id=span.id,
        tool=span.tool,
        input=_portable_input(span, changes, cwd),
        arguments=span.call.raw_input.decode("utf-8", "replace"),
        patch=_make_patch(changes),
        result=_NO_RESULT if span.result is None else span.result.text,
        is_error=span.state != "succeeded",
        exit_code=span.result.exit_code if span.result else None,
    )


def _portable_input(span: Span, changes: Sequence[FileChange], cwd: str | None) -> inputs.ToolInput | None:
    typed = span.input
    if isinstance(typed, _PORTABLE_INPUTS):
        return typed
    if len(changes) == 1 and span.tool == "apply_patch" and changes[0].moved_to is None:
        return _edit_of(changes[0])
    if span.call.kind == "shell" and (command := command_of(span, cwd)[0]):
        return inputs.BashInput(command=command)
    return None


def _edit_of(change: FileChange) -> inputs.ToolInput | None:
    """Return a recorded change as a write or an edit, or None if it is not one of these."""
    if change.kind == "created" and isinstance(change.effect, WriteEffect):
        return inputs.WriteInput(file_path=change.path, content=change.effect.content)
    groups = _changed_lines(change)
    if change.kind == "edited" and len(groups) == 1:
        old, new = _side(groups[0], "-"), _side(groups[0], "+")
        return inputs.EditInput(file_path=change.path, old_string=old, new_string=new)
    return None


def _side(lines: Sequence[str], sign: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", sign))


def _changed_lines(change: FileChange) -> list[list[str]]:
    """Return runs of lines that begin with a space, `-` or `+`; none if the record does not contain them."""
    runs: Sequence[Sequence[str]] = [hunk.lines for hunk in change.hunks]
    if not runs and isinstance(change.effect, PatchEffect):
        runs = [chunk.lines for chunk in change.effect.section.chunks]
    return [[line for line in lines if not line.startswith("\\")] for lines in runs]


def _make_patch(changes: Sequence[FileChange]) -> str | None:
    """Return changes as a Codex patch, or None if a record does not contain all lines."""
    lines = ["*** Begin Patch"]
    for change in changes:
        groups = _changed_lines(change)
        if change.moved_from or change.moved_to:
            return None
        if change.kind == "deleted":
            lines.append(f"*** Delete File: {change.path}")
        elif change.kind == "created" and isinstance(change.effect, WriteEffect):
            content = change.effect.content.removesuffix("\n").split("\n")
            lines += [f"*** Add File: {change.path}", *(f"+{line}" for line in content)]
        elif groups:
            lines.append(f"*** Update File: {change.path}")
            lines += [line for group in groups for line in ("@@", *group)]
        else:
            return None
    return "\n".join([*lines, "*** End Patch"]) if changes else None


# --- The summary


def _make_summary(session: SessionExport) -> str:
    header, steps = session.header, [step for step in read_steps(session).steps if step.branch != "abandoned"]
    prompts = [step.text for step in steps if step.voice == "prompt"]
    spans = [span for step in steps for span in step.spans]
    title = get_format(header.client).title
    sections = [
        f"# Summary of a session of {title}",
        f"Session {header.id}" + (f" in {header.cwd}" if header.cwd else "") + f", {len(spans):,} calls.",
        "## Goal",
        _cut(prompts[0], _MAX_GOAL) if prompts else "No prompt is recorded.",
    ]
    if len(prompts) > 1:
        latest = prompts[1:][-_MAX_PROMPTS:]
        sections += ["## Further prompts", "\n".join(f"- {_one_line(text, _MAX_PROMPT)}" for text in latest)]
    if files := _changed_files(spans, header.cwd):
        more = [f"- and {len(files) - _MAX_FILES:,} more"] if len(files) > _MAX_FILES else []
        sections += ["## Files changed", "\n".join([*files[:_MAX_FILES], *more])]
    if failures := list(_open_failures(spans)):
        sections += ["## Open failures", "\n".join(failures[-_MAX_FAILURES:])]
    sections += ["## Last state", _last_state(steps)]
    return _cut("\n\n".join(sections), _BRIEF_CHARS) + "\n"


def _changed_files(spans: Sequence[Span], cwd: str | None) -> list[str]:
    kinds: dict[str, str] = {}
    for span in spans:
        for change in changes_of(span, cwd):
            path = change.moved_to or change.path
            kinds[path] = "created" if kinds.get(path) == "created" and change.kind == "edited" else change.kind
    return [f"- {path} ({kind})" for path, kind in kinds.items()]


def _open_failures(spans: Sequence[Span]) -> Iterator[str]:
    """Yield the last call of each failure from which no later call recovered."""
    by_ref = {(str(span.id), span.call.message_id): span for span in spans}
    for ending in chain_endings(spans):
        span = by_ref.get(ending.failures[-1])
        if ending.recovered or span is None:
            continue
        reason = _one_line(span.message or span.state, _MAX_LINE)
        yield f"- {span.tool} {_one_line(span.call.target or '', _MAX_LINE)} ({span.state}): {reason}"


def _last_state(steps: Sequence[SessionStep]) -> str:
    replies = [step for step in steps if step.source == "agent"]
    if not replies:
        return "The model has not replied."
    last = replies[-1]
    unanswered = [span for span in last.spans if span.result is None]
    texts = [_cut(last.text, _MAX_LAST)] if last.text.strip() else []
    if unanswered:
        texts.append(
            "Without a result: " + ", ".join(_one_line(f"{s.tool} {s.call.target or ''}", 80) for s in unanswered)
        )
    elif last.spans:
        texts.append(f"The last call, {last.spans[-1].tool}, {last.spans[-1].state.replace('_', ' ')}.")
    return "\n\n".join(texts)


def _one_line(text: str, limit: int) -> str:
    return _cut(" ".join(text.split()), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
