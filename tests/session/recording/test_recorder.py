from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from inline_snapshot import snapshot
from msgspec import structs

import toolspan
from tests.requirement import requirement
from tests.session.recording.emitted import (
    SESSION,
    START,
    Failures,
    decided,
    error,
    finished,
    hook,
    message,
    origin,
    recorder,
    use,
    wrong,
)
from toolspan.runtime.profiles import VERSIONS
from toolspan.session.recording import (
    Interruption,
    Recorder,
    agent_path,
    results_folder,
    transcript_path,
)
from toolspan.types.events import HookContext, Requested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Hook, parse_timestamp

every_version = pytest.mark.parametrize("version", VERSIONS)
BASH = {"stdout": "hi", "stderr": "", "interrupted": False, "isImage": False}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def conversation_lines(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if "uuid" in line]


def what(line: dict[str, Any]) -> str:
    if line["type"] == "attachment":
        return str(line["attachment"]["type"])
    content = line.get("message", {}).get("content")
    if not isinstance(content, list):
        return str(line["type"])
    block = content[0]
    return str(block.get("id") or block.get("tool_use_id") or block["type"])


@every_version
def test_recorded_conversation_is_read_back(path: Path, version: str) -> None:
    with_all = recorder(path, version=version)
    with_all.record_prompt("Look")
    with_all.record_reply(
        message(
            "Looking.",
            use("toolu_a", "Read", file_path="/missing"),
            use("toolu_b", "Bash", command="echo hi"),
            use("toolu_c", "Nope"),
        )
    )
    with_all.record_result(finished("toolu_b", "Bash", "hi", is_error=False, structured=BASH, at=START + 61))
    with_all.record_result(error("toolu_a", "Read", "File does not exist.", at=START + 62))
    unknown = "<tool_use_error>Error: No such tool available: Nope</tool_use_error>"
    with_all.record_result(
        finished(
            "toolu_c",
            "Nope",
            unknown,
            state="failed",
            is_error=True,
            structured="Error: No such tool available: Nope",
            at=START + 63,
        )
    )
    with_all.record_reply(message("Done.", id="msg_02"))
    with_all.close()

    transcript = toolspan.read(path)

    assert [(span.id, span.tool, span.state, span.error_kind) for span in transcript.spans] == snapshot(
        [
            ("toolu_a", "Read", "failed", "not_found"),
            ("toolu_b", "Bash", "succeeded", None),
            ("toolu_c", "Nope", "failed", "unknown_tool"),
        ]
    )
    assert [span.result.text for span in transcript.spans if span.result] == ["File does not exist.", "hi", unknown]
    assert json.loads(transcript.spans[1].call.raw_input) == {"command": "echo hi"}
    assert [span.result.is_error for span in transcript.spans if span.result] == [True, False, True]
    assert {span.call.message_id for span in transcript.spans} == {"msg_01"}
    assert wrong(path) == []


@requirement("record.one-line-per-block")
def test_each_block_of_a_message_is_one_record(path: Path) -> None:
    recording = recorder(path)
    recording.record_reply(message("a", use("toolu_a", "Read"), use("toolu_b", "Read")), request_id="r1")

    result = lines(path)

    assert [what(line) for line in result] == ["text", "toolu_a", "toolu_b"]
    assert {line["message"]["id"] for line in result} == {"msg_01"}
    assert {line["requestId"] for line in result} == {"r1"}
    assert [line["apiBlockIndex"] for line in result] == [0, 1, 2]
    assert [line["message"]["stop_reason"] for line in result] == ["tool_use"] * 3


@requirement("record.one-line-per-block")
def test_older_clients_record_the_stop_reason_with_the_last_block_only(path: Path) -> None:
    recorder(path, version="2.0.65").record_reply(message("a", use("toolu_a", "Read")))

    assert [line["message"]["stop_reason"] for line in lines(path)] == [None, "tool_use"]


