"""The file changes of one call.

In: a span of either dialect and its working folder. Out: a `FileChange` for every file the call
changed, with the effect that leads from one content to the other. Only calls that took effect
change anything; what others may have done half is a doubt (`doubt.py`). Read `changes_of`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.hunk import Hunk
from toolspan.model.inputs import (
    EditInput,
    MultiEditInput,
    NotebookEditInput,
    TextEdit,
    WriteInput,
    decode_anything,
)
from toolspan.model.place import Place
from toolspan.model.span import Span
from toolspan.patch import ChangeCount, PatchError, added_removed, problems
from toolspan.patch.envelope import Add, Delete, Section, Update, count, parse
from toolspan.patch.heredoc import Embedded, patches_in
from toolspan.patch.make import make
from toolspan.patch.parse import parse_hunks
from toolspan.report.files.effect import (
    ABSENT,
    Absent,
    Appended,
    Content,
    Edited,
    Effect,
    Fitted,
    MovedHere,
    Removed,
    Unclear,
    Wrote,
    forwards,
)
from toolspan.report.files.place import whole
from toolspan.report.files.shell import Dropped, Poured, done_by
from toolspan.wire import claude_results as results
from toolspan.wire import codex_results

ChangeKind = Literal["created", "edited", "deleted", "moved"]

_PATCHERS = frozenset({"apply_patch", "applypatch"})
_SAYS_SO = re.compile(r"\A\s*(?:cat\b.*<<|rm\s)")
"""Lines worth a closer look; most are not."""


class FileChange(Struct, frozen=True, kw_only=True):
    """What one call did to one file."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    """When it was done, as the client wrote it."""
    session: str | None
    agent: str | None
    place: Place
    """Where the result stands."""
    added: int | None
    """Lines; None where nobody knows."""
    removed: int | None
    hunks: tuple[Hunk, ...] = ()
    """What changed, with line numbers; none where the place of the lines is not known."""
    effect: Effect
    before: Content | None = None
    """The content before as the client recorded it; None: it did not."""
    moved_from: str | None = None
    moved_to: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the record tells all that was done to the file."""
        return not isinstance(self.effect, Unclear)


class _Told(Struct, frozen=True, kw_only=True):
    """A change before it is tied to its call."""

    path: str
    kind: ChangeKind
    effect: Effect
    hunks: tuple[Hunk, ...] = ()
    count: ChangeCount | None = None
    before: Content | None = None
    moved_from: str | None = None
    moved_to: str | None = None


def changes_of(span: Span, cwd: str | None) -> list[FileChange]:
    """What a call changed; nothing for calls that did not succeed or change no files."""
    if span.state != "succeeded" or span.result is None:
        return []
    try:
        told = list(_told(span, cwd))
    except SourceError:
        return []
    return [_tied(one, span) for one in told]


def may_change(span: Span) -> bool:
    """Whether a call is of a tool that changes files by itself."""
    return span.call.kind in ("edit", "write", "shell") or span.tool in _PATCHERS


def patched_paths(span: Span, cwd: str | None) -> list[str]:
    """The files that a patch names, whether it was applied or not; none for other calls."""
    if span.tool not in _PATCHERS:
        return []
    found = []
    for embedded in _patches(span):
        with suppress(PatchError):
            found += [whole(section.path, cwd) for section in parse(embedded.patch)]
    return found


class Commands(NamedTuple):
    """Command lines, and the folder they start in."""

    lines: tuple[str, ...]
    folder: str | None


def commands_of(span: Span, cwd: str | None) -> Commands:
    """What a call gave to a shell; nothing for calls of other tools."""
    given = decode_anything(span.call.raw_input)
    if not isinstance(given, Mapping):
        return Commands((), cwd)
    command = _command(given)
    folder = given.get("workdir")
    if isinstance(folder, str) and folder:
        cwd = whole(folder, cwd)
    if isinstance(command, str):
        return Commands((command,) if command else (), cwd)
    script = len(command) == 3 and command[1] in ("-c", "-lc")
    return Commands((command[2] if script else shlex.join(command),) if command else (), cwd)


def _tied(told: _Told, span: Span) -> FileChange:
    assert span.result is not None
    added, removed = told.count if told.count is not None else (None, None)
    return FileChange(
        path=told.path,
        kind=told.kind,
        call=span.id,
        tool=span.tool,
        at=span.result.finished_at or span.call.requested_at,
        session=span.call.session_id,
        agent=span.call.agent_id,
        place=span.result.place,
        added=added,
        removed=removed,
        hunks=told.hunks,
        effect=told.effect,
        before=told.before,
        moved_from=told.moved_from,
        moved_to=told.moved_to,
    )


def _told(span: Span, cwd: str | None) -> Iterator[_Told]:
    if span.tool in _PATCHERS or span.call.kind == "shell":
        yield from _by_patch(span, cwd)
    else:
        yield from _by_editor(span, cwd)


# Claude Code's tools


