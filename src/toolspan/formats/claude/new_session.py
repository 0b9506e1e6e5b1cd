"""Write a conversation as a Claude Code session. Start at `write_session`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import msgspec

from toolspan.formats.base import WrittenSession
from toolspan.formats.claude.paths import project_name
from toolspan.formats.conversation import (
    Conversation,
    Fields,
    PortableCall,
    Prompt,
    Reply,
    format_time,
    map_reply,
    write_records,
)
from toolspan.types import inputs

_VERSION = "2.1.327"
_FALLBACK_MODEL = "claude-opus-5-5"
_TOOLS: dict[type[inputs.ToolInput], str] = {
    inputs.BashInput: "Bash", inputs.ReadInput: "Read", inputs.WriteInput: "Write", inputs.EditInput: "Edit",
    inputs.GrepInput: "Grep", inputs.GlobInput: "Glob",
}  # fmt: skip


def write_session(conversation: Conversation, home: Path) -> WrittenSession:
    """Write the session below the client's folder `home`."""
    session = str(uuid4())
    path = home / "projects" / project_name(conversation.cwd) / f"{session}.jsonl"
    write_records(path, _make_records(conversation, session))
    return WrittenSession(session, path)


def _make_records(conversation: Conversation, session: str) -> Iterator[Fields]:
    parent: str | None = None

    def record(kind: str, message: Fields, at: datetime, **fields: object) -> Fields:
        nonlocal parent
        uuid = str(uuid4())
        made = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": conversation.cwd,
            "sessionId": session, "version": _VERSION, "gitBranch": "", "type": kind, "message": message,
            "uuid": uuid, "timestamp": format_time(at), **fields,
        }  # fmt: skip
        parent = uuid
        return made

    for item in conversation.items:
        if isinstance(item, Prompt):
            yield record("user", {"role": "user", "content": item.text}, item.at)
            continue
        reply = map_reply(item, equivalent_call)
        message_id = f"msg_{uuid4().hex[:24]}"
        names = {mapped.call.id: f"toolu_{uuid4().hex[:24]}" for mapped in reply.calls}
        blocks: list[Fields] = [{"type": "text", "text": reply.text}] if reply.text else []
        blocks += [
            {"type": "tool_use", "id": names[mapped.call.id], "name": mapped.tool, "input": mapped.arguments}
            for mapped in reply.calls
        ]
        for block in blocks:
            yield record("assistant", _assistant_message(item, block, message_id, has_calls=bool(names)), item.at)
        for mapped in reply.calls:
            content: Fields = {
                "type": "tool_result",
                "tool_use_id": names[mapped.call.id],
                "content": mapped.call.result,
            }
            if mapped.call.is_error:
                content["is_error"] = True
            yield record(
                "user", {"role": "user", "content": [content]}, item.at, toolUseResult=mapped.call.result
            )  # fmt: skip
    if conversation.title:
        yield {"type": "ai-title", "sessionId": session, "aiTitle": conversation.title}


def _assistant_message(reply: Reply, block: Fields, message_id: str, *, has_calls: bool) -> Fields:
    model = reply.model if reply.model and reply.model.startswith("claude") else _FALLBACK_MODEL
    return {
        "id": message_id, "type": "message", "role": "assistant", "model": model, "content": [block],
        "stop_reason": "tool_use" if has_calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }  # fmt: skip


def equivalent_call(call: PortableCall) -> tuple[str, Fields | str] | None:
    """See `TranscriptFormat.equivalent_call`."""
    tool = None if call.input is None else _TOOLS.get(type(call.input))
    if tool is None:
        return None
    fields = msgspec.to_builtins(call.input)
    return tool, {name: value for name, value in fields.items() if value not in (None, False)}
