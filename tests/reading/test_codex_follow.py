"""Growing Codex rollouts are followed like other transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolspan
from tests.requirement import requirement
from toolspan.errors import SourceError
from toolspan.reading.follow import CallAppeared, CallChanged, Follower, FollowUpdate, SessionFollower
from toolspan.testing import codex_builder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.span import Span


def told(updates: list[FollowUpdate]) -> list[tuple[str, str]]:
    return [
        (update.span.call.target or "", update.span.state)
        for update in updates
        if isinstance(update, CallAppeared | CallChanged)
    ]


@requirement("codex.follow")
def test_call_of_a_growing_rollout_is_open_until_its_output(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Do it")
    path = rollout.write(tmp_path)
    follower = Follower(path)
    assert follower.poll() == []
    first = rollout.call("exec_command", {"cmd": "a"})
    second = rollout.call("exec_command", {"cmd": "b"})
    rollout.write(tmp_path)
    assert told(follower.poll()) == [("a", "requested"), ("b", "requested")]
    rollout.event("exec_command_begin", call_id=first)
    rollout.event("exec_approval_request", call_id=second, command=["b"])
    rollout.write(tmp_path)
    assert told(follower.poll()) == [("a", "running"), ("b", "awaiting_permission")]
    rollout.output(first, codex_builder.command_output()).abort()
    rollout.write(tmp_path)
    assert told(follower.poll()) == [("a", "succeeded"), ("b", "interrupted")]


@requirement("codex.follow")
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


@requirement("codex.follow")
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
    assert ("inside", "requested") in told(follower.poll())


def test_document_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "rollout-2025-05-09-dd4e206e-cc06-40ce-8c2e-c188aa04b6f4.json"
    path.write_text('{"session":{"id":"x"},"items":[]}\n')
    with pytest.raises(SourceError, match="one JSON document"):
        Follower(path).poll()
