"""Write a conversation as a Codex session. Start at `write_session`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from toolspan.formats.base import WrittenSession
from toolspan.formats.conversation import (
    Conversation,
    Fields,
    PortableCall,
    Prompt,
    format_time,
    map_reply,
    new_uuid7,
    write_records,
)
from toolspan.formats.json_repair import encode_document
from toolspan.types import inputs

_VERSION = "0.169.0"


def write_session(conversation: Conversation, home: Path) -> WrittenSession:
    """Write the session below the client's folder `home`."""
    thread, now = str(new_uuid7()), datetime.now(UTC)
    name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{thread}.jsonl"
    path = home / "sessions" / f"{now:%Y/%m/%d}" / name
    write_records(path, _make_records(conversation, thread, now))
    return WrittenSession(thread, path)


def _make_records(conversation: Conversation, thread: str, now: datetime) -> Iterator[Fields]:
    def record(kind: str, at: datetime, **payload: object) -> Fields:
        return {"timestamp": format_time(at), "type": kind, "payload": payload}

    yield record(
        "session_meta", now, id=thread, timestamp=format_time(now), cwd=conversation.cwd, originator="codex_cli_rs",
        cli_version=_VERSION, source="cli",
    )  # fmt: skip
    for item in conversation.items:
        if isinstance(item, Prompt):
            content = [{"type": "input_text", "text": item.text}]
            yield record("response_item", item.at, type="message", role="user", content=content)
            yield record("event_msg", item.at, type="user_message", message=item.text, images=[])
            continue
        reply = map_reply(item, equivalent_call)
        if reply.text:
            content = [{"type": "output_text", "text": reply.text}]
            yield record("response_item", item.at, type="message", role="assistant", content=content)
            yield record("event_msg", item.at, type="agent_message", message=reply.text)
        names = {mapped.call.id: f"call_{uuid4().hex[:24]}" for mapped in reply.calls}
        for mapped in reply.calls:
            if isinstance(mapped.arguments, str):
                fields: Fields = {"type": "custom_tool_call", "input": mapped.arguments, "status": "completed"}
            else:
                fields = {"type": "function_call", "arguments": encode_document(mapped.arguments).decode()}
            yield record("response_item", item.at, **fields, name=mapped.tool, call_id=names[mapped.call.id])
        for mapped in reply.calls:
            kind = "custom_tool_call_output" if isinstance(mapped.arguments, str) else "function_call_output"
            output = _output(mapped.call, is_command=kind == "function_call_output")
            yield record("response_item", item.at, type=kind, call_id=names[mapped.call.id], output=output)


def _output(call: PortableCall, *, is_command: bool) -> str:
    """Return a result with the exit code in the words of the client, because it has no error flag."""
    if not is_command or call.result.startswith(("Exit code: ", "Chunk ID: ")):
        return call.result
    return f"Exit code: {call.exit_code or int(call.is_error)}\nOutput:\n{call.result}"


def equivalent_call(call: PortableCall) -> tuple[str, Fields | str] | None:
    """See `TranscriptFormat.equivalent_call`."""
    if isinstance(call.input, inputs.BashInput):
        return "exec_command", {"cmd": call.input.command}
    if call.patch is not None:
        return "apply_patch", call.patch
    return None
