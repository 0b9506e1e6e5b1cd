"""`toolspan errors`: what went wrong, grouped, with what helps."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.command import rows, run
from tests.requirement import requirement
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.error_kinds import ADVICE

EVERYTHING = ["--since", "2000-01-01"]


def errors(*arguments: str | Path) -> Result:
    return run("errors", *arguments)


def groups(*arguments: str | Path) -> list[dict[str, Any]]:
    return rows(errors(*arguments, "--json"))


def failed_session(session_id: str = "night") -> TranscriptBuilder:
    """Build three commands that fail alike, a refused edit and a successful call."""
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    for code in (1, 2, 3):
        call = builder.call("Bash", {"command": "make"}, after_ms=1_000)
        builder.result(call, claude_results.exited(code, f"/tmp/{code}/x is missing"))
    call = builder.call("Edit", {"file_path": "/a"})
    builder.result(call, claude_results.refused("File has not been read yet."))
    return builder.result(builder.call("Read", {"file_path": "/a"}), claude_results.read("/a", "a"))


def test_errors_are_grouped_by_kind_tool_and_wording_most_frequent_first(tmp_path: Path) -> None:
    result = groups(failed_session().write(tmp_path / "s.jsonl"))

    assert [(g["count"], g["kind"], g["tool"], g["signature"]) for g in result] == [
        (3, "command_failed", "Bash", "command_failed make: PATH is missing"),
        (1, "read_required", "Edit", "read_required Edit: File has not been read yet"),
    ]
    assert result[0]["states"] == {"failed": 3}
    assert (result[0]["first"], result[0]["last"]) == ("2026-11-02T09:00:01.000Z", "2026-11-02T09:00:03.000Z")
    assert result[0]["example"]["exit_code"] == 3


def test_sessions_are_counted_per_group(tmp_path: Path) -> None:
    for name in ("one", "two"):
        failed_session(name).write(tmp_path / f"{name}.jsonl")

    assert [(group["count"], group["sessions"]) for group in groups(tmp_path)] == [(6, 2), (2, 2)]


def test_a_group_has_a_cause_and_a_solution_if_there_is_something_to_do(tmp_path: Path) -> None:
    path = failed_session().write(tmp_path / "s.jsonl")

    output = errors(path).stdout

    for group in groups(path):
        cause, solution, retry = ADVICE[group["kind"]]
        assert (group["cause"], group["solution"], group["retry"]) == (cause, solution, retry)
        assert (f"{cause}. {solution}." in output) if solution else (cause not in output)
    assert "3× make  command failed" in output
    assert re.search(r"e\.g\. toolu_\w+ in s\.jsonl:\d+", output)


def test_first_line_counts_failed_calls_without_orphan_results(tmp_path: Path) -> None:
    builder = failed_session()
    path = builder.write(tmp_path / "s.jsonl")
    assert errors(path).stdout.startswith("4 of 5 calls were unsuccessful (80%)\n")
    assert errors(path, "--tool", "Bash").stdout.startswith("3 of 3 calls were unsuccessful (100%)\n")

    path = builder.result("toolu_gone", claude_results.failed("late")).write(tmp_path / "s.jsonl")
    assert errors(path).stdout.startswith("4 of 5 calls were unsuccessful (80%); 1 orphan result\n")
    (orphan,) = (group for group in groups(path) if group["kind"] == "orphan_result")
    assert "another file" in orphan["cause"]


def test_calls_without_a_result_are_reported_as_such(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "sleep 9"})

    (group,) = groups(builder.write(tmp_path / "s.jsonl"))

    assert (group["kind"], group["states"]) == ("never_answered", {"never_answered": 1})
    assert "before the result was recorded" in group["cause"]


def write_related_sessions(root: Path) -> None:
    """Write a session with a subagent, a fork, an open call and an orphan, and an unrelated one."""
    builder = failed_session()
    starter = builder.call("Agent", {"prompt": "p"})
    agent = builder.agent(starter).prompt("p")
    agent.result(agent.call("Bash", {"command": "x"}), claude_results.exited(9))
    fork = builder.fork("fork")
    fork.result(fork.call("Grep", {"pattern": "("}), claude_results.failed("regex parse error"))
    fork.call("Bash", {"command": "sleep 1"})
    builder.result(starter, claude_results.reported(agent.agent_id, "r", prompt="p", calls=1, took_ms=1))
    builder.result("toolu_gone", claude_results.failed("late"))
    for session in (builder, fork, failed_session("unrelated")):
        session.write(root / f"{session.session_id}.jsonl")


@pytest.mark.parametrize("form", [[], ["--json"], ["--limit", "0"]])
def test_filter_that_matches_everything_changes_nothing(form: list[str], tmp_path: Path) -> None:
    write_related_sessions(tmp_path)
    files = sorted(tmp_path.glob("*.jsonl"))

    assert len(files) == 3
    for names in ([tmp_path], files):
        assert errors(*names, *form).stdout == errors(*names, *form, *EVERYTHING).stdout


@requirement("history.success-beats-interruption")
@pytest.mark.parametrize("arguments", [[], EVERYTHING])
def test_success_overrides_the_interrupted_copy_of_a_fork(arguments: list[str], tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="origin").prompt("go")
    call = builder.call("Bash", {"command": "make"})
    fork = builder.fork("fork").resume()
    builder.result(call, claude_results.ran("done"))
    for session in (builder, fork):
        session.write(tmp_path / f"{session.session_id}.jsonl")

    assert errors(tmp_path, *arguments).stdout.startswith("0 of 1 call was unsuccessful (0%)\n")
    assert [group["kind"] for group in groups(tmp_path / "fork.jsonl", *arguments)] == ["interrupted"]


def test_limit_prints_the_number_of_hidden_groups(tmp_path: Path) -> None:
    path = failed_session().write(tmp_path / "s.jsonl")

    output = errors(path, "--limit", "1").stdout

    assert "not read yet" not in output
    assert "1 more group (--limit 0: all)" in output
    assert "more group" not in errors(path, "--limit", "0").stdout


def test_session_without_errors_has_no_groups(tmp_path: Path) -> None:
    assert errors(tmp_path).stdout.startswith("0 of 0 calls were unsuccessful\n")
    assert groups(tmp_path) == []


@pytest.mark.parametrize("columns", [50, 80, 140])
def test_lines_are_broken_only_at_spaces(columns: int) -> None:
    archive = sample.archive()
    output = run("errors", archive, "--limit", "0", env={"COLUMNS": str(columns)}).stdout
    body = output[: output.index("\ntoolspan show CALL")]

    assert max(len(line) for line in body.splitlines() if str(archive) not in line) <= columns
    joined = " ".join(body.replace(" \\\n", "\n").split())
    for group in groups(archive):
        assert group["command"] in joined  # continued lines can be copied as one command
        if group["kind"] != "nothing_found":
            assert f"· e.g. {group['example']['id']} in " in joined


def test_hint_names_the_location_of_the_call(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "x"}, id="toolu_x"), claude_results.exited(1))
    path = builder.write(tmp_path / "my own.jsonl")
    hint = f"toolspan show CALL '{path}' shows one call in detail."

    assert hint in run("errors", path, env={"COLUMNS": "50"}).stdout
    assert hint in run("search", "x", path).stdout
    assert "toolu_x" in run("show", "toolu_x", path).stdout


def test_running_call_is_not_an_error(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="now", start=datetime.now(UTC)).prompt("go")
    builder.result(builder.call("Bash", {"command": "make"}), claude_results.exited(1, "no rule"))
    builder.call("Bash", {"command": "sleep 600"})
    builder.write(tmp_path / "now.jsonl")
    assert [group["kind"] for group in groups(tmp_path)] == ["command_failed"]
    assert [row["state"] for row in rows(run("calls", tmp_path, "--json"))] == ["failed", "running"]
    (session,) = rows(run("sessions", tmp_path, "--json"))
    assert (session["unsuccessful"], session["states"]) == (1, {"failed": 1, "running": 1})


def test_recovered_and_other_failures_are_listed_apart(tmp_path: Path) -> None:
    builder = failed_session()
    call = builder.call("Bash", {"command": "pytest"})
    builder.result(call, claude_results.exited(1, "E AssertionError"))
    builder.result(builder.call("Bash", {"command": "pytest"}), "1 passed")
    builder.result(builder.call("Bash", {"command": "grep x y"}), claude_results.exited(1, ""))
    file = builder.write(tmp_path / "night.jsonl")

    recovered, lost = (groups(file, "--recovered", answer) for answer in ("yes", "no"))

    assert [(group["program"], group["count"], group["recovered"]) for group in recovered] == [("pytest", 1, 1)]
    assert {(group["tool"], group["count"], group["recovered"]) for group in lost} == {("Bash", 3, 0), ("Edit", 1, 0)}
    assert "4 of 8 calls were unsuccessful and not recovered" in errors(file, "--recovered", "no").output
    by_tool = rows(errors(file, "--by", "tool", "--recovered", "no", "--json"))
    assert {row["name"]: row["unsuccessful"] for row in by_tool} == {"Bash": 3, "Edit": 1}
    assert run("errors", file, "--recovered", "perhaps", code=2).exit_code == 2
