"""Invented chats of Gemini CLI for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SESSION = "1a2b3c4d-0000-4000-8000-00000000abcd"
PROJECT_HASH = "5f" * 32
Fields = dict[str, Any]


def stamp(second: float) -> str:
    """Return a time within the invented minute."""
    return f"2026-03-02T10:20:{second:06.3f}Z"


def user(message_id: str, text: str, second: float = 0) -> Fields:
    """Return a prompt."""
    return {"id": message_id, "timestamp": stamp(second), "type": "user", "content": [{"text": text}]}


def reply(message_id: str, text: str = "", second: float = 1, calls: list[Fields] | None = None) -> Fields:
    """Return a reply of the model, with its calls."""
    return {
        "id": message_id,
        "timestamp": stamp(second),
        "type": "gemini",
        "content": text,
        "thoughts": [{"subject": "Plan", "description": f"Think about {message_id}.", "timestamp": stamp(second)}],
        "tokens": {"input": 100, "output": 20, "cached": 40, "thoughts": 5, "tool": 1, "total": 126},
        "model": "gemini-3-pro",
        "toolCalls": calls or [],
    }


def call(
    call_id: str,
    name: str,
    args: Fields,
    *,
    output: str | None = None,
    error: str | None = None,
    status: str | None = "success",
    second: float = 2,
    display: object = None,
) -> Fields:
    """Return a call with its result; without output and error it has none."""
    fields: Fields = {"id": call_id, "name": name, "args": args, "status": status, "timestamp": stamp(second)}
    if output is not None or error is not None:
        response = {"output": output} if output is not None else {"error": error}
        fields["result"] = [{"functionResponse": {"id": call_id, "name": name, "response": response}}]
    if display is not None:
        fields["resultDisplay"] = display
    return fields


def header(session: str = SESSION, **fields: object) -> Fields:
    """Return the fields beside the messages."""
    return {
        "sessionId": session,
        "projectHash": PROJECT_HASH,
        "startTime": stamp(0),
        "lastUpdated": stamp(59),
        **fields,
    }


def sample_messages() -> list[Fields]:
    """Return a conversation with a call in each state."""
    return [
        user("m1", "Fix the tëst."),
        reply(
            "m2",
            "I look at it.",
            1,
            [
                call("read_file_1_0", "read_file", {"file_path": "/w/a.py"}, output="print(1)\n", second=1.5),
                call(
                    "run_shell_command_1_1",
                    "run_shell_command",
                    {"command": "make test", "description": "Run tests"},
                    output="Output: bad\nExit Code: 2",
                    second=4,
                ),
            ],
        ),
        reply(
            "m3",
            "",
            5,
            [
                call("replace_2_0", "replace", {"file_path": "/w/a.py", "old_string": "x", "new_string": "y"},
                     error="Failed to edit, could not find the string to replace.", status="error", second=6),
                call("run_shell_command_2_1", "run_shell_command", {"command": "rm -rf /"},
                     error="Tool execution denied by policy.", status="error", second=4),
                call("write_file_2_2", "write_file", {"file_path": "/w/b.py", "content": "b"}, status="cancelled",
                     error="[Operation Cancelled] Reason: User denied execution.", second=7),
            ],
        ),
        {"id": "m4", "timestamp": stamp(8), "type": "info", "content": "Update available."},
        reply("m5", "Wait.", 9, [call("glob_3_0", "glob", {"pattern": "*.py"}, status=None)]),
    ]  # fmt: skip


def document(messages: list[Fields] | None = None, **fields: object) -> bytes:
    """Return a chat as one document, indented as the client writes it."""
    chat = {**header(), "messages": sample_messages() if messages is None else messages, **fields}
    return json.dumps(chat, indent=2, ensure_ascii=False).encode()


def lines(*records: Fields) -> bytes:
    """Return a chat as lines; by default the sample."""
    chat = records or (header(kind="main"), *sample_messages())
    return b"".join(json.dumps(record).encode() + b"\n" for record in chat)


def write_chat(home: Path, data: bytes, session: str = SESSION, suffix: str = "json") -> Path:
    """Write a chat where the client would."""
    folder = home / ".gemini" / "tmp" / PROJECT_HASH / "chats"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"session-2026-03-02T10-20-{session[:8]}.{suffix}"
    path.write_bytes(data)
    return path
