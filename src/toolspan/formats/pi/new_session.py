"""Write a conversation as a Pi session. Start at `write_session`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from toolspan.formats.base import WrittenSession
from toolspan.formats.conversation import (
    Conversation,
    Fields,
    MappedCall,
    PortableCall,
    Prompt,
    format_time,
    map_reply,
    new_uuid7,
    write_records,
)
from toolspan.types import inputs

_API, _PROVIDER = "anthropic-messages", "anthropic"


def write_session(conversation: Conversation, root: Path) -> WrittenSession:
    """Write the session below `root`."""
    session, now = str(new_uuid7()), format_time(datetime.now(UTC))
    project = re.sub(r"[/\\:]", "-", conversation.cwd.removeprefix("/"))
    path = root / f"--{project}--" / f"{re.sub(r'[:.]', '-', now)}_{session}.jsonl"
    write_records(path, _make_records(conversation, session, now))
    return WrittenSession(session, path)


def _make_records(conversation: Conversation, session: str, now: str) -> Iterator[Fields]:
    yield {"type": "session", "version": 3, "id": session, "timestamp": now, "cwd": conversation.cwd}
    parent: str | None = None
    for at, message in _make_messages(conversation):
        name = secrets.token_hex(4)
        stamp = int(at.timestamp() * 1000)
        yield {
            "type": "message", "id": name, "parentId": parent, "timestamp": format_time(at),
            "message": {**message, "timestamp": stamp},
        }  # fmt: skip
        parent = name
    if conversation.title:
        name = secrets.token_hex(4)
        yield {"type": "session_info", "id": name, "parentId": parent, "timestamp": now, "name": conversation.title}


def _make_messages(conversation: Conversation) -> Iterator[tuple[datetime, Fields]]:
    for item in conversation.items:
        if isinstance(item, Prompt):
            yield item.at, {"role": "user", "content": [{"type": "text", "text": item.text}]}
            continue
        reply = map_reply(item, equivalent_call)
        names = {mapped.call.id: f"call_{uuid4().hex[:24]}" for mapped in reply.calls}
        content: list[Fields] = [{"type": "text", "text": reply.text}] if reply.text else []
        content += [
            {"type": "toolCall", "id": names[mapped.call.id], "name": mapped.tool, "arguments": mapped.arguments}
            for mapped in reply.calls
        ]
        nothing = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
        message: Fields = {"role": "assistant", "content": content, "api": _API, "provider": _PROVIDER}
        message |= {"model": item.model or "unknown", "stopReason": "toolUse" if names else "stop"}
        yield item.at, {**message, "usage": {**nothing, "totalTokens": 0, "cost": nothing}}
        for mapped in reply.calls:
            yield item.at, {
                "role": "toolResult", "toolCallId": names[mapped.call.id], "toolName": mapped.tool,
                "content": [{"type": "text", "text": _result(mapped)}], "isError": mapped.call.is_error,
            }  # fmt: skip


def _result(mapped: MappedCall) -> str:
    """Return a result with the line that the client adds to commands that failed."""
    call = mapped.call
    if mapped.tool != "bash" or not call.is_error:
        return call.result
    return f"{call.result}\n\nCommand exited with code {call.exit_code or 1}"


def equivalent_call(call: PortableCall) -> tuple[str, Fields | str] | None:
    """See `TranscriptFormat.equivalent_call`."""
    match call.input:
        case inputs.BashInput(command=command):
            return "bash", {"command": command}
        case inputs.ReadInput(file_path=path, offset=offset, limit=limit):
            lines = {"offset": offset, "limit": limit}
            return "read", {"path": path, **{name: value for name, value in lines.items() if value is not None}}
        case inputs.WriteInput(file_path=path, content=content):
            return "write", {"path": path, "content": content or ""}
        case inputs.EditInput(file_path=path, old_string=old, new_string=new):
            return "edit", {"path": path, "edits": [{"oldText": old or "", "newText": new or ""}]}
        case inputs.MultiEditInput(file_path=path, edits=edits):
            pairs = [{"oldText": edit.old_string or "", "newText": edit.new_string or ""} for edit in edits]
            return "edit", {"path": path, "edits": pairs}
        case _:
            return None
