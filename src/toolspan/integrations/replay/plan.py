"""Which recorded calls can be run again, and with what.

In: the spans of a session, in the order they were asked for. Out: batches of `Step`s and `Skip`s.
Recorded inputs may come from anywhere: a tool is run only when it is in a short list, and only with
paths that lie in the copy. Pure. Read `planned` first, then `_reason`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath

from msgspec import Struct

from toolspan.analysis.file_history.archive import FileArchive
from toolspan.analysis.file_history.content import Absent, FileContent, RecoveredContent
from toolspan.analysis.file_history.shell_writes import absolute_path
from toolspan.diffs import PatchError
from toolspan.diffs.codex_patch import UpdateFile, find_embedded_patches, parse_patch
from toolspan.errors import NotFound, SourceError
from toolspan.formats.registry import get_format
from toolspan.integrations.replay.scratch import PathMapping
from toolspan.tools.files.text import decode_text
from toolspan.types.inputs import decode_json_or_text
from toolspan.types.span import Span
from toolspan.types.state import State
from toolspan.types.tool_kinds import ToolKind

PATCH_TOOL = "apply_patch"
FILE_TOOLS = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""Tools that touch one file, and where they name it."""
SEARCH_TOOLS = frozenset({"Glob", "Grep", "LS"})
TODO_TOOLS = frozenset({"TodoWrite", "TodoRead"})
SHELL_TOOL = "Bash"
RUNNABLE_TOOLS = frozenset({*FILE_TOOLS, *SEARCH_TOOLS, *TODO_TOOLS, SHELL_TOOL})
_CODEX_SHELLS = frozenset({"shell", "container.exec", "shell_command", "local_shell", "exec_command"})

_SKIP_REASON_BY_KIND: dict[ToolKind, str] = {
    "web": "it needs the network",
    "mcp": "it needs an MCP server",
    "agent": "it needs a model",
    "question": "it needs a person",
    "plan": "it needs a person",
}
_SKIP_REASON_BY_STATE: dict[State, str] = {
    "denied": "it was denied then",
    "blocked_by_hook": "a hook stopped it then",
    "cancelled": "it was cancelled then",
    "interrupted": "it was interrupted then",
    "timed_out": "it ran out of time then",
    "never_answered": "it has no result",
    "orphan_result": "only its result was recorded",
}
_NOT_REPLAYED = "this tool is not run again"
_READ_ONLY_KINDS: frozenset[ToolKind] = frozenset({"read", "search", "web", "question", "plan"})
"""Kinds that leave files as they are."""


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """What may be run."""

    bash: bool = False
    """Commands too: with the rights of whoever runs this, wherever they lead."""


class ReplayStep(Struct, frozen=True, kw_only=True):
    """A call that is run again."""

    span: Span
    tool: str
    input: dict[str, object]
    paths: tuple[str, ...] = ()
    """The files it touches, as they were recorded."""


class SkippedCall(Struct, frozen=True, kw_only=True):
    """A call that is not."""

    span: Span
    reason: str

    @property
    def may_have_changed_files(self) -> bool:
        """Whether it may have changed files, so that those behind it are not as they were."""
        never = self.span.state in ("denied", "blocked_by_hook", "cancelled", "orphan_result")
        return not never and self.span.call.kind not in _READ_ONLY_KINDS


PlannedCall = ReplayStep | SkippedCall


def plan_batches(spans: Iterable[Span], mapping: PathMapping, limits: ReplayLimits) -> Iterator[list[PlannedCall]]:
    """The batches of a session; calls that came in one message are one."""
    for _, batch in groupby(spans, key=_batch_key):
        yield [_plan_call(span, mapping, limits) for span in batch]


def _batch_key(span: Span) -> tuple[str | None, str]:
    return span.call.agent_id, span.call.message_id or span.id


def _plan_call(span: Span, mapping: PathMapping, limits: ReplayLimits) -> PlannedCall:
    if span.state in _SKIP_REASON_BY_STATE:
        return SkippedCall(span=span, reason=_SKIP_REASON_BY_STATE[span.state])
    if span.error_kind == "unknown_tool":
        return SkippedCall(span=span, reason="there was no such tool then")
    try:
        arguments = dict(span.call.arguments)
        if not get_format(span.call.dialect).has_runtime_profiles:
            return _plan_codex_call(span, arguments, mapping, limits)
    except SourceError as error:
        return SkippedCall(span=span, reason=str(error))
    return _plan_claude_call(span, arguments, mapping, limits)


