"""Decide which recorded calls to run again, and with which input.

Start at `plan_batches`. Recorded inputs are not trusted: only tools that declare themselves replayable are run, and
only with paths in the copy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from itertools import groupby
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.changes import command_in, command_line
from toolspan.analysis.file_history.content import Absent, FileContent
from toolspan.analysis.file_history.shell_writes import absolute_path
from toolspan.diffs import PatchError
from toolspan.diffs.codex_patch import UpdateFile, find_embedded_patches, parse_patch
from toolspan.errors import SourceError
from toolspan.formats.registry import get_format
from toolspan.replay.scratch import PathMapping
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.runtime.tool import Tool
from toolspan.tools import coding_tools
from toolspan.types.events import Finished
from toolspan.types.inputs import decode_json_or_text
from toolspan.types.results import CommandResult
from toolspan.types.span import Result, Span
from toolspan.types.state import State
from toolspan.types.tool_kinds import ToolKind, tool_kind

PATCH_TOOL = "apply_patch"
SHELL_TOOL = "Bash"
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
OUTSIDE_PROJECT = "it leads out of the project"
_READ_ONLY_KINDS: frozenset[ToolKind] = frozenset({"read", "search", "web", "question", "plan"})


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """The permissions granted to a replay."""

    bash: bool = False
    """True to run commands as well. They have all of the user's permissions, even outside the copy."""


class ReplayStep(Struct, frozen=True, kw_only=True):
    """A call to run again."""

    span: Span
    tool: str
    input: dict[str, object]
    paths: tuple[str, ...] = ()
    """The recorded paths of the files that the call works on."""


class SkippedCall(Struct, frozen=True, kw_only=True):
    """A call that is not run again."""

    span: Span
    reason: str

    @property
    def may_have_changed_files(self) -> bool:
        """True if the recorded call may have changed files, so that the copy now differs from the recording."""
        never_ran = self.span.state in ("denied", "blocked_by_hook", "cancelled", "orphan_result")
        return not never_ran and self.span.call.kind not in _READ_ONLY_KINDS


PlannedCall = ReplayStep | SkippedCall


@cache
def replayable_tools() -> Mapping[str, Tool]:
    """Return the tools of all client versions that can run again, by name."""
    tools: dict[str, Tool] = {}
    for client in map(profile, VERSIONS):
        names = client.availability.tools | client.availability.optional_tools
        tools |= {tool.name: tool for tool in coding_tools(client, only=names) if tool.replayable}
    return tools


def plan_batches(spans: Iterable[Span], mapping: PathMapping, limits: ReplayLimits) -> Iterator[list[PlannedCall]]:
    """Yield the batches of a session, each containing the calls of one message."""
    for _, batch in groupby(spans, key=lambda span: (span.call.agent_id, span.call.message_id or span.id)):
        yield [_plan_call(span, mapping, limits) for span in batch]


def _plan_call(span: Span, mapping: PathMapping, limits: ReplayLimits) -> PlannedCall:
    if span.state in _SKIP_REASON_BY_STATE:
        return SkippedCall(span=span, reason=_SKIP_REASON_BY_STATE[span.state])
    if span.error_kind == "unknown_tool":
        return SkippedCall(span=span, reason="there was no such tool then")
    try:
        arguments = dict(span.call.arguments)
        if not get_format(span.call.client).has_runtime_profiles:
            return _plan_codex_call(span, arguments, mapping, limits)
    except SourceError as error:
        return SkippedCall(span=span, reason=str(error))
    tool = replayable_tools().get(span.tool)
    if tool is None:
        return SkippedCall(span=span, reason=_SKIP_REASON_BY_KIND.get(span.call.kind, _NOT_REPLAYED))
    if tool.kind != "shell":
        return _plan_path_call(span, tool, arguments, mapping)
    if reason := _shell_skip_reason(span, limits):
        return SkippedCall(span=span, reason=reason)
    if isinstance(command := arguments.get("command"), str):
        arguments["command"] = mapping.into_copy(command)
    return ReplayStep(span=span, tool=tool.name, input=arguments)


