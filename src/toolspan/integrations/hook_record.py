"""`toolspan hook record`: append the input of a hook to `<session>/toolspan-hooks.jsonl`.

A client waits for this command, so it imports almost nothing, prints nothing and always exits with code 0. Contents
are not recorded: only the call's id, its tool and a checksum of its input. The checksum links a permission request,
which has no id, to its call.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib

HOOKS_FILE_NAME = "toolspan-hooks.jsonl"
_RECORDED_KEYS = (
    ("hook_event_name", "event"),
    ("tool_use_id", "call"),
    ("tool_name", "tool"),
    ("duration_ms", "duration_ms"),
    ("is_interrupt", "is_interrupt"),
    ("agent_id", "agent"),
    ("permission_mode", "mode"),
    ("notification_type", "about"),
    ("prompt_id", "prompt"),
)
_MAX_VALUE_LENGTH = 200


def record_hook_input() -> None:
    """Record the hook input from standard input. Never raises, and never waits for a terminal."""
    row: dict[str, object] = {"v": 1, "at": round(time.time(), 3)}
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return
        hook_input = json.loads(sys.stdin.buffer.read())
        transcript = hook_input.get("transcript_path")
        if not isinstance(transcript, str) or not transcript.endswith(".jsonl"):
            return
        config = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
        projects = os.path.realpath(os.path.join(os.path.expanduser(config), "projects"))  # noqa: PTH111, PTH118
        folder = os.path.realpath(transcript.removesuffix(".jsonl"))
        if not folder.startswith(projects + os.sep):
            return
        for client_key, row_key in _RECORDED_KEYS:
            value = hook_input.get(client_key)
            if isinstance(value, str):
                row[row_key] = value[:_MAX_VALUE_LENGTH]
            elif isinstance(value, int | float):
                row[row_key] = value
        if "tool_input" in hook_input:
            encoded = json.dumps(hook_input["tool_input"], sort_keys=True).encode()
            row["input"] = f"{zlib.crc32(encoded):08x}-{len(encoded)}"
        _append_row(folder, json.dumps(row, separators=(",", ":")).encode() + b"\n")
    except Exception:  # noqa: BLE001 - recording must never disturb the client
        return


def _append_row(folder: str, row: bytes) -> None:
    """Append a row with a single write, so that lines from concurrent hooks do not interleave."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib costs milliseconds
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(os.path.join(folder, HOOKS_FILE_NAME), flags, 0o600)  # noqa: PTH118
    try:
        os.write(descriptor, row)
    finally:
        os.close(descriptor)
