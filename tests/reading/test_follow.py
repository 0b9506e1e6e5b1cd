"""Follow files and folders that grow, shrink, move and break."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import PATIENCE
from tests.strategies import Recorded, claude_transcripts, mutated, mutations
from toolspan.errors import SourceError
from toolspan.reading.follow import (
    CallAppeared,
    CallChanged,
    FileReset,
    FolderFollower,
    Follower,
    FollowUpdate,
    SessionFollower,
    follow,
    wait_for_changes,
)
from toolspan.reading.rows import make_call_row
from toolspan.reading.timeline import build_timeline
from toolspan.reading.transcript import read, read_content
from toolspan.testing import TranscriptBuilder, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.span import Span
from toolspan.types.state import OPEN_STATES


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as stream:
        stream.write(data)


def summarize(updates: Iterable[FollowUpdate]) -> list[tuple[str, ...]]:
    result: list[tuple[str, ...]] = []
    for update in updates:
        match update:
            case CallAppeared(span=span):
                result.append(("new", span.id, span.state))
            case CallChanged(span=span, before=before):
                result.append(("changed", span.id, before.state, span.state))
            case FileReset(reason=reason):
                result.append(("reset", reason))
    return result


def everything(span: Span) -> tuple[object, ...]:
    return (make_call_row(span, ""), span.events, span.copies)


def one_call(**kwargs: str) -> list[bytes]:
    session = TranscriptBuilder(**kwargs).prompt("Go on.")  # type: ignore[arg-type]
    session.call("Bash", {"command": "make"}, id="c1")
    session.result("c1", "fine", after_ms=1500)
    return ended(session)


def ended(session: TranscriptBuilder) -> list[bytes]:
    return [line + b"\n" for line in session.lines()]


def in_two_steps(
    session: TranscriptBuilder, at: int, path: Path
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    lines = ended(session)
    follower = Follower(path)
    append(path, b"".join(lines[:at]))
    first = summarize(follower.poll())
    append(path, b"".join(lines[at:]))
    return first, summarize(follower.poll())


def under_way() -> TranscriptBuilder:
    session = TranscriptBuilder(version="2.1.80").prompt("Go on.")
    session.call("Bash", {"command": "make"}, id="c1")
    return session.progress("c1", "bash_progress", output="")


def eventful() -> bytes:
    session = TranscriptBuilder(version="2.1.80").prompt("Go on.")
    session.call("Read", {"file_path": "/w/é.py"}, id="c1")
    session.call("Bash", {"command": "make"}, id="c2")
    session.result("c2", "Exit code 2\nno rule", is_error=True)
    session.result("c1", "text")
    request = session.last
    session.call("Edit", {"file_path": "/w/é.py"}, id="c3")
    session.hook("c3", "PreToolUse", command="check", outcome="blocked", text="no")
    session.result("c3", "PreToolUse:Edit hook error: no", is_error=True)
    session.call("Bash", {"command": "sleep 9"}, id="c4")
    session.progress("c4", "bash_progress", output="…")
    session.interrupt().rewind(request).prompt("Again.")
    session.call("Grep", {"pattern": "x"}, id="c5")
    return session.data()


def polled(data: bytes, cuts: Iterable[int]) -> tuple[list[Span], list[Span]]:
    spans: dict[str, Span] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        follower = Follower(path)
        at = 0
        for cut in (*sorted(cuts), len(data)):
            append(path, data[at:cut])
            at = cut
            take(follower.poll(), spans)
        take(follower.finish(), spans)
        assert follower.poll() == []
        transcript = read(path)
        assert follower.findings == transcript.findings
        return list(spans.values()), transcript.spans


def take(updates: list[FollowUpdate], spans: dict[str, Span]) -> None:
    """Apply updates to the summary, and check that each one fits it."""
    assert len({u.span.id for u in updates if not isinstance(u, FileReset)}) == len(updates)
    for update in updates:
        assert not isinstance(update, FileReset)
        if isinstance(update, CallChanged):
            assert spans[update.span.id] == update.before != update.span
            assert update.before.state in OPEN_STATES or update.span.state not in OPEN_STATES
        else:
            assert update.span.id not in spans
        spans[update.span.id] = update.span


def same(result: list[Span], wanted: list[Span]) -> bool:
    return sorted(map(str, map(everything, result))) == sorted(map(str, map(everything, wanted)))


def test_call_appears_as_requested_and_ends_with_its_result(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    follower = Follower(path)
    prompt, call, result = one_call()

    append(path, prompt)
    assert summarize(follower.poll()) == []
    append(path, call)
    assert summarize(follower.poll()) == [("new", "c1", "requested")]
    assert summarize(follower.poll()) == []
    append(path, result)
    assert summarize(follower.poll()) == [("changed", "c1", "requested", "succeeded")]


def test_progress_shows_that_a_call_runs(tmp_path: Path) -> None:
    first, then = in_two_steps(under_way(), -1, tmp_path / "s.jsonl")

    assert first == [("new", "c1", "requested")]
    assert then == [("changed", "c1", "requested", "running")]


def test_incomplete_line_waits_for_its_newline(tmp_path: Path) -> None:
    prompt, call, _ = one_call()
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, prompt)

    for n in range(len(call) - 1):
        append(follower.path, call[n : n + 1])
        assert follower.poll() == []
    append(follower.path, b"\n")
    assert summarize(follower.poll()) == [("new", "c1", "requested")]


def test_file_that_grows_byte_by_byte_equals_a_full_read() -> None:
    data = eventful()

    result, expected = polled(data, range(len(data)))

    assert same(result, expected)
    assert {span.state for span in expected} >= {"interrupted", "blocked_by_hook", "never_answered"}
    assert "abandoned" in {span.branch for span in expected}


@given(st.lists(st.integers(0), max_size=8))
def test_session_that_grows_in_any_steps_equals_a_full_read(cuts: list[int]) -> None:
    data = eventful()

    assert same(*polled(data, [cut % len(data) for cut in cuts]))


@given(claude_transcripts(), mutations() | st.just([]), st.lists(st.integers(0), max_size=6))
def test_file_that_grows_in_any_steps_equals_a_full_read(
    recorded: Recorded, damage: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    data = mutated(recorded.data, damage)

    assert same(*polled(data, [cut % (len(data) + 1) for cut in cuts]))


def test_interrupt_marker_corrects_a_denial(tmp_path: Path) -> None:
    first, then = in_two_steps(under_way().interrupt(), -1, tmp_path / "s.jsonl")

    assert first == [("new", "c1", "denied")]
    assert then == [("changed", "c1", "denied", "interrupted")]


def test_later_denial_with_the_same_text_explains_a_failure(tmp_path: Path) -> None:
    session = TranscriptBuilder().prompt("Go on.")
    session.call("Edit", {"file_path": "/w/a"}, id="c1")
    session.result("c1", "Not on a Friday.", is_error=True)
    before = len(session.lines())
    session.call("Bash", {"command": "make"}, id="c2")
    session.result("c2", "Not on a Friday.", is_error=True)
    first, then = in_two_steps(session, before, tmp_path / "s.jsonl")

    assert first == [("new", "c1", "failed")]
    assert then == [("changed", "c1", "failed", "denied"), ("new", "c2", "denied")]


def test_updates_come_in_the_order_of_the_requests(tmp_path: Path) -> None:
    session = TranscriptBuilder().prompt("Go on.")
    for call_id in ("c1", "c2", "c3"):
        session.call("Read", {"file_path": call_id}, id=call_id)
    request = len(session.lines())
    session.result("c3", "three").result("c1", "one")
    first, then = in_two_steps(session, request, tmp_path / "s.jsonl")

    assert [step[1] for step in first] == ["c1", "c2", "c3"]
    assert [step[1] for step in then] == ["c1", "c3"]


def test_call_on_an_abandoned_branch_is_not_open(tmp_path: Path) -> None:
    session = TranscriptBuilder(version="2.1.80").prompt("Go on.")
    session.call("Bash", {"command": "make"}, id="c1")
    killed = len(session.lines())
    session.resume().prompt("Again.").call("Bash", {"command": "make"}, id="c2", message="m2")
    lines = ended(session)
    follower = Follower(tmp_path / "s.jsonl")

    append(follower.path, b"".join(lines[:killed]))
    assert summarize(follower.catch_up()) == [("new", "c1", "requested")]
    append(follower.path, b"".join(lines[killed:]))
    left = ("changed", "c1", "requested", "never_answered")
    assert summarize(follower.poll()) == [left, ("new", "c2", "requested")]


def test_catch_up_reports_only_open_calls(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(eventful())

    follower = Follower(path)

    assert summarize(follower.catch_up()) == [("new", "c5", "requested")]
    assert summarize(follower.poll()) == []


def test_finish_ends_open_calls_and_reads_the_torn_last_line(tmp_path: Path) -> None:
    prompt, call, result = one_call()
    other = call.replace(b'"c1"', b'"c2"').rstrip(b"\n")
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, prompt + call + other)

    assert summarize(follower.poll()) == [("new", "c1", "requested")]
    assert summarize(follower.finish()) == [
        ("changed", "c1", "requested", "never_answered"),
        ("new", "c2", "never_answered"),
    ]
    append(follower.path, result)
    assert follower.poll() == []


def test_read_bytes_are_not_read_again(tmp_path: Path) -> None:
    first = b"".join(one_call())
    padding = b'{"type":"mode","mode":"%s"}\n' % (b"x" * 5_000)
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, first + padding + padding)
    follower.poll()

    with follower.path.open("r+b") as stream:  # damage the bytes that a second read would see
        stream.seek(len(first) + 3_000)
        stream.write(b"\n{}\n")
    append(follower.path, one_call()[1].replace(b'"c1"', b'"c2"'))
    os.utime(follower.path, ns=(0, 0))

    assert summarize(follower.poll()) == [("new", "c2", "requested")]
    assert follower.findings == []


def test_truncated_file_is_reported_again(tmp_path: Path) -> None:
    lines = one_call()
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, b"".join(lines))
    follower.poll()

    os.truncate(follower.path, len(lines[0] + lines[1]))
    assert summarize(follower.poll()) == [("reset", "truncated"), ("new", "c1", "requested")]
    os.truncate(follower.path, 0)
    assert summarize(follower.poll()) == [("reset", "truncated")]
    append(follower.path, b"".join(lines))
    assert summarize(follower.poll()) == [("new", "c1", "succeeded")]


def test_removing_an_incomplete_line_changes_nothing(tmp_path: Path) -> None:
    prompt, call, result = one_call()
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, prompt + call + result[:40])
    follower.poll()

    os.truncate(follower.path, len(prompt + call) + 10)
    assert summarize(follower.poll()) == []
    append(follower.path, result[10:])
    assert summarize(follower.poll()) == [("changed", "c1", "requested", "succeeded")]


def test_replaced_file_is_reported_again(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, b"".join(one_call()))
    follower.poll()

    rotated = follower.path.rename(tmp_path / "old.jsonl")
    assert summarize(follower.poll()) == []
    append(follower.path, b"".join(one_call()).replace(b'"c1"', b'"c2"'))
    assert summarize(follower.poll()) == [("reset", "replaced"), ("new", "c2", "succeeded")]
    assert rotated.exists()


@pytest.mark.parametrize("more", [b"", b'{"type":"mode"}\n'], ids=["same-size", "longer"])
def test_file_with_other_content_is_reported_again(tmp_path: Path, more: bytes) -> None:
    follower = Follower(tmp_path / "s.jsonl")
    data = b"".join(one_call())
    append(follower.path, data)
    follower.poll()

    with follower.path.open("r+b") as stream:
        stream.write(data.replace(b'"c1"', b'"c2"') + more)
    os.utime(follower.path, ns=(1, 1))  # two writes may fall into one tick of the file system

    assert summarize(follower.poll()) == [("reset", "rewritten"), ("new", "c2", "succeeded")]


def test_deleted_file_keeps_its_calls_until_it_returns(tmp_path: Path) -> None:
    lines = one_call()
    follower = Follower(tmp_path / "s.jsonl")
    append(follower.path, b"".join(lines[:2]))
    follower.poll()

    away = follower.path.rename(tmp_path / "away")
    assert follower.poll() == []
    away.rename(follower.path)
    append(follower.path, lines[2])
    assert summarize(follower.poll()) == [("changed", "c1", "requested", "succeeded")]
    follower.path.unlink()
    assert summarize(follower.finish()) == []


def test_file_and_its_folder_may_appear_later(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "new" / "s.jsonl")

    assert follower.poll() == []
    append(follower.path, b"".join(one_call()))
    assert summarize(follower.poll()) == [("new", "c1", "succeeded")]


def test_damage_does_not_stop_follow(tmp_path: Path) -> None:
    prompt, call, result = one_call()
    follower = Follower(tmp_path / "s.jsonl")

    append(follower.path, prompt.rstrip(b"\n"))
    append(follower.path, call)  # glued to the line before
    assert summarize(follower.poll()) == [("new", "c1", "requested")]
    append(follower.path, b"\0" * 4096)
    assert summarize(follower.poll()) == []
    append(follower.path, result)
    assert summarize(follower.poll()) == [("changed", "c1", "requested", "succeeded")]
    append(follower.path, b'{"type":"user","mess\n\xff\xfe\n')
    assert summarize(follower.poll()) == []
    assert [finding.code for finding in follower.findings] == [
        "glued_records", "nul_bytes", "torn_line", "invalid_utf8",
    ]  # fmt: skip


def test_compressed_files_and_folders_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"s\.jsonl\.zst: a compressed transcript does not grow"):
        Follower(tmp_path / "s.jsonl.zst")
    with pytest.raises(SourceError, match="not a file that can be followed"):
        Follower(tmp_path).poll()


@pytest.mark.parametrize("version", ["2.0.65", "2.1.325"], ids=["beside", "nested"])
def test_subagent_that_starts_later_is_followed(tmp_path: Path, version: str) -> None:
    session = TranscriptBuilder(version=version).prompt("Go on.")
    session.call("Task", {"prompt": "Look."}, id="c1")
    agent = session.agent("c1").prompt("Look.")
    agent.call("Grep", {"pattern": "x"}, id="a1")
    files = session.files()
    follower = SessionFollower(tmp_path / f"{session.session_id}.jsonl")
    append(follower.path, files.pop(follower.path.name))
    append(tmp_path / "agent-99.jsonl", b"".join(one_call(session_id="another", version=version)))

    assert summarize(follower.poll()) == [("new", "c1", "requested")]
    for name, data in files.items():
        append(tmp_path / name, data)
    begun = [("changed", "c1", "requested", "running")] if version == "2.1.325" else []
    assert summarize(follower.poll()) == [*begun, ("new", "a1", "requested")]
    assert summarize(follower.poll([tmp_path / "unrelated.txt"])) == []
    states = ["never_answered", "never_answered"]
    assert [step[-1] for step in summarize(follower.finish())] == states


def test_only_changed_files_of_a_folder_are_read(tmp_path: Path) -> None:
    prompt, call, result = one_call()
    old, young = tmp_path / "p" / "old.jsonl", tmp_path / "p" / "young.jsonl"
    append(old, prompt + call)
    append(young, (prompt + call).replace(b"2026-", b"2027-"))
    os.utime(young, (1_000, 1_000))  # the records' own times count
    append(tmp_path / "p" / "packed.jsonl.zst", b"")
    follower = FolderFollower(tmp_path, asleep_before=datetime(2027, 1, 1, tzinfo=UTC).timestamp())

    assert [(u.file, u.span.state) for u in follower.catch_up() if isinstance(u, CallAppeared)] == [
        (str(young), "requested")
    ]
    append(old, result)
    append(tmp_path / "q" / "new.jsonl", prompt + call)
    ended_now = ("changed", "c1", "requested", "succeeded")
    assert summarize(follower.poll([old])) == [ended_now]
    assert summarize(follower.poll()) == [("new", "c1", "requested")]
    assert follower.problems == {}


def test_unreadable_file_does_not_stop_the_others(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    append(first, b"".join(one_call()))
    append(second, one_call()[0])
    follower = FolderFollower(tmp_path)
    follower.poll()

    first.unlink()
    first.mkdir()
    append(second, one_call()[1])

    assert summarize(follower.poll([first, second])) == [("new", "c1", "requested")]
    assert list(follower.problems) == [first]


def test_follow_waits_for_a_file_and_then_for_each_line(tmp_path: Path) -> None:
    path = tmp_path / "later" / "s.jsonl"
    stop = threading.Event()
    received: queue.Queue[FollowUpdate] = queue.Queue()

    def listen() -> None:
        for update in follow(path, stop=stop):
            received.put(update)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    prompt, call, result = one_call()
    append(path, prompt + call)
    assert summarize([received.get(timeout=PATIENCE)]) == [("new", "c1", "requested")]
    append(path, result)
    assert summarize([received.get(timeout=PATIENCE)]) == [("changed", "c1", "requested", "succeeded")]
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


NEW = [("new", "c1", "succeeded")]


def test_files_in_a_new_folder_are_found(tmp_path: Path) -> None:
    follower = FolderFollower(tmp_path)
    assert follower.poll() == []
    path = tmp_path / "project" / "s.jsonl"
    append(path, b"".join(one_call()))
    append(tmp_path / "project" / "notes.txt", b"x")

    result = follower.poll({tmp_path / "project"})

    assert summarize(result) == NEW
    assert summarize(follower.poll({path, tmp_path / "project" / "notes.txt"})) == []


def test_file_behind_a_linked_folder_has_one_name(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    append(real / "s.jsonl", b"".join(one_call()[:2]))
    link.symlink_to(real)
    follower = FolderFollower(link)
    assert summarize(follower.poll()) == [("new", "c1", "requested")]
    append(real / "s.jsonl", one_call()[2])

    result = follower.poll({real / "s.jsonl", tmp_path / "elsewhere.jsonl"})  # as the system reports it

    assert summarize(result) == [("changed", "c1", "requested", "succeeded")]


def test_idle_files_are_read_only_from_where_they_grow(tmp_path: Path) -> None:
    old = tmp_path / "s.jsonl"
    append(old, b"".join(one_call()))
    follower = FolderFollower(tmp_path, asleep_before=old.stat().st_mtime + 1)
    assert follower.poll() == []
    later = TranscriptBuilder(session_id="other").prompt("more")
    later.call("Bash", {"command": "ls"}, id="c2")
    append(old, b"".join(ended(later)))

    assert summarize(follower.poll()) == [("new", "c2", "requested")]


def test_broken_file_is_reported_separately(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", b"".join(one_call()))
    follower = FolderFollower(tmp_path)
    (tmp_path / "b.jsonl").mkdir()

    assert summarize(follower.poll({tmp_path / "a.jsonl", tmp_path / "b.jsonl"})) == NEW
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "a.jsonl").mkdir()
    assert follower.poll({tmp_path / "a.jsonl"}) == []
    assert list(follower.problems) == [tmp_path / "a.jsonl"]


def test_missing_rollout_of_a_subagent_is_looked_for_again(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    agent = main.fork(agent="scout")
    call = main.call("spawn_agent", {"message": "look"})
    main.output(call, f'{{"agent_id": "{agent.thread_id}"}}')
    agent.prompt("look")
    agent.output(agent.call("exec_command", {"cmd": "ls"}, id="call_in"), codex_builder.command_output("x"))
    path = main.write(tmp_path)
    follower = SessionFollower(path)

    follower.poll()
    assert follower.poll() == []  # it does not lie beside yet
    agent.write(tmp_path)

    assert [update[:2] for update in summarize(follower.poll())] == [("new", "call_in")]
    assert follower.poll() == []


def test_missing_session_is_awaited_where_it_will_be_written(tmp_path: Path) -> None:
    follower = SessionFollower(tmp_path / "a" / "b" / "s.jsonl")
    assert follower.watched_folders() == [tmp_path]
    assert follower.poll() == []
    append(tmp_path / "a" / "b" / "s.jsonl", b"".join(one_call()))
    (tmp_path / "a" / "b" / "s" / "subagents" / "w").mkdir(parents=True)

    home = tmp_path / "a" / "b"
    assert follower.watched_folders() == [home, home / "s", home / "s" / "subagents", home / "s" / "subagents" / "w"]
    assert summarize(follower.poll()) == NEW


def test_file_of_a_subagent_is_followed_alone(tmp_path: Path) -> None:
    path = tmp_path / "s1" / "subagents" / "agent-a1.jsonl"
    append(path, b"".join(one_call()))
    append(path.with_name("agent-a2.jsonl"), b"".join(one_call()))

    assert summarize(SessionFollower(path).poll()) == NEW


def test_owner_of_a_subagent_is_checked_until_it_has_a_record(tmp_path: Path) -> None:
    main, agent = tmp_path / "s1.jsonl", tmp_path / "agent-a1.jsonl"
    append(main, b"".join(one_call(session_id="s1")))
    agent.touch()
    follower = SessionFollower(main)
    assert summarize(follower.poll()) == NEW
    below = TranscriptBuilder(session_id="s1").prompt("look")
    below.call("Bash", {"command": "ls"}, id="c2")
    append(agent, b"".join(ended(below)))

    assert summarize(follower.poll({agent})) == [("new", "c2", "requested")]
    stranger = tmp_path / "agent-a3.jsonl"
    append(stranger, b"".join(one_call(session_id="s2")))
    assert follower.poll({stranger}) == []


def test_removed_folder_cannot_be_awaited(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    follower = FolderFollower(folder)
    folder.rmdir()

    with pytest.raises(SourceError, match="the folder is gone"):
        next(wait_for_changes(follower))


def test_rollout_has_a_timeline(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    call = main.call("exec_command", {"cmd": "ls"})
    main.output(call, codex_builder.command_output("x"), after_ms=500).text("done")

    strand = build_timeline([read_content(read(main.write(tmp_path)))])

    (turn,) = strand.turns
    assert turn.prompt is not None
    assert turn.prompt.text == "go"
    assert [placed.span.id for placed in turn.calls] == [call]
    assert [item.message.text for item in turn.items if hasattr(item, "message")] == ["go", "done"]


def test_timeline_of_a_subagent_leaves_out_inherited_history(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    main.output(main.call("exec_command", {"cmd": "old"}), codex_builder.command_output("x"))
    agent = main.fork(agent="scout").prompt("look", after_ms=5)
    call = agent.call("exec_command", {"cmd": "new"})
    agent.output(call, codex_builder.command_output("x"))

    told_by = read_content(read(agent.write(tmp_path)))

    assert [span.id for span in told_by.spans] == [call]
    assert [message.text for message in told_by.messages] == ["look"]
    assert told_by.role == "scout"
