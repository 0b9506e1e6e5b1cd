"""Client messages that are easy to misread, each in a transcript of one call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toolspan
from toolspan.types import Span


def read_claude_call(folder: Path, tool: str, text: str, version: str = "2.1.100") -> Span:
    common = {"sessionId": "s", "version": version, "cwd": "/repo", "isSidechain": False, "userType": "external"}
    request = {"role": "assistant", "id": "m1", "type": "message", "model": "m",
               "content": [{"type": "tool_use", "id": "t1", "name": tool, "input": {}}]}  # fmt: skip
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": text}],
    }
    records: list[dict[str, object]] = [
        {
            "type": "assistant",
            "uuid": "a",
            "parentUuid": None,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": request,
        },
        {"type": "user", "uuid": "b", "parentUuid": "a", "timestamp": "2026-01-01T00:00:01.000Z", "message": result},
    ]
    path = folder / "session.jsonl"
    path.write_text("".join(json.dumps({**record, **common}) + "\n" for record in records), encoding="utf-8")
    (span,) = toolspan.read(path).spans
    return span


@pytest.mark.parametrize(
    ("tool", "text", "state", "kind"),
    [
        ("Bash", 'Path "/repo/gone" does not exist', "failed", "not_found"),
        ("KillShell", "Shell b12 is not running, so cannot be killed (status: completed)", "failed", "unknown"),
        ("BashOutput", "The shell has no output to return", "failed", "unknown"),
        ("Bash", "Exit code -1\nspawn failed", "failed", "command_failed"),
        ("Grep", "Path does not exist: /repo/src", "failed", "not_found"),
        ("Glob", "Directory does not exist: /repo/src", "failed", "not_found"),
        ("WebFetch", "TypeError: x is undefined\n    at run (/opt/cli.js:681:429)", "failed", "unknown"),
        ("WebFetch", "Failed at line 429 of the page", "failed", "unknown"),
        ("WebFetch", "API Error: 429 Too Many Requests", "failed", "rate_limit"),
        ("WebFetch", '{"status": 429}', "failed", "rate_limit"),
        (
            "Edit",
            "Claude requested permissions to edit /repo/.bashrc which is a sensitive file.",
            "denied",
            "not_granted",
        ),
        ("mcp__db__query", "Request timed out", "timed_out", "mcp_timeout"),
        ("Bash", "Only read-only commands may run here", "denied", "rule_denied"),
    ],
)
@pytest.mark.parametrize("version", ["2.0.60", "2.1.40", "2.1.200"])
def test_error_message_has_its_state_and_kind(
    tmp_path: Path, tool: str, text: str, state: str, kind: str, version: str
) -> None:
    span = read_claude_call(tmp_path, tool, text, version)

    assert (span.state, span.error_kind) == (state, kind)


def test_bare_missing_path_has_no_kind_in_2_1_12(tmp_path: Path) -> None:
    span = read_claude_call(tmp_path, "Grep", "Path does not exist: /repo/src", "2.1.12")

    assert (span.state, span.error_kind) == ("failed", "unknown")


_HEADER = {"type": "input_text", "text": "Wall time: 1.2 seconds\nOutput:"}


def read_codex_call(folder: Path, output: object) -> Span:
    records = [
        ("session_meta", {"id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/repo", "cli_version": "0.130.0"}),
        ("response_item", {"type": "function_call", "name": "mcp__db__query", "arguments": "{}", "call_id": "c1"}),
        ("response_item", {"type": "function_call_output", "call_id": "c1", "output": output}),
    ]
    path = folder / "rollout-2026-01-01T00-00-00-00000000-0000-7000-8000-000000000000.jsonl"
    lines = [{"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload} for kind, payload in records]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (span,) = toolspan.read(path).spans
    return span


@pytest.mark.parametrize(
    ("message", "state", "kind"),
    [
        ("tool call error: tool call failed for `db/query`: timed out awaiting tools/call after 60s",
         "timed_out", "mcp_timeout"),
        ("tool call error: tool call failed for `db/query`: unexpected reply", "failed", "unknown"),
        ("tool call error: tool call failed for `db/query`\n\nCaused by:\n    Transport closed",
         "failed", "mcp_no_response"),
        ("MCP error -32603: the query is invalid", "failed", "mcp_error"),
        ("3 rows, none of them timed out after the update", "succeeded", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["string", "blocks", "header and string", "header and blocks", "header and text"])
def test_mcp_error_inside_json_is_a_failure(tmp_path: Path, message: str, state: str, kind: str, form: str) -> None:
    blocks = json.dumps([{"type": "text", "text": message}])
    body = blocks if "blocks" in form else message if "text" in form else json.dumps(message)
    output = [{"type": "input_text", "text": body}]

    span = read_codex_call(tmp_path, [_HEADER, *output] if "header" in form else output)

    assert (span.state, span.error_kind) == (state, kind)


def test_mcp_error_flag_inside_json_is_a_failure(tmp_path: Path) -> None:
    reply = {"content": [{"type": "text", "text": "no such table"}], "isError": True}

    span = read_codex_call(tmp_path, [_HEADER, {"type": "input_text", "text": json.dumps(reply)}])

    assert span.state == "failed"
