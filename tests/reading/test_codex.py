"""Codex rollouts are read as the same spans, messages and tokens as Claude transcripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from toolspan.errors import SourceError
from toolspan.formats import zstd
from toolspan.formats.codex.inputs import ApplyPatchInput, ExecCommandInput
from toolspan.formats.codex.results import McpResult
from toolspan.formats.source import BytesSource
from toolspan.reading.rows import encode_json_line, make_call_row
from toolspan.reading.transcript import Transcript
from toolspan.testing import codex_builder
from toolspan.testing.codex_builder import RolloutAge, RolloutBuilder
from toolspan.types.inputs import McpInput, UnknownInput
from toolspan.types.results import CommandResult, PatchedFile, PatchResult
from toolspan.types.session import Tokens
from toolspan.types.span import Hook, Note, Notification, Permission, Progress, Span

AGES: tuple[RolloutAge, ...] = ("bare", "enveloped", "paginated")
PATCH = "*** Begin Patch\n*** Add File: notes.txt\n+milk\n*** End Patch\n"


def read(made: RolloutBuilder, name: str = "rollout-x.jsonl") -> Transcript:
    return toolspan.read(BytesSource(made.data(), name))


def only(made: RolloutBuilder) -> Span:
    (span,) = read(made).spans
    return span


@pytest.mark.parametrize("age", AGES)
def test_rollout_of_any_version_has_calls_messages_and_metadata(age: RolloutAge) -> None:
    rollout = RolloutBuilder(age=age).injected("<environment_context>\n</environment_context>")
    rollout.prompt("Show me the notes").thinking("They are in a file")
    call = rollout.call("exec_command", {"cmd": "cat notes.txt"}, after_ms=500)
    rollout.output(call, codex_builder.command_output("milk\n"), after_ms=2000).text("Milk.")
    transcript = read(rollout)
    assert transcript.client == "codex"
    (span,) = transcript.spans
    assert (span.id, span.tool, span.state, span.call.kind) == (
        call, "exec_command", "succeeded", "shell",
    )  # fmt: skip
    assert span.call.target == "cat notes.txt"
    assert span.input == ExecCommandInput(cmd="cat notes.txt")
    assert span.result is not None
    assert span.result.exit_code == 0
    assert span.result.text.endswith("milk\n")
    assert span.result.structured == CommandResult(output="milk\n", exit_code=0, wall_ms=100.0)
    assert transcript.info.session_id == rollout.thread_id
    assert transcript.info.first_prompt == "Show me the notes"
    assert transcript.info.prompts == 1
    assert [(m.voice, m.text) for m in transcript.messages() if m.voice != "injected"] == [
        ("prompt", "Show me the notes"),
        ("thinking", "They are in a file"),
        ("text", "Milk."),
    ]


def test_tool_duration_is_used_if_records_have_no_time() -> None:
    rollout = RolloutBuilder(age="bare")
    call = rollout.call("shell", {"command": ["bash", "-lc", "make"]})
    rollout.output(call, codex_builder.json_output("done", seconds=2.5))
    span = only(rollout)
    assert span.duration is not None
    assert span.duration.total_seconds() == 2.5


STATES = [
    ("shell", codex_builder.json_output("ok"), "succeeded", None),
    ("shell", codex_builder.json_output("no", code=3), "failed", "command_failed"),
    ("shell_command", codex_builder.headed_output("x: command not found", code=127), "failed",
     "command_not_found"),
    ("exec_command", codex_builder.command_output("gone", code=1), "failed", "command_failed"),
    ("shell", codex_builder.timed_out_output(1000), "timed_out", "command_timeout"),
    ("shell_command", codex_builder.timed_out_output(1000, wrap=False), "timed_out", "command_timeout"),
    ("exec_command", codex_builder.aborted_output(), "interrupted", "interrupted"),
    ("exec_command", "aborted by user after 0.8s", "interrupted", "interrupted"),
    ("shell", codex_builder.rejected_output(), "denied", "user_denied"),
    ("exec_command", codex_builder.blocked_output("not today", "rm x"), "blocked_by_hook", "hook_blocked"),
    ("no_such", codex_builder.unknown_tool_output("no_such"), "failed", "unknown_tool"),
    ("exec_command", codex_builder.bad_arguments_output(), "failed", "invalid_input"),
    ("apply_patch", codex_builder.patch_mismatch_output("/a.txt", "x"), "failed", "no_match"),
    ("apply_patch", "apply_patch verification failed: invalid patch: no begin", "failed",
     "patch_invalid"),
    ("apply_patch", "apply_patch verification failed: Failed to read file to update /a.txt: "
     "No such file or directory (os error 2)", "failed", "not_found"),
    ("apply_patch", "patch rejected: writing outside of the project; rejected by user approval"
     " settings", "denied", "user_denied"),
    ("apply_patch", codex_builder.patched_output("A notes.txt"), "succeeded", None),
    ("shell", "failed in sandbox LinuxSeccomp with execution error: x", "failed",
     "sandbox_denied"),
    ("shell", "failed in sandbox MacosSeatbelt with execution error: command timed out",
     "timed_out", "command_timeout"),
    ("exec_command", "approval policy is Never; reject command — you cannot ask", "denied",
     "rule_denied"),
    ("update_plan", "Plan updated", "succeeded", None),
    ("view_image", "unable to locate image at `/a.png`: No such file or directory", "failed",
     "not_found"),
    ("shell", "aborted", "never_answered", None),
    ("exec_command", "PostToolUse hook blocked the tool result", "succeeded", None),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "output", "state", "kind"), STATES)
def test_output_without_an_error_flag_still_determines_the_state(
    tool: str, output: str, state: str, kind: str | None
) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    rollout.output(rollout.call(tool, "{}"), output)
    span = only(rollout)
    assert (span.state, span.error_kind) == (state, kind)
    assert span.evidence


def test_printed_text_never_changes_the_state_of_a_command() -> None:
    rollout = RolloutBuilder()
    for text in ("exec command rejected by user", "aborted by user", "unsupported call: x"):
        rollout.output(rollout.call("exec_command", {"cmd": "cat log"}), codex_builder.command_output(text))
        rollout.output(rollout.call("shell", {"command": ["cat", "log"]}), codex_builder.json_output(text))
    assert {span.state for span in read(rollout).spans} == {"succeeded"}


def test_aborted_turn_interrupts_only_its_open_calls() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    done = rollout.call("exec_command", {"cmd": "true"})
    rollout.output(done, codex_builder.command_output())
    left = rollout.call("exec_command", {"cmd": "sleep 9"})
    rollout.abort("interrupted").prompt("Again")
    other = rollout.call("exec_command", {"cmd": "sleep 9"})
    states = {span.id: span.state for span in read(rollout).spans}
    assert states == {done: "succeeded", left: "interrupted", other: "never_answered"}
    replaced = RolloutBuilder().prompt("Do it")
    replaced.call("exec_command", {"cmd": "sleep 9"})
    assert only(replaced.abort("replaced")).state == "cancelled"


def test_output_without_a_call_is_an_orphan() -> None:
    rollout = RolloutBuilder().output("call_gone", "x")
    assert [(span.state, span.tool) for span in read(rollout).spans] == [("orphan_result", "")]


def test_output_before_its_call_and_repeated_records_are_one_call() -> None:
    rollout = RolloutBuilder().output("call_1", codex_builder.command_output())
    rollout.call("exec_command", {"cmd": "true"}, id="call_1")
    rollout.call("exec_command", {"cmd": "true"}, id="call_1")
    rollout.output("call_1", codex_builder.command_output("again"))
    span = only(rollout)
    assert span.state == "succeeded"
    assert [copy.what for copy in span.copies] == ["call", "result"]


def test_old_spelling_of_an_output_is_read() -> None:
    rollout = RolloutBuilder()
    call = rollout.call("Read", {"file_path": "/src/a.ts"})
    rollout.item({"type": "function_call_result", "call_id": call, "result": "File contents"})
    span = only(rollout)
    assert span.state == "succeeded"
    assert span.result is not None
    assert span.result.text == "File contents"
    assert span.call.arguments == {"file_path": "/src/a.ts"}


def test_functions_custom_tools_shells_and_searches_are_calls() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    patch = rollout.call("apply_patch", PATCH)
    rollout.output(patch, codex_builder.patched_output("A notes.txt"), custom=True)
    rollout.item(
        {"type": "local_shell_call", "call_id": "ls_1", "status": "completed",
         "action": {"type": "exec", "command": ["ls", "-l"]}}
    )  # fmt: skip
    rollout.output("ls_1", codex_builder.json_output("a"))
    rollout.item({"type": "web_search_call", "status": "completed",
               "action": {"type": "search", "query": "weather"}})  # fmt: skip
    rollout.item({"type": "tool_search_call", "call_id": "ts_1", "arguments": {"query": "issues"}})
    rollout.item({"type": "tool_search_output", "call_id": "ts_1", "tools": []})
    spans = read(rollout).spans
    assert [(span.tool, span.call.kind, span.state) for span in spans] == [
        ("apply_patch", "edit", "succeeded"),
        ("local_shell", "shell", "succeeded"),
        ("web_search", "web", "succeeded"),
        ("tool_search", "search", "succeeded"),
    ]
    assert [span.call.target for span in spans] == ["notes.txt", "ls -l", "weather", "issues"]
    assert isinstance(spans[0].input, ApplyPatchInput)
    assert spans[0].input.patch == PATCH


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ('{"cmd": "ls"', '{"cmd": "ls"'),
        ("", None),
        ("not json", "not json"),
        ('{"cmd": 7, "x": 1}', {"cmd": 7, "x": 1}),
    ],
)
def test_invalid_arguments_are_kept_and_never_raise(arguments: str, kept: object) -> None:
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec_command", arguments), codex_builder.bad_arguments_output())
    span = only(rollout)
    assert (span.state, span.error_kind) == ("failed", "invalid_input")
    if kept is None:
        assert span.input == ExecCommandInput()  # nothing was written at all
    else:
        assert isinstance(span.input, UnknownInput)
        assert span.input.json() == kept


def test_only_the_event_shows_that_an_mcp_tool_failed() -> None:
    rollout = RolloutBuilder(age="paginated").prompt("Do it")
    call = rollout.call("look", {"at": "x"}, namespace="mcp__eyes")
    content: list[dict[str, object]] = [{"type": "text", "text": "too dark"}]
    rollout.completed(
        "McpToolCall", call, server="eyes", tool="look", arguments={"at": "x"}, status="failed",
        result={"content": content, "isError": True},
    )  # fmt: skip
    rollout.output(call, codex_builder.mcp_output("too dark"))
    span = only(rollout)
    assert (span.tool, span.call.kind, span.state) == ("mcp__eyes__look", "mcp", "failed")
    assert span.input == McpInput(server="eyes", tool="look", arguments={"at": "x"})
    assert span.result is not None
    assert span.result.structured == McpResult(content=tuple(content), is_error=True)


@pytest.mark.parametrize(
    ("message", "state", "kind"),
    [
        ("timed out awaiting tools/call after 3s", "timed_out", "mcp_timeout"),
        ("Transport closed", "failed", "mcp_no_response"),
        ("Mcp error: -32602: no such key", "failed", "invalid_input"),
    ],
)
def test_failed_mcp_request_is_distinguished(message: str, state: str, kind: str) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    call = rollout.call("mcp__eyes__look", {})
    text = f"tool call error: tool call failed for `eyes/look`\n\nCaused by:\n    {message}"
    rollout.event("mcp_tool_call_end", call_id=call, result={"Err": text}, duration="3.1s")
    rollout.output(call, text)
    span = only(rollout)
    assert (span.state, span.error_kind) == (state, kind)
    assert span.result is not None
    assert span.result.reported_ms == 3100


def test_patch_event_contains_the_changes() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    call = rollout.call("apply_patch", PATCH)
    changes = {"/p/notes.txt": {"type": "add", "content": "milk\n"}}
    rollout.event("patch_apply_end", call_id=call, success=True, changes=changes, status="completed")
    rollout.output(call, codex_builder.json_output("Success. Updated the following files:\nA notes.txt\n"))
    result = only(rollout).result
    assert result is not None
    assert result.structured == PatchResult(
        output="Success. Updated the following files:\nA notes.txt\n",
        exit_code=0,
        success=True,
        changes={"/p/notes.txt": PatchedFile(type="add", content="milk\n")},
    )


def test_later_calls_name_the_call_that_started_their_process() -> None:
    rollout = RolloutBuilder(age="paginated").prompt("Do it")
    start = rollout.call("exec_command", {"cmd": "make"})
    rollout.output(start, codex_builder.running_output(17))
    poll = rollout.call("write_stdin", {"session_id": 17})
    rollout.output(poll, codex_builder.running_output(17))
    last = rollout.call("write_stdin", {"session_id": 17, "chars": "q"})
    rollout.output(last, codex_builder.command_output("boom", code=2))
    spans = {span.id: span for span in read(rollout).spans}
    assert (spans[start].state, spans[start].background) == ("succeeded", True)
    assert [spans[name].call.parent_call for name in (poll, last)] == [start, start]
    assert (spans[last].state, spans[last].background) == ("failed", False)
    news, polls = spans[start].events
    assert isinstance(news, Notification)
    assert isinstance(polls, Progress)
    assert (polls.kind, polls.count) == ("poll", 2)
    assert [spans[name].call.continues for name in (poll, last)] == [start, start]
    assert (news.task_id, news.status, news.summary) == ("17", "failed", "exit code 2")


def test_actions_of_a_script_are_events_of_its_call() -> None:
    rollout = RolloutBuilder(age="paginated").prompt("Do it")
    call = rollout.call("exec", "await tools.exec_command({cmd: 'make'})")
    rollout.completed("CommandExecution", "exec-1", command=["bash", "-lc", "make"], status="failed", exit_code=2)
    rollout.output(
        call, [{"type": "input_text", "text": "Script completed\nWall time 0.1 seconds\nOutput:\n"}], custom=True
    )
    span = only(rollout)
    assert span.state == "succeeded"
    (inner,) = span.events
    assert isinstance(inner, Note)
    assert (inner.kind, inner.text) == (
        "inner_call", "CommandExecution: make (failed, exit code 2)",
    )  # fmt: skip


def test_logged_approvals_are_events_and_decide() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    call = rollout.call("shell", {"command": ["rm", "x"]})
    rollout.event("exec_approval_request", call_id=call, command=["rm", "x"], reason="outside")
    rollout.event("exec_approval", call_id=call, decision="denied")
    span = only(rollout)
    assert (span.state, span.error_kind) == ("denied", "user_denied")
    request, answered = span.events
    assert isinstance(request, Permission)
    assert isinstance(answered, Permission)
    assert (request.decision, request.reason, answered.decision) == ("ask", "outside", "denied")


def test_declined_end_event_is_a_denial() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    call = rollout.call("shell", {"command": ["rm", "x"]})
    rollout.event("exec_command_end", call_id=call, status="declined", exit_code=-1)
    assert only(rollout).state == "denied"


def test_denying_hook_is_an_event_of_the_call() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    rollout.output(rollout.call("exec_command", {"cmd": "rm x"}), codex_builder.blocked_output("not today", "rm x"))
    (hook,) = only(rollout).events
    assert isinstance(hook, Hook)
    assert (hook.point, hook.outcome) == ("PreToolUse", "blocked")
    assert "not today" in (hook.text or "")


def test_calls_without_an_output_between_them_are_one_batch() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    first = [rollout.call("exec_command", {"cmd": "a"}), rollout.call("exec_command", {"cmd": "b"})]
    for call in first:
        rollout.output(call, codex_builder.command_output())
    rollout.output(rollout.call("exec_command", {"cmd": "c"}), codex_builder.command_output())
    batches = [span.call.message_id for span in read(rollout).spans]
    assert batches[0] == batches[1] != batches[2]
    assert len({span.call.prompt_id for span in read(rollout).spans}) == 1


def test_compacted_and_rolled_back_turns_are_marked() -> None:
    rollout = RolloutBuilder().prompt("One")
    rollout.output(rollout.call("exec_command", {"cmd": "a"}), codex_builder.command_output())
    rollout.compact("One was done").prompt("Two")
    rollout.output(rollout.call("exec_command", {"cmd": "b"}), codex_builder.command_output())
    rollout.prompt("Three")
    rollout.output(rollout.call("exec_command", {"cmd": "c"}), codex_builder.command_output())
    transcript = read(rollout.roll_back(1).prompt("Four"))
    assert [span.branch for span in transcript.spans] == ["compacted", "active", "abandoned"]
    assert transcript.info.compactions == 1


def test_tokens_are_the_last_total_of_each_count() -> None:
    rollout = RolloutBuilder().prompt("One").tokens(1000, 10, cached=600).tokens(500, 5)
    rollout.event("token_count", info=None)
    rollout.tokens(0, 0)
    assert read(rollout).tokens == Tokens(input_tokens=1500, output_tokens=15, cache_read_input_tokens=600)
    rollout._token_totals = [0, 0, 0]
    rollout.tokens(70, 7)
    assert read(rollout).tokens.input_tokens == 1570


def test_fork_and_subagent_that_replay_their_parent_count_once(tmp_path: Path) -> None:
    parent = RolloutBuilder(age="paginated").prompt("Do it").tokens(100, 10)
    shared = parent.call("exec_command", {"cmd": "a"})
    parent.output(shared, codex_builder.command_output())
    spawn = parent.call("spawn_agent", {"message": "look"}, after_ms=1000)
    child = parent.fork(agent="Mill", after_ms=1000)
    parent.output(spawn, json.dumps({"agent_id": child.thread_id, "nickname": "Mill"}))
    child.prompt("look", after_ms=10).tokens(50, 5)
    own = child.call("exec_command", {"cmd": "b"})
    child.output(own, codex_builder.command_output())
    other = parent.fork(after_ms=1000).prompt("Otherwise", after_ms=10).tokens(20, 2)
    for made in (parent, child, other):
        made.write(tmp_path)
    history = toolspan.history(tmp_path)
    spans = {span.id: span for span in history.spans}
    assert sorted(spans) == sorted([shared, spawn, own])
    assert history.tokens == Tokens(input_tokens=170, output_tokens=17)
    assert spans[own].call.agent_id == child.thread_id
    assert spans[own].call.parent_call == spawn
    sessions = {session.id: session for session in history.call_table.sessions}
    assert set(sessions) == {parent.thread_id, other.thread_id}
    (agent,) = sessions[parent.thread_id].agents
    assert [row.id for row in agent.calls] == [own]


def test_nested_subagents_belong_to_the_root_session(tmp_path: Path) -> None:
    made = [RolloutBuilder().prompt("Do it")]
    calls = []
    for name in ("Mill", "Plato"):
        above = made[-1]
        calls.append(above.call("spawn_agent", {"message": name}))
        meta = {"parent_thread_id": above.thread_id}
        below = RolloutBuilder(thread_id=above.fork(agent=name).thread_id, meta=meta)
        above.output(calls[-1], json.dumps({"agent_id": below.thread_id}))
        made.append(below.prompt(name))
    last = made[-1].call("exec_command", {"cmd": "deep"})
    for each in made:
        each.write(tmp_path)
    ledger = toolspan.history(tmp_path).call_table
    (session,) = ledger.sessions
    assert (session.id, len(session.agents)) == (made[0].thread_id, 2)
    starters = {row.id: row.parent_call for row in ledger.calls}
    assert starters == {calls[0]: None, calls[1]: calls[0], last: calls[1]}


def test_damage_is_reported_and_reading_continues_at_the_next_record() -> None:
    rollout = RolloutBuilder().prompt("Do it")
    first = rollout.call("exec_command", {"cmd": "a"})
    whole = rollout.lines[-1]
    rollout.output(first, codex_builder.command_output())
    rollout.raw(b"\0" * 40).raw(whole[:30]).raw(b"[1]").raw(b"")
    second = rollout.call("exec_command", {"cmd": "b"})
    glued = RolloutBuilder()
    glued.output(second, codex_builder.command_output())
    rollout.raw(b"\0\0" + glued.lines[-1] + glued.lines[0])
    transcript = read(rollout)
    assert [span.state for span in transcript.spans] == ["succeeded", "succeeded"]
    assert [finding.code for finding in transcript.findings] == [
        "nul_bytes", "torn_line", "not_an_object", "nul_bytes",
    ]  # fmt: skip
    assert transcript.counts.malformed == 4
    assert transcript.counts.blank == 1
    assert transcript.counts.recovered == 2


def test_unknown_record_types_are_kept_and_reported_as_drift() -> None:
    rollout = RolloutBuilder().event("from_the_future").line("weather", {"sun": True})
    rollout.event("agent_message", message="hi", mood="good")
    rollout.item({"type": "telepathy_call", "call_id": "t"})
    rollout.call("exec_command", {"cmd": "a", "mood": "good"})
    checkup = toolspan.check(BytesSource(rollout.data(), "rollout-x.jsonl"), roundtrip=True)
    output = {finding.code: finding.explanation for finding in checkup.findings}
    assert {"unknown_type", "unknown_input", "unanswered_call"} <= set(output)
    assert "event_msg/agent_message.mood" in output["unknown_field"]
    assert checkup.roundtrip_equal == len(rollout.lines)
    assert checkup.entries["event_msg/from_the_future"] == 1


def test_compressed_and_archived_rollouts_are_found_and_read(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    rollout.output(rollout.call("exec_command", {"cmd": "a"}), codex_builder.command_output("x" * 50))
    folder = tmp_path / "archived_sessions"
    folder.mkdir()
    packed = folder / f"{rollout.name}.zst"
    packed.write_bytes(zstd.compress(rollout.data()))
    (transcript,) = toolspan.history(tmp_path).transcripts()
    assert transcript.file == str(packed)
    (span,) = transcript.spans
    assert span.result is not None
    assert "x" * 50 in span.result.text
    rollout.write(tmp_path)
    (folder / rollout.name).write_bytes(rollout.data())
    assert len(toolspan.history(folder).files) == 1


def test_oldest_rollout_form_is_one_document(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function",
            "function": {"name": "shell", "arguments": '{"command":["ls"]}'}}  # fmt: skip
    items = [
        {"role": "user", "content": [{"type": "text", "text": "list them"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": codex_builder.json_output("a b")},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c2"},
    ]
    session = {"timestamp": "2025-05-09T13:46:52.154Z", "id": "dd4e206e", "instructions": ""}
    path = tmp_path / "rollout-2025-05-09-dd4e206e-cc06-40ce-8c2e-c188aa04b6f4.json"
    path.write_text(json.dumps({"session": session, "items": items}, indent=2))
    (transcript,) = toolspan.history(tmp_path).transcripts()
    assert transcript.info.session_id == "dd4e206e"
    assert [(span.id, span.state) for span in transcript.spans] == [
        ("c1", "succeeded"), ("c2", "never_answered"),
    ]  # fmt: skip
    first = transcript.spans[0]
    assert first.call.place is not None
    assert first.call.place.line == 2
    assert first.call.arguments == {"command": ["ls"]}
    assert first.result is not None
    assert first.result.text == "a b"
    assert [m.text for m in transcript.messages()] == ["list them"]


def test_rollout_compressed_after_reading_still_has_bodies(tmp_path: Path) -> None:
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec_command", {"cmd": "a"}), codex_builder.command_output("milk"))
    path = rollout.write(tmp_path)
    (span,) = toolspan.read(path).spans
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstd.compress(path.read_bytes()))
    path.unlink()
    assert span.result is not None
    assert span.result.text.endswith("milk")
    assert len(toolspan.read(path).spans) == 1


def test_changed_file_is_reported_and_not_misread(tmp_path: Path) -> None:
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec_command", {"cmd": "a"}), codex_builder.command_output())
    path = rollout.write(tmp_path)
    (span,) = toolspan.read(path).spans
    path.write_bytes(b"x" * 4000)
    with pytest.raises(SourceError):
        _ = span.input


def test_line_of_a_hundred_megabytes_is_read(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    path = rollout.write(tmp_path)
    with path.open("ab") as stream:
        stream.write(b'{"type":"response_item","payload":{"type":"function_call","name":"shell",')
        stream.write(b'"arguments":"{}","call_id":"c"}}\n')
        stream.write(b'{"type":"response_item","payload":{"type":"function_call_output",')
        stream.write(b'"call_id":"c","output":"Exit code: 0\\nWall time: 1 seconds\\nOutput:\\n')
        for _ in range(100):
            stream.write(b"z" * (1 << 20))
        stream.write(b'"}}\n')
    (span,) = toolspan.read(path).spans
    assert (span.state, span.result and span.result.exit_code) == ("succeeded", 0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "Ok", "secs", "text", "message"]), inner, max_size=2)
    ),
    max_leaves=5,
)
FIELDS = (
    "type", "payload", "timestamp", "call_id", "name", "arguments", "input", "output", "status",
    "role", "content", "info", "total_token_usage", "input_tokens", "item", "id", "result",
    "duration", "exit_code", "num_turns", "reason", "decision", "source", "session_id", "action",
    "summary", "error", "changes", "command", "ordinal", "tools", "namespace", "message",
)  # fmt: skip


def changed(value: object, field: str, put: object) -> object:
    if isinstance(value, dict):
        return {k: put if k == field else changed(v, field, put) for k, v in value.items()}
    return [changed(each, field, put) for each in value] if isinstance(value, list) else value


def everything(age: RolloutAge) -> RolloutBuilder:
    rollout = RolloutBuilder(age=age).prompt("Do it").thinking("hm").tokens(10, 1)
    call = rollout.call("exec_command", {"cmd": "a"})
    rollout.completed("CommandExecution", call, command=["a"], status="failed", exit_code=1,
                   duration={"secs": 1, "nanos": 5}, error={"message": "x"})  # fmt: skip
    rollout.output(call, codex_builder.json_output("x", code=1))
    look = rollout.call("look", {"at": 1}, namespace="mcp__eyes")
    rollout.event("mcp_tool_call_end", call_id=look, result={"Ok": {"content": []}}, duration="1s")
    rollout.output(look, codex_builder.mcp_output("dark"))
    patch = rollout.call("apply_patch", PATCH)
    rollout.event("patch_apply_end", call_id=patch, success=True, changes={"a": {"type": "add"}})
    rollout.output(patch, codex_builder.patched_output("A a"), custom=True)
    rollout.item({"type": "web_search_call", "status": "completed", "action": {"query": "x"}})
    rollout.event("exec_approval_request", call_id=call, reason="x").compact("so far")
    rollout.event("task_complete", error={"message": "x"})
    return rollout.roll_back(1).abort()


@given(st.sampled_from(AGES), st.sampled_from(FIELDS), VALUES, st.integers(0, 10**6))
def test_no_rollout_content_raises(age: RolloutAge, field: str, put: object, spot: int) -> None:
    made = everything(age)
    lines = [json.dumps(changed(json.loads(line), field, put)).encode() for line in made.lines]
    odd = b"\n".join(made.lines)
    torn = odd[: spot % len(odd)] + b"\xff\0" + odd[spot % len(odd) + 3 :]
    for data in (b"\n".join(lines), torn):
        source = BytesSource(data, "rollout-x.jsonl")
        transcript = toolspan.read(source)
        assert toolspan.check(source, roundtrip=True).counts.lines == transcript.counts.lines
        for span in transcript.spans:
            assert encode_json_line(make_call_row(span, "f"))
            assert span.input is not None
            assert span.call.arguments is not None
            if span.result is not None:
                _ = (span.result.content, span.result.text, span.result.structured)
        assert list(transcript.messages()) is not None
        assert transcript.tokens is not None
        assert transcript.info.client == "codex"
