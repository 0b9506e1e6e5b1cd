"""May a file be changed, and what the conversation knows of it afterwards.

In: a path and what calls have seen so far. Out: a refusal in the client's words, or nothing. For
tools that change parts of files; what they change is not known here.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Self, TypeVar

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.files.atomic_replace import atomic_replace
from toolspan.files.paths import real_path, replace_surrogates, resolve_path, suggest_sibling
from toolspan.files.safe_read import FileVersion, LoadedFile, digest_bytes
from toolspan.files.text import (
    DecodedText,
    TextRange,
    find_occurrences,
    match_quote_style,
    normalize_newlines,
    replace_ranges,
)
from toolspan.runtime.context import FileState, ToolContext
from toolspan.runtime.profiles import FileValues
from toolspan.runtime.tool import Output, Refusal

Input = Mapping[str, object]
_Plan = TypeVar("_Plan")

UNREAD_MESSAGE = "File has not been read yet. Read it first before writing to it."
STALE_MESSAGE = (
    "File has been modified since read, either by the user or by a linter. Read it again before attempting to write it."
)


class PlannedTool(Generic[_Plan]):
    """The two steps of a tool that plans before it acts, both in a worker thread.

    A plan that turns out a refusal is the tool's veto. It is made again when the tool runs: the
    file may have changed while somebody was asked for consent.
    """

    def __init__(
        self, plan: Callable[[Input, ToolContext], _Plan | Refusal], act: Callable[[_Plan, ToolContext], Output]
    ) -> None:
        self._plan = plan
        self._act = act

    async def validate(self, value: Input, ctx: ToolContext) -> Refusal | None:
        """Plan, to see whether it can be done."""
        plan = await to_thread.run_sync(partial(self._plan, value, ctx), abandon_on_cancel=True)
        return plan if isinstance(plan, Refusal) else None

    async def run(self, value: Input, ctx: ToolContext) -> Output:
        """Plan again, and do it; not abandoned on cancel: what was begun is told as it ended."""
        return await to_thread.run_sync(partial(self._plan_and_act, value, ctx))

    def _plan_and_act(self, value: Input, ctx: ToolContext) -> Output:
        plan = self._plan(value, ctx)
        if isinstance(plan, Refusal):
            raise ToolError(plan.text, kind=plan.kind, wrapped=plan.wrapped)
        return self._act(plan, ctx)


def resolve_tool_path(name: str, ctx: ToolContext) -> Path:
    """The file a name means, as the client's file tools take it."""
    expands = ctx.profile.files.expands_home
    return resolve_path(name, ctx.cwd, ctx.workspace.environment.get("HOME") if expands else None)


def resolved_target(path: Path, ctx: ToolContext) -> Path | None:
    """What a path led to when consent was given; None when that differs between processes."""
    end = ctx.links.resolve(str(path))
    return Path(end) if not end.startswith("/proc/") else None


def missing_file_refusal(path: Path, name: str, ctx: ToolContext) -> Refusal:
    """There is no such file; perhaps another was meant."""
    text = ctx.profile.files.missing.format(cwd=ctx.cwd, path=name)
    other = suggest_sibling(path)
    return Refusal(text + (f" Did you mean {other}?" if other else ""), "not_found")


def find_file_state(path: Path, ctx: ToolContext) -> FileState | None:
    """What the conversation knows of a file, by its own name or that of what a link leads to."""
    return ctx.files.get(real_path(path)) or ctx.files.get(path)


def unread_file_refusal() -> Refusal:
    """The file has to be read first."""
    return Refusal(UNREAD_MESSAGE, "read_required")


def check_not_stale(loaded: LoadedFile, state: FileState | None) -> Refusal | None:
    """The file is not as the conversation has seen it."""
    if state is None or state.digest == loaded.digest:
        return None
    return Refusal(STALE_MESSAGE, "stale_file")


def check_regular_file(name: str, mode: int) -> Refusal | None:
    """There is something else than a regular file."""
    if stat.S_ISDIR(mode):
        return Refusal(f"{replace_surrogates(name)} is a directory, not a file.", "is_directory")
    if not stat.S_ISREG(mode):
        return Refusal(f"{replace_surrogates(name)} is not a regular file.", "invalid_input")
    return None


