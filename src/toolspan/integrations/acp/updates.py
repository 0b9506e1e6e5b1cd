"""What an editor shows of a session: text, calls with their files and changes, and the plan.

`EditorUpdates` turns the events of a model and of calls into session updates; `replay_messages` does so for a
conversation that is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from acp.helpers import (
    ContentBlock,
    SessionUpdate,
    ToolCallContentVariant,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import PlanEntry, PlanEntryStatus, ToolCallLocation, ToolKind

from toolspan.errors import ToolspanError
from toolspan.runtime.outcome import content_text
from toolspan.session.models.base import ModelEvent, Retrying, TextDelta, ThinkingDelta
from toolspan.tools.task_list import TaskStore
from toolspan.types.events import Finished, LiveEvent, Progressed, Relayed, Requested, Started
from toolspan.types.tool_kinds import ToolKind as OwnToolKind
from toolspan.types.tool_kinds import tool_kind

_KINDS: Mapping[OwnToolKind, ToolKind] = {
    "shell": "execute", "read": "read", "edit": "edit", "write": "edit", "search": "search", "web": "fetch",
    "agent": "think", "plan": "think",
}  # fmt: skip
_MODE_TOOLS = frozenset({"EnterPlanMode", "ExitPlanMode"})
_FILE_FIELDS = ("file_path", "notebook_path", "path")
_MAX_TITLE = 200
_MAX_TEXT = 50_000
"""The characters of a result that an editor gets; the transcript has all of them."""


def call_kind(tool: str) -> ToolKind:
    """Return the protocol's kind of a tool."""
    return "switch_mode" if tool in _MODE_TOOLS else _KINDS.get(tool_kind(tool), "other")


def call_title(tool: str, target: str | None) -> str:
    """Return the title of a call: its command, or the tool and what it works on."""
    lines = (target or "").strip().splitlines()
    if not lines:
        return tool
    subject = lines[0][:_MAX_TITLE] + (" …" if len(lines) > 1 or len(lines[0]) > _MAX_TITLE else "")
    return f"`{subject}`" if tool_kind(tool) == "shell" else f"{tool} {subject}"


def call_locations(arguments: Mapping[str, object], cwd: Path) -> list[ToolCallLocation]:
    """Return the file that a call works on, as an absolute path."""
    name = next((arguments[field] for field in _FILE_FIELDS if isinstance(arguments.get(field), str)), None)
    if not isinstance(name, str):
        return []
    offset = arguments.get("offset")
    return [ToolCallLocation(path=str(cwd / Path(name).expanduser()), line=offset if isinstance(offset, int) else None)]


def call_changes(arguments: Mapping[str, object], cwd: Path) -> list[ToolCallContentVariant]:
    """Return the changes that the input of an editing call contains."""
    locations = call_locations(arguments, cwd)
    edits = arguments.get("edits", [arguments])
    pairs = [
        (edit["old_string"], edit["new_string"])
        for edit in (edits if isinstance(edits, list) else [])
        if isinstance(edit, Mapping)
        and isinstance(edit.get("old_string"), str)
        and isinstance(edit.get("new_string"), str)
    ]
    if not pairs and isinstance(content := arguments.get("content"), str) and "file_path" in arguments:
        pairs = [(None, content)]
    return [tool_diff_content(locations[0].path, new, old) for old, new in pairs] if locations else []


def text_content(text: str) -> list[ToolCallContentVariant]:
    """Return the text of a call for the editor, without its end if it is very long."""
    text = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}\n…"
    return [tool_content(text_block(text))] if text else []


