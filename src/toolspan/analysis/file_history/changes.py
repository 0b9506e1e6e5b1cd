"""The file changes made by one call: with an editing tool, a patch or an explicit shell command. Start
at `changes_of`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

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
from toolspan.analysis.file_history.shell_writes import absolute_path, explicit_writes
from toolspan.diffs import ChangeCount, PatchError, added_removed, apply, problems, revert
from toolspan.diffs.codex_patch import (
    AddFile,
    DeleteFile,
    EmbeddedPatch,
    UpdateFile,
    count_changes,
    find_embedded_patches,
    parse_patch,
)
from toolspan.diffs.make import make_hunks
from toolspan.diffs.unified import parse_hunks
from toolspan.errors import SourceError
from toolspan.formats.registry import get_format
from toolspan.types import results
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
    """The time of the result."""
    requested: str | None = None
    session: str | None
    agent: str | None
    place: SourceLocation
    added: int | None
    removed: int | None
    hunks: tuple[Hunk, ...] = ()
    """The change with line numbers; empty if the position of the lines is unknown."""
    effect: Effect
    before: FileContent | None = None
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
    # perf: a cheap test first, because only parsing shows whether there is a patch.
    if span.result.records_changes:
        find_changes = _changes_by_command
    elif span.tool in PATCH_TOOL_NAMES or (span.call.kind == "shell" and b"apply" in span.call.raw_input):
        find_changes = _changes_by_patch
    else:
        find_changes = _changes_by_command if span.call.kind == "shell" else _changes_by_editor
    try:
        return list(find_changes(span, cwd))
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
        requested=span.call.requested_at,
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


def _deletion(span: Span, path: str, content: str | None) -> FileChange:
    hunks = () if content is None else tuple(make_hunks(content, ""))
    count = None if content is None else added_removed(hunks)
    effect = RemoveEffect(content=content)
    return _make_change(span, path, "deleted", effect, hunks=hunks, count=count, before=content)


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
    count = None
    if hunks or before is not None:
        count = added_removed(hunks)
    elif isinstance(effect, EditEffect) and not any(edit.replace_all for edit in effect.edits):
        pairs = [make_hunks(edit.old_string or "", edit.new_string or "") for edit in effect.edits]
        count = added_removed([hunk for pair_hunks in pairs for hunk in pair_hunks])
    return _make_change(span, path, "edited", effect, hunks=hunks, count=count, before=before)


def _unknown(span: Span, path: str, reason: str, count: ChangeCount | None = None) -> FileChange:
    return _make_change(span, path, "edited", UnknownEffect(reason=reason), count=count)


def _valid_hunks(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    return () if problems(hunks) else hunks


# --- Claude Code editing tools


def _changes_by_editor(span: Span, cwd: str | None) -> Iterator[FileChange]:
    match span.result.structured if span.result else None:
        case results.EditResult(staged=True) | results.WriteResult(staged=True):
            return
        case results.EditResult(old_string="") as result if not result.original_file:
            yield _creation(span, absolute_path(result.file_path, cwd), result.new_string)
        case results.EditResult(old_string=old, new_string=new) as result:
            edit = TextEdit(old_string=old, new_string=new, replace_all=bool(result.replace_all))
            effect = EditEffect(edits=(edit,), hunks=result.structured_patch, by_person=bool(result.user_modified))
            yield _edit(span, absolute_path(result.file_path, cwd), effect, result.original_file)
        case results.MultiEditResult() as result:
            before = result.original_file_contents
            before = result.original_file if before is None else before
            effect = EditEffect(edits=result.edits, hunks=result.structured_patch, by_person=bool(result.user_modified))
            yield _edit(span, absolute_path(result.file_path, cwd), effect, before)
        case results.WriteResult(content=None) as result:
            yield _unknown(span, absolute_path(result.file_path, cwd), "no content is recorded")
        case results.WriteResult(type="create", content=str(content)) as result:
            yield _creation(span, absolute_path(result.file_path, cwd), content)
        case results.WriteResult(content=str(content)) as result:
            write = WriteEffect(content=content, hunks=_valid_hunks(result.structured_patch))
            yield _edit(span, absolute_path(result.file_path, cwd), write, result.original_file)
        case results.NotebookEditResult() as result:
            name = result.notebook_path or getattr(span.input, "notebook_path", "")
            if name and not result.error:
                path = absolute_path(name, cwd)
                if result.updated_file is None:
                    yield _unknown(span, path, _CELL_ONLY)
                else:
                    yield _edit(span, path, WriteEffect(content=result.updated_file), result.original_file)
        case _:
            yield from _changes_by_input(span, cwd)


def _changes_by_input(span: Span, cwd: str | None) -> Iterator[FileChange]:
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


def command_of(span: Span, cwd: str | None) -> tuple[str, str | None]:
    """Return the command line of a shell call, empty for other tools, and the folder in which it starts."""
    tool_input = decode_json_or_text(span.call.raw_input)
    if not isinstance(tool_input, Mapping):
        return "", cwd
    folder = tool_input.get("workdir")
    if isinstance(folder, str) and folder:
        cwd = absolute_path(folder, cwd)
    return command_line(command_in(tool_input)), cwd


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
    recorded = recorded_edits(span)
    yield from _recorded_changes(span, recorded)
    line, folder = command_of(span, cwd)
    if span.background or not _EXPLICIT_WRITE.search(line):
        return
    match span.result.structured if span.result else None:
        case results.BashResult(stdout=stdout, stderr=stderr):
            output = stdout + stderr
        case results.CommandResult(output=output):
            pass
        case _:
            return
    if output.strip():  # commands of this kind print something only if they fail
        return
    for path, effect in explicit_writes(line, folder if get_format(span.call.client).shell_keeps_folder else None):
        if path in recorded.changed_files:
            continue
        match effect:
            case AppendEffect(content=content):
                yield _make_change(span, path, "edited", effect, count=added_removed(make_hunks("", content)))
            case WriteEffect(content=content):
                yield _creation(span, path, content, assumed=True)
            case RemoveEffect():
                yield _make_change(span, path, "deleted", effect)


def recorded_edits(span: Span) -> results.BashEditDiff:
    """Return the changes that the client found in the git working tree after a command; empty if it did not look."""
    structured = span.result.structured if span.result and span.result.records_changes else None
    recorded = structured.bash_edit_diff if isinstance(structured, results.BashResult) else None
    return recorded or results.BashEditDiff()


def _recorded_changes(span: Span, recorded: results.BashEditDiff) -> Iterator[FileChange]:
    for file in recorded.files:
        hunks, path = _valid_hunks(file.hunks), absolute_path(file.file_path, None)
        if file.created:
            yield _creation(span, path, apply(hunks, ""))
        elif file.deleted:
            yield _deletion(span, path, revert(hunks, ""))
        else:
            yield _edit(span, path, EditEffect(hunks=hunks), None)
    described = {file.file_path for file in recorded.files}
    for path in recorded.changed_files:
        if path not in described:
            yield _unknown(span, absolute_path(path, None), "only the fact that the command changed it is recorded")


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
    if isinstance(structured, results.PatchResult) and structured.changes:
        for name, patched in structured.changes.items():
            yield from _reported_changes(span, absolute_path(name, cwd), patched, cwd)
        return
    for embedded in _embedded_patches(span):
        folder = absolute_path(embedded.folder, cwd) if embedded.folder else cwd
        try:
            sections = parse_patch(embedded.patch)
        except PatchError:
            continue  # the client cannot have applied it
        for section in sections:
            path = absolute_path(section.path, folder)
            if embedded.is_folder_unknown:
                yield _unknown(span, path, "the command changes to an unknown folder", count_changes(section))
                continue
            match section:
                case AddFile():
                    yield _creation(span, path, section.content, assumed=True)
                case DeleteFile():
                    yield _make_change(span, path, "deleted", RemoveEffect())
                case UpdateFile(move_to=str(name)):
                    effect, target = PatchEffect(section=section), absolute_path(name, folder)
                    yield from _move_changes(span, path, target, effect, count_changes(section))
                case UpdateFile():
                    yield _make_change(span, path, "edited", PatchEffect(section=section), count=count_changes(section))


def _reported_changes(span: Span, path: str, patched: results.PatchedFile, cwd: str | None) -> Iterator[FileChange]:
    match patched.type:
        case "add":
            yield _creation(span, path, patched.content or "", assumed=True)
        case "delete":
            yield _deletion(span, path, patched.content)
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


def _move_changes(
    span: Span, source: str, target: str, change: EditEffect | PatchEffect, count: ChangeCount
) -> Iterator[FileChange]:
    yield _make_change(span, source, "moved", RemoveEffect(), moved_to=target)
    effect = MoveEffect(source=source, change=change)
    yield _make_change(span, target, "moved", effect, count=count, moved_from=source)
