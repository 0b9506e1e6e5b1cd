"""The answers of the history tools: what they contain, and how they are made from an archive.

Each function asks one question of `Archive` and returns a frozen answer within a budget of tokens. Lists are paged:
`next_skip` is the value of `skip` that continues an answer, and None at its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from toolspan.analysis.search.find import SearchMatch
from toolspan.archive import Archive
from toolspan.archive.call_detail import CallDetail
from toolspan.archive.files import ChangeRow, known_content
from toolspan.archive.filters import Filter
from toolspan.archive.known_errors import KnownError
from toolspan.archive.sessions import SessionRow
from toolspan.archive.why import explanation_rows
from toolspan.errors import NotFound, SourceError
from toolspan.formats.source import source_for_path
from toolspan.integrations.history.quotes import (
    NOTICE,
    clean,
    fit_items,
    fit_text,
    quote,
    quote_line,
    redact_secrets,
    shorten,
)
from toolspan.reading.timeline import AgentTimeline, TimelineBatch, TimelineMessage, display_text
from toolspan.redaction.secrets import find_secrets
from toolspan.types.inputs import decode_json_or_text
from toolspan.types.span import Span

TOOL_NAMES = (
    "search_history", "list_sessions", "show_session", "show_call", "find_errors", "file_history", "why",
)  # fmt: skip
"""The names of the tools. Searches leave out their own calls."""
_NAME_CHARS = 160
_LINE_CHARS = 300
_DIFF_CHARS = 700
_MAX_SCANNED_BYTES = 200_000
_MIN_SECRET_CHARS = 4

T = TypeVar("T")
I = TypeVar("I", bound=Struct)  # noqa: E741


class QuotedMatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call or message that contains the words. `quote` is text of the session."""

    session: str | None
    at: str | None
    who: str
    """`call`, or the author of the message."""
    call: str | None = None
    """The id of the call, for `show_call`."""
    tool: str | None = None
    state: str | None = None
    error: str | None = None
    project: str | None = None
    quote: str


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """Matches, newest first."""

    notice: str
    matches: Sequence[QuotedMatch]
    total: int
    next_skip: int | None


class ListedSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session. `about` is its title or first prompt."""

    session: str
    started: str | None
    client: str
    project: str
    about: str | None = None
    calls: int
    unsuccessful: int = 0
    ended: str | None = None
    branch: str | None = None


class SessionList(Struct, frozen=True, kw_only=True):
    """Sessions, newest first."""

    notice: str
    sessions: Sequence[ListedSession]
    total: int
    next_skip: int | None


class SessionEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message or call of a session. `quote` is its text, or the subject of the call."""

    number: int
    who: str
    at: str | None = None
    call: str | None = None
    tool: str | None = None
    state: str | None = None
    error: str | None = None
    agent: str | None = None
    quote: str = ""


class SessionPage(Struct, frozen=True, kw_only=True):
    """A part of a session, in order."""

    notice: str
    session: str
    client: str
    project: str | None
    about: str | None
    started: str | None
    ended: str | None
    entries: Sequence[SessionEntry]
    total: int
    next_skip: int | None


class RecoveryStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that belongs to a recovery."""

    call: str
    tool: str
    state: str
    quote: str | None = None


class CallPage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. `prompt`, `input`, `result` and `diff` are text of the session."""

    notice: str
    call: str
    session: str | None
    at: str | None
    tool: str
    state: str
    error: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    folder: str | None = None
    prompt: str | None = None
    input: str | None = None
    result: str | None = None
    diff: str | None = None
    recovery: str | None = None
    recovered_by: Sequence[RecoveryStep] = ()
    before: str | None = None
    """The id of the call before it."""
    after: str | None = None


class SeenError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of error that happened before. `message` is text of the latest session with it."""

    group: str
    match: str
    """`same` if the text contains the message of this error, else `similar`."""
    kind: str
    program: str | None = None
    tool: str
    message: str | None = None
    count: int
    sessions: int
    recovered: int
    """How often a later call recovered from the error."""
    first: str | None
    last: str | None
    example: str
    """The id of the latest call with this error, for `show_call`."""
    advice: str | None = None
    fixed_how: str | None = None
    fixed_at: str | None = None
    fixed_session: str | None = None
    fixed_by: Sequence[RecoveryStep] = ()
    """The calls of the latest recovery; the last one succeeded."""


class SeenErrors(Struct, frozen=True, kw_only=True):
    """Errors of earlier sessions: the same ones before similar ones, each time the latest first."""

    notice: str
    errors: Sequence[SeenError]
    total: int
    next_skip: int | None


class QuotedChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change to a file. `diff` is text of the session."""

    call: str
    session: str | None
    at: str | None
    tool: str
    kind: str
    added: int | None = None
    removed: int | None = None
    agent: str | None = None
    moved_from: str | None = None
    moved_to: str | None = None
    diff: str | None = None


class FileHistoryAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes to a file, newest first, or its content before a call."""

    notice: str
    path: str
    changes: Sequence[QuotedChange] = ()
    total: int = 0
    next_skip: int | None = None
    content: str | None = None
    certainty: str | None = None
    """The certainty of the content: `exact`, `derived`, `doubtful`, `partial` or `unknown`."""
    exists: bool | None = None


class PermissionAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who allowed or denied a call, and why. `facts` are text of the session."""

    notice: str
    call: str
    tool: str
    state: str
    allowed: bool | None
    about: str | None = None
    facts: Sequence[str] = ()


def make_page(
    items: Sequence[I], total: int, skip: int, make_answer: Callable[..., Struct], field: str, max_tokens: int
) -> Any:
    """Return an answer with the first items that its budget allows. `total` counts all items of all pages."""

    def build(some: Sequence[I]) -> Struct:
        end = skip + len(some)
        return make_answer(**{"notice": NOTICE, field: some, "total": total, "next_skip": end if end < total else None})

    return build(fit_items(items, build, max_tokens) if items else items)


# Search


def search_history(
    archive: Archive,
    call_filter: Filter,
    query: str,
    *,
    where: str,
    regex: bool,
    skip: int,
    limit: int,
    max_tokens: int,
) -> SearchAnswer:
    """Return the calls and messages that contain all words of a query, or that match it as a regular expression."""
    words = (query,) if regex else tuple(query.split())
    if not words:
        raise NotFound("the query is empty; name the words to search for")
    found = archive.search(
        *words, call_filter=call_filter, within=where, regex=regex, limit=skip + 2 * limit, all_lines=False
    )
    others = [match for match in found if (match.tool or "").rpartition("__")[2] not in TOOL_NAMES]
    items = [_make_match(match) for match in others[skip : skip + limit]]
    total = max(found.total - len(found) + len(others), skip + len(items))
    answer: SearchAnswer = make_page(items, total, skip, SearchAnswer, "matches", max_tokens)
    return answer


def _make_match(match: SearchMatch) -> QuotedMatch:
    return QuotedMatch(
        session=match.session,
        at=match.at,
        who="call" if match.kind == "call" else match.voice or "message",
        call=match.call if match.kind == "call" else None,
        tool=quote_line(match.tool, _NAME_CHARS),
        state=match.state,
        error=match.error,
        project=quote_line(match.cwd, _NAME_CHARS),
        quote=_quote_snippet(match),
    )


def _quote_snippet(match: SearchMatch) -> str:
    """Return the text around a match. Secrets are looked for in the whole line, because the text may be cut off."""
    snippet = "".join((match.snippet.before, match.snippet.match, match.snippet.after))
    for secret in sorted(_secrets_near(match), key=len, reverse=True):
        snippet = snippet.replace(secret, "[secret]")
        for size in range(len(secret) - 1, _MIN_SECRET_CHARS - 1, -1):
            if snippet.startswith(secret[-size:]):
                snippet = "[secret]" + snippet[size:]
            if snippet.endswith(secret[:size]):
                snippet = snippet[:-size] + "[secret]"
    return shorten(" ".join(clean(redact_secrets(snippet)).split()), _LINE_CHARS)


def _secrets_near(match: SearchMatch) -> set[str]:
    """Return the secrets in the record that a match is in."""
    try:
        data = source_for_path(match.file).read(match.offset, min(match.length, _MAX_SCANNED_BYTES))
    except (SourceError, OSError, ValueError):
        return set()
    text = data.decode(errors="replace")
    anchor = next(iter(match.snippet.match.split()), "")
    texts = [text]
    # It may be a record of another format, or only the beginning of a long one.
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        texts += [value for value in _strings(msgspec.json.decode(data)) if anchor in value]
    secrets = {item[found.start : found.end] for item in texts for found in find_secrets(item)}
    return {" ".join(secret.split()) for secret in secrets if len(secret) >= _MIN_SECRET_CHARS}


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


# Sessions and calls


def list_sessions(archive: Archive, call_filter: Filter, *, skip: int, limit: int, max_tokens: int) -> SessionList:
    """Return sessions, newest first."""
    rows = archive.sessions(call_filter, limit=skip + limit)
    items = [_make_session(row) for row in [*rows][::-1][skip:]]
    answer: SessionList = make_page(items, rows.total, skip, SessionList, "sessions", max_tokens)
    return answer


