"""How calls ended: every text the clients write, and what stands around it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import toolspan
from tests.requirement import requirement
from toolspan import Span
from toolspan.testing import Body, TranscriptBuilder, bodies
from toolspan.testing.bodies import REJECTED, SESSION_ENDED, STOP

NEW = "2.1.325"
OLD = "2.0.65"


def only(story: TranscriptBuilder, tmp_path: Path) -> Span:
    path = tmp_path / "s.jsonl"
    path.write_bytes(story.data())
    (span,) = toolspan.read(path).spans
    return span


def ended(tool: str, body: Body, tmp_path: Path, version: str = NEW) -> Span:
    story = TranscriptBuilder(version=version).prompt("go")
    return only(story.result(story.call(tool, {"command": "x"}), body), tmp_path)


def wrapped(text: str) -> str:
    return f"<tool_use_error>{text}</tool_use_error>"


ERRORS = [
    # 02 §8: denial, interruption, cancellation
    ("Edit", REJECTED + STOP, NEW, "denied", "user_denied"),
    ("Edit", REJECTED + STOP, "1.0.60", "denied", "user_denied"),
    (
        "Edit",
        f"{REJECTED} To tell you how to proceed, the user said:\nno",
        NEW,
        "denied",
        "user_denied",
    ),
    (
        "Bash",
        f"{REJECTED}{STOP}\n\nNote: The user's next message may contain a correction",
        NEW,
        "denied",
        "user_denied",
    ),
    (
        "Bash",
        f"The user doesn't want to take this action right now.{STOP}",
        NEW,
        "cancelled",
        "cancelled",
    ),
    ("Bash", "[Request interrupted by user for tool use]", NEW, "interrupted", "interrupted"),
    ("Bash", "[Request interrupted by user]", OLD, "interrupted", "interrupted"),
    (
        "Bash",
        "Error: [Request interrupted by user for tool use]",
        OLD,
        "interrupted",
        "interrupted",
    ),
    ("Bash", SESSION_ENDED, NEW, "interrupted", "interrupted"),
    ("WebFetch", "Permission to use WebFetch has been denied.", NEW, "denied", "rule_denied"),
    (
        "Bash",
        "Permission to use Bash with command rm -rf\n/x has been denied.",
        NEW,
        "denied",
        "rule_denied",
    ),
    (
        "Bash",
        "Permission to use Bash has been denied because Claude Code is running in don't ask mode.",
        NEW,
        "denied",
        "rule_denied",
    ),
    (
        "Write",
        "Claude requested permissions to use Write, but you haven't granted it yet.",
        NEW,
        "denied",
        "not_granted",
    ),
    (
        "Write",
        "Claude requested permissions to write to /a b/c, but you haven't granted it yet.",
        OLD,
        "denied",
        "not_granted",
    ),
    ("Bash", "This command requires approval", NEW, "denied", "not_granted"),
    (
        "Bash",
        "This Bash command contains multiple operations. The following parts require approval: x",
        OLD,
        "denied",
        "not_granted",
    ),
    (
        "Bash",
        "cd in '/etc' was blocked. For security, Claude Code may only change directories to x",
        NEW,
        "denied",
        "not_granted",
    ),
    (
        "Bash",
        "Permission for this action was denied by the Claude Code auto mode classifier. Reason: x",
        NEW,
        "denied",
        "classifier_denied",
    ),
    (
        "Bash",
        "Permission for this action has been denied. Reason: x",
        NEW,
        "denied",
        "classifier_denied",
    ),
    (
        "Bash",
        "claude-x is temporarily unavailable, so auto mode cannot determine the safety of Bash",
        NEW,
        "denied",
        "classifier_denied",
    ),
    (
        "Bash",
        "Auto mode could not evaluate this action and is blocking it",
        NEW,
        "denied",
        "classifier_denied",
    ),
    ("Read", wrapped("Sibling tool call errored"), "2.1.29", "cancelled", "sibling_error"),
    (
        "Read",
        wrapped("Cancelled: parallel tool call Bash(ls -la) errored"),
        "2.1.80",
        "cancelled",
        "sibling_error",
    ),
    (
        "Read",
        wrapped("Error: Streaming fallback - tool execution discarded"),
        NEW,
        "cancelled",
        "stream_discarded",
    ),
    ("Bash", "[Tool result missing due to internal error]", NEW, "never_answered", "internal"),
    ("Bash", "Tool use was cancelled", NEW, "cancelled", "cancelled"),
    ("Bash", "Interrupted by user", NEW, "interrupted", "interrupted"),
    ("Bash", "Request was aborted", NEW, "interrupted", "interrupted"),
    (
        "Bash",
        "some output\n<error>Command was aborted before completion</error>",
        OLD,
        "interrupted",
        "interrupted",
    ),
    # hooks
    ("Bash", "PreToolUse:Bash hook error: [x.sh]: no\n", NEW, "blocked_by_hook", "hook_blocked"),
    ("Bash", "Execution stopped by PreToolUse hook", NEW, "blocked_by_hook", "hook_blocked"),
    # 08 §3: timers
    (
        "Bash",
        "Exit code 143\nCommand timed out after 2m 0s",
        NEW,
        "timed_out",
        "command_timeout",
    ),
    ("Bash", "Command timed out after 2m 0.0s", "1.0.60", "timed_out", "command_timeout"),
    (
        "mcp__a__b",
        "MCP error -32001: Request timed out",
        NEW,
        "timed_out",
        "mcp_timeout",
    ),
    ("mcp__a__b", "request timed out after 2m0s", NEW, "timed_out", "mcp_timeout"),
    (
        "mcp__a__b",
        "Error calling tool b failed to evaluate permission: request timed out after 2m0s",
        NEW,
        "timed_out",
        "permission_timeout",
    ),
    ("Read", "the book timed out after page 3", NEW, "failed", "unknown"),
    # 08 §6: kinds
    ("Foo", wrapped("Error: No such tool available: Foo"), NEW, "failed", "unknown_tool"),
    ("Read", wrapped("InputValidationError: Read failed"), NEW, "failed", "invalid_input"),
    ("Edit", wrapped("File has not been read yet. Read it first"), NEW, "failed", "read_required"),
    ("Write", wrapped("File has been modified since read"), NEW, "failed", "stale_file"),
    ("Edit", wrapped("String to replace not found in file.\nString: x"), NEW, "failed", "no_match"),
    (
        "Edit",
        wrapped("Found 3 matches of the string to replace, but replace_all is false."),
        NEW,
        "failed",
        "ambiguous_match",
    ),
    ("Edit", wrapped("No changes to make: the strings are the same"), NEW, "failed", "no_change"),
    ("Read", "File does not exist.", NEW, "failed", "not_found"),
    ("Read", "EISDIR: illegal operation on a directory, read", NEW, "failed", "is_directory"),
    (
        "Read",
        "File content (30000 tokens) exceeds maximum allowed tokens (25000).",
        NEW,
        "failed",
        "too_large",
    ),
    ("Read", "EACCES: permission denied, open '/x'", NEW, "failed", "permission_os"),
    ("mcp__a__b", "MCP error -32602: bad", NEW, "failed", "invalid_input"),
    ("mcp__a__b", "MCP error -32000: Connection closed", NEW, "failed", "mcp_no_response"),
    ("mcp__a__b", "no response received", NEW, "failed", "mcp_no_response"),
    ("mcp__a__b", "MCP error -32603: oops", NEW, "failed", "mcp_error"),
    ("WebFetch", "fetch failed", NEW, "failed", "network"),
    ("WebFetch", "Request failed with status code 404", NEW, "failed", "network"),
    ("WebSearch", "rate limit exceeded", NEW, "failed", "rate_limit"),
    (
        "StructuredOutput",
        "Output does not match required schema: x",
        NEW,
        "failed",
        "schema_output",
    ),
    ("Read", "something nobody has seen", NEW, "failed", "unknown"),
    # 08 §6.1: the shell's own kinds come first
    ("Bash", "Exit code 1\ncat: x: No such file or directory", NEW, "failed", "command_failed"),
    ("Bash", "Exit code 127\nbash: foo: command not found", NEW, "failed", "command_not_found"),
    ("Bash", "Exit code 2\nString to replace not found", NEW, "failed", "command_failed"),
    ("Read", "String to replace not found", NEW, "failed", "unknown"),
]


@requirement("verdict.texts")
@pytest.mark.parametrize(
    ("tool", "text", "version", "state", "kind"), ERRORS, ids=lambda value: str(value)[:30]
)
def test_an_error_is_known_by_the_clients_words(
    tool: str, text: str, version: str, state: str, kind: str, tmp_path: Path
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


@requirement("verdict.denial-kinds")
@pytest.mark.parametrize(("denial", "text", "state", "kind"), DENIALS)
def test_the_denial_kind_that_the_client_recorded_decides(
    denial: str, text: str, state: str, kind: str, tmp_path: Path
) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("X", {})
    story.result(call, text, is_error=True, denial="user-rejected")
    path = tmp_path / "s.jsonl"
    path.write_bytes(story.data().replace(b'"user-rejected"', json.dumps(denial).encode()))

    (span,) = toolspan.read(path).spans

    assert (span.state, span.error_kind) == (state, kind)
    assert ("denial kind", denial) in [(each.rule, each.text) for each in span.evidence]


UNFLAGGED: list[tuple[str, Body, str, str, str | None]] = [
    ("Bash", bodies.ran("fine"), NEW, "succeeded", None),
    ("Bash", Body(content="Exit code 1\nis what it printed"), NEW, "succeeded", None),
    ("Read", Body(content="1\tPermission to use X has been denied."), NEW, "succeeded", None),
    ("Bash", Body(content="PreToolUse:Bash hook error: quoted"), NEW, "succeeded", None),
    ("Bash", bodies.ran("", interrupted=True), NEW, "interrupted", "interrupted"),
    ("Bash", bodies.ran("", timedOutAfterMs=5), NEW, "timed_out", "command_timeout"),
    ("Bash", bodies.ran("", timedOutAfterMs=5, backgroundTaskId="b"), NEW, "succeeded", None),
    ("Bash", bodies.in_background("b", "/x"), NEW, "succeeded", None),
    (
        "Read",
        Body(content=wrapped("File does not exist."), structured="Error: File does not exist."),
        "1.0.60",
        "failed",
        "not_found",
    ),
    (
        "mcp__a__b",
        Body(content="Error: MCP error -32603: x", structured="Error: x"),
        "1.0.60",
        "failed",
        "mcp_error",
    ),
    ("Read", Body(content="Error: x", structured={"type": "text"}), NEW, "succeeded", None),
    ("Read", Body(content="Error: x", is_error=False, structured="x"), NEW, "succeeded", None),
    (
        "mcp__a__b",
        Body(content="Error: result (90,000 characters) exceeds maximum allowed. saved to /x"),
        NEW,
        "succeeded",
        None,
    ),
    (
        "Bash",
        Body(content="[Request interrupted by user for tool use]"),
        "1.0.60",
        "interrupted",
        "interrupted",
    ),
]


@requirement("verdict.without-a-flag")
@pytest.mark.parametrize(("tool", "body", "version", "state", "kind"), UNFLAGGED)
def test_without_an_error_flag_only_the_clients_own_signs_count(
    tool: str, body: Body, version: str, state: str, kind: str | None, tmp_path: Path
) -> None:
    span = ended(tool, body, tmp_path, version)

    assert (span.state, span.error_kind) == (state, kind)


@requirement("verdict.spilled-is-a-success")
def test_a_spilled_output_is_a_success_that_was_cut(tmp_path: Path) -> None:
    text = "Error: result (90,000 characters) exceeds maximum allowed tokens. Output saved to /x/y"

    span = ended("mcp__a__b", Body(content=text), tmp_path)

    assert span.state == "succeeded"
    assert span.result is not None
    assert (span.result.truncated, span.result.persisted_path) == (True, "/x/y")


@requirement("verdict.background")
def test_a_command_that_goes_on_in_the_background_succeeded(tmp_path: Path) -> None:
    span = ended("Bash", bodies.in_background("b7", "/x"), tmp_path)

    assert (span.state, span.background) == ("succeeded", True)
    assert span.result is not None
    assert span.result.background_task == "b7"


@requirement("verdict.synthetic")
def test_a_result_that_repairs_a_broken_conversation_is_none(tmp_path: Path) -> None:
    body = Body(content="[Tool result missing due to internal error]", is_error=True)

    span = ended("Bash", body, tmp_path)

    assert (span.state, span.synthetic) == ("never_answered", True)


@requirement("verdict.exit-codes")
@pytest.mark.parametrize(
    ("text", "code"),
    [("Exit code 2\nx", 2), ("Error: Exit code 127", 127), ("x\n[Exit code: 3]", 3), ("x", None)],
)
def test_exit_codes_are_read_from_the_first_or_the_last_line(
    text: str, code: int | None, tmp_path: Path
) -> None:
    result = ended("Bash", Body(content=text, is_error=True), tmp_path).result

    assert result is not None
    assert result.exit_code == code


def rejected(
    prepare: Callable[[TranscriptBuilder, str], object], *, stop: bool
) -> TranscriptBuilder:
    """A call that was rejected, perhaps because the person stopped the turn."""
    story = TranscriptBuilder(version="2.1.80").prompt("go")
    call = story.call("Bash", {"command": "x"})
    prepare(story, call)
    return story.interrupt() if stop else story.result(call, bodies.rejected()).prompt("why?")


def nothing(story: TranscriptBuilder, call: str) -> None:
    pass


def ticks(story: TranscriptBuilder, call: str) -> None:
    story.progress(call, "bash_progress", output="1", elapsedTimeSeconds=3)


def pre_hook(story: TranscriptBuilder, call: str) -> None:
    story.hook(call, "PreToolUse", command="x.sh")


@requirement("verdict.interrupt-or-denial")
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
def test_a_rejection_before_an_interrupt_marker_is_one_if_the_call_had_begun(
    prepare: Callable[[TranscriptBuilder, str], object],
    stop: bool,
    state: str,
    ambiguous: bool,
    tmp_path: Path,
) -> None:
    span = only(rejected(prepare, stop=stop), tmp_path)

    assert (span.state, span.ambiguous) == (state, ambiguous)


@requirement("verdict.hooks")
def test_a_blocking_hook_that_names_the_call_blocked_it(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "x"})
    story.hook(call, "PreToolUse", command="x.sh", outcome="blocked", text="not here")
    story.result(call, "not here", is_error=True, denial="permission-rule")

    span = only(story, tmp_path)

    assert (span.state, span.error_kind) == ("blocked_by_hook", "hook_blocked")
    assert any("not here" in (each.text or "") for each in span.evidence)


@requirement("verdict.hooks")
def test_a_hook_that_complained_afterwards_did_not_block(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "x"})
    story.result(call, bodies.exited(1, "x"))
    story.hook(call, "PostToolUse", command="x.sh", outcome="blocked", text="bad style")

    assert only(story, tmp_path).state == "failed"


@requirement("verdict.hooks")
@pytest.mark.parametrize(
    ("hooked", "state", "ambiguous"),
    [(True, "blocked_by_hook", False), (False, "denied", True)],
)
def test_a_refusal_in_foreign_words_is_a_hooks_if_one_spoke(
    hooked: bool, state: str, ambiguous: bool, tmp_path: Path
) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "x"})
    if hooked:
        story.hook(call, "PreToolUse", command="x.sh", text="hm")
    story.result(call, "we do not do that", is_error=True, denial="permission-rule")

    span = only(story, tmp_path)

    assert (span.state, span.ambiguous) == (state, ambiguous)


@requirement("verdict.hooks")
def test_a_call_that_a_hook_blocked_without_any_result_is_blocked(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "x"})
    story.hook(call, "PreToolUse", command="x.sh", outcome="blocked", text="no")

    assert only(story, tmp_path).state == "blocked_by_hook"


@requirement("verdict.host-denials")
@pytest.mark.parametrize("answered", [True, False])
def test_a_call_that_the_host_lists_as_denied_was_denied(answered: bool, tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("WebFetch", {"url": "x"})
    if answered:
        story.result(call, "not allowed here", is_error=True)
    denied = [{"tool_name": "WebFetch", "tool_use_id": call, "tool_input": {}}]
    story.raw(json.dumps({"type": "result", "permission_denials": denied}).encode())

    span = only(story, tmp_path)

    assert (span.state, span.error_kind) == ("denied", "not_granted")


@requirement("verdict.commands-without-exit-code")
def test_a_failed_command_without_exit_code_never_ran(tmp_path: Path) -> None:
    body = Body(content="use the other tool", is_error=True)

    new, old = (ended("Bash", body, tmp_path, version) for version in (NEW, "2.0.50"))

    assert (new.state, new.error_kind, new.ambiguous) == ("denied", "rule_denied", True)
    assert (old.state, old.error_kind) == ("failed", "command_failed")


@requirement("verdict.commands-without-exit-code")
def test_the_same_words_refuse_other_tools_too(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    for tool in ("Bash", "Read"):
        story.result(story.call(tool, {}), "use the other tool", is_error=True)
    path = story.write(tmp_path / "s.jsonl")

    assert [span.state for span in toolspan.read(path).spans] == ["denied", "denied"]


def test_a_call_at_the_end_without_result_was_never_answered(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    story.call("Bash", {"command": "x"})

    assert only(story, tmp_path).state == "never_answered"


def test_a_resumed_client_answers_for_calls_it_lost(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    story.call("Bash", {"command": "x"})

    assert only(story.resume(), tmp_path).state == "interrupted"


def test_a_result_before_its_call_is_judged_as_that_tools(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    story.result("early", "Command timed out after 2m 0s", is_error=True)
    story.call("Bash", {"command": "x"}, id="early")

    span = only(story, tmp_path)

    assert (span.tool, span.state, span.error_kind) == ("Bash", "timed_out", "command_timeout")


@requirement("verdict.texts")
@pytest.mark.parametrize(("version", "kind"), [("2.0.65", "not_found"), ("1.0.60", "unknown")])
def test_a_search_in_a_folder_that_is_not_there_is_known_where_no_note_says_so(
    version: str, kind: str, tmp_path: Path
) -> None:
    span = ended("Grep", bodies.failed("Path does not exist: /gone"), tmp_path, version)

    assert (span.state, span.error_kind) == ("failed", kind)
    other = ended("Grep", bodies.failed("Something else is wrong"), tmp_path, version)
    assert other.error_kind == "unknown"