def _plan_path_call(span: Span, tool: Tool, arguments: dict[str, object], mapping: PathMapping) -> PlannedCall:
    """Map the paths in the input to the copy. Text to be written is unchanged."""
    subject = "" if tool.subject is None else tool.subject.field
    pattern = None if tool.subject is None else tool.subject.pattern
    value = arguments.get(subject)
    for key in (subject, *(() if pattern is None else (pattern,))):
        name = arguments.get(key)
        if not isinstance(name, str):
            continue
        is_path = key == subject or name.startswith(("/", "~")) or ".." in PurePosixPath(name).parts
        if is_path and mapping.to_copy_path(name) is None:
            return SkippedCall(span=span, reason=OUTSIDE_PROJECT)
        if absolute_path(name, "/elsewhere") == absolute_path(name, None):
            arguments[key] = str(mapping.to_copy_path(name) or name)
    is_file = isinstance(value, str) and tool.kind != "search"
    paths = (mapping.recorded_path(str(value)),) if is_file else ()
    return ReplayStep(span=span, tool=tool.name, input=arguments, paths=paths)


def _shell_skip_reason(span: Span, limits: ReplayLimits) -> str | None:
    if not limits.bash:
        return "commands are run only with --bash"
    return "it continued in the background" if span.background else None


def _plan_codex_call(
    span: Span, arguments: dict[str, object], mapping: PathMapping, limits: ReplayLimits
) -> PlannedCall:
    if span.tool != PATCH_TOOL and span.tool not in _CODEX_SHELLS:
        return SkippedCall(span=span, reason=_SKIP_REASON_BY_KIND.get(span.call.kind, _NOT_REPLAYED))
    workdir = arguments.get("workdir")
    folder = mapping.recorded_path(workdir) if isinstance(workdir, str) else mapping.recorded_root
    command = command_in(arguments)
    if span.tool == PATCH_TOOL:
        text = arguments.get("input") or arguments.get("patch") or decode_json_or_text(span.call.raw_input)
        return _plan_patch(span, text if isinstance(text, str) else "", folder, mapping)
    patches = find_embedded_patches(command)
    is_alone = command_line(command).lstrip().startswith(("apply_patch", "applypatch"))
    if is_alone and len(patches) == 1 and not patches[0].folder:
        return _plan_patch(span, patches[0].patch, folder, mapping)
    copy_folder = mapping.to_copy_path(folder)
    reason = _shell_skip_reason(span, limits) or (OUTSIDE_PROJECT if copy_folder is None else None)
    if reason is not None:
        return SkippedCall(span=span, reason=reason)
    script = f"cd {shlex.quote(str(copy_folder))} && {{ {mapping.into_copy(command_line(command))}\n}}"
    return ReplayStep(span=span, tool=SHELL_TOOL, input={"command": script})


def _plan_patch(span: Span, patch: str, folder: str, mapping: PathMapping) -> PlannedCall:
    try:
        sections = parse_patch(patch)
    except PatchError:
        return SkippedCall(span=span, reason="its patch cannot be read")
    names = [section.path for section in sections]
    names += [section.move_to for section in sections if isinstance(section, UpdateFile) and section.move_to]
    paths = [absolute_path(name, folder) for name in names]
    if any(mapping.to_copy_path(path) is None for path in paths):
        return SkippedCall(span=span, reason=OUTSIDE_PROJECT)
    tool_input: dict[str, object] = {"patch": patch, "folder": folder}
    return ReplayStep(span=span, tool=PATCH_TOOL, input=tool_input, paths=tuple(dict.fromkeys(paths)))


ReplayVerdict = Literal["same", "differs", "skipped"]
DifferenceAspect = Literal["state", "error flag", "content", "file"]


class ReplayDifference(Struct, frozen=True, kw_only=True):
    """One difference between the recording and the replay."""

    what: DifferenceAspect
    path: str | None = None
    recorded: str = ""
    now: str = ""
    """Summaries of the recorded and the replayed value. `diff` contains the differing lines."""
    diff: tuple[str, ...] = ()


