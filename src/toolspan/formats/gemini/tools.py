"""Gemini CLI tools: types for their inputs and for the results that the client displays."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from toolspan.formats import json_repair
from toolspan.formats.decoding import decode_input, unknown_input_keys
from toolspan.types import inputs
from toolspan.types.inputs import Number, ToolInput

_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
_SUBJECT_KEYS = (
    "command", "file_path", "absolute_path", "path", "dir_path", "pattern", "query", "url", "prompt", "objective",
    "title", "topic", "fact", "questions", "paths",
)  # fmt: skip
"""Input keys that identify the subject of a call, most specific first."""
_SUBJECT_LENGTH = 160


class RunShellCommandInput(inputs.BashInput, frozen=True, kw_only=True):
    """A command line."""

    dir_path: str | None = None
    directory: str | None = None
    is_background: bool | None = None
    delay_ms: Number | None = None


class ReadFileInput(inputs.ReadInput, frozen=True, kw_only=True):
    """A file, or part of a file, to read."""

    absolute_path: str | None = None
    start_line: int | None = None
    end_line: int | None = None


class ReplaceInput(inputs.EditInput, frozen=True, kw_only=True):
    """Text to replace in a file."""

    instruction: str | None = None
    expected_replacements: int | None = None
    allow_multiple: bool | None = None


class WriteFileInput(inputs.WriteInput, frozen=True, kw_only=True):
    """A file to write."""

    ai_proposed_content: str | None = None
    modified_by_user: bool | None = None


class FindFilesInput(inputs.GlobInput, frozen=True, kw_only=True):
    """A file name pattern."""

    dir_path: str | None = None
    case_sensitive: bool | None = None
    respect_git_ignore: bool | None = None
    respect_gemini_ignore: bool | None = None


class GrepSearchInput(inputs.GrepInput, frozen=True, kw_only=True):
    """A pattern to search for in file contents."""

    dir_path: str | None = None
    include: str | None = None
    include_pattern: str | None = None
    exclude_pattern: str | None = None
    names_only: bool | None = None
    max_matches_per_file: int | None = None
    total_max_matches: int | None = None


class ListDirectoryInput(inputs.LsInput, frozen=True, kw_only=True):
    """A folder to list."""

    dir_path: str | None = None
    file_filtering_options: dict[str, object] | None = None


class UpdateTopicInput(ToolInput, frozen=True, kw_only=True):
    """The current topic of the conversation."""

    title: str | None = None
    topic: str | None = None
    summary: str | None = None
    strategic_intent: str | None = None


class AskUserInput(ToolInput, frozen=True, kw_only=True):
    """Questions for the user."""

    questions: tuple[dict[str, object], ...] = ()


class SaveMemoryInput(ToolInput, frozen=True, kw_only=True):
    """A fact to remember in later sessions."""

    fact: str = ""
    scope: str | None = None


class InvestigateInput(ToolInput, frozen=True, kw_only=True):
    """A task for the subagent that investigates a code base."""

    objective: str = ""


INPUT_TYPES: dict[str, type[ToolInput]] = {
    "ask_user": AskUserInput,
    "codebase_investigator": InvestigateInput,
    "glob": FindFilesInput,
    "google_web_search": inputs.WebSearchInput,
    "grep_search": GrepSearchInput,
    "list_directory": ListDirectoryInput,
    "read_file": ReadFileInput,
    "replace": ReplaceInput,
    "run_shell_command": RunShellCommandInput,
    "save_memory": SaveMemoryInput,
    "search_file_content": GrepSearchInput,
    "update_topic": UpdateTopicInput,
    "web_fetch": inputs.WebFetchInput,
    "write_file": WriteFileInput,
}


def narrow_input(tool: str, data: bytes) -> ToolInput:
    """Return a call's input as its tool's type, or `UnknownInput` if it does not match."""
    return decode_input(INPUT_TYPES.get(tool), data)


def input_drift(tool: str, data: bytes) -> tuple[str, ...]:
    """Return the keys of an input for which its tool's type has no field."""
    return unknown_input_keys(INPUT_TYPES.get(tool), data)


def describe_call(data: bytes) -> str | None:
    """Return the subject of a call, shortened: a command, path, pattern, URL or question."""
    arguments = json_repair.decode_readable(data)
    if not isinstance(arguments, dict):
        return None
    for key in _SUBJECT_KEYS:
        value: Any = arguments.get(key)
        if isinstance(value, list) and value:
            value = value[0].get("question") if isinstance(value[0], dict) else value[0]
        if isinstance(value, str) and value.strip():
            return value.strip()[:_SUBJECT_LENGTH]
    return None


class FileChangeDisplay(Struct, frozen=True, kw_only=True, rename="camel"):
    """The change that an edit made to a file."""

    file_diff: str
    file_name: str | None = None
    file_path: str | None = None
    original_content: str | None = None
    new_content: str | None = None
    is_new_file: bool | None = None


class SubagentDisplay(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of a subagent at the end of its call."""

    is_subagent_progress: bool
    agent_name: str | None = None
    state: str | None = None
    result: str | None = None
    terminate_reason: str | None = None


class SearchDisplay(Struct, frozen=True, kw_only=True, rename="camel"):
    """The matches found by a search or a listing."""

    summary: str
    matches: tuple[dict[str, object], ...] = ()
    files: tuple[object, ...] = ()


class OtherDisplay(Struct, frozen=True, kw_only=True):
    """The decoded value of any other display."""

    value: object


def narrow_display(data: bytes) -> object:
    """Return the displayed result as a type chosen by its shape, or None if nothing was displayed."""
    for kind in (FileChangeDisplay, SubagentDisplay, SearchDisplay):
        try:
            return msgspec.json.decode(data, type=kind)
        except _DECODE_ERRORS:
            continue
    return OtherDisplay(value=json_repair.decode_readable(data)) if data else None
