"""Checks and steps shared by the tools that change files.

A tool plans a `PlannedChange`; `PlannedTool` writes it and remembers the content that the conversation has seen.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from anyio import to_thread
from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolError
from toolspan.runtime.context import FileState, ToolContext
from toolspan.runtime.profiles import FileValues, Messages
from toolspan.runtime.schema.issues import Valid
from toolspan.runtime.tool import Output, Refusal
from toolspan.tools.files.atomic_replace import MODIFIED_MESSAGE, atomic_replace
from toolspan.tools.files.paths import (
    lock_name,
    real_path,
    replace_surrogates,
    resolve_path,
    suggest_sibling,
    wrap_os_error,
)
from toolspan.tools.files.safe_read import FileVersion, LoadedFile, digest_bytes, read_file
from toolspan.tools.files.text import (
    Codec,
    DecodedText,
    TextRange,
    decode_text,
    find_encoding_problem,
    find_occurrences,
    match_quote_style,
    replace_ranges,
)
from toolspan.tools.schemas import flag, text
from toolspan.types.error_kinds import ERROR_KINDS

Input = Mapping[str, object]

_LEADING_TABS = re.compile(r"^\t+", re.MULTILINE)
_SPELLED_PATH = "spelled path"
"""The key under which a validated input holds the path as the model wrote it. No real input has this name."""
KEPT_ENCODING = "The file was not changed, because its encoding would change."
MAX_EDITABLE_BYTES = 128 << 20
"""The size above which files cannot be changed, because the whole old content is compared and recorded."""
CURRENT_NOTE = " (file state is current in your context — no need to Read it back)"
_TRAILING_BLANKS = re.compile(r"[^\S\r\n]+(?=[\r\n]|\Z)")
EDIT_PROPERTIES = {
    "old_string": text("The exact text to replace."),
    "new_string": text("The text to insert instead."),
    "replace_all": flag("Replace every occurrence. If false, `old_string` must occur only once.", default=False),
}
UNREAD_FILE = Refusal("File has not been read yet. Read it first before writing to it.", "read_required")
UNREAD_OUTSIDE = Refusal(UNREAD_FILE.text, UNREAD_FILE.kind)
"""The same for a file outside the project, for which approval is requested first."""
_FILE_EXISTS = Refusal("Cannot create new file - file already exists.", "invalid_input")
STALE_FILE = Refusal(
    "File has been modified since read, either by the user or by a linter."
    " Read it again before attempting to write it.",
    "stale_file",
)
_UNEXPECTED_FILE = Refusal(MODIFIED_MESSAGE, "stale_file", wrapped=False)
_NOT_APPLIED = Refusal("String not found in file. Failed to apply edit.", "no_match", wrapped=False)
NO_CHANGE = Refusal("No changes to make: old_string and new_string are exactly the same.", "no_change")
_AMBIGUOUS_MESSAGE = (
    "Found {count} matches of the string to replace, but replace_all is false. To replace all"
    " occurrences, set replace_all to true. To replace only one occurrence, please provide more"
    " context to uniquely identify the instance.\nString: {old}"
)


class PlannedChange(NamedTuple):
    """The planned new content of a file."""

    path: Path
    data: bytes
    version: FileVersion | None
    """The version to be replaced, or None for a new file."""
    digest: str | None
    fully_seen: bool
    """True if the conversation has seen the whole new content."""
    make_output: Callable[[], Output]
    spelling: str = ""
    """The path by which the file is remembered, if it is not the resolved one."""


class PlannedTool:
    """A tool that plans a change before it writes the file, both in a worker thread.

    If the plan is a refusal, the call does not run; a refusal without error tags is instead raised by the run,
    after hooks and permissions. The change is planned again when the tool runs, because the file may have changed
    while the call waited for permission.
    """

    def __init__(self, plan: Callable[[Input, ToolContext], PlannedChange | Refusal]) -> None:
        self._plan = plan

    async def validate(self, value: Input, ctx: ToolContext) -> Refusal | None:
        """Plan the change and return the refusal, if any."""
        try:
            change = await to_thread.run_sync(self._plan, value, ctx, abandon_on_cancel=True)
        except ToolError as error:
            message = f"Error calling tool ({ctx.call.tool}): {error.message}"
            kind = next((kind for kind in ERROR_KINDS if kind == error.kind), None)
            return Refusal(message, kind, structured=message)
        if change is UNREAD_OUTSIDE:
            return None
        return change if isinstance(change, Refusal) and change.wrapped else None

    async def run(self, value: Input, ctx: ToolContext) -> Output:
        """Plan again and write. If the call is cancelled, wait for the thread so that the result is accurate."""

        def plan_and_write() -> Output:
            change = self._plan(value, ctx)
            if isinstance(change, Refusal):
                raise ToolError(change.text, kind=change.kind, wrapped=change.wrapped)
            _write_file(change, ctx)
            return change.make_output()

        return await to_thread.run_sync(plan_and_write)


def resolve_tool_path(name: str, ctx: ToolContext) -> Path:
    """Return the absolute path for a path in a tool's input. Some clients, or only Write, expand `~`."""
    expands = ctx.profile.files.expands_home or ctx.call.tool == "Write"
    return resolve_path(name, ctx.cwd, ctx.workspace.environment.get("HOME", "") if expands else None)


