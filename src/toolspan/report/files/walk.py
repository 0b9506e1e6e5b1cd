"""Everything transcripts tell about files, in the order in which it happened.

In: transcripts that are read together. Out: `Happening`s: changes, sights of a file's content, and
calls of which nobody knows what they wrote. Within a transcript the order of its lines holds, and
between transcripts their times. Read `walk` first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from toolspan.disk.load import load
from toolspan.disk.text import decode
from toolspan.errors import SourceError, ToolspanError
from toolspan.model.inputs import BashInput, ReadInput
from toolspan.model.span import Span, moment
from toolspan.read.history import Ledger
from toolspan.read.transcript import Transcript
from toolspan.report.files.by_command import commands_of
from toolspan.report.files.by_patch import patched_paths
from toolspan.report.files.change import FileChange, changes_of, may_change
from toolspan.report.files.content import Part
from toolspan.report.files.effect import ABSENT
from toolspan.report.files.place import whole
from toolspan.report.files.printed import Sight, printed
from toolspan.wire import claude_results as results
from toolspan.wire.claude_backups import MARK, Backup, backups_in
from toolspan.wire.jsonl import read_lines

_NEVER_RAN = frozenset({"denied", "blocked_by_hook", "cancelled", "orphan_result"})
_LARGEST_BACKUP = 64 << 20
_REFUSED = ("verification failed", "patch rejected", "nvalid patch", "unsupported")
"""What Codex says of patches of which it has applied nothing."""
_ONLY_LOOK = frozenset({"BashOutput", "KillShell", "KillBash", "TaskOutput"})
"""Tools of the shell's kind that run nothing."""

Wants = Callable[[str], bool]
"""Whether a path is asked about."""


class Ran(Struct, frozen=True, kw_only=True):
    """A call that may have written anything, or anything its input names."""

    call: str
    tool: str
    commands: tuple[str, ...] = ()
    cwd: str | None = None
    lasting: bool = False
    """It went on after its result."""
    names: bytes = b""
    """For tools nobody knows: the input, in which the file would have to be named."""
    anything: str | None = None
    """Why it may have written any file."""


class Attempt(Struct, frozen=True, kw_only=True):
    """A change that was asked for and did not succeed."""

    path: str
    call: str
    tool: str
    at: str | None
    session: str | None
    agent: str | None
    state: str
    error_kind: str | None
    half: bool
    """It may have been made all the same."""


What = FileChange | Sight | Ran | Attempt


Key = tuple[float, int, int]
"""When: the time, the transcript's number, the line."""


class Happening(Struct, frozen=True, kw_only=True):
    """Something that is told about files, and when."""

    key: Key
    session: str | None
    what: What


class Walk(Struct, frozen=True, kw_only=True):
    """All that happened to files."""

    happenings: list[Happening]
    calls: dict[str, Key]
    """When each call was done, whatever it did."""


def walk(
    transcripts: Sequence[Transcript], wants: Wants = lambda _: True, *, contents: bool = True
) -> Walk:
    """What happened to files, in order; of those that are wanted.

    Without contents only changes are told, not what was seen in between or may have been done.
    """
    ledger = Ledger.of(transcripts)
    chosen = {(row.file, row.id) for row in ledger.calls}
    agents = {transcript.info.agent_id for transcript in transcripts}
    found: list[Happening] = []
    calls: dict[str, Key] = {}
    for number, transcript in enumerate(transcripts):
        spans = [span for span in transcript.spans if (transcript.file, span.id) in chosen]
        agents.update(span.call.agent_id for span in spans)
        for key, span in _in_order(spans, number):
            calls[span.id] = key
            happened = (
                _happened(span, transcript, wants) if contents else _touched(span, transcript)
            )
            session = span.call.session_id
            found += (Happening(key=key, session=session, what=what) for what in happened)
        if contents:
            found += _rewinds(spans, calls)
            found += _kept(transcript, wants)
    known = [one for one in found if not _told_elsewhere(one.what, agents)]
    return Walk(happenings=sorted(known, key=lambda one: one.key), calls=calls)


def _told_elsewhere(what: What, agents: set[str | None]) -> bool:
    """Whether a subagent's own transcript tells what it did."""
    return isinstance(what, Ran) and what.anything in agents and what.anything is not None


def _in_order(spans: Sequence[Span], number: int) -> Iterator[tuple[Key, Span]]:
    """The calls of one transcript by the lines of their results; times only ever go on."""
    time = 0.0
    for line, span in sorted(((_line(span), span) for span in spans), key=lambda pair: pair[0]):
        at = span.finished or span.requested
        time = max(time, at.timestamp()) if at else time
        yield (time, number, line), span


def _rewinds(spans: Sequence[Span], calls: dict[str, Key]) -> Iterator[Happening]:
    """Where a conversation went on from an earlier place; the client may have put files back."""
    words = "a rewind, which may have put files back,"
    for one, other in pairwise(sorted(spans, key=lambda span: calls[span.id])):
        if one.branch == "abandoned" and other.branch != "abandoned":
            time, number, line = calls[one.id]
            ran = Ran(call=other.id, tool=other.tool, anything=words)
            session = other.call.session_id
            yield Happening(key=(time, number, line + 1), session=session, what=ran)


def _line(span: Span) -> int:
    place = span.result.place if span.result else span.call.place
    return place.line if place else 0


def _happened(span: Span, transcript: Transcript, wants: Wants) -> Iterator[What]:
    cwd = transcript.info.cwd
    if span.state in _NEVER_RAN and span.call.kind not in ("edit", "write"):
        return
    with suppress(SourceError):
        if span.call.kind == "read":
            yield from (one for one in _sights(span, cwd) if wants(one.path))
        elif may_change(span):
            yield from _changes(span, cwd, wants)
        else:
            yield from _others(span)