class EditorUpdates:
    """The updates of one session."""

    def __init__(self, cwd: Path, tasks: TaskStore) -> None:
        self._cwd = cwd
        self._tasks = tasks
        self._tools: dict[str, str] = {}

    def from_model(self, event: ModelEvent) -> Iterator[SessionUpdate]:
        """Yield the update for an event that the model streams."""
        match event:
            case TextDelta():
                yield update_agent_message_text(event.text)
            case ThinkingDelta():
                yield update_agent_thought_text(event.text)
            case Retrying():
                wait = f"{event.wait_s:.1f} s ({event.attempt} of {event.max_retries})"
                yield update_agent_thought_text(f"\n{event.failure.describe()}; retrying in {wait}\n")
            case _:
                pass

    def from_event(self, event: LiveEvent) -> Iterator[SessionUpdate]:
        """Yield the updates for an event of a call, or of a subagent's call."""
        is_below = isinstance(event, Relayed)
        if isinstance(event, Relayed):
            event = event.event
        match event:
            case Requested():
                call = event.call
                self._tools[call.id] = call.tool
                title = call_title(call.tool, call.target)
                yield start_tool_call(
                    call.id,
                    f"↳ {title}" if is_below else title,
                    kind=call_kind(call.tool),
                    status="pending",
                    content=call_changes(call.arguments, self._cwd),
                    locations=call_locations(call.arguments, self._cwd),
                    raw_input=dict(call.arguments),
                )
            case Started():
                yield update_tool_call(event.call_id, status="in_progress")
            case Progressed(kind="shell"):
                yield update_tool_call(event.call_id, content=text_content(str(event.data.get("tail", ""))))
            case Finished():
                yield from self._finish_call(event)
            case _:
                pass

    def _finish_call(self, event: Finished) -> Iterator[SessionUpdate]:
        tool = self._tools.pop(event.call_id, event.span.tool)
        succeeded = event.span.state == "succeeded"
        kind = call_kind(tool)
        shows_change = succeeded and kind == "edit" and isinstance(event.structured, Mapping)
        yield update_tool_call(
            event.call_id,
            status="completed" if succeeded else "failed",
            content=None if shows_change else text_content(content_text(event.content)),
            raw_output=event.structured,
        )
        if succeeded and tool_kind(tool) == "plan" and (entries := self._plan_entries(event)):
            yield update_plan(entries)

    def _plan_entries(self, event: Finished) -> list[PlanEntry]:
        """Return the todo list that a call has written, or else the task list of the session."""
        todos = event.span.call.arguments.get("todos")
        if isinstance(todos, Sequence):
            items = [(todo.get("content"), todo.get("status")) for todo in todos if isinstance(todo, Mapping)]
        else:
            try:
                items = [(task.subject, task.status) for task in self._tasks.read_tasks()]
            except ToolspanError:
                return []
        return [
            PlanEntry(content=str(content), priority="medium", status=status)  # type: ignore[arg-type] # checked below
            for content, status in items
            if status in get_args(PlanEntryStatus)
        ]


def replay_messages(messages: Sequence[Mapping[str, object]], cwd: Path) -> Iterator[SessionUpdate]:
    """Yield the updates that show the messages of a conversation."""
    results = {
        block.get("tool_use_id"): block
        for message in messages
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    }
    for message in messages:
        for block in _blocks(message):
            match block:
                case {"type": "text", "text": str(text)}:
                    is_reply = message["role"] == "assistant"
                    yield update_agent_message_text(text) if is_reply else update_user_message_text(text)
                case {"type": "thinking", "thinking": str(text)}:
                    yield update_agent_thought_text(text)
                case {"type": "tool_use", "id": str(call_id), "name": str(tool), "input": dict(arguments)}:
                    result = results.get(call_id, {})
                    content = result.get("content", "")
                    text = content_text(content) if isinstance(content, str | list) else ""
                    target = next((value for value in arguments.values() if isinstance(value, str)), None)
                    kind = call_kind(tool)
                    yield start_tool_call(
                        call_id,
                        call_title(tool, target),
                        kind=kind,
                        status="failed" if result.get("is_error") else "completed",
                        content=(call_changes(arguments, cwd) if kind == "edit" else None) or text_content(text),
                        locations=call_locations(arguments, cwd),
                        raw_input=arguments,
                    )
                case _:
                    pass


def _blocks(message: Mapping[str, object]) -> list[dict[str, object]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def prompt_blocks(prompt: Sequence[ContentBlock]) -> list[dict[str, object]]:
    """Return a prompt of the editor as blocks of the Messages API.

    Raises:
        ToolspanError: the prompt contains something else than text, pictures, and files.
    """
    blocks: list[dict[str, object]] = []
    for part in prompt:
        match part.model_dump(by_alias=True):
            case {"type": "text", "text": str(text)}:
                blocks.append({"type": "text", "text": text})
            case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
                source = {"type": "base64", "media_type": media_type, "data": data}
                blocks.append({"type": "image", "source": source})
            case {"type": "resource_link", "uri": str(uri)}:
                blocks.append({"type": "text", "text": f"@{uri.removeprefix('file://')}"})
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                blocks.append({"type": "text", "text": f'<file path="{uri.removeprefix("file://")}">\n{text}\n</file>'})
            case _:
                raise ToolspanError(f"a prompt cannot contain {part.type} content")
    return blocks