def permitted_target(path: Path, ctx: ToolContext) -> Path:
    """Return a path with its links resolved as they were when the call was authorized."""
    return Path(ctx.links.resolve(str(path)))


def stat_tool_path(name: str, ctx: ToolContext, *, operation: str = "stat") -> os.stat_result | None:
    """Return the stat result for a path in a tool's input, or None if the client reports it as missing.

    The client looks up an absolute path unchanged, so a slash after a file name is an error. Read
    (`operation="open"`) ignores the slash if the client normalizes paths.

    Raises:
        ToolError: the client reports the system's error.
    """
    values = ctx.profile.files
    name = name.strip() if values.expands_home or ctx.call.tool == "Write" else name
    path = str(resolve_tool_path(name, ctx))
    if not values.expands_home and ctx.call.tool != "Write":
        path = name if name.startswith("/") else path
    elif operation == "stat" and name.startswith(("/", "~/")) and name.endswith("/"):
        path += "/"
    try:
        return os.stat(path)  # noqa: PTH116 - a Path loses the slash at its end
    except FileNotFoundError:
        return None
    except OSError as error:
        if not values.reports_path_errors:
            return None
        raise wrap_os_error(error, operation, path) from error


def slash_refusal(name: str, path: Path, ctx: ToolContext) -> Refusal | None:
    """Return the error for a new file whose name ends with a slash, if the client does not strip the slash."""
    if ctx.profile.files.reports_path_errors or not name.endswith("/") or path.is_dir():
        return None
    return Refusal(f"EISDIR: illegal operation on a directory, open '{path}/'", "is_directory", wrapped=False)


def null_path_refusal(value: Input, field: str, ctx: ToolContext) -> Refusal | None:
    """Return the refusal for a path that contains a null character."""
    if "\0" not in str(value[field]):
        return None
    message = ctx.profile.messages.null_path.format(tool=ctx.call.tool, field=field)
    return Refusal(message, "invalid_input", structured=message if message.startswith("Error calling") else None)


def trim_line_ends(content: str, name: str, values: FileValues) -> str:
    """Remove trailing blanks from the lines to write, as clients do before they record the input."""
    keeps = values.keeps_markdown_blanks and name.lower().endswith((".md", ".mdx"))
    return content if keeps else _TRAILING_BLANKS.sub("", content)


def with_stripped_path(recorded: Input, field: str, *, strips: bool, **extra: object) -> Valid:
    """Return the input without blanks around the path, if the client ignores them.

    Rules and hooks see the stripped path. The tool also receives the original path, for its messages.
    """
    written = str(recorded[field])
    stripped = {**recorded, field: written.strip() if strips else written}
    return Valid({**stripped, _SPELLED_PATH: written, **extra}, stripped)


