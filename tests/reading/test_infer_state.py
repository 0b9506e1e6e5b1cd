"""States of calls: every result text of the clients, and the records around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.requirement import requirement
from toolspan import Span
from toolspan.formats.claude.pairing import SUCCEEDED, TranscriptBodyStore, parse_plain_success, parse_result
from toolspan.formats.claude.records import Entry, MessageBlock, decode_entry
from toolspan.formats.source import BytesSource
from toolspan.testing import Body, TranscriptBuilder, claude_results
from toolspan.testing.claude_results import REJECTED, SESSION_ENDED, STOP
from toolspan.types.ids import CallId
from toolspan.types.span import Call

NEW = "2.1.325"
OLD = "2.0.65"
Said = TypeVar("Said")
Table = dict[tuple[str, str | None], list[tuple[str, str, Said]]]
"""The messages of each client and tool, by state and error kind."""


def only(builder: TranscriptBuilder, tmp_path: Path) -> Span:
    path = tmp_path / "s.jsonl"
    path.write_bytes(builder.data())
    (span,) = toolspan.read(path).spans
    return span


def start_call(version: str = NEW) -> tuple[TranscriptBuilder, str]:
    builder = TranscriptBuilder(version=version).prompt("go")
    return builder, builder.call("Bash", {"command": "x"})


def ended(tool: str, body: Body, tmp_path: Path, version: str = NEW) -> Span:
    builder = TranscriptBuilder(version=version).prompt("go")
    return only(builder.result(builder.call(tool, {"command": "x"}), body), tmp_path)


def wrapped(text: str) -> str:
    return f"<tool_use_error>{text}</tool_use_error>"


def rows(table: Table[Said]) -> list[tuple[str, str, Said, str, str | None]]:
    return [(*call, *end) for end, calls in table.items() for call in calls]


ERRORS: Table[str] = {
    ("denied", "user_denied"): [
        ("Edit", NEW, REJECTED + STOP),
        ("Edit", "1.0.60", REJECTED + STOP),
        ("Edit", NEW, f"{REJECTED} To tell you how to proceed, the user said:\nno"),
        ("Bash", NEW, f"{REJECTED}{STOP}\n\nNote: The user's next message may contain a correction"),
    ],
    ("cancelled", "cancelled"): [
        ("Bash", NEW, f"The user doesn't want to take this action right now.{STOP}"),
        ("Bash", NEW, "Tool use was cancelled"),
    ],
    ("interrupted", "interrupted"): [
        ("Bash", NEW, "[Request interrupted by user for tool use]"),
        ("Bash", OLD, "[Request interrupted by user]"),
        ("Bash", OLD, "Error: [Request interrupted by user for tool use]"),
        ("Bash", NEW, SESSION_ENDED),
        ("Bash", NEW, "Interrupted by user"),
        ("Bash", NEW, "Request was aborted"),
        ("Bash", OLD, "some output\n<error>Command was aborted before completion</error>"),
    ],
    ("denied", "rule_denied"): [
        ("WebFetch", NEW, "Permission to use WebFetch has been denied."),
        ("Bash", NEW, "Permission to use Bash with command rm -rf\n/x has been denied."),
        ("Bash", NEW, "Permission to use Bash has been denied because Claude Code is running in don't ask mode."),
    ],
    ("denied", "not_granted"): [
        ("Write", NEW, "Claude requested permissions to use Write, but you haven't granted it yet."),
        ("Write", OLD, "Claude requested permissions to write to /a b/c, but you haven't granted it yet."),
        ("Bash", NEW, "This command requires approval"),
        ("Bash", OLD, "This Bash command contains multiple operations. The following parts require approval: x"),
        ("Bash", NEW, "cd in '/etc' was blocked. For security, Claude Code may only change directories to x"),
    ],
    ("denied", "classifier_denied"): [
        ("Bash", NEW, "Permission for this action was denied by the Claude Code auto mode classifier. Reason: x"),
        ("Bash", NEW, "Permission for this action has been denied. Reason: x"),
        ("Bash", NEW, "claude-x is temporarily unavailable, so auto mode cannot determine the safety of Bash"),
        ("Bash", NEW, "Auto mode could not evaluate this action and is blocking it"),
    ],
    ("cancelled", "sibling_error"): [
        ("Read", "2.1.29", wrapped("Sibling tool call errored")),
        ("Read", "2.1.80", wrapped("Cancelled: parallel tool call Bash(ls -la) errored")),
    ],
    ("cancelled", "stream_discarded"): [("Read", NEW, wrapped("Error: Streaming fallback - tool execution discarded"))],
    ("never_answered", "internal"): [("Bash", NEW, "[Tool result missing due to internal error]")],
    ("blocked_by_hook", "hook_blocked"): [
        ("Bash", NEW, "PreToolUse:Bash hook error: [x.sh]: no\n"),
        ("Bash", NEW, "Execution stopped by PreToolUse hook"),
    ],
    ("timed_out", "command_timeout"): [
        ("Bash", NEW, "Exit code 143\nCommand timed out after 2m 0s"),
        ("Bash", "1.0.60", "Command timed out after 2m 0.0s"),
    ],
    ("timed_out", "mcp_timeout"): [
        ("mcp__a__b", NEW, "MCP error -32001: Request timed out"),
        ("mcp__a__b", NEW, "request timed out after 2m0s"),
    ],
    ("timed_out", "permission_timeout"): [
        ("mcp__a__b", NEW, "Error calling tool b failed to evaluate permission: request timed out after 2m0s")
    ],
    ("failed", "unknown"): [
        ("Read", NEW, "the book timed out after page 3"),
        ("Read", NEW, "something nobody has seen"),
        ("Read", NEW, "String to replace not found"),
    ],
    ("failed", "unknown_tool"): [("Foo", NEW, wrapped("Error: No such tool available: Foo"))],
    ("failed", "invalid_input"): [
        ("Read", NEW, wrapped("InputValidationError: Read failed")),
        ("mcp__a__b", NEW, "MCP error -32602: bad"),
    ],
    ("failed", "read_required"): [("Edit", NEW, wrapped("File has not been read yet. Read it first"))],
    ("failed", "stale_file"): [("Write", NEW, wrapped("File has been modified since read"))],
    ("failed", "no_match"): [("Edit", NEW, wrapped("String to replace not found in file.\nString: x"))],
    ("failed", "ambiguous_match"): [
        ("Edit", NEW, wrapped("Found 3 matches of the string to replace, but replace_all is false."))
    ],
    ("failed", "no_change"): [("Edit", NEW, wrapped("No changes to make: the strings are the same"))],
    ("failed", "not_found"): [("Read", NEW, "File does not exist.")],
    ("failed", "is_directory"): [("Read", NEW, "EISDIR: illegal operation on a directory, read")],
    ("failed", "too_large"): [("Read", NEW, "File content (30000 tokens) exceeds maximum allowed tokens (25000).")],
    ("failed", "permission_os"): [("Read", NEW, "EACCES: permission denied, open '/x'")],
    ("failed", "mcp_no_response"): [
        ("mcp__a__b", NEW, "MCP error -32000: Connection closed"),
        ("mcp__a__b", NEW, "no response received"),
    ],
    ("failed", "mcp_error"): [("mcp__a__b", NEW, "MCP error -32603: oops")],
    ("failed", "network"): [
        ("WebFetch", NEW, "fetch failed"),
        ("WebFetch", NEW, "Request failed with status code 404"),
    ],
    ("failed", "rate_limit"): [("WebSearch", NEW, "rate limit exceeded")],
    ("failed", "schema_output"): [("StructuredOutput", NEW, "Output does not match required schema: x")],
    ("failed", "command_failed"): [
        ("Bash", NEW, "Exit code 1\ncat: x: No such file or directory"),
        ("Bash", NEW, "Exit code 2\nString to replace not found"),
    ],
    ("failed", "command_not_found"): [("Bash", NEW, "Exit code 127\nbash: foo: command not found")],
}


@pytest.mark.parametrize(("tool", "version", "text", "state", "kind"), rows(ERRORS), ids=lambda value: str(value)[:30])
def test_error_text_of_the_client_determines_the_kind(
    tool: str, version: str, text: str, state: str, kind: str, tmp_path: Path
) -> None:
    span = ended(tool, Body(content=text, is_error=True), tmp_path, version)

    assert (span.state, span.error_kind) == (state, kind)
    assert span.evidence


DENIALS = [
    ("user-rejected", "no", "denied", "user_denied"),
    ("user_rejected", "no", "denied", "user_denied"),
    ("permission-rule", "Permission to use X has been denied.", "denied", "rule_denied"),
    ("permission-rule", "PreToolUse:X hook error: [a]: b", "blocked_by_hook", "hook_blocked"),
    ("automode-blocked", "no", "denied", "classifier_denied"),
    ("automode-unavailable", "no", "denied", "classifier_denied"),
    ("interrupted", REJECTED, "interrupted", "interrupted"),
    ("cancelled", "x", "cancelled", "cancelled"),
    ("something-new", "x", "denied", "rule_denied"),
]


@requirement("states.denial-kinds")
@pytest.mark.parametrize(("denial", "text", "state", "kind"), DENIALS)
def test_recorded_denial_kind_decides(denial: str, text: str, state: str, kind: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("X", {})
    builder.result(call, text, is_error=True, denial="user-rejected")
    path = tmp_path / "s.jsonl"
    path.write_bytes(builder.data().replace(b'"user-rejected"', json.dumps(denial).encode()))

    (span,) = toolspan.read(path).spans

    assert (span.state, span.error_kind) == (state, kind)
    assert ("denial kind", denial) in [(each.rule, each.text) for each in span.evidence]


UNFLAGGED: Table[Body] = {
    ("succeeded", None): [
        ("Bash", NEW, claude_results.ran("fine")),
        ("Bash", NEW, Body(content="Exit code 1\nis what it printed")),
        ("Read", NEW, Body(content="1\tPermission to use X has been denied.")),
        ("Bash", NEW, Body(content="PreToolUse:Bash hook error: quoted")),
        ("Bash", NEW, claude_results.ran("", timedOutAfterMs=5, backgroundTaskId="b")),
        ("Bash", NEW, claude_results.in_background("b", "/x")),
        ("Read", NEW, Body(content="Error: x", structured={"type": "text"})),
        ("Read", NEW, Body(content="Error: x", is_error=False, structured="x")),
        ("mcp__a__b", NEW, Body(content="Error: result (90,000 characters) exceeds maximum allowed. saved to /x")),
    ],
    ("interrupted", "interrupted"): [
        ("Bash", NEW, claude_results.ran("", interrupted=True)),
        ("Bash", "1.0.60", Body(content="[Request interrupted by user for tool use]")),
    ],
    ("timed_out", "command_timeout"): [("Bash", NEW, claude_results.ran("", timedOutAfterMs=5))],
    ("failed", "not_found"): [
        ("Read", "1.0.60", Body(content=wrapped("File does not exist."), structured="Error: File does not exist."))
    ],
    ("failed", "mcp_error"): [
        ("mcp__a__b", "1.0.60", Body(content="Error: MCP error -32603: x", structured="Error: x"))
    ],
}


@pytest.mark.parametrize(("tool", "version", "body", "state", "kind"), rows(UNFLAGGED))
def test_only_client_markers_count_without_an_error_flag(
    tool: str, version: str, body: Body, state: str, kind: str | None, tmp_path: Path
) -> None:
    span = ended(tool, body, tmp_path, version)

    assert (span.state, span.error_kind) == (state, kind)


def test_spilled_output_is_a_truncated_success(tmp_path: Path) -> None:
    text = "Error: result (90,000 characters) exceeds maximum allowed tokens. Output saved to /x/y"

    span = ended("mcp__a__b", Body(content=text), tmp_path)

    assert span.state == "succeeded"
    assert span.result is not None
    assert (span.result.truncated, span.result.persisted_path) == (True, "/x/y")


def test_command_continued_in_the_background_succeeded(tmp_path: Path) -> None:
    span = ended("Bash", claude_results.in_background("b7", "/x"), tmp_path)

    assert (span.state, span.background) == ("succeeded", True)
    assert span.result is not None
    assert span.result.background_task == "b7"


def test_synthetic_result_of_a_repaired_conversation_is_not_a_result(tmp_path: Path) -> None:
    body = Body(content="[Tool result missing due to internal error]", is_error=True)

    span = ended("Bash", body, tmp_path)

    assert (span.state, span.synthetic) == ("never_answered", True)


@pytest.mark.parametrize(
    ("text", "code"), [("Exit code 2\nx", 2), ("Error: Exit code 127", 127), ("x\n[Exit code: 3]", 3), ("x", None)]
)
def test_exit_codes_are_read_from_the_first_or_the_last_line(text: str, code: int | None, tmp_path: Path) -> None:
    result = ended("Bash", Body(content=text, is_error=True), tmp_path).result

    assert result is not None
    assert result.exit_code == code


def rejected(prepare: Callable[[TranscriptBuilder, str], object], *, stop: bool) -> TranscriptBuilder:
    builder, call = start_call("2.1.80")
    prepare(builder, call)
    return builder.interrupt() if stop else builder.result(call, claude_results.rejected()).prompt("why?")


def nothing(builder: TranscriptBuilder, call: str) -> None:
    pass


def ticks(builder: TranscriptBuilder, call: str) -> None:
    builder.progress(call, "bash_progress", output="1", elapsedTimeSeconds=3)


def pre_hook(builder: TranscriptBuilder, call: str) -> None:
    builder.hook(call, "PreToolUse", command="x.sh")


@pytest.mark.parametrize(
    ("prepare", "stop", "state", "ambiguous"),
    [
        (nothing, False, "denied", False),
        (nothing, True, "denied", True),
        (ticks, True, "interrupted", False),
        (ticks, False, "denied", False),
        (pre_hook, True, "denied", True),
    ],
)
def test_rejection_before_an_interrupt_marker_counts_if_the_call_had_started(
    prepare: Callable[[TranscriptBuilder, str], object], stop: bool, state: str, ambiguous: bool, tmp_path: Path
) -> None:
    span = only(rejected(prepare, stop=stop), tmp_path)

    assert (span.state, span.ambiguous) == (state, ambiguous)


def test_blocking_hook_that_names_the_call_blocked_it(tmp_path: Path) -> None:
    builder, call = start_call()
    builder.hook(call, "PreToolUse", command="x.sh", outcome="blocked", text="not here")
    builder.result(call, "not here", is_error=True, denial="permission-rule")

    span = only(builder, tmp_path)

    assert (span.state, span.error_kind) == ("blocked_by_hook", "hook_blocked")
    assert any("not here" in (each.text or "") for each in span.evidence)


def test_hook_that_objected_afterwards_did_not_block(tmp_path: Path) -> None:
    builder, call = start_call()
    builder.result(call, claude_results.exited(1, "x"))
    builder.hook(call, "PostToolUse", command="x.sh", outcome="blocked", text="bad style")

    assert only(builder, tmp_path).state == "failed"


@pytest.mark.parametrize(("hooked", "state", "ambiguous"), [(True, "blocked_by_hook", False), (False, "denied", True)])
def test_unknown_denial_text_is_a_hooks_if_a_hook_ran(
    hooked: bool, state: str, ambiguous: bool, tmp_path: Path
) -> None:
    builder, call = start_call()
    if hooked:
        builder.hook(call, "PreToolUse", command="x.sh", text="hm")
    builder.result(call, "we do not do that", is_error=True, denial="permission-rule")

    span = only(builder, tmp_path)

    assert (span.state, span.ambiguous) == (state, ambiguous)


def test_call_blocked_by_a_hook_without_a_result_is_blocked(tmp_path: Path) -> None:
    builder, call = start_call()
    builder.hook(call, "PreToolUse", command="x.sh", outcome="blocked", text="no")

    assert only(builder, tmp_path).state == "blocked_by_hook"


@pytest.mark.parametrize("answered", [True, False])
def test_call_listed_as_denied_by_the_host_was_denied(answered: bool, tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("WebFetch", {"url": "x"})
    if answered:
        builder.result(call, "not allowed here", is_error=True)
    denied = [{"tool_name": "WebFetch", "tool_use_id": call, "tool_input": {}}]
    builder.raw(json.dumps({"type": "result", "permission_denials": denied}).encode())

    span = only(builder, tmp_path)

    assert (span.state, span.error_kind) == ("denied", "not_granted")


@requirement("states.commands-without-exit-code")
def test_failed_command_without_exit_code_never_ran(tmp_path: Path) -> None:
    body = Body(content="use the other tool", is_error=True)

    new, old = (ended("Bash", body, tmp_path, version) for version in (NEW, "2.0.50"))

    assert (new.state, new.error_kind, new.ambiguous) == ("denied", "rule_denied", True)
    assert (old.state, old.error_kind) == ("failed", "command_failed")


@requirement("states.commands-without-exit-code")
def test_same_denial_text_applies_to_other_tools(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for tool in ("Bash", "Read"):
        builder.result(builder.call(tool, {}), "use the other tool", is_error=True)
    path = builder.write(tmp_path / "s.jsonl")

    assert [span.state for span in toolspan.read(path).spans] == ["denied", "denied"]


def test_last_call_without_result_was_never_answered(tmp_path: Path) -> None:
    builder, _ = start_call()

    assert only(builder, tmp_path).state == "never_answered"


def test_resumed_client_answers_lost_calls(tmp_path: Path) -> None:
    builder, _ = start_call()

    assert only(builder.resume(), tmp_path).state == "interrupted"


@pytest.mark.parametrize(("version", "kind"), [("2.0.65", "not_found"), ("1.0.60", "not_found")])
def test_search_in_a_missing_folder_is_not_found_in_every_version(version: str, kind: str, tmp_path: Path) -> None:
    span = ended("Grep", claude_results.failed("Path does not exist: /gone"), tmp_path, version)

    assert (span.state, span.error_kind) == ("failed", kind)
    other = ended("Grep", claude_results.failed("Something else is wrong"), tmp_path, version)
    assert other.error_kind == "unknown"


@requirement("states.warmup-is-not-a-denial")
@pytest.mark.parametrize("version", ["2.1.325", "2.0.65", "1.0.60"])
@pytest.mark.parametrize(("prompt", "state", "kind"), [
    ("Warmup", "cancelled", "cancelled"), ("Warmup the oven", "denied", "user_denied"),
])  # fmt: skip
def test_rejection_in_a_client_subagent_is_not_the_users(
    version: str, prompt: str, state: str, kind: str, tmp_path: Path
) -> None:
    builder = TranscriptBuilder(session_id="s", version=version).prompt("go")
    agent = builder.agent("none").prompt(prompt)
    agent.result(agent.call("Read", {"file_path": "/a"}, id="inner"), claude_results.rejected())
    builder.write(tmp_path / "s.jsonl")

    spans = [span for transcript in toolspan.transcripts(tmp_path) for span in transcript.spans]

    assert [(span.id, span.state, span.error_kind) for span in spans] == [("inner", state, kind)]
    assert ("subagent of the client" in {evidence.rule for evidence in spans[0].evidence}) == (state == "cancelled")


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


TEXTS = st.sampled_from([
    "", "fine", "[1] 4242", "[Request interrupted by user]", "Error: no", "Errors: none",
    "<tool_use_error>no</tool_use_error>", "result (70,000 characters) exceeds maximum allowed",
    "out\n[Exit code: 3]", "done\nagentId: a1b2c3", "Command running in background with ID: b1",
    "Command was manually backgrounded by user", "Async agent launched successfully.",
    "<persisted-output>\nOutput too large. Full output saved to: /tmp/x.txt", "saved to nowhere",
])  # fmt: skip
CONTENTS = TEXTS | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=2)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "interrupted": st.booleans(),
        "wasInterrupted": st.booleans(),
        "backgroundTaskId": st.sampled_from(["", "b1"]),
        "timedOutAfterMs": st.sampled_from([0, 120_000]),
        "persistedOutputPath": st.sampled_from(["", "/tmp/x.txt"]),
        "status": st.sampled_from(["completed", "async_launched", "teammate_spawned"]),
        "agentId": st.sampled_from(["", "a1"]),
        "taskId": st.just("t1"),
        "isAsync": st.booleans(),
        "durationMs": st.just(12),
        "durationSeconds": st.just(1.5),
        "totalDurationMs": st.just(99),
    },
)
LINES = st.fixed_dictionaries(
    {"type": st.just("user"), "timestamp": st.just("2026-01-02T03:04:05.678Z")},
    optional={
        "toolUseResult": FACTS | TEXTS | st.lists(TEXTS, max_size=1),
        "tool_use_result": FACTS,
        "toolDenialKind": st.sampled_from(["user-rejected", "permission-rule"]),
        "version": st.sampled_from(["1.0.60", "2.1.80"]),
    },
)
FLAGS = st.fixed_dictionaries({}, optional={"is_error": st.none() | st.booleans()})
TOOLS = st.sampled_from(["", "Bash", "Task", "Read", "mcp__a__b"])


def written(line: dict[str, Any], content: object, flags: dict[str, Any]) -> tuple[MessageBlock, Entry]:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content, **flags}
    data = json.dumps({**line, "message": {"content": [block]}}, separators=(",", ":")).encode()
    entry = decode_entry(data).entry
    assert entry.message is not None
    assert isinstance(entry.message.content, list)
    return entry.message.content[0], entry


@given(line=LINES, content=CONTENTS, flags=FLAGS, tool=TOOLS)
def test_fast_path_agrees_with_the_full_inference(
    line: dict[str, Any], content: object, flags: dict[str, Any], tool: str
) -> None:
    block, entry = written(line, content, flags)
    shelf = TranscriptBodyStore(BytesSource(b""))
    call = Call(id=CallId("t1"), tool=tool, at=1, requested_at=None, target=None, body_store=shelf)

    plain = parse_plain_success(call, block, entry, 7)

    if plain is not None:
        assert parse_result(call, block, entry, 7) == (plain, SUCCEEDED, "", None)


def test_most_results_take_the_fast_path() -> None:
    shelf = TranscriptBodyStore(BytesSource(b""))
    for tool in ("Bash", "Read", "mcp__a__b"):
        block, entry = written({"type": "user"}, "fine", {})
        call = Call(id=CallId("t1"), tool=tool, at=1, requested_at=None, target=None, body_store=shelf)

        assert parse_plain_success(call, block, entry, 7) is not None
