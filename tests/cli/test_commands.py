"""A background command is one row with its whole length, and a wait for permission is not the tool's time."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import one_row, rows, run
from toolspan import Archive
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder


def polled_command(root: Path) -> Path:
    """Write a rollout with a command of 20 s that two later calls read, and one call after its end."""
    rollout = RolloutBuilder(age="paginated").prompt("Build it")
    start = rollout.call("exec_command", {"cmd": "make all"})
    rollout.wait(1_000).output(start, codex_builder.running_output(17, seconds=1))
    for output in (
        codex_builder.running_output(17, seconds=9),
        codex_builder.command_output("built", seconds=9),
        "write_stdin failed: Unknown process id 17",
    ):
        poll = rollout.wait(500).call("write_stdin", {"session_id": 17, "chars": ""})
        rollout.wait(9_000).output(poll, output)
    ls = rollout.call("exec_command", {"cmd": "ls"})
    rollout.wait(2_000).output(ls, codex_builder.command_output("out", seconds=2))
    return rollout.write(root)


def test_background_command_lasts_until_the_call_that_reported_its_end(tmp_path: Path) -> None:
    start, *polls, ls = Archive(polled_command(tmp_path)).calls()

    assert (start.tool, start.duration_ms, start.polls) == ("exec_command", 20_000, 2)
    assert [poll.continues for poll in polls] == [start.id] * 3
    assert (ls.continues, ls.duration_ms) == (None, 2_000)


def test_command_and_its_polls_are_one_row_for_people_and_on_request(tmp_path: Path) -> None:
    file = polled_command(tmp_path)

    output = run("calls", file, "--sort", "duration").stdout
    assert "write_stdin" not in output
    assert "20.0 s" in output
    assert "5 calls, 3 of them part of the row of a background command" in output
    assert run("calls", file, "--unfold").stdout.count("write_stdin") == 3
    assert [row["target"] for row in rows(run("calls", file, "--commands", "--json"))] == ["make all", "ls"]
    assert len(rows(run("calls", file, "--json"))) == 5


def test_time_of_a_background_command_counts_once_in_stats_and_time(tmp_path: Path) -> None:
    file = polled_command(tmp_path)

    tools = {tool["tool"]: tool for tool in one_row(run("stats", file, "--json"))["tools"]}
    assert (tools["exec_command"]["max_ms"], tools["exec_command"]["total_ms"]) == (20_000, 22_000)
    assert (tools["write_stdin"]["calls"], tools["write_stdin"]["total_ms"]) == (3, 0)
    report = one_row(run("time", file, "--json"))
    assert report["calls_ms"] == 22_000
    assert [call["call"]["target"] for call in report["slowest"]] == ["make all", "ls"]


def test_command_that_never_ended_lasts_until_it_was_last_seen_running(tmp_path: Path) -> None:
    rollout = RolloutBuilder(age="paginated").prompt("Wait for it")
    start = rollout.call("exec_command", {"cmd": "sleep 999"})
    rollout.wait(1_000).output(start, codex_builder.running_output(5, seconds=1))
    rollout.wait(30_000).output(rollout.call("write_stdin", {"session_id": 5}), codex_builder.running_output(5))

    command, _ = Archive(rollout.write(tmp_path)).calls()
    assert (command.duration_ms, command.background_outcome) == (31_000, None)


def test_background_shell_of_claude_code_lasts_until_it_is_stopped(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("Serve it")
    call = builder.call("Bash", {"command": "serve", "run_in_background": True})
    builder.result(call, claude_results.in_background("b1", builder.task_output("b1")), after_ms=100)
    builder.result(builder.call("BashOutput", {"bash_id": "b1"}), "<status>running</status>", after_ms=5_000)
    builder.result(builder.call("KillShell", {"shell_id": "b1"}), "Killed b1", after_ms=4_900)
    other = builder.call("BashOutput", {"bash_id": "b2"})
    builder.result(other, "No shell found with ID: b2", is_error=True, after_ms=50)

    serve, output, kill, unknown = Archive(builder.write(tmp_path / "s.jsonl")).calls()
    assert (serve.duration_ms, serve.polls) == (10_000, 2)
    assert (output.continues, kill.continues, unknown.continues) == (call, call, None)
    shown = run("show", call[:14], tmp_path / "s.jsonl").stdout
    assert "10.0 s after the request" in shown
    assert "2 later calls read its output or stopped it" in shown


def test_calls_and_show_say_how_long_a_call_waited_for_permission(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Commit it")
    call = rollout.call("exec_command", {"cmd": "git commit"})
    rollout.wait(60_000).output(call, codex_builder.command_output("done", seconds=2))
    file = rollout.write(tmp_path)

    (row,) = rows(run("calls", file, "--json"))
    assert (row["duration_ms"], row["wait_ms"], row["wait_certainty"]) == (60_000, 58_000, "inferred")
    assert "~58.0 s" in run("calls", file).stdout
    assert "58.0 s of it waiting for permission (inferred)" in run("show", call, file).stdout
    assert one_row(run("show", call, file, "--json"))["call"]["wait_ms"] == 58_000


def test_long_call_that_may_have_waited_is_marked(tmp_path: Path) -> None:
    builder = TranscriptBuilder(version="2.0.65").prompt("Commit it")
    call = builder.call("Bash", {"command": "git commit"})
    builder.result(call, claude_results.ran("done"), after_ms=60_000)
    file = builder.write(tmp_path / "s.jsonl")

    assert " ? " in run("calls", file).stdout
    assert "may include a wait for permission" in run("show", call, file).stdout