def _by_editor(span: Span, cwd: str | None) -> Iterator[_Told]:
    structured = span.result.structured if span.result else None
    match structured:
        case results.EditResult():
            if not structured.staged:
                yield _edit(structured, cwd)
        case results.MultiEditResult():
            yield _multi_edit(structured, cwd)
        case results.WriteResult():
            if not structured.staged:
                yield _write(structured, cwd)
        case results.NotebookEditResult():
            if not structured.error:
                yield from _notebook(structured, span, cwd)
        case _:
            yield from _by_input(span, cwd)


def _edit(result: results.EditResult, cwd: str | None) -> _Told:
    edit = TextEdit(
        old_string=result.old_string,
        new_string=result.new_string,
        replace_all=bool(result.replace_all),
    )
    effect = Edited(
        edits=(edit,), hunks=result.structured_patch, by_person=bool(result.user_modified)
    )
    if not result.old_string and not result.original_file:
        return _created(whole(result.file_path, cwd), result.new_string)
    return _changed(whole(result.file_path, cwd), effect, result.original_file)


def _multi_edit(result: results.MultiEditResult, cwd: str | None) -> _Told:
    effect = Edited(
        edits=result.edits,
        hunks=result.structured_patch,
        by_person=bool(result.user_modified),
    )
    before = result.original_file_contents
    before = result.original_file if before is None else before
    return _changed(whole(result.file_path, cwd), effect, before)


def _write(result: results.WriteResult, cwd: str | None) -> _Told:
    path = whole(result.file_path, cwd)
    if result.content is None:
        return _Told(path=path, kind="edited", effect=Unclear(reason="no content is recorded"))
    if result.type == "create":
        return _created(path, result.content)
    effect = Wrote(content=result.content, hunks=_sound(result.structured_patch))
    return _changed(path, effect, result.original_file)


def _notebook(result: results.NotebookEditResult, span: Span, cwd: str | None) -> Iterator[_Told]:
    given = span.input
    name = result.notebook_path or (
        given.notebook_path if isinstance(given, NotebookEditInput) else ""
    )
    if not name:
        return
    path = whole(name, cwd)
    if result.updated_file is None:
        reason = "only the cell is recorded, not the notebook"
        yield _Told(path=path, kind="edited", effect=Unclear(reason=reason))
    else:
        yield _changed(path, Wrote(content=result.updated_file), result.original_file)


def _by_input(span: Span, cwd: str | None) -> Iterator[_Told]:
    """Where nothing stands beside the text for the model, the request says what was done."""
    match span.input:
        case EditInput(file_path=path, old_string="", new_string=str(new)) if path:
            yield _created(whole(path, cwd), new)
        case EditInput(file_path=path) as given if path:
            edit = TextEdit(
                old_string=given.old_string,
                new_string=given.new_string,
                replace_all=given.replace_all,
            )
            yield _changed(whole(path, cwd), Edited(edits=(edit,)), None)
        case MultiEditInput(file_path=path, edits=edits) if path:
            yield _changed(whole(path, cwd), Edited(edits=edits), None)
        case WriteInput(file_path=path, content=str(content)) if path:
            assert span.result is not None
            if "created" in span.result.text[:40]:
                yield _created(whole(path, cwd), content)
            else:
                yield _changed(whole(path, cwd), Wrote(content=content), None)
        case NotebookEditInput(notebook_path=path) if path:
            reason = "only the cell is recorded, not the notebook"
            yield _Told(path=whole(path, cwd), kind="edited", effect=Unclear(reason=reason))
        case _:
            return


def _created(path: str, content: str) -> _Told:
    hunks = tuple(make("", content))
    return _Told(
        path=path,
        kind="created",
        effect=Wrote(content=content, created=True),
        hunks=hunks,
        count=added_removed(hunks),
        before=ABSENT,
    )


def _changed(path: str, effect: Edited | Wrote, before: str | None) -> _Told:
    """A change of a file that was there; a record of it that does not fit is not believed."""
    hunks = _sound(effect.hunks)
    if before is not None:
        try:
            after = forwards(effect, before)
        except PatchError:
            before = None  # newer clients keep only the beginning of large files
        else:
            hunks = hunks or tuple(make(before, "" if isinstance(after, Absent) else after))
    known = bool(hunks) or before is not None
    return _Told(
        path=path,
        kind="edited",
        effect=effect,
        hunks=hunks,
        count=added_removed(hunks) if known else _counted(effect),
        before=before,
    )


