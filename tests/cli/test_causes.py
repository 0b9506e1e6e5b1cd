"""`toolspan errors`: one group is one cause, and its id lists all its calls."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import one_row, rows, run
from tests.formats.gemini_chats import call as gemini_call
from tests.formats.gemini_chats import document, reply, user
from toolspan.testing import RolloutBuilder, TranscriptBuilder, claude_results
from toolspan.testing.codex_builder import command_output, running_output

MISSING_NAME = (
    "Traceback (most recent call last):\n  File \"{0}\", line {1}, in <module>\nNameError: name '{2}' is not defined"
)


def claude(*failures: tuple[str, int, str], session_id: str = "s") -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    for command, code, output in failures:
        builder.result(builder.call("Bash", {"command": command}, after_ms=1_000), claude_results.exited(code, output))
    return builder


def groups(*arguments: str | Path) -> list[dict[str, Any]]:
    return rows(run("errors", *arguments, "--json"))


def calls(*arguments: str | Path) -> list[dict[str, Any]]:
    return rows(run("calls", *arguments, "--json"))


def test_failures_that_differ_in_paths_names_or_numbers_are_one_group(tmp_path: Path) -> None:
    builder = claude(
        ("python a.py", 1, MISSING_NAME.format("/w/a.py", 3, "total")),
        ("cd /w && timeout 9 python3 lib/b.py", 1, MISSING_NAME.format("lib/b.py", 17, "count")),
        ("git push", 128, "fatal: not a git repository (or any of the parent directories): .git"),
        ("npx tsc -p .", 2, "src/x.ts(3,5): error TS2304: Cannot find name 'a'.\nsrc/x.ts(9,1): error TS2322: no"),
        ("npm run types", 2, "> tsc\n\nlib/y.ts(14,1): error TS2304: Cannot find name 'other'."),
    )
    result = groups(builder.write(tmp_path / "s.jsonl"))

    assert [(group["program"], group["count"]) for group in result] == [("tsc", 2), ("python", 2), ("git", 1)]
    assert result[1]["message"] == "NameError: name 'count' is not defined"
    assert result[2]["message"].startswith("fatal: not a git repository")


def test_ports_modules_and_files_that_cannot_run_do_not_split_a_group(tmp_path: Path) -> None:
    builder = claude(
        ("node a.js", 1, "Error: listen EADDRINUSE: address already in use :::20003"),
        ("node b.js", 1, "Error: listen EADDRINUSE: address already in use :::20417"),
        ("python3 -m brook", 1, "/usr/bin/python3: No module named brook"),
        ("python3 -m tide_tool", 1, "/opt/bin/python3: No module named tide_tool"),
        ("./a.bin", 126, "bash: line 1: ./a.bin: cannot execute binary file: Exec format error"),
        ("./b2.bin", 126, "bash: line 1: ./b2.bin: cannot execute binary file: Exec format error"),
        ("./tide", 101, "thread 'main' panicked at tide.rs:1:5:\ncalled `Option::unwrap()` on a `None` value"),
        ("./ebb", 101, "thread 'main' panicked at src/ebb.rs:9:1:\ncalled `Option::unwrap()` on a `None` value"),
        ("lua a.lua", 1, "lua: a.lua:2: attempt to index a nil value (local 'x')\nstack traceback:\n\t[C]: in ?"),
        ("lua b.lua", 1, "lua: b.lua:7: attempt to index a nil value (local 'y')\nstack traceback:\n\t[C]: in ?"),
    )
    result = groups(builder.write(tmp_path / "s.jsonl"))

    assert [group["count"] for group in result] == [2] * 5
    assert {group["program"] for group in result} >= {"rust", "lua"}


def test_both_clients_have_the_same_groups(tmp_path: Path) -> None:
    output = "E   ModuleNotFoundError: No module named 'brook'\n1 error in 0.1s"
    claude(("pytest -q", 2, output)).write(tmp_path / "s.jsonl")
    rollout = RolloutBuilder().prompt("go")
    rollout.output(rollout.call("exec_command", {"cmd": "python -m pytest"}), command_output(output, code=2))
    rollout.write(tmp_path)

    (group,) = groups(tmp_path)

    assert (group["program"], group["count"], group["sessions"]) == ("pytest", 2, 2)


def test_group_id_does_not_change_when_failures_are_added(tmp_path: Path) -> None:
    failure = ("make all", 2, "make: *** No rule to make target 'all'.  Stop.")
    first = groups(claude(failure).write(tmp_path / "a.jsonl"))
    other = ("make it", 2, "make: *** No rule to make target 'it'.  Stop.")
    claude(("ls /x", 2, "ls: cannot access '/x': No such file or directory"), other, failure, session_id="t").write(
        tmp_path / "b.jsonl"
    )

    result = {group["id"]: group for group in groups(tmp_path)}

    assert result[first[0]["id"]]["count"] == 3


def test_command_printed_for_a_group_lists_all_its_calls(tmp_path: Path) -> None:
    builder = claude(
        ("make", 2, "make: *** No rule to make target 'a'.  Stop."), ("ls /x", 2, "ls: cannot access '/x'")
    )
    builder.result(builder.call("Read", {"file_path": "/a"}), claude_results.failed("File does not exist."))
    path = builder.write(tmp_path / "s.jsonl")

    for group in groups(path):
        _, *text = group["command"].split()
        listed = rows(run(*text, "--json"))
        assert {row["error_group"] for row in listed} == {group["id"]}
        assert len(listed) == group["count"]
    assert run("calls", path, "--group", "nosuchgroup", code=2).exit_code == 2
    assert all(row["error_group"] for row in calls(path))


def test_group_shows_its_times_and_trend(tmp_path: Path) -> None:
    builder = claude(("make", 2, "make: *** No targets specified and no makefile found.  Stop."))
    for _ in range(3):
        builder.wait(3_600_000)
        builder.result(builder.call("Bash", {"command": "ls /x"}), claude_results.exited(2, "ls: cannot access '/x'"))
    rising, stopped = groups(builder.write(tmp_path / "s.jsonl"))

    assert (rising["trend"], stopped["trend"]) == ("rising", "gone")
    assert rising["first"] < rising["last"]
    assert rising["per_day"] == {"2026-11-02": 3}


def searches(tmp_path: Path, client: str) -> Path:
    """Build a search without matches and one that failed."""
    if client == "claude":
        return claude(("cd /w && rg needle src", 1, ""), ("rg needle /no", 2, "rg: /no: No such file")).write(
            tmp_path / "s.jsonl"
        )
    if client == "codex":
        builder = RolloutBuilder().prompt("go")
        builder.output(builder.call("exec_command", {"cmd": "rg needle src"}), command_output("", code=1))
        builder.output(builder.call("exec_command", {"cmd": "rg needle /no"}), command_output("rg: /no: gone", code=2))
        return builder.write(tmp_path)
    tool = "run_shell_command"
    path = tmp_path / ".gemini" / "tmp" / "x" / "chats" / "session-1.json"
    path.parent.mkdir(parents=True)
    found_nothing = gemini_call(
        "c1", tool, {"command": "rg needle src"}, output="Output: (empty)\nExit Code: 1", status="error", second=2
    )
    failed = gemini_call(
        "c2", tool, {"command": "rg x /no"}, output="Output: bad\nExit Code: 2", status="error", second=3
    )
    path.write_bytes(document([user("m1", "go"), reply("m2", "", 1, [found_nothing, failed])]))
    return path


@pytest.mark.parametrize("client", ["claude", "codex", "gemini"])
def test_search_without_matches_is_not_an_error(client: str, tmp_path: Path) -> None:
    path = searches(tmp_path, client)

    result = calls(path)
    output = run("errors", path).stdout
    stats = one_row(run("stats", path, "--json"))

    assert [(row["state"], row["error_kind"]) for row in result] == [
        ("failed", "nothing_found"), ("failed", "command_failed"),
    ]  # fmt: skip
    assert output.startswith("1 of 2 calls were unsuccessful (50%)\n")
    assert "1 search or check found nothing" in output
    assert (stats["unsuccessful"], stats["nothing_found"], stats["tools"][0]["unsuccessful"]) == (1, 1, 1)
    assert "2 failed (1 found nothing)" in run("stats", path).stdout
    assert [group["kind"] for group in groups(path)] == ["command_failed", "nothing_found"]


@pytest.mark.parametrize("way", ["notification", "poll"])
def test_failed_background_command_is_counted_and_its_call_keeps_its_state(way: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "npm run dev", "run_in_background": True})
    builder.result(call, claude_results.in_background("b1", "/tmp/b1.output"))
    if way == "notification":
        builder.task_notification(call, "b1", 'Background command "Start" failed with exit code 1', status="failed")
    else:
        poll = builder.call("BashOutput", {"bash_id": "b1"})
        text = "<status>failed</status>\n\n<exit_code>1</exit_code>\n\n<stderr>\nError: port in use\n</stderr>"
        builder.result(poll, text)
    path = builder.write(tmp_path / "s.jsonl")

    row = calls(path)[0]
    (group,) = groups(path)

    assert (row["state"], row["error_kind"], row["background_outcome"]) == ("succeeded", None, "failed")
    assert (group["id"], group["program"], group["count"], group["background"]) == (row["error_group"], "npm", 1, 1)
    assert "1 background command failed later" in run("errors", path).stdout
    assert run("errors", tmp_path).stdout.startswith(f"0 of {len(calls(path))} call")


def test_failed_process_is_named_by_the_command_that_started_it(tmp_path: Path) -> None:
    builder = RolloutBuilder().prompt("go")
    builder.output(builder.call("exec_command", {"cmd": "cargo test"}), running_output(7))
    poll = builder.call("write_stdin", {"session_id": 7, "chars": ""})
    builder.output(poll, command_output("error: test failed, to rerun pass `--lib`", code=101))
    path = builder.write(tmp_path)

    starter, poll_row = calls(path)

    assert (starter["state"], starter["background_outcome"]) == ("succeeded", "failed")
    assert starter["error_group"] == poll_row["error_group"]
    assert poll_row["error_program"] == "cargo"


@pytest.mark.parametrize(("minutes", "state"), [(1, "running"), (60, "never_answered")])
def test_call_of_a_live_session_is_running(minutes: int, state: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(start=datetime.now(UTC) - timedelta(minutes=minutes)).prompt("go")
    builder.call("Bash", {"command": "sleep 600"}, id="toolu_open")
    path = builder.write(tmp_path / "s.jsonl")

    assert json.loads(run("show", path, "--json").stdout)["session"]["calls"] == {state: 1}
    assert state in run("show", "toolu_open", path).stdout
