"""`toolspan calls`: one row per call, for people and for programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.command import home_at, run, saved
from tests.cli.command import rows as rows_of
from tests.fork_server import TOOLSPAN
from tests.requirement import requirement
from toolspan.archive.calls import TimedCall
from toolspan.cli.app import app
from toolspan.reading import sample
from toolspan.reading.history import short_id
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.codex_builder import RolloutBuilder

pytestmark = pytest.mark.usefixtures("fork_server")


def calls(*arguments: str | Path, root: Path | None = None) -> Result:
    return run("calls", *arguments, code=None, env=home_at(root))


def calls_table(*arguments: str | Path, root: Path | None = None) -> str:
    return run("calls", *arguments, env=home_at(root)).stdout


def rows(*arguments: str | Path, root: Path | None = None) -> list[dict[str, Any]]:
    return rows_of(run("calls", *arguments, "--json", env=home_at(root)))


def ids(*arguments: str | Path, root: Path | None = None) -> list[str]:
    return [row["id"] for row in rows(*arguments, root=root)]


def session_with_calls(session_id: str, *names: str) -> TranscriptBuilder:
    """Build a session of successful calls with these ids."""
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    for name in names:
        builder.result(builder.call("Bash", {"command": "ls"}, id=name), claude_results.ran("x"))
    return builder


def test_json_row_has_exactly_the_fields_of_a_call_row(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="one").prompt("go")
    call = builder.call("Bash", {"command": "make"}, id="toolu_1")
    builder.result(call, claude_results.exited(2, "no rule"), after_ms=1_500)
    path = builder.write(tmp_path / "one.jsonl")

    (row,) = rows(path)

    assert tuple(row) == TimedCall.__struct_fields__
    lines = path.read_bytes().splitlines(keepends=True)
    expected = {
        "file": str(path),
        "id": "toolu_1",
        "tool": "Bash",
        "kind": "shell",
        "state": "failed",
        "error_kind": "command_failed",
        "is_error": True,
        "paired": True,
        "request_line": 2,
        "result_line": 3,
        "requested": "2026-11-02T09:00:00.000Z",
        "finished": "2026-11-02T09:00:01.500Z",
        "duration_ms": 1500,
        "target": "make",
        "message": "Exit code 2\nno rule",
        "exit_code": 2,
        "retry": "fix",
        "session": "one",
        "branch": "active",
        "copies": 0,
        "permission": "accept",
        "evidence": [["is_error", None]],
        "request_bytes": [len(lines[0]), len(lines[1]) - 1],
        "result_bytes": [len(lines[0]) + len(lines[1]), len(lines[2]) - 1],
    }
    assert {key: row[key] for key in expected} == expected


def test_copied_calls_of_a_fork_count_once(tmp_path: Path) -> None:
    builder = session_with_calls("one", "toolu_a", "toolu_b")
    twin = builder.fork("two")
    twin.result(twin.call("Read", {"file_path": "/a"}, id="toolu_c"), claude_results.read("/a", "a"))
    first, second = saved(builder, tmp_path), saved(twin, tmp_path)

    assert sorted(ids(tmp_path)) == ["toolu_a", "toolu_b", "toolu_c"]
    assert {row["id"]: row["session"] for row in rows(tmp_path)} == {
        "toolu_a": "one",
        "toolu_b": "one",
        "toolu_c": "two",
    }
    assert ids(first, second) == ["toolu_a", "toolu_b", "toolu_a", "toolu_b", "toolu_c"]


def test_lines_copied_by_a_resume_count_once(tmp_path: Path) -> None:
    before = session_with_calls("one", "toolu_a")
    after = session_with_calls("two", "toolu_b")
    saved(before, tmp_path)
    path = saved(after, tmp_path)
    path.write_bytes(before.data() + after.data())

    assert ids(tmp_path) == ["toolu_a", "toolu_b"]
    assert ids(path) == ["toolu_a", "toolu_b"]


def test_equal_ids_in_unrelated_sessions_are_two_calls(tmp_path: Path) -> None:
    for name in ("one", "two"):
        saved(session_with_calls(name, "call_1"), tmp_path)

    assert [(row["session"], row["id"]) for row in rows(tmp_path)] == [("one", "call_1"), ("two", "call_1")]


def session_with_subagent(version: str) -> tuple[TranscriptBuilder, str, str]:
    """Build a session with a subagent; return it, the starting call and the subagent's call."""
    builder = TranscriptBuilder(version=version).prompt("go")
    starter = builder.call("Task", {"description": "a", "prompt": "Look"})
    agent = builder.agent(starter).prompt("Look")
    inner = agent.call("Read", {"file_path": "/a"})
    agent.result(inner, claude_results.read("/a", "a"))
    report = claude_results.reported(agent.agent_id, "seen", prompt="Look", calls=1, took_ms=10)
    return builder.result(starter, report), starter, inner