def _plan_claude_call(
    span: Span, arguments: dict[str, object], mapping: PathMapping, limits: ReplayLimits
) -> PlannedCall:
    reason = _skip_reason(span, arguments, mapping, limits)
    if reason is not None:
        return SkippedCall(span=span, reason=reason)
    paths: tuple[str, ...] = ()
    if span.tool in FILE_TOOLS:
        name = arguments.get(FILE_TOOLS[span.tool])
        paths = (mapping.recorded_path(name),) if isinstance(name, str) else ()
    return ReplayStep(span=span, tool=span.tool, input=_map_input(span.tool, arguments, mapping), paths=paths)


def _skip_reason(span: Span, arguments: Mapping[str, object], mapping: PathMapping, limits: ReplayLimits) -> str | None:
    """Why a call cannot be run again; None when it can."""
    if span.tool not in RUNNABLE_TOOLS:
        return _SKIP_REASON_BY_KIND.get(span.call.kind, _NOT_REPLAYED)
    if span.tool == SHELL_TOOL:
        return _shell_skip_reason(span, limits)
    if any(mapping.to_copy_path(name) is None for name in _path_arguments(span.tool, arguments)):
        return "it leads out of the project"
    return None


def _shell_skip_reason(span: Span, limits: ReplayLimits) -> str | None:
    if not limits.bash:
        return "commands are run only with --bash"
    return "it went on in the background" if span.background else None


def _path_arguments(tool: str, arguments: Mapping[str, object]) -> list[str]:
    """Every path that an input names."""
    keys = [FILE_TOOLS[tool]] if tool in FILE_TOOLS else ["path"] if tool in SEARCH_TOOLS else []
    paths = [value for key in keys if isinstance(value := arguments.get(key), str)]
    pattern = arguments.get("pattern")
    if tool == "Glob" and isinstance(pattern, str) and _may_leave_folder(pattern):
        paths.append(pattern)
    return paths


def _may_leave_folder(pattern: str) -> bool:
    """Whether a pattern may name files elsewhere."""
    return pattern.startswith(("/", "~")) or ".." in PurePosixPath(pattern).parts


def _map_input(tool: str, arguments: Mapping[str, object], mapping: PathMapping) -> dict[str, object]:
    """The input with its paths in the copy; texts to be written stay as they are."""
    mapped = dict(arguments)
    for key in (FILE_TOOLS.get(tool, "path"), *(("pattern",) if tool == "Glob" else ())):
        value = mapped.get(key)
        if isinstance(value, str) and absolute_path(value, "/elsewhere") == absolute_path(value, None):
            mapped[key] = str(mapping.to_copy_path(value) or value)
    command = mapped.get("command")
    if tool == SHELL_TOOL and isinstance(command, str):
        mapped["command"] = mapping.into_copy(command)
    return mapped


# Codex


def _plan_codex_call(
    span: Span, arguments: dict[str, object], mapping: PathMapping, limits: ReplayLimits
) -> PlannedCall:
    if span.tool != PATCH_TOOL and span.tool not in _CODEX_SHELLS:
        return SkippedCall(span=span, reason=_SKIP_REASON_BY_KIND.get(span.call.kind, _NOT_REPLAYED))
    named = arguments.get("workdir")
    folder = mapping.recorded_path(named) if isinstance(named, str) else mapping.recorded_root
    command = _parse_command(arguments.get("command") or arguments.get("cmd"))
    patch = _embedded_patch(span, arguments, command)
    if patch is not None:
        return _plan_patch(span, patch, folder, mapping)
    copy_folder = mapping.to_copy_path(folder)
    outside_reason = None if copy_folder is not None else "it leads out of the project"
    reason = _shell_skip_reason(span, limits) or outside_reason
    if reason is not None:
        return SkippedCall(span=span, reason=reason)
    line = command if isinstance(command, str) else _command_line(command)
    run = f"cd {shlex.quote(str(copy_folder))} && {{ {mapping.into_copy(line)}\n}}"
    return ReplayStep(span=span, tool=SHELL_TOOL, input={"command": run})