def rename_inputs(raw_input: Input, names: Mapping[str, str]) -> tuple[Input, list[str]]:
    """Return the input with alternative names replaced with the proper ones, and a description of the changes.

    Names whose proper name is empty are dropped. A name is not replaced if the proper one is also present.
    """
    notes = []
    renamed = dict(raw_input)
    for name, proper in names.items():
        if name in renamed and proper not in renamed:
            value = renamed.pop(name)
            if proper:
                renamed[proper] = value
            notes.append(f"`{name}` was read as `{proper}`." if proper else f"`{name}` was ignored.")
    return renamed, notes


def spelled_path(value: Input, field: str) -> str:
    """Return the path as the model wrote it, for messages."""
    return replace_surrogates(str(value.get(_SPELLED_PATH, value[field])))


def lock_by_path(field: str) -> Callable[[Input], frozenset[str]]:
    """Return a `Tool.paths` function for the input field that contains the file path."""
    return lambda value: frozenset({lock_name(str(value[field]))})


class ExistingFile(NamedTuple):
    """The content before an edit, which is empty if the file does not exist yet."""

    text: DecodedText
    version: FileVersion | None
    """The version that was read, or None if the file does not exist yet."""
    digest: str | None
    is_stale: bool
    """True if the file has changed since the conversation saw it."""
    is_fully_seen: bool
    """True if the conversation has seen the whole current file."""
    was_read: bool = False
    """True if the conversation has seen the file by reading it, not by writing it."""


NO_FILE = ExistingFile(DecodedText("", "", Codec("utf-8")), None, None, is_stale=False, is_fully_seen=True)


def load_for_edit(
    path: Path, name: str, ctx: ToolContext, *, may_be_missing: bool, must_be_empty: bool = False
) -> ExistingFile | Refusal:
    """Read the file to edit, or return a refusal. `name` is the path shown in messages."""
    values = ctx.profile.files
    stat_result = stat_tool_path(name, ctx)
    if stat_result is None and may_be_missing:
        return slash_refusal(name, path, ctx) or NO_FILE
    if stat_result is None:
        return missing_file_refusal(path, name, ctx.profile.messages.missing, ctx)
    state = find_file_state(path, ctx, name)
    if stat.S_ISDIR(stat_result.st_mode):
        if state is None and values.read_first and not must_be_empty:
            return UNREAD_FILE
        raise ToolError("EISDIR: illegal operation on a directory, read", kind="is_directory")
    if not stat.S_ISREG(stat_result.st_mode):
        return special_file_refusal(name, "Edit only changes regular files.")
    if path.suffix.lower() == ".ipynb":
        return Refusal("File is a Jupyter Notebook. Use the NotebookEdit to edit this file.", "invalid_input")
    is_unread = state is None and must_be_read(path, ctx)
    if is_unread and not must_be_empty:
        return UNREAD_FILE
    loaded = read_file(path, MAX_EDITABLE_BYTES, permitted_target(path, ctx))
    if must_be_empty and loaded.data.removeprefix(codecs.BOM_UTF8).strip():
        return _FILE_EXISTS
    if is_unread:
        return UNREAD_FILE if values.blank_needs_read else _UNEXPECTED_FILE
    if values.detects_encodings and (problem := find_encoding_problem(loaded.data)):
        return Refusal(f"File {problem} {KEPT_ENCODING}", "invalid_input")
    stale = check_not_stale(loaded, state)
    if stale and not values.recovers_stale:
        return stale
    return ExistingFile(
        decode_text(loaded.data),
        loaded.version,
        loaded.digest,
        is_stale=stale is not None,
        is_fully_seen=state is not None and state.whole and stale is None,
        was_read=state is not None and state.range is not None,
    )