@requirement("reading.subagents-name-their-call")
@pytest.mark.parametrize("version", ["2.1.327", "2.1.80", "2.0.65"])
def test_call_of_a_subagent_names_the_call_that_started_it(version: str, tmp_path: Path) -> None:
    builder, starter, inner = session_with_subagent(version)
    path = saved(builder, tmp_path)
    saved(session_with_calls("other", "toolu_other"), tmp_path / "other")

    assert {row["id"]: row["parent_call"] for row in rows(tmp_path / "projects")} == {starter: None, inner: starter}
    assert sorted(ids(builder.session_id[:8], root=tmp_path)) == sorted([starter, inner])
    if version == "2.1.327":
        assert ids(path) == [starter]
        for meta in tmp_path.rglob("*.meta.json"):
            meta.unlink()
        assert {row["id"]: row["parent_call"] for row in rows(tmp_path / "projects")}[inner] == starter


@requirement("reading.subagents-name-their-call")
def test_side_file_alone_links_a_subagent_to_its_call(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    starter = builder.call("Agent", {"description": "a", "prompt": "Look"})
    agent = builder.agent(starter).prompt("Look")
    inner = agent.call("Read", {"file_path": "/a"})
    saved(builder, tmp_path)

    assert {row["id"]: row["parent_call"] for row in rows(tmp_path)}[inner] == starter


def mixed_session() -> TranscriptBuilder:
    """Build four calls an hour apart with different tools and states; the last one in a subagent."""
    builder = TranscriptBuilder(session_id="mixed").prompt("go")
    builder.result(builder.call("Read", {"file_path": "/a"}, id="read"), claude_results.read("/a", "a"))
    call = builder.call("Bash", {"command": "x"}, id="bash", after_ms=3_600_000)
    builder.result(call, claude_results.exited(1))
    call = builder.call("Edit", {"file_path": "/a"}, id="edit", after_ms=3_600_000)
    builder.result(call, claude_results.refused("File has not been read yet."))
    starter = builder.call("Agent", {"prompt": "p"}, id="agent", after_ms=3_600_000)
    agent = builder.agent(starter).prompt("p")
    agent.result(agent.call("Glob", {"pattern": "*"}, id="glob"), "x")
    return builder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tool", "Bash"], {"bash"}),
        (["--tool", "Bash", "--tool", "Read"], {"bash", "read"}),
        (["--tool", "bash"], {"bash"}),
        (["--state", "failed"], {"bash", "edit"}),
        (["--state", "succeeded", "--state", "never_answered"], {"read", "agent", "glob"}),
        (["--error", "read_required"], {"edit"}),
        (["--error", "command_failed", "--tool", "Edit"], set()),
        (["--since", "2026-11-02T11:00:00Z"], {"edit", "agent", "glob"}),
        (["--until", "2026-11-02T11:00:00Z"], {"read", "bash"}),
        (["--since", "2026-11-02T10:00:00Z", "--until", "2026-11-02T11:00:00Z"], {"bash"}),
        (["--until", "2026-11-01"], set()),
        (["--until", "2026-11-02"], {"read", "bash", "edit", "agent", "glob"}),
        (["--until", "2026-11"], {"read", "bash", "edit", "agent", "glob"}),
        (["--until", "2026-10"], set()),
        (["--since", "2026-11-02"], {"read", "bash", "edit", "agent", "glob"}),
        (["--since", "2026-11-02", "--until", "2026-11-02"], {"read", "bash", "edit", "agent", "glob"}),
        (["--since", "2026-11", "--until", "2026-11"], {"read", "bash", "edit", "agent", "glob"}),
        (["--since", "yesterday", "--until", "yesterday"], set()),
        (["--session", "mix"], {"read", "bash", "edit", "agent", "glob"}),
        (["--project", "home-dev"], {"read", "bash", "edit", "agent", "glob"}),
        (["--client", "claude"], {"read", "bash", "edit", "agent", "glob"}),
    ],
)
def test_filters_select_calls(arguments: list[str], expected: set[str], tmp_path: Path) -> None:
    saved(mixed_session(), tmp_path)

    assert set(ids(tmp_path, *arguments)) == expected


@pytest.mark.parametrize("command", ["calls", "sessions", "time"])
@pytest.mark.parametrize(("since", "until"), [("2026-04", "2026-03"), ("2026-03-01T10:00", "2026-03-01T10:00")])
def test_reversed_and_empty_periods_are_refused(command: str, since: str, until: str, tmp_path: Path) -> None:
    saved(mixed_session(), tmp_path)

    result = run(command, tmp_path, "--since", since, "--until", until, code=2)

    assert "is not later than its beginning (2026-0" in result.stderr