@requirement("record.tree")
@every_version
def test_result_follows_its_call_and_the_reply_the_last_result(path: Path, version: str) -> None:
    recording = recorder(path, version=version)
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_a", "Read"), use("toolu_b", "Read")))
    recording.record_result(finished("toolu_b", "Read", "b"))
    recording.record_result(finished("toolu_a", "Read", "a"))
    recording.record_reply(message("done", id="msg_02"))

    prompt, call_a, call_b, result_b, result_a, reply = conversation_lines(path)

    assert prompt["parentUuid"] is None
    assert call_a["parentUuid"] == prompt["uuid"]
    assert call_b["parentUuid"] == call_a["uuid"]
    assert result_b["parentUuid"] == call_b["uuid"]
    tree = version not in ("seed", "2.0.65")
    assert result_a["parentUuid"] == (call_a if tree else result_b)["uuid"]
    assert result_a.get("sourceToolAssistantUUID") == (call_a["uuid"] if tree else None)
    assert reply["parentUuid"] == result_a["uuid"]


@requirement("record.completion-order")
def test_result_may_come_between_two_blocks_of_a_message(path: Path) -> None:
    recording = recorder(path)
    whole = message(use("toolu_a", "Read"), use("toolu_b", "Read"))
    recording.record_reply(whole, [use("toolu_a", "Read")], last=False)
    recording.record_result(finished("toolu_a", "Read", "a"))
    recording.record_reply(whole, [use("toolu_b", "Read")], last=True)
    recording.record_result(finished("toolu_b", "Read", "b"))

    result = conversation_lines(path)

    assert [line["type"] for line in result] == ["assistant", "user", "assistant", "user"]
    assert result[2]["parentUuid"] == result[1]["uuid"]
    assert result[2]["apiBlockIndex"] == 1
    assert wrong(path) == []


@requirement("record.is-error")
def test_error_flag_is_recorded_only_if_set(path: Path) -> None:
    recording = recorder(path)
    recording.record_result(finished("toolu_a", "Read", "x"))
    recording.record_result(finished("toolu_b", "Bash", "x", is_error=False))
    recording.record_result(error("toolu_c", "Bash", "x"))

    blocks = [line["message"]["content"][0] for line in lines(path)]

    assert [list(block) for block in blocks] == [
        ["tool_use_id", "type", "content"],
        ["tool_use_id", "type", "content", "is_error"],
        ["type", "content", "is_error", "tool_use_id"],
    ]
    assert [block.get("is_error") for block in blocks] == [None, False, True]


@requirement("record.decisions")
def test_permission_decisions_are_recorded_and_read_back(path: Path) -> None:
    recording = recorder(path)
    ids = ("toolu_a", "toolu_b", "toolu_c")
    recording.record_reply(message(*(use(name, "Bash", command="x") for name in ids)))
    yes = decided("toolu_a", allowed=True, source="user_temporary")
    recording.record_result(finished("toolu_a", "Bash", "hi", is_error=False, decision=yes))
    by_rule = "Permission to use Bash with command x has been denied."
    recording.record_result(
        error("toolu_b", "Bash", by_rule, denial_kind="permission-rule", decision=decided("toolu_b", allowed=False))
    )
    recording.record_result(
        error(
            "toolu_c",
            "Bash",
            "not today",
            denial_kind="permission-rule",
            decision=decided("toolu_c", allowed=False, source="hook"),
        )
    )

    beside = [line for line in lines(path) if line["type"] == "user"]
    transcript = toolspan.read(path)

    assert [line["permissionDecision"] for line in beside] == [
        {"decision": "accept", "source": "user_temporary", "grantScope": "once"},
        {"decision": "reject", "source": "config", "reasonCode": "unknown"},
        {"decision": "reject", "source": "hook", "reasonType": "hook", "reasonCode": "hook:PreToolUse"},
    ]
    assert [line.get("toolDenialKind") for line in beside] == [None, "permission-rule", "permission-rule"]
    assert [span.state for span in transcript.spans] == ["succeeded", "denied", "blocked_by_hook"]


@requirement("record.decisions")
@pytest.mark.parametrize("version", ["seed", "2.0.65"])
def test_older_clients_do_not_record_permission_decisions(path: Path, version: str) -> None:
    no = decided("toolu_a", allowed=False)
    refused = error("toolu_a", "Bash", "no", denial_kind="permission-rule", decision=no)
    recorder(path, version=version).record_result(refused)

    assert not {"permissionDecision", "toolDenialKind", "sandboxed"} & set(lines(path)[0])


@requirement("record.hooks")
def test_hook_records_before_and_after_the_call_surround_its_result(path: Path) -> None:
    recording = recorder(path)
    recording.record_reply(message(use("toolu_a", "Bash", command="x")))
    recording.record_hook(hook("toolu_a", "PreToolUse", "success", text="ok", stdout="ok\n", exit_code=0))
    recording.record_hook(hook("toolu_a", "PreToolUse", "stopped", text="enough"))
    recording.record_hook(hook("toolu_a", "PostToolUse", "error", text="boom", exit_code=3))
    recording.record_result(
        finished(
            "toolu_a",
            "Bash",
            "hi",
            is_error=False,
            contexts=(
                HookContext(point="PreToolUse", name="early", text="before it"),
                HookContext(point="PostToolUse", name="late", text="after it"),
            ),
        )
    )

    result = conversation_lines(path)

    assert [what(line) for line in result] == [
        "toolu_a",
        "hook_success",
        "hook_additional_context",
        "toolu_a",
        "hook_stopped_continuation",
        "hook_non_blocking_error",
        "hook_additional_context",
    ]
    events = [event for event in toolspan.read(path).spans[0].events if isinstance(event, Hook)]
    assert [(e.point, e.name, e.outcome, e.text) for e in events] == [
        ("PreToolUse", "PreToolUse:Bash", "success", "ok"),
        ("PreToolUse", "PreToolUse:Bash", "context", "before it"),
        ("PreToolUse", "PreToolUse:Bash", "stopped", "enough"),
        ("PostToolUse", "PostToolUse:Bash", "error", "boom"),
        ("PostToolUse", "PostToolUse:Bash", "context", "after it"),
    ]
    assert result[2]["rendered"] == [
        {"content": "<system-reminder>\nPreToolUse:Bash hook additional context: before it\n</system-reminder>"}
    ]


@requirement("record.hooks")
def test_silent_and_denying_hooks_leave_no_record(path: Path) -> None:
    recording = recorder(path)
    recording.record_reply(message(use("toolu_a", "Bash", command="x")))
    recording.record_hook(hook("toolu_a", "PreToolUse", "success"))
    recording.record_hook(hook("toolu_a", "PreToolUse", "started"))
    recording.record_hook(hook("toolu_a", "PreToolUse", "blocked", text="no"))

    assert [what(line) for line in lines(path)] == ["toolu_a"]


@requirement("record.hooks")
def test_each_hook_outcome_has_its_attachment(path: Path) -> None:
    recording = recorder(path)
    recording.record_reply(message(use("toolu_a", "Bash", command="x")))
    recording.record_hook(hook("toolu_a", "PreToolUse", "message", text="to the user"))
    recording.record_hook(hook("toolu_a", "PreToolUse", "cancelled", duration_ms=1009.4))
    recording.record_hook(hook("toolu_a", "PermissionRequest", "decision", text="allow"))
    recording.record_hook(hook("toolu_a", "PreToolUse", "deferred"))
    recording.record_hook(hook("toolu_a", "PostToolUse", "blocked", text="why", tool="Bash"))
    recording.close()

    attached = [line["attachment"] for line in lines(path) if line["type"] == "attachment"]

    assert attached == snapshot(
        [
            {
                "type": "hook_system_message",
                "content": "to the user",
                "hookName": "PreToolUse:Bash",
                "toolUseID": "toolu_a",
                "hookEvent": "PreToolUse",
            },
            {
                "type": "hook_cancelled",
                "hookName": "PreToolUse:Bash",
                "toolUseID": "toolu_a",
                "hookEvent": "PreToolUse",
                "command": "check.sh",
                "durationMs": 1009,
            },
            {
                "type": "hook_permission_decision",
                "decision": "allow",
                "toolUseID": "toolu_a",
                "hookEvent": "PermissionRequest",
            },
            {
                "type": "hook_deferred_tool",
                "toolUseID": "toolu_a",
                "toolName": "Bash",
                "toolInput": {"command": "x"},
                "hookName": "PreToolUse:Bash",
                "hookEvent": "PreToolUse",
                "permissionMode": "default",
            },
            {
                "type": "hook_blocking_error",
                "hookName": "PostToolUse:Bash",
                "toolUseID": "toolu_a",
                "hookEvent": "PostToolUse",
                "blockingError": {"blockingError": "why", "command": "check.sh"},
            },
        ]
    )


@requirement("record.hooks")
def test_seed_records_hooks_as_progress_and_2_0_65_not_at_all(tmp_path: Path) -> None:
    kinds = {}
    for version in ("2.0.65", "seed"):
        path = tmp_path / f"{version}.jsonl"
        recording = recorder(path, version=version)
        recording.record_reply(message(use("toolu_a", "Bash", command="x")))
        recording.record_hook(hook("toolu_a", "PreToolUse", "success", stdout="ok\n"))
        kinds[version] = [line["type"] for line in lines(path)]

    assert kinds == {"2.0.65": ["assistant"], "seed": ["assistant", "progress"]}
    events = toolspan.read(tmp_path / "seed.jsonl").spans[0].events
    assert [event.outcome for event in events if isinstance(event, Hook)] == ["started"]


@requirement("record.notes")
@every_version
def test_notes_after_a_result_are_not_prompts(path: Path, version: str) -> None:
    recording = recorder(path, version=version)
    recording.record_prompt("look")
    recording.record_reply(message(use("toolu_a", "Read", file_path="x.png")))
    recording.record_result(finished("toolu_a", "Read", "x", companions=("[Image: displayed small]",)))

    last = conversation_lines(path)[-1]

    assert last["isMeta"] is True
    assert last["message"] == {"role": "user", "content": "[Image: displayed small]"}
    assert last["parentUuid"] == conversation_lines(path)[-2]["uuid"]


@requirement("record.interrupt")
def test_interrupted_turn_ends_with_the_marker_of_the_client(path: Path) -> None:
    recording = recorder(path)
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_a", "Bash", command="sleep 9")))
    rejected = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    recording.record_result(
        finished(
            "toolu_a",
            "Bash",
            rejected,
            state="interrupted",
            is_error=True,
            structured="User rejected tool use",
            denial_kind="user-rejected",
        )
    )
    recording.handle(Interruption())

    assert lines(path)[-1]["message"]["content"] == [
        {"type": "text", "text": "[Request interrupted by user for tool use]"}
    ]
    evidence = toolspan.read(path).spans[0].evidence
    assert "interrupt marker follows" in [each.rule for each in evidence]


@requirement("record.prompt")
def test_records_of_a_turn_share_its_id_and_prompts_are_counted(path: Path) -> None:
    recording = recorder(path)
    recording.record_prompt("one")
    recording.record_reply(message(use("toolu_a", "Read")))
    recording.record_result(finished("toolu_a", "Read", "x"))
    recording.record_prompt("by the harness", meta=True)
    recording.permission_mode = "plan"
    recording.record_prompt([{"type": "text", "text": "two"}])

    users = [line for line in lines(path) if line["type"] == "user"]

    assert [line["promptId"] == users[0]["promptId"] for line in users] == [True, True, True, False]
    assert [line.get("turnPosition") for line in users] == [
        {"promptIndex": 0, "turnIndex": 1},
        None,
        None,
        {"promptIndex": 0, "turnIndex": 2},
    ]
    assert [line.get("permissionMode") for line in users] == ["default", None, None, "plan"]


@requirement("record.prompt")
def test_last_record_names_the_session(tmp_path: Path, path: Path) -> None:
    recording = recorder(path)
    recording.record_prompt("a\nlong " + "word " * 60)
    recording.close()

    last = lines(path)[-1]

    assert last["type"] == "last-prompt"
    assert last["lastPrompt"].startswith("a long word")
    assert len(last["lastPrompt"]) == 201
    assert last["leafUuid"] == lines(path)[0]["uuid"]
    short = tmp_path / "short.jsonl"
    recording = recorder(short)
    recording.record_prompt("x" * 200)
    recording.close()
    assert lines(short)[-1]["lastPrompt"] == "x" * 200  # as long as it may be


def test_thinking_without_a_signature_is_not_recorded(path: Path) -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    recorder(path).record_reply(message({"type": "thinking", "thinking": "hm"}, signed, "said"))

    assert [line["message"]["content"][0] for line in lines(path)] == [signed, {"type": "text", "text": "said"}]


def test_bare_message_gets_the_required_fields(path: Path) -> None:
    recorder(path).record_reply({"role": "assistant", "content": "hello", "container": {"id": "c"}})

    recorded = lines(path)[0]["message"]

    assert recorded.pop("id").startswith("msg_")
    assert recorded["content"] == [{"type": "text", "text": "hello"}]
    assert recorded["container"] == {"id": "c"}
    assert set(recorded["usage"].values()) == {0}


@requirement("record.folder")
def test_records_name_the_working_folder_and_its_branch(tmp_path: Path, path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/topic/one\n")
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: ../elsewhere\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "HEAD").write_text("ref: refs/heads/two\n")
    detached = tmp_path / "detached"
    (detached / ".git").mkdir(parents=True)
    (detached / ".git" / "HEAD").write_text("8a6f0c5e\n")
    recording = recorder(path)
    recording.record_prompt("here")
    for folder in (repository / "deep" / "down", worktree, detached):
        recording.set_cwd(folder)
        recording.record_prompt("there", meta=True)

    assert [(line["cwd"], line["gitBranch"]) for line in lines(path)] == [
        (str(tmp_path), "HEAD"),
        (str(repository / "deep" / "down"), "topic/one"),
        (str(worktree), "two"),
        (str(detached), "HEAD"),
    ]


@requirement("record.folder")
def test_changed_branch_is_recorded_from_the_next_prompt(tmp_path: Path, path: Path) -> None:
    head = tmp_path / ".git" / "HEAD"
    head.parent.mkdir()
    head.write_text("ref: refs/heads/one\n")
    recording = recorder(path, version="2.0.65")
    recording.record_prompt("a")
    head.write_text("ref: refs/heads/two\n")
    recording.record_prompt("b")

    assert [line["gitBranch"] for line in lines(path)] == ["one", "two"]


def test_session_is_recorded_where_the_client_looks_for_it(tmp_path: Path) -> None:
    project = tmp_path / "my_project.x"
    project.mkdir()
    config = tmp_path / "config"
    recording = Recorder(transcript_path(SESSION, project, config), origin(project), Failures())
    recording.record_prompt("hi")

    folder = "".join(c if c.isalnum() else "-" for c in str(project.resolve()))
    assert recording.path == config / "projects" / folder / f"{SESSION}.jsonl"
    assert results_folder(recording.path) == config / "projects" / folder / SESSION / "tool-results"
    assert oct(recording.path.stat().st_mode)[-3:] == "600"
    assert {oct(p.stat().st_mode)[-3:] for p in (config, config / "projects")} == {"700"}


def test_long_folder_name_is_shortened_and_found(tmp_path: Path) -> None:
    cwd = tmp_path / ("x" * 120) / ("y" * 120)
    first = transcript_path(SESSION, cwd, tmp_path)
    first.parent.mkdir(parents=True)

    assert len(first.parent.name.rpartition("-")[0]) == 200
    other = first.parent.rename(first.parent.with_name(first.parent.name[:201] + "abc"))
    assert transcript_path(SESSION, cwd, tmp_path).parent == other


@requirement("record.agents")
@every_version
def test_subagent_is_recorded_in_a_separate_file(tmp_path: Path, version: str) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    recording = recorder(path, version=version)
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_t", "Task", prompt="look", description="d")))
    agent = recording.subagent_recorder("a0123456789abcdef", {"agentType": "Explore", "toolUseId": "toolu_t"})
    agent.record_prompt("look")
    agent.record_reply(message(use("toolu_a", "Read", file_path="x"), id="msg_02"))
    agent.record_result(finished("toolu_a", "Read", "x", structured={"type": "text"}))
    agent.close()

    nested = version not in ("seed", "2.0.65")
    assert agent.path == agent_path(path, "a0123456789abcdef", "nested" if nested else "beside")
    written = lines(agent.path)
    assert written[0]["parentUuid"] is None
    assert {line["isSidechain"] for line in written} == {True}
    assert {line["agentId"] for line in written} == {"a0123456789abcdef"}
    assert ("toolUseResult" in written[-1]) is not nested
    assert agent.path.with_name("agent-a0123456789abcdef.meta.json").exists() is nested
    if nested:
        spans = toolspan.history(tmp_path).spans
        assert {(span.id, span.call.parent_call, span.call.agent_id) for span in spans} == {
            ("toolu_t", None, None),
            ("toolu_a", "toolu_t", "a0123456789abcdef"),
        }


def test_recorder_accepts_the_events_of_a_runner(path: Path) -> None:
    recording = recorder(path)
    recording.record_reply(message(use("toolu_a", "Bash", command="x")))
    done = finished("toolu_a", "Bash", "hi", is_error=False)
    for event in (
        Requested(call=done.span.call, at=START),
        hook("toolu_a", "PreToolUse", "success", stdout="ok\n"),
        Started(call_id=CallId("toolu_a"), at=START),
        done,
    ):
        recording.handle(event)

    assert [what(line) for line in lines(path)] == ["toolu_a", "hook_success", "toolu_a"]
    assert recording.open_calls == frozenset()


@every_version
def test_resumed_transcript_continues_after_its_last_record(tmp_path: Path, path: Path, version: str) -> None:
    first = recorder(path, version=version)
    first.record_prompt("go")
    first.record_reply(message(use("toolu_a", "Read", file_path="a"), use("toolu_b", "Read")))
    first.record_result(finished("toolu_b", "Read", "b"))
    first.close()

    again = Recorder.resume(path, origin(tmp_path, version=version), Failures())
    assert again.open_calls == {"toolu_a"}
    again.record_result(finished("toolu_a", "Read", "a"))
    again.record_prompt("more")
    again.close()

    *_, answer, prompt = conversation_lines(path)
    assert prompt["parentUuid"] == answer["uuid"]
    if version == "2.1.327":
        assert answer["parentUuid"] == conversation_lines(path)[1]["uuid"]
        assert prompt["turnPosition"]["turnIndex"] == 2
    assert [span.state for span in toolspan.read(path).spans] == ["succeeded", "succeeded"]
    assert wrong(path) == []


def test_resume_after_the_latest_representable_time_still_gets_times(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    Recorder.resume(path, origin(tmp_path), Failures()).record_prompt("first")
    late = b'"timestamp":"9999-12-31T23:59:59.999Z"'
    path.write_bytes(re.sub(rb'"timestamp":"[^"]*"', late, path.read_bytes()))

    Recorder.resume(path, origin(tmp_path), Failures()).record_prompt("second")

    times = re.findall(r'"timestamp":"([^"]*)"', path.read_text(encoding="utf-8"))
    assert all(map(parse_timestamp, times)), times


def test_resuming_a_missing_transcript_creates_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "session.jsonl"
    Recorder.resume(path, origin(tmp_path), Failures()).record_prompt("first")

    assert lines(path)[0]["parentUuid"] is None


@requirement("record.times")
@pytest.mark.parametrize("version", ["seed", "2.0.65"])
def test_times_increase_for_clients_that_resume_by_time(tmp_path: Path, path: Path, version: str) -> None:
    recording = recorder(path, version=version)
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_a", "Read"), use("toolu_b", "Read")), at=START + 70)
    recording.record_result(finished("toolu_a", "Read", "a", at=START + 60))
    recording.record_result(finished("toolu_b", "Read", "b", at=START + 60))
    again = Recorder.resume(path, origin(tmp_path, version=version), Failures())
    again.record_prompt("more")

    times = [line["timestamp"] for line in conversation_lines(path)]

    assert times == sorted(set(times))


@requirement("record.times")
@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
def test_a_reply_is_later_than_what_it_answers(tmp_path: Path, path: Path, version: str) -> None:
    recording = Recorder(path, dataclasses.replace(origin(tmp_path, version=version), clock=lambda: START), Failures())
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_a", "Read"), use("toolu_b", "Read")))
    recording.record_result(finished("toolu_a", "Read", "a", at=START))
    recording.record_result(finished("toolu_b", "Read", "b", at=START))
    recording.record_reply(message("done", id="msg_02"))

    records = conversation_lines(path)
    answered = [
        (before["timestamp"], after["timestamp"])
        for before, after in itertools.pairwise(records)
        if (before["type"], after["type"]) == ("user", "assistant")
    ]

    assert len(answered) == 2
    assert all(before < after for before, after in answered)
    assert [record["timestamp"] for record in records] == sorted(record["timestamp"] for record in records)


def test_records_are_compact_with_the_key_order_of_the_client(path: Path) -> None:
    recording = recorder(path)
    recording.record_prompt("é\u2028")

    line = path.read_bytes()

    assert line.endswith(b"\n")
    assert b": " not in line
    assert "é\u2028".encode() in line
    assert " ".join(json.loads(line)) == (
        "parentUuid isSidechain promptId type message uuid timestamp permissionMode promptSource turnOrigin"
        " turnPosition userType entrypoint cwd sessionId version gitBranch"
    )


def test_record_ids_are_random_uuids(path: Path) -> None:
    recording = recorder(path)
    for number in range(64):  # enough for every digit that names the variant
        recording.record_prompt(f"prompt {number}")

    ids = [UUID(line["uuid"]) for line in conversation_lines(path)]
    assert len(set(ids)) == 64
    assert {(id.version, id.variant) for id in ids} == {(4, RFC_4122)}


def test_the_time_of_a_permission_question_is_not_the_time_of_the_tool(path: Path) -> None:
    yes = structs.replace(decided("toolu_a", allowed=True), asked=True, waited_ms=21_000, at=START + 59.9)
    no = structs.replace(decided("toolu_b", allowed=False), asked=True, waited_ms=9_000, at=START + 59.9)
    written = recorder(path)
    written.record_reply(message(use("toolu_a", "Edit", file_path="/a"), use("toolu_b", "Bash", command="x")))
    written.handle(finished("toolu_a", "Edit", "Done", decision=yes))
    written.handle(error("toolu_b", "Bash", "No", denial_kind="user-rejected", decision=no))
    written.close()
    waits = {row.id: (row.wait_ms, row.wait_certainty) for row in toolspan.Archive(path).calls()}
    assert waits == {"toolu_a": (21_000, "known"), "toolu_b": (9_000, "known")}
