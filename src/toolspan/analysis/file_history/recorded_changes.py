"""The file changes of one successful call: by an editing tool, a patch or an explicit shell command.

`events.changes_of` chooses between `changes_by_editor`, `changes_by_patch` and `changes_by_command`.
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
from toolspan.formats.claude import results
from toolspan.formats.codex import results as codex_results
from toolspan.types.hunk import Hunk
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


class RecordedChange(Struct, frozen=True, kw_only=True):
    """A change without the call that made it."""

    path: str
    kind: ChangeKind
    effect: Effect
    hunks: tuple[Hunk, ...] = ()
    count: ChangeCount | None = None
    before: FileContent | None = None
    moved_from: str | None = None
    moved_to: str | None = None


def describe_creation(path: str, content: str) -> RecordedChange:
    """Describe the creation of a file."""
    hunks = tuple(make_hunks("", content))
    return RecordedChange(
        path=path,
        kind="created",
        effect=WriteEffect(content=content, created=True),
        hunks=hunks,
        count=added_removed(hunks),
        before=ABSENT,
    )


def describe_edit(path: str, effect: EditEffect | WriteEffect, before: str | None) -> RecordedChange:
    """Describe the change of an existing file. A recorded content that the change does not fit is ignored."""
    hunks = valid_hunks(effect.hunks)
    if before is not None:
        try:
            after = apply_effect(effect, before)
        except PatchError:
            before = None  # newer clients keep only the beginning of large files
        else:
            hunks = hunks or tuple(make_hunks(before, "" if isinstance(after, Absent) else after))
    is_countable = bool(hunks) or before is not None
    return RecordedChange(
        path=path,
        kind="edited",
        effect=effect,
        hunks=hunks,
        count=added_removed(hunks) if is_countable else _count_edit_lines(effect),
        before=before,
    )


def valid_hunks(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    """Return the hunks, or nothing if they are inconsistent."""
    return () if problems(hunks) else hunks


def _count_edit_lines(effect: EditEffect | WriteEffect) -> ChangeCount | None:
    """Count the lines of replaced texts; None if the number of places is unknown."""
    if isinstance(effect, WriteEffect) or any(edit.replace_all for edit in effect.edits):
        return None
    pairs = [make_hunks(edit.old_string or "", edit.new_string or "") for edit in effect.edits]
    return added_removed([hunk for hunks in pairs for hunk in hunks])


def describe_write(path: str, content: str) -> RecordedChange:
    """Describe a file that was written whole, where it is unknown whether it existed."""
    creation = describe_creation(path, content)
    effect = WriteEffect(content=content, created=True, assumed=True)
    return RecordedChange(path=path, kind="created", effect=effect, hunks=creation.hunks, count=creation.count)


_EXPLICIT_WRITE = re.compile(r"\A\s*(?:cat\b.*<<|rm\s)")
"""Quick test for commands that `explicit_writes` may understand."""


class ShellCommands(NamedTuple):
    """Command lines and the folder in which they start."""

    lines: tuple[str, ...]
    folder: str | None


def commands_of(span: Span, cwd: str | None) -> ShellCommands:
    """Return the command lines of a shell call; empty for other tools."""
    tool_input = decode_json_or_text(span.call.raw_input)
    if not isinstance(tool_input, Mapping):
        return ShellCommands((), cwd)
    command = command_in(tool_input)
    folder = tool_input.get("workdir")
    if isinstance(folder, str) and folder:
        cwd = absolute_path(folder, cwd)
    if isinstance(command, str):
        return ShellCommands((command,) if command else (), cwd)
    script = len(command) == 3 and command[1] in ("-c", "-lc")
    return ShellCommands((command[2] if script else shlex.join(command),) if command else (), cwd)


def changes_by_command(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    """Yield the changes that a command states explicitly, such as `cat > name <<EOF` or `rm name`.

    Relative paths only count for Codex, because the working folder of Claude Code's shell is unknown.
    """
    lines, folder = commands_of(span, cwd)
    if len(lines) != 1 or span.background or not _EXPLICIT_WRITE.search(lines[0]) or not _printed_nothing(span):
        return
    for write in explicit_writes(lines[0], folder if span.call.dialect == "codex" else None):
        match write:
            case HeredocWrite(appends=True):
                hunks = make_hunks("", write.content)
                yield RecordedChange(
                    path=write.path,
                    kind="edited",
                    effect=AppendEffect(content=write.content),
                    count=added_removed(hunks),
                )
            case HeredocWrite():
                yield describe_write(write.path, write.content)
            case FileRemoval():
                yield RecordedChange(path=write.path, kind="deleted", effect=RemoveEffect())


def _printed_nothing(span: Span) -> bool:
    """Return whether a command printed nothing. If one of these printed something, it did not do what it states."""
    match span.result.structured if span.result else None:
        case results.BashResult(stdout=stdout, stderr=stderr):
            return not (stdout.strip() or stderr.strip())
        case codex_results.CommandResult(output=output):
            return not output.strip()
        case _:
            return False


def command_in(tool_input: Mapping[str, object]) -> str | list[str]:
    """Return the command of an input in either format: a command line, or a list of arguments."""
    command = tool_input.get("command") or tool_input.get("cmd") or ""
    if isinstance(command, list):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""


def changes_by_editor(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    """Yield the changes made by an editing tool."""
    structured = span.result.structured if span.result else None
    match structured:
        case results.EditResult():
            if not structured.staged:
                yield _edit_change(structured, cwd)
        case results.MultiEditResult():
            yield _multi_edit_change(structured, cwd)
        case results.WriteResult():
            if not structured.staged:
                yield _write_change(structured, cwd)
        case results.NotebookEditResult():
            if not structured.error:
                yield from _notebook_changes(structured, span, cwd)
        case _:
            yield from _changes_by_input(span, cwd)


def _edit_change(result: results.EditResult, cwd: str | None) -> RecordedChange:
    edit = TextEdit(old_string=result.old_string, new_string=result.new_string, replace_all=bool(result.replace_all))
    effect = EditEffect(edits=(edit,), hunks=result.structured_patch, by_person=bool(result.user_modified))
    if not result.old_string and not result.original_file:
        return describe_creation(absolute_path(result.file_path, cwd), result.new_string)
    return describe_edit(absolute_path(result.file_path, cwd), effect, result.original_file)


def _multi_edit_change(result: results.MultiEditResult, cwd: str | None) -> RecordedChange:
    effect = EditEffect(edits=result.edits, hunks=result.structured_patch, by_person=bool(result.user_modified))
    before = result.original_file_contents
    before = result.original_file if before is None else before
    return describe_edit(absolute_path(result.file_path, cwd), effect, before)


def _write_change(result: results.WriteResult, cwd: str | None) -> RecordedChange:
    path = absolute_path(result.file_path, cwd)
    if result.content is None:
        return RecordedChange(path=path, kind="edited", effect=UnknownEffect(reason="no content is recorded"))
    if result.type == "create":
        return describe_creation(path, result.content)
    effect = WriteEffect(content=result.content, hunks=valid_hunks(result.structured_patch))
    return describe_edit(path, effect, result.original_file)


def _notebook_changes(result: results.NotebookEditResult, span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    tool_input = span.input
    name = result.notebook_path or (tool_input.notebook_path if isinstance(tool_input, NotebookEditInput) else "")
    if not name:
        return
    path = absolute_path(name, cwd)
    if result.updated_file is None:
        reason = "only the cell is recorded, not the notebook"
        yield RecordedChange(path=path, kind="edited", effect=UnknownEffect(reason=reason))
    else:
        yield describe_edit(path, WriteEffect(content=result.updated_file), result.original_file)


def _changes_by_input(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    """Yield the changes according to the request, where there is no structured result."""
    match span.input:
        case EditInput(file_path=path, old_string="", new_string=str(new)) if path:
            yield describe_creation(absolute_path(path, cwd), new)
        case EditInput(file_path=path) as edit_input if path:
            edit = TextEdit(
                old_string=edit_input.old_string, new_string=edit_input.new_string, replace_all=edit_input.replace_all
            )
            yield describe_edit(absolute_path(path, cwd), EditEffect(edits=(edit,)), None)
        case MultiEditInput(file_path=path, edits=edits) if path:
            yield describe_edit(absolute_path(path, cwd), EditEffect(edits=edits), None)
        case WriteInput(file_path=path, content=str(content)) if path:
            assert span.result is not None
            if "created" in span.result.text[:40]:
                yield describe_creation(absolute_path(path, cwd), content)
            else:
                yield describe_edit(absolute_path(path, cwd), WriteEffect(content=content), None)
        case NotebookEditInput(notebook_path=path) if path:
            reason = "only the cell is recorded, not the notebook"
            yield RecordedChange(path=absolute_path(path, cwd), kind="edited", effect=UnknownEffect(reason=reason))
        case _:
            return


PATCH_TOOL_NAMES = frozenset({"apply_patch", "applypatch"})


def holds_patch(span: Span) -> bool:
    """Return whether a call may contain a patch, without parsing it."""
    shell = span.call.kind == "shell"
    return span.tool in PATCH_TOOL_NAMES or (shell and b"apply" in span.call.raw_input)


def patched_paths(span: Span, cwd: str | None) -> list[str]:
    """Return the files that a call of the patch tool names, applied or not."""
    if span.tool not in PATCH_TOOL_NAMES:
        return []
    paths = []
    for embedded in _embedded_patches(span):
        with suppress(PatchError):
            paths += [absolute_path(section.path, cwd) for section in parse_patch(embedded.patch)]
    return paths


def changes_by_patch(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    """Yield the changes made by a patch."""
    structured = span.result.structured if span.result else None
    if isinstance(structured, codex_results.PatchResult) and structured.changes:
        for name, change in structured.changes.items():
            yield from _changes_by_event(absolute_path(name, cwd), change, cwd)
    else:
        yield from _changes_by_text(span, cwd)


def _changes_by_event(path: str, change: codex_results.PatchedFile, cwd: str | None) -> Iterator[RecordedChange]:
    """Yield a change as the client reported it."""
    match change.type:
        case "add":
            yield describe_write(path, change.content or "")
        case "delete":
            content = change.content
            hunks = tuple(make_hunks(content, "")) if content is not None else ()
            count = added_removed(hunks) if content is not None else None
            yield RecordedChange(
                path=path,
                kind="deleted",
                effect=RemoveEffect(content=content),
                hunks=hunks,
                count=count,
                before=content,
            )
        case "update":
            effect = EditEffect(hunks=_parse_valid_hunks(change.unified_diff or ""))
            if change.move_path is None:
                yield describe_edit(path, effect, None)
            else:
                target = absolute_path(change.move_path, cwd)
                yield from _move_changes(path, target, effect, added_removed(effect.hunks))
        case _:
            reason = f"a change of the kind {change.type!r} is not known"
            yield RecordedChange(path=path, kind="edited", effect=UnknownEffect(reason=reason))


def _parse_valid_hunks(diff: str) -> tuple[Hunk, ...]:
    try:
        return valid_hunks(parse_hunks(diff))
    except PatchError:
        return ()


def _changes_by_text(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    for embedded in _embedded_patches(span):
        folder = absolute_path(embedded.folder, cwd) if embedded.folder else cwd
        try:
            sections = parse_patch(embedded.patch)
        except PatchError:
            continue  # the client cannot have applied it
        for section in sections:
            yield from _section_changes(section, folder, unclear=embedded.is_folder_unknown)


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


def _section_changes(section: FileSection, folder: str | None, *, unclear: bool) -> Iterator[RecordedChange]:
    path = absolute_path(section.path, folder)
    if unclear:
        reason = "the command goes to a folder that is not known"
        yield RecordedChange(
            path=path, kind="edited", effect=UnknownEffect(reason=reason), count=count_changes(section)
        )
        return
    match section:
        case AddFile():
            yield describe_write(path, section.content)
        case DeleteFile():
            yield RecordedChange(path=path, kind="deleted", effect=RemoveEffect())
        case UpdateFile(move_to=str(target)):
            yield from _move_changes(
                path, absolute_path(target, folder), PatchEffect(section=section), count_changes(section)
            )
        case UpdateFile():
            effect = PatchEffect(section=section)
            yield RecordedChange(path=path, kind="edited", effect=effect, count=count_changes(section))


def _move_changes(
    source: str, target: str, change: EditEffect | PatchEffect, count: ChangeCount
) -> Iterator[RecordedChange]:
    yield RecordedChange(path=source, kind="moved", effect=RemoveEffect(), moved_to=target)
    yield RecordedChange(
        path=target, kind="moved", effect=MoveEffect(source=source, change=change), count=count, moved_from=source
    )