class ReplayOutcome(Struct, frozen=True, kw_only=True):
    """The result of replaying one call."""

    call: str
    tool: str
    target: str | None
    agent: str | None
    verdict: ReplayVerdict
    reason: str | None = None
    recorded_state: str
    state: str | None = None
    differences: tuple[ReplayDifference, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes about files that were restored before the call."""


MAX_DIFF_LINES = 20
_MAX_DIFF_CHARS = 200_000
"""The length above which strings are not compared line by line, because that would take minutes."""
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
_LINE_NUMBER = re.compile(r"^ *(\d+)(?:→|\t)", re.MULTILINE)
_VOLATILE_PATTERNS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? \w+ +\d+ \d\d:\d\d:\d\d[^\n]*"), "<time>"),
    (re.compile(r"\b([A-Z][a-z]{2}) +\d{1,2} +(\d\d:\d\d|\d{4})\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ns|µs|us|ms|s|secs?|seconds?|minutes?)\b"), "<duration>"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "<address>"),
    (re.compile(r"(?<=/tmp/)[\w.-]+"), "<temporary>"),
)


def result_differences(recorded: Span, finished: Finished, mapping: PathMapping) -> Iterator[ReplayDifference]:
    """Yield the differences between the recorded and the replayed result."""
    span = finished.span
    if span.state != recorded.state:
        yield ReplayDifference(what="state", recorded=recorded.state, now=span.state)
    if recorded.result is None or span.result is None:
        return
    has_flag = get_format(recorded.call.client).records_error_flag
    if has_flag and bool(recorded.result.is_error) != bool(span.result.is_error):
        flags = ("no error", "error")
        yield ReplayDifference(
            what="error flag", recorded=flags[bool(recorded.result.is_error)], now=flags[bool(span.result.is_error)]
        )
    if span.tool == PATCH_TOOL:
        return  # the replayed tool returns different text than Codex
    old = normalize_result(_comparable_text(recorded.result), span.tool, mapping)
    new = normalize_result(_comparable_text(span.result), span.tool, mapping)
    if old != new:
        yield ReplayDifference(
            what="content", recorded=_summarize_text(old), now=_summarize_text(new), diff=short_diff(old, new)
        )


def file_difference(path: str, recorded: FileContent, now: FileContent | None) -> ReplayDifference:
    """Describe a file whose content differs."""
    old, new = (content if isinstance(content, str) else "" for content in (recorded, now))
    return ReplayDifference(
        what="file",
        path=path,
        recorded=_describe_content(recorded),
        now=_describe_content(now),
        diff=short_diff(old, new),
    )


def normalize_result(text: str, tool: str, mapping: PathMapping) -> str:
    """Return the result text without details that vary between runs."""
    text = _REMINDER.sub("", mapping.as_recorded(text)).rstrip()
    if tool == "Read":  # client versions write an arrow or a tab after line numbers
        return _LINE_NUMBER.sub(r"\1\t", text)
    if tool_kind(tool) == "search":  # results are ordered by file times, which differ in a copy
        return "\n".join(sorted(text.splitlines()))
    if tool == SHELL_TOOL:
        for pattern, name in _VOLATILE_PATTERNS:
            text = pattern.sub(name, text)
    return text


def short_diff(old: str, new: str) -> tuple[str, ...]:
    """Return the first lines of a diff."""
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return (f"{len(old):,} characters then, {len(new):,} now: too many to compare",)
    lines = list(unified_diff(old.splitlines(), new.splitlines(), "recorded", "now", lineterm="", n=1))
    more = len(lines) - MAX_DIFF_LINES
    first_lines = lines[: MAX_DIFF_LINES + (more == 1)]
    return (*first_lines, f"… {more:,} more lines") if more > 1 else tuple(first_lines)


def _comparable_text(result: Result) -> str:
    """Return the text that the model received or, for Codex commands, only their output."""
    structured = result.structured
    return structured.output if isinstance(structured, CommandResult) else result.text


def _summarize_text(text: str) -> str:
    lines = text.splitlines()
    return f"{len(lines):,} lines" if len(lines) != 1 else lines[0][:200]


def _describe_content(content: FileContent | None) -> str:
    if isinstance(content, Absent):
        return "no file"
    return "not a plain file" if content is None else f"{len(content):,} characters"