def write_file(path: Path, data: bytes, stamp: FileVersion | None, before: str | None, ctx: ToolContext) -> FileVersion:
    """Give a file this content; what is about to happen is written down first.

    `before` is the digest of what it has, None for no file. See `disk.swap.swap` for the rest.

    Raises:
        ToolError: it could not be written, or is not what was expected; nothing has changed.
    """
    end = resolved_target(path, ctx)
    journal = ctx.workspace.intent_log
    if journal is not None:
        target, after = str(end or real_path(path)), digest_bytes(data)
        call = ctx.call
        journal.begin(call.id, call.tool, call.arguments, path=target, before=before, after=after)
    return atomic_replace(path, data, stamp, end)


def remember_written(path: Path, data: bytes, stamp: FileVersion, ctx: ToolContext, *, whole: bool) -> None:
    """A call gave the file this content."""
    state = FileState(
        digest=digest_bytes(data), mtime_ns=stamp.mtime_ns, size=stamp.size, whole=whole, call_id=ctx.call.id
    )
    for name in {path, real_path(path)}:
        ctx.files.set_state(name, state)


MAX_FILE_BYTES = 128 << 20
"""Bytes of a file that can be edited: it is compared and recorded whole."""
EDIT_PROPERTIES: Mapping[str, object] = {
    "old_string": {"type": "string", "description": "The text to replace"},
    "new_string": {"type": "string", "description": "The text to put there"},
    "replace_all": {"type": "boolean", "default": False, "description": "Replace it wherever it stands"},
}
"""How the model asks for it."""
_AMBIGUOUS_MESSAGE = (
    "Found {count} matches of the string to replace, but replace_all is false. To replace all"
    " occurrences, set replace_all to true. To replace only one occurrence, please provide more"
    " context to uniquely identify the instance.\nString: {old}"
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """One text for another; an empty old one makes a new file."""

    old: str
    new: str
    replace_all: bool

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, object]) -> Self:
        """As the model asked for it."""
        return cls(
            old=replace_surrogates(str(arguments["old_string"])),
            new=replace_surrogates(str(arguments["new_string"])),
            replace_all=arguments.get("replace_all") is True,
        )

    @property
    def creates_file(self) -> bool:
        """Whether it makes a new file."""
        return not self.old

    def check_differs(self) -> Refusal | None:
        """Both texts are the same."""
        if self.old != self.new:
            return None
        return Refusal("No changes to make: old_string and new_string are exactly the same.", "no_change")

    def find_matches(self, text: DecodedText, values: FileValues) -> Sequence[TextRange] | Refusal:
        """Where the old text stands."""
        spans = (
            [TextRange(0, 0)] if self.creates_file else find_occurrences(text.normalized, normalize_newlines(self.old))
        )
        if not spans:
            return Refusal(values.no_match.format(old=self.old), "no_match")
        if len(spans) > 1 and not self.replace_all:
            return Refusal(_AMBIGUOUS_MESSAGE.format(count=len(spans), old=self.old), "ambiguous_match")
        return spans

    def apply_to(self, text: DecodedText, spans: Sequence[TextRange], values: FileValues) -> DecodedText:
        """The text with the new one at these places."""
        replaced = text.normalized[spans[0].start : spans[0].end]
        return replace_ranges(text, spans, match_quote_style(self.new, replaced) if values.keeps_curly else self.new)


def check_editable(path: Path, name: str, mode: int) -> Refusal | None:
    """There is something that has no text to replace."""
    if refusal := check_regular_file(name, mode):
        return refusal
    if path.suffix.lower() == ".ipynb":
        text = "File is a Jupyter Notebook. Use the NotebookEdit to edit this file."
        return Refusal(text, "invalid_input")
    return None


def file_exists_refusal() -> Refusal:
    """A new file was to be made where there is one."""
    return Refusal("Cannot create new file - file already exists.", "invalid_input")
