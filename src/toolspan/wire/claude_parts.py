"""Small typed views of the parts of Claude Code's lines that `Entry` leaves undecoded.

Each view reads only the keys that some question needs; a part that does not fit gives None, and
its bytes stay where they are.
"""

import re
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from toolspan.wire import document
from toolspan.wire.claude import NOTHING

T = TypeVar("T", bound=Struct)


class Attachment(Struct, gc=False):
    """Context the client injected, hooks' words among it."""

    type: str = ""
    hook_name: str | None = field(default=None, name="hookName")
    hook_event: str | None = field(default=None, name="hookEvent")
    tool_use_id: str | None = field(default=None, name="toolUseID")
    command: str | None = None
    exit_code: int | None = field(default=None, name="exitCode")
    duration_ms: float | None = field(default=None, name="durationMs")
    content: Raw = NOTHING
    stderr: Raw = NOTHING
    blocking_error: Raw = field(default=NOTHING, name="blockingError")
    decision: Raw = NOTHING
    message: Raw = NOTHING
    prompt: Raw = NOTHING
    command_mode: str | None = field(default=None, name="commandMode")


class ProgressData(Struct, gc=False):
    """What a progress line tells."""

    type: str = ""
    hook_event: str | None = field(default=None, name="hookEvent")
    hook_name: str | None = field(default=None, name="hookName")
    command: str | None = None
    agent_id: str | None = field(default=None, name="agentId")


class StructuredFacts(Struct, gc=False):
    """The facts of a structured result that decide a call's state."""

    interrupted: bool | None = None
    was_interrupted: bool | None = field(default=None, name="wasInterrupted")
    background_task_id: str | None = field(default=None, name="backgroundTaskId")
    timed_out_after_ms: float | None = field(default=None, name="timedOutAfterMs")
    persisted_output_path: str | None = field(default=None, name="persistedOutputPath")
    status: str | None = None
    agent_id: str | None = field(default=None, name="agentId")
    task_id: str | None = field(default=None, name="taskId")
    is_async: bool | None = field(default=None, name="isAsync")
    duration_ms: float | None = field(default=None, name="durationMs")
    duration_seconds: float | None = field(default=None, name="durationSeconds")
    total_duration_ms: float | None = field(default=None, name="totalDurationMs")


class PermissionDecision(Struct, gc=False):
    """What the client recorded about consent."""

    decision: str | None = None
    source: str | None = None
    reason_type: str | None = field(default=None, name="reasonType")


class Denial(Struct, gc=False):
    """One call that the host of a stream refused."""

    tool_use_id: str | None = None


class StreamResult(Struct, gc=False):
    """The last line of a stream."""

    permission_denials: list[Denial] = []
    deferred_tool_use: Raw = NOTHING
    stop_reason: str | None = None
    terminal_reason: str | None = None


class Target(Struct, gc=False):
    """The one key of an input that says what a call is about."""

    file_path: str | None = None
    notebook_path: str | None = None
    command: str | None = None
    url: str | None = None
    pattern: str | None = None
    query: str | None = None
    skill: str | None = None
    description: str | None = None
    subject: str | None = None
    path: str | None = None
    task_id: str | None = None
    bash_id: str | None = None
    shell_id: str | None = None
    task: str | None = field(default=None, name="taskId")
    prompt: str | None = None


class Titles(Struct, gc=False):
    """The lines that name a conversation."""

    summary: str | None = None
    ai_title: str | None = field(default=None, name="aiTitle")
    custom_title: str | None = field(default=None, name="customTitle")


_TARGET_KEYS = Target.__struct_fields__
_DECODERS: dict[type[Struct], msgspec.json.Decoder[Struct]] = {
    shape: msgspec.json.Decoder(shape)
    for shape in (Attachment, ProgressData, StructuredFacts, PermissionDecision, StreamResult, Target, Titles)
}  # fmt: skip


def part(raw: Raw | bytes, shape: type[T]) -> T | None:
    """The part narrowed to a view; None when it is absent or does not fit."""
    if not memoryview(raw):
        return None
    try:
        return _DECODERS[shape].decode(raw)  # type: ignore[return-value]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _part_loosely(bytes(raw), shape)


def _part_loosely(data: bytes, shape: type[T]) -> T | None:
    """Field by field, so that one odd value does not hide the others."""
    try:
        found = document.decode(data)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    taken = {}
    for known in msgspec.structs.fields(shape):
        if known.encode_name in found:
            value = found[known.encode_name]
            try:
                taken[known.name] = (
                    Raw(document.encode(value))
                    if known.type is Raw
                    else msgspec.convert(value, known.type)
                )
            except (msgspec.ValidationError, ValueError):
                continue
    return shape(**taken)


def target_of(raw: Raw, limit: int = 200) -> str | None:
    """What a call is about, shortened: path, command, pattern, address."""
    found = part(raw, Target)
    if found is None:
        return None
    for key in _TARGET_KEYS:
        value = getattr(found, key)
        if value:
            return str(value)[:limit]
    return None


def title_of(data: bytes) -> str | None:
    """The name a summary or title line gives the conversation."""
    found = part(data, Titles)
    return (found.custom_title or found.ai_title or found.summary) if found else None


class TaskNotice(NamedTuple):
    """News of a background task."""

    task_id: str | None
    call_id: str | None
    status: str | None
    summary: str | None


_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.DOTALL)
_TAG = re.compile(r"<(task-id|tool-use-id|status|summary)>(.*?)</\1>", re.DOTALL)


def task_notices(text: str) -> list[TaskNotice]:
    """The task notifications in a text."""
    if "<task-notification>" not in text:
        return []
    notices = []
    for body in _NOTICE.findall(text):
        tags = dict(_TAG.findall(body))
        notices.append(
            TaskNotice(
                tags.get("task-id"), tags.get("tool-use-id"), tags.get("status"), tags.get("summary")
            )
        )
    return notices


_AGENT_LINE = re.compile(r"^agentId: (?:agent-)?([\w-]+)", re.MULTILINE)


def agent_in_text(text: str) -> str | None:
    """The subagent id that a result's text names on a line of its own."""
    found = None
    for found in _AGENT_LINE.finditer(text):
        pass
    return found[1] if found else None