def must_be_read(path: Path, ctx: ToolContext) -> bool:
    """Return whether a file must be read before it is changed.

    Models that are exempt must still read notebooks, and files that they may not read without approval.
    """
    values = ctx.profile.files
    if values.read_first or path.suffix.lower() == ".ipynb":
        return True
    return not ctx.may_read_unasked(str(path))


def special_file_refusal(name: str, advice: str) -> Refusal:
    """Return the refusal for a file that is neither regular nor a folder."""
    message = f"{name} exists but is not a regular file (a device, FIFO or socket). {advice}"
    return Refusal(message, "invalid_input")


def find_file_state(path: Path, ctx: ToolContext, name: str = "") -> FileState | None:
    """Return the state in which the conversation last saw the file.

    The file is looked up by path and link target, or only by `name` if the client remembers files by spelling.
    """
    if ctx.profile.files.remembered_files is not None:
        return ctx.files.get(remembered_name(path, name))
    return ctx.files.get(real_path(path)) or ctx.files.get(path)


def remembered_name(path: Path, name: str) -> str:
    """Return the key of a file for clients that remember files by the spelling of their paths."""
    return name if name.startswith("/") else str(path)


def check_not_stale(loaded: LoadedFile, state: FileState | None) -> Refusal | None:
    """Return a refusal if the file has changed since the conversation saw it."""
    return None if state is None or state.digest == loaded.digest else STALE_FILE


def check_regular_file(name: str, mode: int) -> Refusal | None:
    """Return a refusal for directories, devices and other non-regular files."""
    if stat.S_ISDIR(mode):
        return Refusal(f"{replace_surrogates(name)} is a directory, not a file.", "is_directory")
    if not stat.S_ISREG(mode):
        return Refusal(f"{replace_surrogates(name)} is not a regular file.", "invalid_input")
    return None


def missing_file_refusal(path: Path, name: str, template: str, ctx: ToolContext) -> Refusal:
    """Return the refusal for a missing file, with the name of a similar file as a suggestion."""
    values, cwd = ctx.profile.files, ctx.cwd
    written = str(path) if values.expands_home or not name.startswith("/") else name
    if values.expands_home and name.startswith(("/", "~/")) and name.endswith("/"):
        written += "/"
    suggestion = suggest_sibling(written, sort=values.sorts_names)
    names_cwd = "{cwd}" in template
    if suggestion is None and names_cwd and path.is_relative_to(cwd.parent) and not path.is_relative_to(cwd):
        below = cwd / path.relative_to(cwd.parent)  # the path may lack the project folder
        suggestion = str(below) if below.exists() else None
    advice = f" Did you mean {suggestion}?" if suggestion else ""
    place = "" if ctx.cwd == ctx.workspace.project else ctx.profile.messages.missing_elsewhere.format(cwd=ctx.cwd)
    return Refusal(template.format(cwd=ctx.cwd, path=name) + place + advice, "not_found")


def limit_record(content: str, values: FileValues) -> str | None:
    """Return a file's old content for the record, or None if it is too long."""
    return content if values.record_limit is None or len(content) <= values.record_limit else None


def record_patch(old: str, new: str) -> object:
    """Return the change as clients record it: tabs at the start of a line are two spaces each."""
    before, after = (_LEADING_TABS.sub(lambda tabs: "  " * len(tabs[0]), text) for text in (old, new))
    return to_builtins(make_hunks(before, after, notes=True))