def _parse_command(command: object) -> str | list[str]:
    if isinstance(command, Sequence) and not isinstance(command, str):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""


def _command_line(command: Sequence[str]) -> str:
    if len(command) == 3 and command[1] in ("-c", "-lc"):
        return command[2]
    return shlex.join(command)


def _embedded_patch(span: Span, arguments: Mapping[str, object], command: str | list[str]) -> str | None:
    """The patch that a call is, and nothing but it."""
    if span.tool == PATCH_TOOL:
        text = arguments.get("input") or arguments.get("patch") or decode_json_or_text(span.call.raw_input)
        return text if isinstance(text, str) else ""
    line = command if isinstance(command, str) else _command_line(command)
    patches = find_embedded_patches(command)
    alone = line.lstrip().startswith(("apply_patch", "applypatch"))
    return patches[0].patch if alone and len(patches) == 1 and not patches[0].folder else None


def _plan_patch(span: Span, patch: str, folder: str, mapping: PathMapping) -> PlannedCall:
    try:
        sections = parse_patch(patch)
    except PatchError:
        return SkippedCall(span=span, reason="its patch cannot be read")
    names = [name for section in sections for name in (section.path, _move_target(section)) if name is not None]
    paths = [absolute_path(name, folder) for name in names]
    if any(mapping.to_copy_path(path) is None for path in paths):
        return SkippedCall(span=span, reason="it leads out of the project")
    tool_input: dict[str, object] = {"patch": patch, "folder": folder}
    return ReplayStep(span=span, tool=PATCH_TOOL, input=tool_input, paths=tuple(dict.fromkeys(paths)))


def _move_target(section: object) -> str | None:
    return section.move_to if isinstance(section, UpdateFile) else None


_USABLE_CONFIDENCES = ("exact", "derived", "doubtful")


class FileStateRestorer:
    """Puts files of one copy into the state of then."""

    def __init__(self, archive: FileArchive, mapping: PathMapping) -> None:
        self._archive = archive
        self._mapping = mapping

    def restore_initial(self, path: str) -> tuple[bool, str | None]:
        """The file as it was before the first call: is it known, and what was done, in words."""
        recovered = self._archive.timeline_of(path).content_at(0, "before")
        copy_path = self._mapping.to_copy_path(path)
        if copy_path is None or not self._mapping.copy_contains(copy_path):
            return False, None
        if recovered.confidence not in _USABLE_CONFIDENCES or recovered.content is None:
            return False, None
        return True, self._write_recovered(path, copy_path, recovered)

    def restore_before_call(self, path: str, call: str) -> str | None:
        """The file as a call met it, if that is certain; what was done, in words."""
        try:
            recovered = self._archive.content(path, call, "before")
        except NotFound:
            return None
        copy_path = self._mapping.to_copy_path(path)
        if recovered.confidence != "exact" or copy_path is None or not self._mapping.copy_contains(copy_path):
            return None
        return self._write_recovered(path, copy_path, recovered)

    def _write_recovered(self, path: str, copy_path: Path, recovered: RecoveredContent) -> str | None:
        if recovered.content is None or contents_equal(read_content(copy_path), recovered.content):
            return None
        doubt = ", which is doubtful" if recovered.confidence == "doubtful" else ""
        because = f"{recovered.reasons[0]}{doubt}" if recovered.reasons else recovered.confidence
        try:
            if isinstance(recovered.content, Absent):
                copy_path.unlink()
                return f"{path}: taken away ({because})"
            copy_path.parent.mkdir(parents=True, exist_ok=True)
            copy_path.write_bytes(recovered.content.encode("utf-8", "surrogatepass"))
        except OSError as error:
            return f"{path}: cannot be put as it was: {error.strerror}"
        return f"{path}: put as it was ({because})"


def read_content(path: Path) -> FileContent | None:
    """What a file holds, as text; None when it is no plain file."""
    try:
        if path.is_file():
            return decode_text(path.read_bytes()).normalized
        return None if path.exists() else Absent()
    except OSError:
        return None


def contents_equal(first: FileContent | None, second: FileContent) -> bool:
    """Whether two contents are equal but for line ends."""
    if isinstance(first, str) and isinstance(second, str):
        return _normalize_text(first) == _normalize_text(second)
    return first == second


def _normalize_text(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
