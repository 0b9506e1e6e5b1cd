"""Small typed views of the parts of Claude Code's lines.

Each view reads only the keys that some question needs; they are fields of `claude.Entry` and come
with it. What they leave out stays in the line.
"""

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, field

NOTHING = Raw()
"""A part that is absent."""


class Attachment(Struct, gc=False):
    """Context the client injected, hooks' words among it."""

    type: str = ""
    hook_name: str | None = field(default=None, name="hookName")
    hook_event: str | None = field(default=None, name="hookEvent")
    tool_use_id: str | None = field(default=None, name="toolUseID")
    command: str | None = None
    exit_code: int | None = field(default=None, name="exitCode")
    duration_ms: int | float | None = field(default=None, name="durationMs")
    content: Raw = NOTHING
    stderr: Raw = NOTHING
    blocking_error: Raw = field(default=NOTHING, name="blockingError")
    decision: Raw = NOTHING
    message: Raw = NOTHING
    banner: Raw = NOTHING
    prompt: Raw = NOTHING
    command_mode: str | None = field(default=None, name="commandMode")


class ProgressData(Struct, gc=False):
    """What a progress line tells."""

    type: str = ""
    hook_event: str | None = field(default=None, name="hookEvent")
    hook_name: str | None = field(default=None, name="hookName")
    command: str | None = None
    agent_id: str | None = field(default=None, name="agentId")


LAUNCHED = ("async_launched", "remote_launched", "teammate_spawned")
"""How the structured result of a call that goes on elsewhere names its status."""


class StructuredFacts(Struct, gc=False):
    """The facts of a structured result that decide a call's state."""

    interrupted: bool | None = None
    was_interrupted: bool | None = field(default=None, name="wasInterrupted")
    background_task_id: str | None = field(default=None, name="backgroundTaskId")
    timed_out_after_ms: int | float | None = field(default=None, name="timedOutAfterMs")
    persisted_output_path: str | None = field(default=None, name="persistedOutputPath")
    status: str | None = None
    agent_id: str | None = field(default=None, name="agentId")
    task_id: str | None = field(default=None, name="taskId")
    is_async: bool | None = field(default=None, name="isAsync")
    duration_ms: int | float | None = field(default=None, name="durationMs")
    duration_seconds: int | float | None = field(default=None, name="durationSeconds")
    total_duration_ms: int | float | None = field(default=None, name="totalDurationMs")

    @property
    def decisive(self) -> bool:
        """They say that the call did not simply return."""
        return bool(self.interrupted or self.was_interrupted or self.timed_out_after_ms is not None)

    @property
    def telling(self) -> bool:
        """They say more than that the call returned, and how long it took."""
        return bool(
            self.interrupted
            or self.was_interrupted
            or self.timed_out_after_ms is not None
            or self.background_task_id
            or self.agent_id
            or self.is_async
            or self.persisted_output_path is not None
            or self.status in LAUNCHED
        )

    @property
    def reported_ms(self) -> float | None:
        """The duration that the tool itself reported."""
        if self.duration_seconds is not None:
            return self.duration_seconds * 1000
        return self.total_duration_ms if self.duration_ms is None else self.duration_ms


class PermissionDecision(Struct, gc=False):
    """What the client recorded about consent."""

    decision: str | None = None
    source: str | None = None
    reason_type: str | None = field(default=None, name="reasonType")
    rule_source: str | None = field(default=None, name="ruleSource")
    reason_code: str | None = field(default=None, name="reasonCode")
    grant_scope: str | None = field(default=None, name="grantScope")


class Denial(Struct, gc=False):
    """One call that the host of a stream refused."""

    tool_use_id: str | None = None


class Deferred(Struct, gc=False):
    """A call that a hook put off."""

    id: str | None = None
    tool_use_id: str | None = None


class Target(Struct, gc=False):
    """The keys of an input that say what a call is about, the most telling first."""

    file_path: Any = None
    notebook_path: Any = None
    command: Any = None
    url: Any = None
    pattern: Any = None
    query: Any = None
    skill: Any = None
    description: Any = None
    subject: Any = None
    path: Any = None
    task_id: Any = None
    bash_id: Any = None
    shell_id: Any = None
    task: Any = field(default=None, name="taskId")
    prompt: Any = None

    def words(self, limit: int = 160) -> str | None:
        """What the call is about, shortened: path, command, pattern, address."""
        likely = self.file_path or self.command or self.pattern
        if type(likely) is str:
            return likely[:limit]
        for value in msgspec.structs.astuple(self):
            if value and type(value) is str:
                return value[:limit]
        return None


_DECISION = msgspec.json.Decoder(PermissionDecision)


def permission_decision(raw: Raw) -> PermissionDecision | None:
    """What the client recorded about consent; None when it recorded nothing that can be read."""
    if raw is NOTHING:
        return None
    try:
        return _DECISION.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


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
                tags.get("task-id"),
                tags.get("tool-use-id"),
                tags.get("status"),
                tags.get("summary"),
            )
        )
    return notices


_AGENT_LINE = re.compile(r"^agentId: (?:agent-)?([\w-]+)", re.MULTILINE)


def agent_in_text(text: str) -> str | None:
    """The subagent id that a result's text names on a line of its own."""
    found: list[str] = _AGENT_LINE.findall(text)
    return found[-1] if found else None
