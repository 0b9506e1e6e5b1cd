"""What commands did to files in so many words: `cat > name <<…`, `rm name`.

In: a call of a shell that succeeded. Out: what it wrote and removed, where that is certain.
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
from toolspan.formats.registry import get_format
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
    """A change before it is tied to its call."""

    path: str
    kind: ChangeKind
    effect: Effect
    hunks: tuple[Hunk, ...] = ()
    count: ChangeCount | None = None
    before: FileContent | None = None
    moved_from: str | None = None
    moved_to: str | None = None


def describe_creation(path: str, content: str) -> RecordedChange:
    """A file that was not there."""
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
    """A change of a file that was there; a record of it that does not fit is not believed."""
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
    """Hunks that can be believed; none where something is wrong with them."""
    return () if problems(hunks) else hunks


def _count_edit_lines(effect: EditEffect | WriteEffect) -> ChangeCount | None:
    """Lines of texts whose place is not known; of several places nobody knows how many."""
    if isinstance(effect, WriteEffect) or any(edit.replace_all for edit in effect.edits):
        return None
    pairs = [make_hunks(edit.old_string or "", edit.new_string or "") for edit in effect.edits]
    return added_removed([hunk for hunks in pairs for hunk in hunks])


def describe_write(path: str, content: str) -> RecordedChange:
    """A file that was written whole; whether one was there before is not said."""
    creation = describe_creation(path, content)
    effect = WriteEffect(content=content, created=True, assumed=True)
    return RecordedChange(path=path, kind="created", effect=effect, hunks=creation.hunks, count=creation.count)


_EXPLICIT_WRITE = re.compile(r"\A\s*(?:cat\b.*<<|rm\s)")
"""Lines worth a closer look; most are not."""


class ShellCommands(NamedTuple):
    """Command lines, and the folder they start in."""

    lines: tuple[str, ...]
    folder: str | None


def commands_of(span: Span, cwd: str | None) -> ShellCommands:
    """What a call gave to a shell; nothing for calls of other tools."""
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
    """What a command wrote in so many words; Claude Code's shell may stand in any folder."""
    lines, folder = commands_of(span, cwd)
    if len(lines) != 1 or span.background or not _EXPLICIT_WRITE.search(lines[0]) or not _printed_nothing(span):
        return
    for done in explicit_writes(lines[0], folder if get_format(span.call.dialect).shell_keeps_folder else None):
        match done:
            case HeredocWrite(appends=True):
                hunks = make_hunks("", done.content)
                yield RecordedChange(
                    path=done.path, kind="edited", effect=AppendEffect(content=done.content), count=added_removed(hunks)
                )
            case HeredocWrite():
                yield describe_write(done.path, done.content)
            case FileRemoval():
                yield RecordedChange(path=done.path, kind="deleted", effect=RemoveEffect())


def _printed_nothing(span: Span) -> bool:
    """Whether a command printed nothing: one that should not and did was not run as written."""
    match span.result.structured if span.result else None:
        case results.BashResult(stdout=stdout, stderr=stderr):
            return not (stdout.strip() or stderr.strip())
        case codex_results.CommandResult(output=output):
            return not output.strip()
        case _:
            return False


def command_in(tool_input: Mapping[str, object]) -> str | list[str]:
    """The command line of an input, in either dialect; words where it was given as words."""
    command = tool_input.get("command") or tool_input.get("cmd") or ""
    if isinstance(command, list):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""


def changes_by_editor(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    """The changes that an editing tool made."""
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
    """Where nothing stands beside the text for the model, the request says what was done."""
    match span.input:
        case EditInput(file_path=path, old_string="", new_string=str(new)) if path:
            yield describe_creation(absolute_path(path, cwd), new)
        case EditInput(file_path=path) as given if path:
            edit = TextEdit(old_string=given.old_string, new_string=given.new_string, replace_all=given.replace_all)
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
    """Whether a call is one for a patch, as far as can be seen without reading it."""
    shell = span.call.kind == "shell"
    return span.tool in PATCH_TOOL_NAMES or (shell and b"apply" in span.call.raw_input)


def patched_paths(span: Span, cwd: str | None) -> list[str]:
    """The files that a patch names, whether it was applied or not; none for other calls."""
    if span.tool not in PATCH_TOOL_NAMES:
        return []
    paths = []
    for embedded in _embedded_patches(span):
        with suppress(PatchError):
            paths += [absolute_path(section.path, cwd) for section in parse_patch(embedded.patch)]
    return paths


def changes_by_patch(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    """The changes that a patch made."""
    structured = span.result.structured if span.result else None
    if isinstance(structured, codex_results.PatchResult) and structured.changes:
        for name, change in structured.changes.items():
            yield from _changes_by_event(absolute_path(name, cwd), change, cwd)
    else:
        yield from _changes_by_text(span, cwd)


def _changes_by_event(path: str, change: codex_results.PatchedFile, cwd: str | None) -> Iterator[RecordedChange]:
    """What the client itself told of a change."""
    match change.type:
        case "add":
            yield describe_write(path, change.content or "")
        case "delete":
            content = change.content
            hunks = tuple(make_hunks(content, "")) if content is not None else ()
            counted = added_removed(hunks) if content is not None else None
            yield RecordedChange(
                path=path,
                kind="deleted",
                effect=RemoveEffect(content=content),
                hunks=hunks,
                count=counted,
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
    source: str, target: str, change: EditEffect | PatchEffect, counted: ChangeCount
) -> Iterator[RecordedChange]:
    yield RecordedChange(path=source, kind="moved", effect=RemoveEffect(), moved_to=target)
    yield RecordedChange(
        path=target, kind="moved", effect=MoveEffect(source=source, change=change), count=counted, moved_from=source
    )