@dataclass(frozen=True, slots=True)
class Replacement:
    """The text to replace and its replacement. If the old text is empty, a file is created."""

    old: str
    new: str
    replace_all: bool

    @classmethod
    def parse(cls, value: Input) -> Self:
        """Create the replacement from a validated input."""
        return cls(
            old=replace_surrogates(str(value["old_string"])),
            new=replace_surrogates(str(value["new_string"])),
            replace_all=value.get("replace_all") is True,
        )

    def find_matches(self, text: DecodedText, messages: Messages) -> Sequence[TextRange] | Refusal:
        """Return the ranges to replace, or a refusal if there are none or too many."""
        if self.old == self.new:
            return NO_CHANGE
        if not self.old:
            if self.new == text.normalized:
                return _NOT_APPLIED
            return _FILE_EXISTS if text.normalized.strip() else [TextRange(0, len(text.normalized))]
        ranges = find_occurrences(text.normalized, self.old)
        if not ranges:
            return Refusal(messages.no_match.format(old=self.old), "no_match")
        if len(ranges) > 1 and not self.replace_all:
            return Refusal(_AMBIGUOUS_MESSAGE.format(count=len(ranges), old=self.old), "ambiguous_match")
        if not self.new and not self.old.endswith("\n"):
            # Removing text also removes the line ending after it.
            lines = [TextRange(at, end + 1) for at, end in ranges if text.normalized.startswith("\n", end)]
            return lines or ranges
        return ranges

    def make_record(self, text: DecodedText, ranges: Sequence[TextRange], values: FileValues) -> str:
        """Return the new content as clients record it, with the line endings that the model wrote."""
        pieces: list[str] = []
        position, new = 0, self._styled_text(text.normalized[ranges[0].start : ranges[0].end], values)
        for start, end in ranges:
            pieces += (text.normalized[position:start], new)
            position = end
        updated = "".join((*pieces, text.normalized[position:]))
        return DecodedText(updated, updated, text.codec).to_record()

    def apply_to(self, text: DecodedText, ranges: Sequence[TextRange], values: FileValues) -> DecodedText:
        """Return the text with these ranges replaced."""
        replaced = text.normalized[ranges[0].start : ranges[0].end]
        return replace_ranges(text, ranges, self._styled_text(replaced, values), unify=values.unifies_newlines)

    def _styled_text(self, replaced: str, values: FileValues) -> str:
        """Return the new text, with curly quotes if straight quotes matched curly ones."""
        is_exact = replaced.startswith(self.old)
        return self.new if is_exact or not values.keeps_curly else match_quote_style(self.new, replaced)


def _check_parents(path: Path, ctx: ToolContext) -> None:
    """Raise ToolError if a new file would be created through a dangling link."""
    nearest = next(filter(os.path.lexists, path.parents), path)
    if nearest.exists():
        return
    message = f"ENOENT: no such file or directory, mkdir '{path.parent}'"
    if ctx.profile.files.refuses_links:
        message = (
            f"Refusing to write {path}: its parent-directory symlink resolution changed after permission was checked."
        )
    raise ToolError(replace_surrogates(message), kind="not_found")


def _write_file(change: PlannedChange, ctx: ToolContext) -> None:
    if change.version is None:
        _check_parents(change.path, ctx)
    digest = digest_bytes(change.data)
    # Write to the link target at the time of authorization, except in `/proc`, where paths differ between processes.
    permitted = permitted_target(change.path, ctx)
    target = None if permitted.is_relative_to("/proc") else permitted
    is_link = os.path.islink(change.path)  # noqa: PTH114 - a Path raises if the folder cannot be searched
    replaces_link = is_link and change.version is None and ctx.profile.files.replaces_links
    if replaces_link:
        target = permitted_target(change.path.parent, ctx) / change.path.name
    if ctx.workspace.intent_log is not None:
        call, target_name = ctx.call, str(target or real_path(change.path))
        ctx.workspace.intent_log.begin(call.id, call.tool, path=target_name, before=change.digest, after=digest)
    written = atomic_replace(change.path, change.data, change.version, target, replaces_link=replaces_link)
    state = FileState(
        digest=digest, mtime_ns=written.mtime_ns, size=written.size, whole=change.fully_seen, call_id=ctx.call.id
    )
    limit = ctx.profile.files.remembered_files
    if limit is not None:
        ctx.files.set_state(change.spelling or change.path, state, limit)
        return
    for name in {change.path, real_path(change.path)}:
        ctx.files.set_state(name, state)