def _make_session(row: SessionRow) -> ListedSession:
    return ListedSession(
        session=row.id,
        started=row.started,
        ended=row.ended,
        client=row.client,
        project=quote_line(row.project, _NAME_CHARS) or "",
        branch=quote_line(row.git_branch, _NAME_CHARS),
        about=quote_line(row.about, _LINE_CHARS),
        calls=row.calls,
        unsuccessful=row.unsuccessful,
    )


def show_session(archive: Archive, name: str, *, skip: int, max_tokens: int) -> SessionPage:
    """Return the messages and calls of a session. A negative `skip` counts from the end."""
    session = archive.session(name)
    info = session.info
    entries = list(enumerate(_iter_entries(session.timeline())))
    first = max(len(entries) + skip, 0) if skip < 0 else skip
    items = [_make_entry(number, item, agent) for number, (item, agent) in entries[first : first + 200]]
    make_answer = partial(
        SessionPage,
        session=session.id,
        client=info.client,
        project=quote_line(info.cwd, _NAME_CHARS),
        about=quote_line(info.title or info.first_prompt, _LINE_CHARS),
        started=info.started_at,
        ended=info.ended_at,
    )
    answer: SessionPage = make_page(items, len(entries), first, make_answer, "entries", max_tokens)
    return answer


def _iter_entries(timeline: AgentTimeline) -> Iterator[tuple[TimelineMessage | Span, str | None]]:
    """Yield the messages and calls with the subagent that they belong to."""
    for turn in timeline.turns:
        for item in turn.items:
            match item:
                case TimelineMessage(message=message):
                    if message.voice not in ("thinking", "injected", "system"):
                        yield item, timeline.agent_id
                case TimelineBatch():
                    for call in item.calls:
                        yield call.span, timeline.agent_id
                        for agent in call.agents:
                            yield from _iter_entries(agent)
                case AgentTimeline():
                    yield from _iter_entries(item)


def _make_entry(number: int, item: TimelineMessage | Span, agent: str | None) -> SessionEntry:
    if isinstance(item, TimelineMessage):
        text = quote(display_text(item.message), _LINE_CHARS) or ""
        return SessionEntry(number=number, who=item.message.voice, at=item.message.at, agent=agent, quote=text)
    return SessionEntry(
        number=number,
        who="call",
        at=item.call.requested_at,
        call=item.id,
        tool=quote_line(item.tool, _NAME_CHARS) or None,
        state=item.state,
        error=item.error_kind,
        agent=agent,
        quote=quote_line(item.call.target, _LINE_CHARS) or "",
    )


def show_call(archive: Archive, name: str, *, max_tokens: int) -> CallPage:
    """Return one call with its input, result, diff, prompt and recovery."""
    detail = archive.call(name).detail
    texts = _call_texts(detail)
    longest = max(map(len, texts.values()), default=0)
    return fit_text(partial(_make_call_page, detail, texts), max_tokens, longest)


def _call_texts(detail: CallDetail) -> dict[str, str]:
    """Return the texts of a call, redacted."""
    span = detail.span
    prompt = detail.turn.prompt if detail.turn else None
    texts = {
        "prompt": display_text(prompt) if prompt else None,
        "input": _input_text(span),
        "result": span.result.text if span.result else None,
        "diff": detail.diff,
    }
    return {name: clean(redact_secrets(text)) for name, text in texts.items() if text}


def _input_text(span: Span) -> str:
    """Return the input as lines of names and values, so that commands are readable and names mark secrets."""
    value = decode_json_or_text(span.call.raw_input)
    if not isinstance(value, dict):
        return str(value)
    texts = {
        key: item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for key, item in value.items()
    }
    return "\n".join(f"{key}: {text}" for key, text in texts.items())