def _sound(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    return () if problems(hunks) else hunks


def _counted(effect: Edited | Wrote) -> ChangeCount | None:
    """Lines of texts whose place is not known; of several places nobody knows how many."""
    if isinstance(effect, Wrote) or any(edit.replace_all for edit in effect.edits):
        return None
    pairs = [make(edit.old_string or "", edit.new_string or "") for edit in effect.edits]
    return added_removed([hunk for hunks in pairs for hunk in hunks])


# Codex's patches


def _by_patch(span: Span, cwd: str | None) -> Iterator[_Told]:
    if span.tool not in _PATCHERS and b"apply" not in span.call.raw_input:
        yield from _by_shell(span, cwd)
        return
    structured = span.result.structured if span.result else None
    if isinstance(structured, codex_results.PatchResult) and structured.changes:
        for name, change in structured.changes.items():
            yield from _by_event(whole(name, cwd), change, cwd)
    else:
        yield from _by_text(span, cwd)


def _by_shell(span: Span, cwd: str | None) -> Iterator[_Told]:
    """What a command wrote in so many words; Claude Code's shell may stand in any folder."""
    lines, folder = commands_of(span, cwd)
    if len(lines) != 1 or span.background or not _SAYS_SO.search(lines[0]) or not _silent(span):
        return
    for done in done_by(lines[0], folder if span.call.dialect == "codex" else None):
        match done:
            case Poured(appends=True):
                hunks = make("", done.content)
                yield _Told(
                    path=done.path,
                    kind="edited",
                    effect=Appended(content=done.content),
                    count=added_removed(hunks),
                )
            case Poured():
                yield _added(done.path, done.content)
            case Dropped():
                yield _Told(path=done.path, kind="deleted", effect=Removed())


def _silent(span: Span) -> bool:
    """Whether a command printed nothing: one that should not and did was not run as written."""
    match span.result.structured if span.result else None:
        case results.BashResult(stdout=stdout, stderr=stderr):
            return not (stdout.strip() or stderr.strip())
        case codex_results.CommandResult(output=output):
            return not output.strip()
        case _:
            return False


def _by_event(path: str, change: codex_results.FileChange, cwd: str | None) -> Iterator[_Told]:
    """What the client itself told of a change."""
    match change.type:
        case "add":
            yield _added(path, change.content or "")
        case "delete":
            content = change.content
            hunks = tuple(make(content, "")) if content is not None else ()
            counted = added_removed(hunks) if content is not None else None
            yield _Told(
                path=path,
                kind="deleted",
                effect=Removed(content=content),
                hunks=hunks,
                count=counted,
                before=content,
            )
        case "update":
            effect = Edited(hunks=_hunks(change.unified_diff or ""))
            if change.move_path is None:
                yield _changed(path, effect, None)
            else:
                target = whole(change.move_path, cwd)
                yield from _moved(path, target, effect, added_removed(effect.hunks))
        case _:
            reason = f"a change of the kind {change.type!r} is not known"
            yield _Told(path=path, kind="edited", effect=Unclear(reason=reason))


def _hunks(diff: str) -> tuple[Hunk, ...]:
    try:
        return _sound(parse_hunks(diff))
    except PatchError:
        return ()


def _by_text(span: Span, cwd: str | None) -> Iterator[_Told]:
    for embedded in _patches(span):
        folder = whole(embedded.folder, cwd) if embedded.folder else cwd
        try:
            sections = parse(embedded.patch)
        except PatchError:
            continue  # the client cannot have applied it
        for section in sections:
            yield from _sectioned(section, folder, unclear=embedded.moved)


def _patches(span: Span) -> Sequence[Embedded]:
    given = decode_anything(span.call.raw_input)
    if isinstance(given, str):
        return [Embedded(given)] if span.tool in _PATCHERS else patches_in(given)
    if not isinstance(given, Mapping):
        return []
    if span.tool in _PATCHERS:
        text = given.get("input") or given.get("patch")
        return [Embedded(text)] if isinstance(text, str) else []
    folder = given.get("workdir")
    found = patches_in(_command(given))
    if isinstance(folder, str) and folder:
        return [one._replace(folder=whole(one.folder or ".", folder)) for one in found]
    return found


def _command(given: Mapping[str, object]) -> str | list[str]:
    command = given.get("command") or given.get("cmd") or ""
    if isinstance(command, list):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""


def _sectioned(section: Section, folder: str | None, *, unclear: bool) -> Iterator[_Told]:
    path = whole(section.path, folder)
    if unclear:
        reason = "the command goes to a folder that is not known"
        yield _Told(path=path, kind="edited", effect=Unclear(reason=reason), count=count(section))
        return
    match section:
        case Add():
            yield _added(path, section.content)
        case Delete():
            yield _Told(path=path, kind="deleted", effect=Removed())
        case Update(move_to=str(target)):
            yield from _moved(path, whole(target, folder), Fitted(section=section), count(section))
        case Update():
            effect = Fitted(section=section)
            yield _Told(path=path, kind="edited", effect=effect, count=count(section))


def _added(path: str, content: str) -> _Told:
    """A file that was written whole; whether one was there before is not said."""
    told = _created(path, content)
    effect = Wrote(content=content, created=True, assumed=True)
    return _Told(path=path, kind="created", effect=effect, hunks=told.hunks, count=told.count)


def _moved(
    source: str, target: str, change: Edited | Fitted, counted: ChangeCount
) -> Iterator[_Told]:
    yield _Told(path=source, kind="moved", effect=Removed(), moved_to=target)
    yield _Told(
        path=target,
        kind="moved",
        effect=MovedHere(source=source, change=change),
        count=counted,
        moved_from=source,
    )