def _touched(span: Span, transcript: Transcript) -> Iterator[What]:
    """The changes of a call, made or only asked for."""
    with suppress(SourceError):
        if may_change(span):
            cwd = transcript.info.cwd
            changes = changes_of(span, cwd)
            yield from changes
            if not changes and span.call.kind in ("edit", "write"):
                yield from _attempts(span, cwd)


def _changes(span: Span, cwd: str | None, wants: Wants) -> Iterator[What]:
    changes = changes_of(span, cwd)
    yield from (change for change in changes if wants(change.path) or _moves(change, wants))
    if changes:
        return
    if span.call.kind in ("edit", "write"):
        yield from (one for one in _attempts(span, cwd) if wants(one.path))
        return
    commands, folder = commands_of(span, cwd)
    for sight in printed(span, commands, folder):
        if wants(sight.path):
            yield sight
    if commands:
        yield Ran(
            call=span.id,
            tool=span.tool,
            commands=commands,
            cwd=folder if span.call.dialect == "codex" else None,  # Claude's shell wanders
            lasting=span.background or _in_background(span),
        )
    elif span.tool not in _ONLY_LOOK and span.call.arguments.get("chars") != "":
        # A script, or something typed into a process that goes on.
        yield Ran(call=span.id, tool=span.tool, anything=f"{span.tool} {span.id}")


def _moves(change: FileChange, wants: Wants) -> bool:
    return any(wants(path) for path in (change.moved_from, change.moved_to) if path)


def _in_background(span: Span) -> bool:
    given = span.input
    return isinstance(given, BashInput) and bool(given.run_in_background)


def _attempts(span: Span, cwd: str | None) -> Iterator[Attempt]:
    """A change that went wrong; one that was cut off may have been made all the same."""
    if span.state == "succeeded":
        return
    for path in patched_paths(span, cwd) or [whole(span.call.target or "", cwd)]:
        if path:
            yield Attempt(
                path=path,
                call=span.id,
                tool=span.tool,
                at=span.call.requested_at,
                session=span.call.session_id,
                agent=span.call.agent_id,
                state=span.state,
                error_kind=span.error_kind,
                half=_half_made(span),
            )


def _half_made(span: Span) -> bool:
    """Whether some of it may have been done: a patch is applied file by file."""
    if span.state in ("interrupted", "timed_out", "never_answered", "running"):
        return True
    if span.state != "failed" or span.call.dialect != "codex":
        return False
    text = span.result.text if span.result else ""
    return not any(word in text for word in _REFUSED)


def _others(span: Span) -> Iterator[Ran]:
    if span.call.kind == "agent" and span.agent:
        yield Ran(call=span.id, tool=span.tool, anything=span.agent)
    elif span.call.kind in ("mcp", "other") and span.tool:
        yield Ran(call=span.id, tool=span.tool, names=span.call.raw_input)


# What somebody saw


def _sights(span: Span, cwd: str | None) -> Iterator[Sight]:
    given = span.input
    path = given.file_path if isinstance(given, ReadInput) else ""
    if span.error_kind == "not_found" and path and span.tool == "Read":
        yield Sight(path=whole(path, cwd), call=span.id, what="Read", content=ABSENT)
    structured = span.result.structured if span.result and span.state == "succeeded" else None
    if not isinstance(structured, results.ReadText):
        return
    file = structured.file
    path = whole(file.file_path or path, cwd)
    if not path:
        return
    if _is_whole(file):
        yield Sight(path=path, call=span.id, what="Read", content=file.content)
    elif file.num_lines:
        part = Part(start=file.start_line or 1, lines=tuple(file.content.split("\n")))
        yield Sight(path=path, call=span.id, what="Read", parts=(part,))


def _is_whole(file: results.TextFile) -> bool:
    return (
        file.start_line in (0, 1)
        and file.num_lines is not None
        and file.num_lines == file.total_lines == file.content.count("\n") + 1
        and not file.truncated_by_token_cap
    )


# Copies that the client kept


def _kept(transcript: Transcript, wants: Wants) -> Iterator[Happening]:
    """Files as they were before they were changed, from the client's own copies."""
    told: set[Backup] = set()
    folder = backup_folder(Path(transcript.file), transcript.session_id)
    for number, backup in _backups(transcript):
        path = whole(backup.path, transcript.info.cwd)
        at = moment(backup.at)
        if backup in told or at is None or not wants(path):
            continue
        told.add(backup)
        content = ABSENT if backup.name is None else _copy(folder, backup.name)
        if content is not None:
            sight = Sight(path=path, call=None, what="the client's backup", content=content)
            key = (at.timestamp(), -1, number)
            yield Happening(key=key, session=transcript.session_id, what=sight)


def _backups(transcript: Transcript) -> Iterator[tuple[int, Backup]]:
    with suppress(SourceError):
        for line in read_lines(transcript.source):
            if MARK in line.data:
                for backup in backups_in(line.data):
                    yield line.number, backup


def backup_folder(transcript: Path, session: str | None) -> Path | None:
    """Where the client that wrote a transcript keeps the copies of a session."""
    if session is None or len(transcript.parts) < 4:
        return None
    return transcript.parents[2] / "file-history" / session


def _copy(folder: Path | None, name: str) -> str | None:
    if folder is None or "/" in name or "\\" in name or name.startswith("."):
        return None
    try:
        return decode(load(folder / name, _LARGEST_BACKUP).data).shown
    except (ToolspanError, ValueError):
        return None