def _make_call_page(detail: CallDetail, texts: dict[str, str], limit: int) -> CallPage:
    span, row, chain = detail.span, detail.row, detail.chain
    limits = {name: limit if name in ("input", "result") else min(limit, _LINE_CHARS + limit // 2) for name in texts}
    links = chain.links if chain is not None and chain.outcome == "recovered" else ()
    return CallPage(
        notice=NOTICE,
        call=span.id,
        session=span.call.session_id,
        at=span.call.requested_at,
        tool=quote_line(span.tool, _NAME_CHARS) or "",
        state=span.state,
        error=span.error_kind,
        exit_code=row.exit_code,
        duration_ms=row.duration_ms,
        folder=quote_line(detail.cwd, _NAME_CHARS),
        recovery=chain.outcome if chain is not None else None,
        recovered_by=tuple(_make_step(link.id, link.tool, link.state, link.target) for link in links[:5]),
        before=next((item.id for item in detail.before if isinstance(item, Span)), None),
        after=next((item.id for item in detail.after if isinstance(item, Span)), None),
        **{name: shorten(text, limits[name]) for name, text in texts.items()},
    )


def _make_step(call: str, tool: str, state: str, target: str | None) -> RecoveryStep:
    return RecoveryStep(
        call=call, tool=quote_line(tool, _NAME_CHARS) or "", state=state, quote=quote_line(target, _LINE_CHARS)
    )


# Errors, files, permissions


def find_errors(
    archive: Archive, call_filter: Filter, text: str, *, skip: int, limit: int, max_tokens: int
) -> SeenErrors:
    """Return the errors of earlier sessions that a text matches, and how they were fixed."""
    known = archive.known_errors(text, call_filter, limit=skip + limit)
    items = [_make_error(error) for error in known[skip:]]
    answer: SeenErrors = make_page(items, known.total, skip, SeenErrors, "errors", max_tokens)
    return answer


def _make_error(error: KnownError) -> SeenError:
    group, fix = error.group, error.fix
    steps = fix.steps[-4:] if fix else ()
    return SeenError(
        group=group.id,
        match=error.match,
        kind=group.kind,
        program=quote_line(group.program, _NAME_CHARS),
        tool=quote_line(group.tool, _NAME_CHARS) or "",
        message=quote_line(group.message, _LINE_CHARS),
        count=group.count,
        sessions=group.sessions,
        recovered=group.recovered or 0,
        first=group.first,
        last=group.last,
        example=group.example.id,
        advice=group.solution or None,
        fixed_how=fix.how if fix else None,
        fixed_at=fix.at if fix else None,
        fixed_session=fix.session if fix else None,
        fixed_by=tuple(_make_step(step.id, step.tool, step.state, step.target) for step in steps),
    )


def file_history(
    archive: Archive, call_filter: Filter, path: str, *, skip: int, limit: int, max_tokens: int
) -> FileHistoryAnswer:
    """Return the changes to a file, newest first."""
    history = archive.file_history(path, call_filter, limit=skip + limit)
    items = [_make_change(row) for row in [*history][::-1][skip:]]
    make_answer = partial(FileHistoryAnswer, path=quote_line(history.path, _LINE_CHARS) or "")
    answer: FileHistoryAnswer = make_page(items, history.total, skip, make_answer, "changes", max_tokens)
    return answer


def _make_change(row: ChangeRow) -> QuotedChange:
    return QuotedChange(
        call=row.call,
        session=row.session,
        at=row.at,
        tool=quote_line(row.tool, _NAME_CHARS) or "",
        kind=row.kind,
        added=row.added,
        removed=row.removed,
        agent=row.agent,
        moved_from=quote_line(row.moved_from, _NAME_CHARS),
        moved_to=quote_line(row.moved_to, _NAME_CHARS),
        diff=quote(row.diff, _DIFF_CHARS) or None,
    )


def file_content(
    archive: Archive, call_filter: Filter, path: str, before: str, *, max_tokens: int
) -> FileHistoryAnswer:
    """Return the content of a file before a call."""
    known = archive.file_content(path, call_filter, before=before)
    text = clean(redact_secrets(known_content(known)))

    def build(limit: int) -> FileHistoryAnswer:
        return FileHistoryAnswer(
            notice=NOTICE,
            path=quote_line(known.path, _LINE_CHARS) or "",
            content=shorten(text, limit) if known.exists is not False else None,
            certainty=known.confidence,
            exists=known.exists,
        )

    return fit_text(build, max_tokens, len(text))


def why(archive: Archive, call: str, *, max_tokens: int) -> PermissionAnswer:
    """Return who allowed or denied a call."""
    explanation = archive.why(call)
    facts = [f"{label}: {quote_line(text, _LINE_CHARS)}" for label, text in explanation_rows(explanation)]

    def build(some: Sequence[str]) -> PermissionAnswer:
        return PermissionAnswer(
            notice=NOTICE,
            call=explanation.call,
            tool=quote_line(explanation.tool, _NAME_CHARS) or "",
            state=explanation.state,
            allowed=explanation.allowed,
            about=quote_line(explanation.about, _LINE_CHARS),
            facts=some,
        )

    return build(fit_items(facts, build, max_tokens) if facts else facts)
