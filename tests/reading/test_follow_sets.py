"""Following several files at once: which are looked at, when, and what goes wrong alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reading.test_follow import append, ended, one_call, told
from tests.requirement import requirement
from toolspan.errors import SourceError
from toolspan.reading.follow import FolderFollower, SessionFollower, wait_for_changes
from toolspan.reading.timeline import build_timeline
from toolspan.reading.transcript import read, read_content
from toolspan.testing import TranscriptBuilder, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

NEW = [("new", "c1", "succeeded")]


@requirement("watch.everything")
def test_files_in_a_folder_that_is_new_are_found_by_the_folder(tmp_path: Path) -> None:
    follower = FolderFollower(tmp_path)
    assert follower.poll() == []
    path = tmp_path / "project" / "s.jsonl"
    append(path, b"".join(one_call()))
    append(tmp_path / "project" / "notes.txt", b"x")

    found = follower.poll({tmp_path / "project"})

    assert told(found) == NEW
    assert told(follower.poll({path, tmp_path / "project" / "notes.txt"})) == []


@requirement("watch.everything")
def test_a_file_is_known_by_one_name_though_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    append(real / "s.jsonl", b"".join(one_call()[:2]))
    link.symlink_to(real)
    follower = FolderFollower(link)
    assert told(follower.poll()) == [("new", "c1", "requested")]
    append(real / "s.jsonl", one_call()[2])

    found = follower.poll({real / "s.jsonl", tmp_path / "elsewhere.jsonl"})  # as the system says

    assert told(found) == [("changed", "c1", "requested", "succeeded")]


@requirement("watch.everything")
def test_files_that_sleep_are_read_only_from_where_they_wake(tmp_path: Path) -> None:
    old = tmp_path / "s.jsonl"
    append(old, b"".join(one_call()))
    follower = FolderFollower(tmp_path, asleep_before=old.stat().st_mtime + 1)
    assert follower.poll() == []
    later = TranscriptBuilder(session_id="other").prompt("more")
    later.call("Bash", {"command": "ls"}, id="c2")
    append(old, b"".join(ended(later)))

    assert told(follower.poll()) == [("new", "c2", "requested")]


@requirement("watch.everything")
def test_a_file_that_breaks_is_a_problem_of_its_own(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", b"".join(one_call()))
    follower = FolderFollower(tmp_path)
    (tmp_path / "b.jsonl").mkdir()

    assert told(follower.poll({tmp_path / "a.jsonl", tmp_path / "b.jsonl"})) == NEW
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "a.jsonl").mkdir()
    assert follower.poll({tmp_path / "a.jsonl"}) == []
    assert list(follower.problems) == [tmp_path / "a.jsonl"]


@requirement("codex.follow")
def test_a_subagent_whose_rollout_is_not_there_yet_is_looked_for_again(tmp_path: Path) -> None:
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

    assert [update[:2] for update in told(follower.poll())] == [("new", "call_in")]
    assert follower.poll() == []


def test_a_session_that_is_not_there_is_waited_for_where_it_will_come(tmp_path: Path) -> None:
    follower = SessionFollower(tmp_path / "a" / "b" / "s.jsonl")
    assert follower.watched_folders() == [tmp_path]
    assert follower.poll() == []
    append(tmp_path / "a" / "b" / "s.jsonl", b"".join(one_call()))
    (tmp_path / "a" / "b" / "s" / "subagents" / "w").mkdir(parents=True)

    home = tmp_path / "a" / "b"
    assert follower.watched_folders() == [home, home / "s", home / "s" / "subagents", home / "s" / "subagents" / "w"]
    assert told(follower.poll()) == NEW


def test_a_subagents_own_file_is_followed_alone(tmp_path: Path) -> None:
    path = tmp_path / "s1" / "subagents" / "agent-a1.jsonl"
    append(path, b"".join(one_call()))
    append(path.with_name("agent-a2.jsonl"), b"".join(one_call()))

    assert told(SessionFollower(path).poll()) == NEW


def test_a_subagent_beside_its_session_is_asked_for_its_owner_until_it_has_a_line(tmp_path: Path) -> None:
    main, agent = tmp_path / "s1.jsonl", tmp_path / "agent-a1.jsonl"
    append(main, b"".join(one_call(session_id="s1")))
    agent.touch()
    follower = SessionFollower(main)
    assert told(follower.poll()) == NEW
    below = TranscriptBuilder(session_id="s1").prompt("look")
    below.call("Bash", {"command": "ls"}, id="c2")
    append(agent, b"".join(ended(below)))

    assert told(follower.poll({agent})) == [("new", "c2", "requested")]
    stranger = tmp_path / "agent-a3.jsonl"
    append(stranger, b"".join(one_call(session_id="s2")))
    assert follower.poll({stranger}) == []


def test_a_folder_that_is_gone_cannot_be_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    follower = FolderFollower(folder)
    folder.rmdir()

    with pytest.raises(SourceError, match="the folder is gone"):
        next(wait_for_changes(follower))


@requirement("codex.read")
def test_a_rollout_is_a_timeline_like_any_other_session(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    call = main.call("exec_command", {"cmd": "ls"})
    main.output(call, codex_builder.command_output("x"), after_ms=500).text("done")

    strand = build_timeline([read_content(read(main.write(tmp_path)))])

    (turn,) = strand.turns
    assert turn.prompt is not None
    assert turn.prompt.text == "go"
    assert [placed.span.id for placed in turn.calls] == [call]
    assert [item.message.text for item in turn.items if hasattr(item, "message")] == ["go", "done"]


@requirement("codex.forks")
def test_the_timeline_of_a_subagent_has_not_the_history_it_was_given(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    main.output(main.call("exec_command", {"cmd": "old"}), codex_builder.command_output("x"))
    agent = main.fork(agent="scout").prompt("look", after_ms=5)
    call = agent.call("exec_command", {"cmd": "new"})
    agent.output(call, codex_builder.command_output("x"))

    told_by = read_content(read(agent.write(tmp_path)))

    assert [span.id for span in told_by.spans] == [call]
    assert [message.text for message in told_by.messages] == ["look"]
    assert told_by.role == "scout"
