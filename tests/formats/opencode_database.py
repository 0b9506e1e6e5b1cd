"""Invented OpenCode sessions for tests, as a database and as an exported document."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

SESSION = "ses_e1160000ffe1Abcdefghijklmn"
_START = 1_795_004_600_000
Fields = dict[str, Any]

_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL, title text NOT NULL,
    version text NOT NULL, agent text, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
"""


def moment(second: float) -> int:
    """Return a time in milliseconds."""
    return _START + round(second * 1000)


def text(words: str) -> Fields:
    """Return a part with text."""
    return {"type": "text", "text": words}


def tool(
    call_id: str, name: str, arguments: Fields, *, second: float = 1, output: str | None = None,
    error: str | None = None, **metadata: object,
) -> Fields:  # fmt: skip
    """Return a part with a call; without output and error it is still running."""
    state: Fields = {"status": "running", "input": arguments, "time": {"start": moment(second)}}
    if output is not None:
        state |= {"status": "completed", "output": output, "title": name, "metadata": metadata}
    if error is not None:
        state |= {"status": "error", "error": error, "metadata": metadata}
    if output is not None or error is not None:
        state["time"]["end"] = moment(second + 0.5)
    return {"type": "tool", "tool": name, "callID": call_id, "state": state}


def user(words: str) -> tuple[Fields, list[Fields]]:
    """Return a prompt."""
    return {"role": "user", "agent": "build"}, [text(words)]


def reply(*parts: Fields, second: float = 1, **fields: object) -> tuple[Fields, list[Fields]]:
    """Return a reply of the model."""
    tokens = {"input": 60, "output": 15, "reasoning": 5, "cache": {"read": 40, "write": 0}}
    message = {
        "role": "assistant", "modelID": "m1", "providerID": "test", "cost": 0.25, "tokens": tokens,
        "finish": "tool-calls", "time": {"created": moment(second), "completed": moment(second + 1)},
    }  # fmt: skip
    return message | fields, list(parts)


def sample_messages() -> list[tuple[Fields, list[Fields]]]:
    """Return a conversation with calls in several states."""
    return [
        user("Fix the tëst."),
        reply(
            text("I look at it."),
            tool("call_1", "read", {"filePath": "/w/a.py"}, output="print(1)\n"),
            tool("call_2", "bash", {"command": "make test"}, output="bad\n", exit=2, output_=""),
        ),
        reply(
            tool("call_3", "edit", {"filePath": "/w/a.py", "oldString": "x", "newString": "y"}, second=3,
                 error="Error: Could not find oldString in the file."),
            tool("call_4", "bash", {"command": "rm -rf /"}, second=3,
                 error="The user has specified a rule which prevents you from using this specific tool call."),
            second=3,
        ),
        reply(tool("call_5", "bash", {"command": "sleep 60"}, second=5), second=5, tokens={}),
    ]  # fmt: skip


def session_info(name: str = SESSION, parent: str | None = None) -> Fields:
    """Return the session as the client exports it."""
    times = {"created": moment(0), "updated": moment(9)}
    info = {"id": name, "directory": "/w", "title": "Repair", "version": "1.18.33", "time": times}
    return info | ({"parentID": parent} if parent else {})


def document(messages: list[tuple[Fields, list[Fields]]] | None = None) -> bytes:
    """Return an exported session."""
    exported = []
    for number, (message, parts) in enumerate(sample_messages() if messages is None else messages):
        ids = {"id": f"msg_{number:04}", "sessionID": SESSION}
        times = {"time": {"created": moment(number)}}
        exported.append({
            "info": ids | times | message,
            "parts": [
                part | {"id": f"prt_{number:04}{n:04}", "messageID": ids["id"], "sessionID": SESSION}
                for n, part in enumerate(parts)
            ],
        })  # fmt: skip
    return json.dumps({"info": session_info(), "messages": exported}, ensure_ascii=False).encode()


def make_database(path: Path) -> None:
    """Create an empty database with a write-ahead log, as the client does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(_SCHEMA)


def add_session(path: Path, data: bytes, name: str = SESSION, parent: str | None = None, shift: int = 0) -> None:
    """Add an exported session to a database."""
    exported = json.loads(data)
    with closing(sqlite3.connect(path)) as database, database:
        info = exported["info"]
        database.execute(
            "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (name, parent, info["directory"], info["title"], info["version"], "general" if parent else None,
             info["time"]["created"] + shift, info["time"]["updated"] + shift),
        )  # fmt: skip
        for message in exported["messages"]:
            add_message(database, name, message["info"], message["parts"], shift)


def add_message(database: sqlite3.Connection, session: str, info: Fields, parts: list[Fields], shift: int = 0) -> None:
    """Add a message with its parts, whose ids become unique for the session."""
    message_id = f"{info['id']}{session}"
    at = info["time"]["created"] + shift
    body = {key: value for key, value in info.items() if key not in ("id", "sessionID")}
    database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message_id, session, at, at, json.dumps(body)))
    for part in parts:
        body = {key: value for key, value in part.items() if key not in ("id", "messageID", "sessionID")}
        row = (f"{part['id']}{session}", message_id, session, at, at, json.dumps(body))
        database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)


def write_database(home: Path, data: bytes) -> Path:
    """Write a database with one session where the client would, and return the path of the session."""
    path = home / "opencode" / "opencode.db"
    make_database(path)
    add_session(path, data)
    return path / SESSION