def test_filters_accept_agent_id_prefixes_and_ages(tmp_path: Path) -> None:
    saved(mixed_session(), tmp_path)
    (agent,) = (row["agent"] for row in rows(tmp_path) if row["agent"])

    assert ids(tmp_path, "--agent", agent[:6]) == ["glob"]
    assert ids(tmp_path, "--until", "36500d") == []
    assert len(ids(tmp_path, "--since", "36500d")) == 5


def test_ids_of_calls_are_never_shortened() -> None:
    output = run("calls", sample.archive(), "--limit", "0", env={"COLUMNS": "120"}).stdout
    rows = rows_of(run("calls", sample.archive(), "--json"))

    assert [row["id"] for row in rows if short_id(row["id"])[:8] not in output] == []


@pytest.mark.parametrize("time", ["x", "2026-13-01", "7y", "9999999w", "999999999999d"])
def test_invalid_time_is_refused(time: str, tmp_path: Path) -> None:
    result = calls(saved(mixed_session(), tmp_path), "--since", time)

    assert result.exit_code == 2
    assert time in result.stderr


def test_table_shows_the_last_rows_and_counts_the_others(tmp_path: Path) -> None:
    path = session_with_calls("one", *(f"toolu_{n}" for n in range(60))).write(tmp_path / "one.jsonl")

    assert calls_table(path, "--unfold").count("Bash") == 50
    assert "60 calls, the last 50 shown" in calls_table(path, "--unfold")
    assert calls_table(path, "--limit", "0", "--unfold").count("Bash") == 60
    assert "shown" not in calls_table(path, "--limit", "0")
    assert len(ids(path)) == 60


def test_equal_rows_in_sequence_are_folded(tmp_path: Path) -> None:
    path = session_with_calls("one", *(f"toolu_{n}" for n in range(657))).write(tmp_path / "one.jsonl")

    folded = calls_table(path)
    assert folded.count("Bash") == 1
    assert "657 × the same, --unfold" in folded
    assert "657 calls\n" in folded
    assert "7 × the same" in calls_table(path, "--limit", "7")
    assert len(calls_table(path, "--json").splitlines()) == 657


def test_folder_without_transcripts_has_no_calls(tmp_path: Path) -> None:
    assert calls_table(tmp_path) == "0 calls\n"
    assert calls_table(tmp_path, "--json") == ""


