"""The stream form of a transcript: what a client prints, instead of what it keeps.

In: the records of a session and its subagents. Out: records with the stream's keys: no parents, no
folder, the calls refused in a last line. Pure; `TranscriptBuilder.stream_lines` is the door.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Spoken(NamedTuple):
    """A record of a transcript, and the call whose subagent wrote it."""

    record: dict[str, object]
    agent_call: str | None


def stream_of(records: Sequence[Spoken], session_id: str, model: str) -> list[dict[str, object]]:
    """The lines a client would have printed."""
    said = [spoken for spoken in records if _is_spoken(spoken)]
    said.sort(key=lambda spoken: str(spoken.record["timestamp"]))
    first = {
        "type": "system",
        "subtype": "init",
        "cwd": said[0].record["cwd"] if said else "",
        "session_id": session_id,
        "model": model,
        "permissionMode": "default",
        "claude_code_version": said[0].record["version"] if said else "",
    }
    return [first, *(_line(spoken, session_id) for spoken in said), _last(said, session_id)]


def _is_spoken(spoken: Spoken) -> bool:
    """The model's blocks and the results; what a person typed is not printed back."""
    if spoken.record.get("type") == "assistant":
        return True
    return any(block.get("type") == "tool_result" for block in _blocks(spoken.record))


def _line(spoken: Spoken, session_id: str) -> dict[str, object]:
    record = spoken.record
    line: dict[str, object] = {
        "type": record["type"],
        "message": _message(record["message"]),
        "parent_tool_use_id": spoken.agent_call,
        "session_id": session_id,
        "uuid": record["uuid"],
        "timestamp": record["timestamp"],
    }
    if "requestId" in record:
        line["request_id"] = record["requestId"]
    if "toolUseResult" in record:
        line["tool_use_result"] = record["toolUseResult"]
    return line


def _message(message: object) -> object:
    """A block is printed before its message is whole: the stop reason is not known yet."""
    if isinstance(message, dict) and "stop_reason" in message:
        return {**message, "stop_reason": None}
    return message


def _last(said: Sequence[Spoken], session_id: str) -> dict[str, object]:
    """The line that ends a run: how it went, and which calls were refused."""
    calls = {
        block["id"]: block
        for spoken in said
        for block in _blocks(spoken.record)
        if block.get("type") == "tool_use"
    }
    texts = [
        block["text"]
        for spoken in said
        for block in _blocks(spoken.record)
        if block.get("type") == "text"
    ]
    denials = [
        {"tool_name": call["name"], "tool_use_id": call["id"], "tool_input": call["input"]}
        for spoken in said
        if "toolDenialKind" in spoken.record
        for block in _blocks(spoken.record)
        if (call := calls.get(block.get("tool_use_id")))
    ]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": len(said),
        "result": texts[-1] if texts else "",
        "session_id": session_id,
        "permission_denials": denials,
        "terminal_reason": "completed",
    }


def _blocks(record: dict[str, object]) -> list[dict[str, object]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []
