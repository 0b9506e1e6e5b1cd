"""Codex rollouts beside their calls: end events, forks, subagents, titles, rare records, growing files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toolspan
from tests.formats import gemini_chats
from toolspan.errors import SourceError
from toolspan.formats import zstd
from toolspan.formats.source import BytesSource
from toolspan.reading.discovery import (
    TranscriptFile,
    default_roots,
    find_agents_by_content,
    find_all_transcripts,
    find_transcripts,
    has_working_folder,
)
from toolspan.reading.follow import CallAppeared, CallChanged, Follower, FollowUpdate, SessionFollower
from toolspan.reading.transcript import Transcript
from toolspan.testing import TranscriptBuilder, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.span import Note, Notification, Span

NAME = "rollout-x.jsonl"


def read(made: RolloutBuilder) -> Transcript:
    return toolspan.read(BytesSource(made.data(), NAME))


def only(made: RolloutBuilder) -> Span:
    (span,) = read(made).spans
    return span


def ran(code: int | None = None, **end: object) -> Span:
    rollout = RolloutBuilder()
    call = rollout.call("exec_command", {"cmd": "make"})
    rollout.output(call, "some words")
    return only(rollout.event("exec_command_end", call_id=call, exit_code=code, **end))


@pytest.mark.parametrize(
    ("end", "state", "kind"),
    [
        ({"success": True}, "succeeded", None),
        ({"success": False}, "failed", "unknown"),
        ({"code": 0}, "succeeded", None),
        ({"code": 3}, "failed", "command_failed"),
        ({"status": "completed"}, "succeeded", None),
        ({"status": "failed", "error": "no such file or directory"}, "failed", "unknown"),
        ({"status": "declined"}, "denied", "user_denied"),
        ({}, "succeeded", None),
    ],
)
def test_exec_end_event_decides_where_the_output_does_not(end: dict[str, object], state: str, kind: str | None) -> None:
    code = end.pop("code", None)
    assert code is None or isinstance(code, int)
    span = ran(code, **end)

    assert (span.state, span.error_kind) == (state, kind)


def test_successful_event_overrides_output_that_looks_like_a_failure() -> None:
    rollout = RolloutBuilder()
    call = rollout.call("apply_patch", "*** Begin Patch\n*** End Patch\n")
    rollout.output(call, "error: it printed this", custom=True)
    assert only(rollout).state == "failed"

    assert only(rollout.event("patch_apply_end", call_id=call, success=True)).state == "succeeded"


@pytest.mark.parametrize(
    ("took", "seconds"),
    [
        ({"secs": 2, "nanos": 500_000_000}, 2.5),
        (2.5, 2.5),
        ("2.5s", 2.5),
        ("2500ms", 2.5),
        ("2500000µs", 2.5),
        ("a while", None),
        (None, None),
        ([2.5], None),
    ],
)
def test_duration_may_be_an_object_a_number_or_text(took: object, seconds: float | None) -> None:
    rollout = RolloutBuilder(age="enveloped")
    call = rollout.call("mcp__db__query", {})
    rollout.output(call, "rows")
    rollout.event("mcp_tool_call_end", call_id=call, duration=took, result={"Ok": {"content": []}})

    span = only(rollout)

    assert span.duration is not None
    assert span.duration.total_seconds() == (seconds or 0)


@pytest.mark.parametrize(
    ("result", "state"),
    [
        ({"Ok": {"isError": True, "content": []}}, "failed"),
        ({"Ok": {"is_error": True, "content": []}}, "failed"),
        ({"Ok": {"content": []}}, "succeeded"),
        ({"Err": "no route"}, "failed"),
        ({}, "succeeded"),
        ("?", "succeeded"),
        (None, "succeeded"),
    ],
)
def test_mcp_result_decides_if_it_has_content(result: object, state: str) -> None:
    rollout = RolloutBuilder()
    call = rollout.call("mcp__db__query", {})
    rollout.output(call, "rows")
    output = {} if result is None else {"result": result}

    assert only(rollout.event("mcp_tool_call_end", call_id=call, **output)).state == state


@pytest.mark.parametrize("error", [{"message": "broken"}, "broken", [1], {"message": 7}])
def test_failed_item_has_its_reason(error: object) -> None:
    rollout = RolloutBuilder(age="paginated")
    call = rollout.call("exec_command", {"cmd": "make"})
    rollout.output(call, "some words")
    rollout.completed("CommandExecution", call, status="failed", error=error, exit_code=4)

    span = only(rollout)

    assert (span.state, span.error_kind) == ("failed", "command_failed")
    output = next(item.text for item in span.evidence if item.rule == "CommandExecution")
    assert output == ("broken" if error in ("broken", {"message": "broken"}) else None)


def test_process_that_ends_after_its_call_is_an_event_of_that_call() -> None:
    rollout = RolloutBuilder()
    call = rollout.call("exec_command", {"cmd": "serve"})
    rollout.output(call, codex_builder.running_output(41))
    rollout.event("exec_command_end", call_id=call, exit_code=1, status="failed")

    (news,) = [event for event in only(rollout).events if isinstance(event, Notification)]

    assert (news.task_id, news.status, news.summary) == ("41", "failed", "exit code 1")


def test_each_action_of_a_script_is_described_in_one_line() -> None:
    rollout = RolloutBuilder(age="paginated")
    rollout.call("exec", "await tools.run()")
    rollout.completed("CommandExecution", "i1", command=["bash", "-lc", "make"], status="completed")
    rollout.completed("CommandExecution", "i2", command="make", status="failed", exit_code=2)
    rollout.completed("McpToolCall", "i3", server="db", tool="query", status="completed")
    rollout.completed("FileChange", "i4", changes={"a.txt": {}, "b.txt": {}}, status="completed")
    rollout.completed("WebSearch", "i5", query="milk", status="completed")
    rollout.completed("ImageView", "i6", path="/a.png", status="completed")
    rollout.completed("FileChange", "i7", changes=[1], status="completed")
    rollout.completed("Unheard", "i8")
    rollout.event("exec_command_end", call_id="i9", command=["ls"], status="completed")

    notes = [event.text for event in only(rollout).events if isinstance(event, Note)]

    assert notes == [
        "CommandExecution: make (completed)",
        "CommandExecution: make (failed, exit code 2)",
        "mcp__db__query (completed)",
        "FileChange: a.txt, b.txt (completed)",
        "WebSearch: milk (completed)",
        "ImageView: /a.png (completed)",
        "FileChange (completed)",
        "exec_command_end: ls (completed)",
    ]


def test_end_event_may_precede_its_call() -> None:
    rollout = RolloutBuilder()
    rollout.event("exec_command_end", call_id="call_1", exit_code=3)
    rollout.output(rollout.call("exec_command", {"cmd": "make"}, id="call_1"), "words")

    assert only(rollout).state == "failed"


@pytest.mark.parametrize(
    "meta",
    [
        {"parent_thread_id": "0199-parent"},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "0199-parent"}}}},
    ],
)
def test_subagent_names_its_parent_thread(meta: dict[str, object]) -> None:
    rollout = RolloutBuilder(meta={**meta, "agent_role": "explorer"}).prompt("look")
    rollout.call("exec_command", {"cmd": "ls"})

    transcript = read(rollout)

    assert transcript.info.agent_id == rollout.thread_id
    assert transcript.info.session_id == "0199-parent"
    assert transcript.role == "explorer"
    assert [span.call.agent_id for span in transcript.spans] == [rollout.thread_id]


@pytest.mark.parametrize("source", ["exec", None, [1], {"subagent": "review"}, {"subagent": None}, {"custom": "x"}])
def test_unknown_source_form_is_not_a_subagent(source: object) -> None:
    info = read(RolloutBuilder(meta={"source": source}).prompt("look")).info

    assert info.agent_id is None
    assert info.first_prompt == "look"


def test_history_with_a_record_count_ends_there() -> None:
    parent = RolloutBuilder(age="paginated").prompt("old")
    parent.call("exec_command", {"cmd": "old"}, id="call_old")
    base = {"thread_id": parent.thread_id}
    rollout = RolloutBuilder(
        age="paginated",
        thread_id="01ff0000-0000-7000-8000-00000000000f",  # later than any turn
        meta={
            "history_base": base,
            "subagent_history_start_ordinal": 1 + len(parent.lines),
            "parent_thread_id": parent.thread_id,
        },
    )
    for line in parent.lines:
        record = json.loads(line)
        rollout.line(record["type"], record["payload"])
    rollout.call("exec_command", {"cmd": "new"}, id="call_new")

    spans = {span.id: span.call.agent_id for span in read(rollout).spans}

    assert spans == {"call_old": None, "call_new": rollout.thread_id}


def test_incomplete_records_are_tolerated() -> None:
    rollout = RolloutBuilder()
    rollout.line("session_meta", {"cwd": "/elsewhere"}).line("turn_context", {"model": None})
    rollout.event("token_count", info=None).event("thread_name_updated", name="Milk")
    call = rollout.call("exec_command", {"cmd": "ls"})
    rollout.output(call, codex_builder.command_output("a")).output(call, codex_builder.command_output("again"))

    transcript = read(rollout)

    assert transcript.info.title == "Milk"
    (span,) = transcript.spans
    assert [copy.what for copy in span.copies] == ["result"]
    assert transcript.tokens.input_tokens == 0


@pytest.mark.parametrize(
    ("cut", "calls", "codes"), [(0, 1, []), (1, 1, ["torn_last_line"]), (30, 0, ["torn_last_line"])]
)
def test_truncated_document_is_read_to_the_cut(cut: int, calls: int, codes: list[str]) -> None:
    item = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}
    data = json.dumps({"items": [item], "version": 1, "session": {"id": "s1"}}).encode()
    data = data.replace(b', "version": 1, "session": {"id": "s1"}', b"") if cut else data

    transcript = toolspan.read(BytesSource(data[: len(data) - cut], "rollout-2025-05-09.json"))

    assert len(transcript.spans) == calls
    assert [finding.code for finding in transcript.findings] == codes
    assert transcript.info.session_id == ("s1" if not cut else None)


def by_thread(root: Path) -> dict[str | None, TranscriptFile]:
    return {file.name.session_id: file for file in find_transcripts(root)}


def test_rollouts_of_subagents_are_found_by_their_first_record(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    agent = main.fork(agent="scout")
    other = RolloutBuilder(thread_id="01ff0000-0000-7000-8000-00000000000f").prompt("apart")
    mate = RolloutBuilder(thread_id="01ff0000-0000-7000-8000-0000000000aa", meta={"session_id": main.thread_id})
    for made in (main, agent, other, mate):
        made.write(tmp_path)
    spaced = mate.write(tmp_path)
    spaced.write_bytes(mate.data().replace(b'":"', b'": "'))
    builder = TranscriptBuilder().prompt("go")
    builder.write(tmp_path / f"{builder.session_id}.jsonl")
    gone = by_thread(tmp_path)[other.thread_id]
    files = find_transcripts(tmp_path)
    gone.path.unlink()  # it vanishes meanwhile and belongs to no session

    result = find_agents_by_content(files, main.thread_id)

    assert [(file.name.role, file.name.agent_id, file.name.session_id) for file in result] == [
        ("agent", agent.thread_id, main.thread_id),
        ("agent", mate.thread_id, main.thread_id),
    ]


def test_first_record_names_the_working_folder(tmp_path: Path) -> None:
    RolloutBuilder(cwd="/home/dev/pr\u00f6ject").prompt("go").write(tmp_path)
    (file,) = find_transcripts(tmp_path)

    assert has_working_folder(file, "/home/dev/pr\u00f6ject")
    assert not has_working_folder(file, "/home/dev")
    assert not has_working_folder(file, "/home/dev/pr\u00f6ject/below")


def test_compressed_copy_of_an_existing_rollout_is_not_listed_twice(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("go")
    path = rollout.write(tmp_path)
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstd.compress(path.read_bytes()))

    assert [file.path for file in find_transcripts(tmp_path)] == [path]
    path.unlink()
    assert [file.path for file in find_transcripts(tmp_path)] == [packed]


def test_folders_of_all_clients_are_searched_by_default(user: Path) -> None:
    with pytest.raises(SourceError, match="such as CLAUDE_CONFIG_DIR or CODEX_HOME"):
        find_all_transcripts()

    rollout = RolloutBuilder().prompt("go").write(user / ".codex")
    assert default_roots() == [user / ".codex" / "sessions"]
    session = user / ".claude" / "projects" / "p" / "s.jsonl"
    session.parent.mkdir(parents=True)
    TranscriptBuilder().prompt("go").write(session)
    chat = gemini_chats.write_chat(user, gemini_chats.document())
    assert [file.path for file in find_all_transcripts()] == [session, rollout, chat]
    assert [file.path for file in find_all_transcripts([user / ".codex"])] == [rollout]


def summarize(updates: list[FollowUpdate]) -> list[tuple[str, str]]:
    return [
        (update.span.call.target or "", update.span.state)
        for update in updates
        if isinstance(update, CallAppeared | CallChanged)
    ]


def test_call_of_a_growing_rollout_is_open_until_its_output(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    path = rollout.write(tmp_path)
    follower = Follower(path)
    assert follower.poll() == []
    first = rollout.call("exec_command", {"cmd": "a"})
    second = rollout.call("exec_command", {"cmd": "b"})
    rollout.write(tmp_path)
    assert summarize(follower.poll()) == [("a", "requested"), ("b", "requested")]
    rollout.event("exec_command_begin", call_id=first)
    rollout.event("exec_approval_request", call_id=second, command=["b"])
    rollout.write(tmp_path)
    assert summarize(follower.poll()) == [("a", "running"), ("b", "awaiting_permission")]
    rollout.output(first, codex_builder.command_output()).abort()
    rollout.write(tmp_path)
    assert summarize(follower.poll()) == [("a", "succeeded"), ("b", "interrupted")]


def test_follow_ends_with_the_spans_of_a_full_read(tmp_path: Path) -> None:
    rollout = RolloutBuilder(age="paginated").prompt("Do it")
    start = rollout.call("exec_command", {"cmd": "make"})
    rollout.output(start, codex_builder.running_output(4))
    poll = rollout.call("write_stdin", {"session_id": 4})
    rollout.output(poll, codex_builder.command_output("done")).prompt("Then")
    rollout.call("exec_command", {"cmd": "left"})
    rollout.compact("so far").prompt("And")
    rollout.call("exec_command", {"cmd": "open"})
    path = tmp_path / "rollout-x.jsonl"
    path.write_bytes(b"")
    follower = Follower(path)
    known: dict[str, Span] = {}
    for line in rollout.lines:
        with path.open("ab") as stream:
            stream.write(line[:9])
        follower.poll()
        with path.open("ab") as stream:
            stream.write(line[9:] + b"\n")
        known |= {u.span.id: u.span for u in follower.poll() if isinstance(u, CallAppeared | CallChanged)}
    known |= {u.span.id: u.span for u in follower.finish() if isinstance(u, CallAppeared | CallChanged)}
    expected = toolspan.read(path).spans
    assert [(s.id, s.state, s.branch, s.background) for s in known.values()] == [
        (s.id, s.state, s.branch, s.background) for s in expected
    ]


def test_session_is_followed_with_its_subagents(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    spawn = rollout.call("spawn_agent", {"message": "look"})
    child = rollout.fork(agent="Mill")
    rollout.output(spawn, f'{{"agent_id":"{child.thread_id}"}}')
    child.prompt("look", after_ms=10).call("exec_command", {"cmd": "inside"})
    path = rollout.write(tmp_path)
    child.write(tmp_path)
    follower = SessionFollower(path)
    follower.poll()
    assert ("inside", "requested") in summarize(follower.poll())


def test_document_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "rollout-2025-05-09-dd4e206e-cc06-40ce-8c2e-c188aa04b6f4.json"
    path.write_text('{"session":{"id":"x"},"items":[]}\n')
    with pytest.raises(SourceError, match="one JSON document"):
        Follower(path).poll()