@pytest.mark.parametrize(
    ("word", "output"),
    [
        ("aaaa", "2 sessions begin with 'aaaa'"),
        ("zzzz", "no session begins with 'zzzz'"),
        ("gone.jsonl", "gone.jsonl: no such file or folder"),
        ("no/such", "no/such: no such file or folder"),
        ("a" * 300, "no session begins with"),
        ("a\0b", "no session begins with"),
        ("", "a name is empty"),
    ],
)
def test_unknown_or_ambiguous_name_exits_with_2_and_prints_one_line(word: str, output: str, tmp_path: Path) -> None:
    for last in "12":
        saved(session_with_calls(f"aaaa-{last}", "toolu_a"), tmp_path)

    result = calls(word, root=tmp_path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert output in result.stderr


def test_missing_default_folder_prints_advice(tmp_path: Path) -> None:
    result = calls(root=tmp_path)

    assert result.exit_code == 2
    assert "set a variable such as CLAUDE_CONFIG_DIR" in result.stderr


def test_id_that_is_a_prefix_of_another_selects_its_own_session(tmp_path: Path) -> None:
    saved(session_with_calls("aaaa", "toolu_a"), tmp_path)
    saved(session_with_calls("aaaa-b", "toolu_b"), tmp_path)

    assert ids("aaaa", root=tmp_path) == ["toolu_a"]


def test_user_folder_is_read_by_default(tmp_path: Path) -> None:
    saved(session_with_calls("one", "toolu_a"), tmp_path / "configured")
    saved(session_with_calls("two", "toolu_b"), tmp_path / "home" / ".claude")
    home = {"HOME": str(tmp_path / "home")}

    named = CliRunner().invoke(app, ["calls", "--json"], env=home | {"CLAUDE_CONFIG_DIR": str(tmp_path / "configured")})
    usual = CliRunner().invoke(app, ["calls", "--json"], env=home | {"CLAUDE_CONFIG_DIR": None})

    assert json.loads(named.stdout)["id"] == "toolu_a"
    assert json.loads(usual.stdout)["id"] == "toolu_b"


def test_last_selects_the_most_recent_session_with_its_subagents(tmp_path: Path) -> None:
    builder, starter, inner = session_with_subagent("2.1.327")
    os.utime(saved(builder, tmp_path), (2_000, 2_000))
    for name, at in (("one", 1_000), ("two", 1_500)):
        os.utime(saved(session_with_calls(name, f"toolu_{name}"), tmp_path), (at, at))

    assert sorted(ids("--last", root=tmp_path)) == sorted([starter, inner])
    assert sorted(ids("--last", tmp_path / "projects")) == sorted([starter, inner])


def test_last_searches_all_named_sources(tmp_path: Path) -> None:
    for name, at in (("one", 1_000), ("two", 2_000), ("three", 3_000)):
        path = saved(session_with_calls(name, f"toolu_{name}"), tmp_path / name)
        os.utime(path, (at, at))

    assert ids("--last", tmp_path / "one", tmp_path / "two") == ["toolu_two"]
    assert ids("--last", "three", tmp_path / "two", root=tmp_path / "three") == ["toolu_three"]
    assert "no such file" in calls("--last", tmp_path / "one", "no/such").stderr


@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
def test_recent_subagent_makes_its_session_the_last(version: str, tmp_path: Path) -> None:
    builder, starter, inner = session_with_subagent(version)
    os.utime(saved(builder, tmp_path), (1_000, 1_000))
    for path in tmp_path.rglob("agent-*.jsonl"):
        os.utime(path, (3_000, 3_000))
    os.utime(saved(session_with_calls("other", "toolu_other"), tmp_path), (2_000, 2_000))

    assert sorted(ids("--last", root=tmp_path)) == sorted([starter, inner])


def test_recent_codex_subagent_makes_its_session_the_last(tmp_path: Path) -> None:
    parent = RolloutBuilder().prompt("go")
    parent.call("shell", {"command": ["ls"]}, id="call_parent")
    of_agent = {"session_id": parent.thread_id}
    agent = RolloutBuilder(thread_id="0199a213-81c0-7800-8aa1-bbab2a035a53", meta=of_agent)
    agent.prompt("look").call("shell", {"command": ["ls"]}, id="call_agent")
    os.utime(parent.write(tmp_path), (1_000, 1_000))
    os.utime(agent.write(tmp_path), (2_000, 2_000))

    assert sorted(ids("--last", tmp_path)) == ["call_agent", "call_parent"]


def test_file_named_twice_counts_once(tmp_path: Path) -> None:
    path = session_with_calls("one", "toolu_a").write(tmp_path / "one.jsonl")

    assert ids(path, path) == ["toolu_a"]
    assert ids(path, tmp_path / "." / "one.jsonl", tmp_path) == ["toolu_a"]


@pytest.mark.parametrize("arguments", [["--json"], ["--limit", "0", "--unfold"]])
def test_closed_output_pipe_is_not_an_error(arguments: list[str], tmp_path: Path) -> None:
    path = session_with_calls("one", *(f"toolu_{n}" for n in range(1_200))).write(tmp_path / "one.jsonl")

    with subprocess.Popen(
        [*TOOLSPAN, "calls", str(path), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        text = process.stderr.read()
        code = process.wait(60)

    assert (code, text) == (141, b"")


def test_lone_surrogate_is_printed_and_kept_in_json(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "echo HALF"})
    builder.result(call, claude_results.exited(1, "HALF"))
    path = tmp_path / "s.jsonl"
    path.write_bytes(builder.data().replace(b"HALF", rb"\ud83d"))

    (row,) = rows(path)

    assert (row["target"], row["message"]) == ("echo \ud83d", "Exit code 1\n\ud83d")
    assert "echo" in calls_table(path)


def test_subagent_background_and_orphan_calls_are_marked(tmp_path: Path) -> None:
    builder = mixed_session()
    call = builder.call("Bash", {"command": "serve"})
    builder.result(call, claude_results.in_background("b1", builder.task_output("b1")))
    builder.result("toolu_gone", "late")
    saved(builder, tmp_path)

    output = calls_table(tmp_path)

    assert "succeeded ⟳" in output
    assert re.search(r"mixed ↳ .*Glob", output)
    assert "6 calls and 1 orphan result" in output


def test_unreadable_file_is_reported_and_the_others_are_listed(tmp_path: Path) -> None:
    session_with_calls("one", "toolu_a").write(tmp_path / "one.jsonl")
    (tmp_path / "broken.jsonl.zst").write_bytes(b"no frame")

    result = calls(tmp_path, "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["id"] == "toolu_a"
    assert "broken.jsonl.zst" in result.stderr
    assert calls(tmp_path / "broken.jsonl.zst").exit_code == 2
