"""The file changes made by one call: with an editing tool, a patch or an explicit shell command. Start
at `changes_of`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from msgspec import Struct

from toolspan.analysis.file_history.content import (
    ABSENT,
    Absent,
    AppendEffect,
    EditEffect,
    Effect,
    FileContent,
    MoveEffect,
    PatchEffect,
    RemoveEffect,
    UnknownEffect,
    WriteEffect,
    apply_effect,
)
from toolspan.analysis.file_history.shell_writes import FileRemoval, HeredocWrite, absolute_path, explicit_writes
from toolspan.diffs import ChangeCount, PatchError, added_removed, problems
from toolspan.diffs.codex_patch import (
    AddFile,
    DeleteFile,
    EmbeddedPatch,
    FileSection,
    UpdateFile,
    count_changes,
    find_embedded_patches,
    parse_patch,
)
from toolspan.diffs.make import make_hunks
from toolspan.diffs.unified import parse_hunks
from toolspan.errors import SourceError
from toolspan.formats.claude import results
from toolspan.formats.codex import results as codex_results
from toolspan.formats.registry import get_format
from toolspan.types.hunk import Hunk
from toolspan.types.ids import SourceLocation
from toolspan.types.inputs import (
    EditInput,
    MultiEditInput,
    NotebookEditInput,
    TextEdit,
    WriteInput,
    decode_json_or_text,
)
from toolspan.types.span import Span

ChangeKind = Literal["created", "edited", "deleted", "moved"]

PATCH_TOOL_NAMES = frozenset({"apply_patch", "applypatch"})
_EXPLICIT_WRITE = re.compile(r"\A\s*(?:cat\b.*<<|rm\s)")
"""Quick test for commands that `explicit_writes` may be able to parse."""
_CELL_ONLY = "only the cell is recorded, not the notebook"


class FileChange(Struct, frozen=True, kw_only=True):
    """A change that one call made to one file."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    """Time of the result, as recorded."""
    session: str | None
    agent: str | None
    place: SourceLocation
    """Location of the result in the transcript."""
    added: int | None
    """Number of lines added; None if unknown."""
    removed: int | None
    hunks: tuple[Hunk, ...] = ()
    """The change with line numbers; empty if the position of the lines is unknown."""
    effect: Effect
    before: FileContent | None = None
    """The previous content as recorded by the client; None if not recorded."""
    moved_from: str | None = None
    moved_to: str | None = None

    @property
    def is_complete(self) -> bool:
        """True if the record contains the whole change."""
        return not isinstance(self.effect, UnknownEffect)


def changes_of(span: Span, cwd: str | None) -> list[FileChange]:
    """Return the changes made by a call; empty for calls that failed or do not change files."""
    if span.state != "succeeded" or span.result is None:
        return []
    # A cheap test: only parsing can tell whether there is a patch.
    holds_patch = span.tool in PATCH_TOOL_NAMES or (span.call.kind == "shell" and b"apply" in span.call.raw_input)
    try:
        if holds_patch:
            return list(_changes_by_patch(span, cwd))
        if span.call.kind == "shell":
            return list(_changes_by_command(span, cwd))
        return list(_changes_by_editor(span, cwd))
    except SourceError:
        return []


def _make_change(
    span: Span,
    path: str,
    kind: ChangeKind,
    effect: Effect,
    *,
    hunks: tuple[Hunk, ...] = (),
    count: ChangeCount | None = None,
    before: FileContent | None = None,
    moved_from: str | None = None,
    moved_to: str | None = None,
) -> FileChange:
    assert span.result is not None
    added, removed = count if count is not None else (None, None)
    return FileChange(
        path=path,
        kind=kind,
        call=span.id,
        tool=span.tool,
        at=span.result.finished_at or span.call.requested_at,
        session=span.call.session_id,
        agent=span.call.agent_id,
        place=span.result.place,
        added=added,
        removed=removed,
        hunks=hunks,
        effect=effect,
        before=before,
        moved_from=moved_from,
        moved_to=moved_to,
    )


def _creation(span: Span, path: str, content: str, *, assumed: bool = False) -> FileChange:
    """Return a change that creates a file. `assumed` means that the file may have existed before."""
    hunks = tuple(make_hunks("", content))
    effect = WriteEffect(content=content, created=True, assumed=assumed)
    before = None if assumed else ABSENT
    return _make_change(span, path, "created", effect, hunks=hunks, count=added_removed(hunks), before=before)


def _edit(span: Span, path: str, effect: EditEffect | WriteEffect, before: str | None) -> FileChange:
    """Return a change to an existing file.

    The recorded previous content is ignored if the change cannot be applied to it.
    """
    hunks = _valid_hunks(effect.hunks)
    if before is not None:
        try:
            after = apply_effect(effect, before)
        except PatchError:
            before = None  # newer clients keep only the beginning of large files
        else:
            hunks = hunks or tuple(make_hunks(before, "" if isinstance(after, Absent) else after))
    is_countable = bool(hunks) or before is not None
    count = added_removed(hunks) if is_countable else _count_edit_lines(effect)
    return _make_change(span, path, "edited", effect, hunks=hunks, count=count, before=before)


def _unknown(span: Span, path: str, reason: str, count: ChangeCount | None = None) -> FileChange:
    return _make_change(span, path, "edited", UnknownEffect(reason=reason), count=count)


def _valid_hunks(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    """Return the hunks, or an empty tuple if they are inconsistent."""
    return () if problems(hunks) else hunks


def _count_edit_lines(effect: EditEffect | WriteEffect) -> ChangeCount | None:
    """Count the replaced lines, or return None if the number of occurrences is unknown."""
    if isinstance(effect, WriteEffect) or any(edit.replace_all for edit in effect.edits):
        return None
    pairs = [make_hunks(edit.old_string or "", edit.new_string or "") for edit in effect.edits]
    return added_removed([hunk for hunks in pairs for hunk in hunks])


# --- Claude Code editing tools


def _changes_by_editor(span: Span, cwd: str | None) -> Iterator[FileChange]:
    match span.result.structured if span.result else None:
        case results.EditResult() as result:
            if not result.staged:
                yield _edit_change(span, result, cwd)
        case results.MultiEditResult() as result:
            before = result.original_file_contents
            before = result.original_file if before is None else before
            effect = EditEffect(edits=result.edits, hunks=result.structured_patch, by_person=bool(result.user_modified))
            yield _edit(span, absolute_path(result.file_path, cwd), effect, before)
        case results.WriteResult() as result:
            if not result.staged:
                yield _write_change(span, result, cwd)
        case results.NotebookEditResult() as result:
            tool_input = span.input
            name = result.notebook_path
            if not name and isinstance(tool_input, NotebookEditInput):
                name = tool_input.notebook_path
            if name and not result.error:
                path = absolute_path(name, cwd)
                if result.updated_file is None:
                    yield _unknown(span, path, _CELL_ONLY)
                else:
                    yield _edit(span, path, WriteEffect(content=result.updated_file), result.original_file)
        case _:
            yield from _changes_by_input(span, cwd)


def _edit_change(span: Span, result: results.EditResult, cwd: str | None) -> FileChange:
    path = absolute_path(result.file_path, cwd)
    if not result.old_string and not result.original_file:
        return _creation(span, path, result.new_string)
    edit = TextEdit(old_string=result.old_string, new_string=result.new_string, replace_all=bool(result.replace_all))
    effect = EditEffect(edits=(edit,), hunks=result.structured_patch, by_person=bool(result.user_modified))
    return _edit(span, path, effect, result.original_file)


def _write_change(span: Span, result: results.WriteResult, cwd: str | None) -> FileChange:
    path = absolute_path(result.file_path, cwd)
    if result.content is None:
        return _unknown(span, path, "no content is recorded")
    if result.type == "create":
        return _creation(span, path, result.content)
    effect = WriteEffect(content=result.content, hunks=_valid_hunks(result.structured_patch))
    return _edit(span, path, effect, result.original_file)


def _changes_by_input(span: Span, cwd: str | None) -> Iterator[FileChange]:
    """Yield the requested changes of a call without a structured result."""
    match span.input:
        case EditInput(file_path=path, old_string="", new_string=str(new)) if path:
            yield _creation(span, absolute_path(path, cwd), new)
        case EditInput(file_path=path, old_string=old, new_string=new_text, replace_all=replace_all) if path:
            edit = TextEdit(old_string=old, new_string=new_text, replace_all=replace_all)
            yield _edit(span, absolute_path(path, cwd), EditEffect(edits=(edit,)), None)
        case MultiEditInput(file_path=path, edits=edits) if path:
            yield _edit(span, absolute_path(path, cwd), EditEffect(edits=edits), None)
        case WriteInput(file_path=path, content=str(content)) if path:
            if span.result and "created" in span.result.text[:40]:
                yield _creation(span, absolute_path(path, cwd), content)
            else:
                yield _edit(span, absolute_path(path, cwd), WriteEffect(content=content), None)
        case NotebookEditInput(notebook_path=path) if path:
            yield _unknown(span, absolute_path(path, cwd), _CELL_ONLY)
        case _:
            return


# --- Shell commands


class ShellCommands(NamedTuple):
    """Shell command lines and the folder in which they start."""

    lines: tuple[str, ...]
    folder: str | None


def commands_of(span: Span, cwd: str | None) -> ShellCommands:
    """Return the command lines of a shell call; empty for other tools."""
    tool_input = decode_json_or_text(span.call.raw_input)
    if not isinstance(tool_input, Mapping):
        return ShellCommands((), cwd)
    folder = tool_input.get("workdir")
    if isinstance(folder, str) and folder:
        cwd = absolute_path(folder, cwd)
    line = command_line(command_in(tool_input))
    return ShellCommands((line,) if line else (), cwd)


def command_in(tool_input: Mapping[str, object]) -> str | list[str]:
    """Return the command from a tool input: a command line or a list of arguments, depending on the client."""
    command = tool_input.get("command") or tool_input.get("cmd") or ""
    if isinstance(command, list):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""


def command_line(command: str | list[str]) -> str:
    """Return a command as a single command line. For `bash -lc SCRIPT`, this is the script."""
    if isinstance(command, str):
        return command
    is_script = len(command) == 3 and command[1] in ("-c", "-lc")
    return command[2] if is_script else shlex.join(command)


def _changes_by_command(span: Span, cwd: str | None) -> Iterator[FileChange]:
    """Yield the changes that are explicit in a command, such as `cat > name <<EOF` or `rm name`.

    Relative paths are only resolved for Codex, because the working folder of Claude Code's shell is unknown.
    """
    lines, folder = commands_of(span, cwd)
    if len(lines) != 1 or span.background or not _EXPLICIT_WRITE.search(lines[0]) or not _printed_nothing(span):
        return
    for write in explicit_writes(lines[0], folder if get_format(span.call.dialect).shell_keeps_folder else None):
        match write:
            case HeredocWrite(appends=True):
                count = added_removed(make_hunks("", write.content))
                yield _make_change(span, write.path, "edited", AppendEffect(content=write.content), count=count)
            case HeredocWrite():
                yield _creation(span, write.path, write.content, assumed=True)
            case FileRemoval():
                yield _make_change(span, write.path, "deleted", RemoveEffect())


def _printed_nothing(span: Span) -> bool:
    """Return whether a command printed nothing, as successful commands of this kind do."""
    match span.result.structured if span.result else None:
        case results.BashResult(stdout=stdout, stderr=stderr):
            return not (stdout.strip() or stderr.strip())
        case codex_results.CommandResult(output=output):
            return not output.strip()
        case _:
            return False


# --- Codex patches


def patched_paths(span: Span, cwd: str | None) -> list[str]:
    """Return the files named in a patch call, whether or not the patch was applied."""
    paths: list[str] = []
    for embedded in _embedded_patches(span) if span.tool in PATCH_TOOL_NAMES else ():
        with suppress(PatchError):
            paths += [absolute_path(section.path, cwd) for section in parse_patch(embedded.patch)]
    return paths


def _changes_by_patch(span: Span, cwd: str | None) -> Iterator[FileChange]:
    structured = span.result.structured if span.result else None
    if isinstance(structured, codex_results.PatchResult) and structured.changes:
        for name, patched in structured.changes.items():
            yield from _reported_changes(span, absolute_path(name, cwd), patched, cwd)
        return
    for embedded in _embedded_patches(span):
        folder = absolute_path(embedded.folder, cwd) if embedded.folder else cwd
        with suppress(PatchError):  # the client cannot have applied it
            for section in parse_patch(embedded.patch):
                yield from _section_changes(span, section, folder, folder_unknown=embedded.is_folder_unknown)


def _reported_changes(
    span: Span, path: str, patched: codex_results.PatchedFile, cwd: str | None
) -> Iterator[FileChange]:
    """Yield the changes to one file as the client reported them."""
    match patched.type:
        case "add":
            yield _creation(span, path, patched.content or "", assumed=True)
        case "delete":
            content = patched.content
            hunks = tuple(make_hunks(content, "")) if content is not None else ()
            count = added_removed(hunks) if content is not None else None
            effect = RemoveEffect(content=content)
            yield _make_change(span, path, "deleted", effect, hunks=hunks, count=count, before=content)
        case "update":
            try:
                edit = EditEffect(hunks=_valid_hunks(parse_hunks(patched.unified_diff or "")))
            except PatchError:
                edit = EditEffect()
            if patched.move_path is None:
                yield _edit(span, path, edit, None)
            else:
                target = absolute_path(patched.move_path, cwd)
                yield from _move_changes(span, path, target, edit, added_removed(edit.hunks))
        case _:
            yield _unknown(span, path, f"unknown kind of change: {patched.type!r}")


def _embedded_patches(span: Span) -> Sequence[EmbeddedPatch]:
    tool_input = decode_json_or_text(span.call.raw_input)
    if isinstance(tool_input, str):
        return [EmbeddedPatch(tool_input)] if span.tool in PATCH_TOOL_NAMES else find_embedded_patches(tool_input)
    if not isinstance(tool_input, Mapping):
        return []
    if span.tool in PATCH_TOOL_NAMES:
        text = tool_input.get("input") or tool_input.get("patch")
        return [EmbeddedPatch(text)] if isinstance(text, str) else []
    folder = tool_input.get("workdir")
    patches = find_embedded_patches(command_in(tool_input))
    if isinstance(folder, str) and folder:
        return [patch._replace(folder=absolute_path(patch.folder or ".", folder)) for patch in patches]
    return patches


def _section_changes(
    span: Span, section: FileSection, folder: str | None, *, folder_unknown: bool
) -> Iterator[FileChange]:
    path = absolute_path(section.path, folder)
    if folder_unknown:
        yield _unknown(span, path, "the command changes to an unknown folder", count_changes(section))
        return
    match section:
        case AddFile():
            yield _creation(span, path, section.content, assumed=True)
        case DeleteFile():
            yield _make_change(span, path, "deleted", RemoveEffect())
        case UpdateFile(move_to=str(name)):
            target = absolute_path(name, folder)
            yield from _move_changes(span, path, target, PatchEffect(section=section), count_changes(section))
        case UpdateFile():
            yield _make_change(span, path, "edited", PatchEffect(section=section), count=count_changes(section))


def _move_changes(
    span: Span, source: str, target: str, change: EditEffect | PatchEffect, count: ChangeCount
) -> Iterator[FileChange]:
    yield _make_change(span, source, "moved", RemoveEffect(), moved_to=target)
    effect = MoveEffect(source=source, change=change)
    yield _make_change(span, target, "moved", effect, count=count, moved_from=source)
