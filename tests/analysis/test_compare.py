"""`toolspan compare`: two sessions, folders, files or periods side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import one_row, rows, run
from toolspan.testing import TranscriptBuilder, claude_results


def compare(*arguments: str | Path) -> dict[str, Any]:
    return one_row(run("compare", *arguments, "--json"))


def run_command(builder: TranscriptBuilder, command: str, *, code: int = 0, output: str = "done") -> str:
    call = builder.call("Bash", {"command": command, "description": f"Run {command} in {builder.session_id}"})
    body = claude_results.exited(code, output) if code else claude_results.ran(output)
    builder.result(call, body, after_ms=1_000)
    return call


def make_session(name: str, *commands: str) -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=name).prompt("Fix the test.")
    for command in commands:
        run_command(builder, command)
    return builder


def test_calls_failures_time_tokens_cost_and_files_are_compared(tmp_path: Path) -> None:
    first = make_session("aaaa", "make")
    run_command(first, "make test", code=2, output="make: *** [test] Error 1")
    second = make_session("bbbb", "make", "make test", "make lint")
    path = "/home/dev/project/a.py"
    edit = {"file_path": path, "old_string": "x", "new_string": "y\nz"}
    second.result(second.call("Edit", edit), claude_results.edited(path, "x\n", "x", "y\nz"))
    a, b = (builder.write(tmp_path / f"{builder.session_id}.jsonl") for builder in (first, second))

    result = compare(a, b)

    assert (result["a"]["calls"], result["b"]["calls"], result["difference"]["calls"]) == (2, 4, 2)
    assert (result["a"]["unsuccessful"], result["a"]["error_kinds"]) == (1, {"command_failed": 1})
    assert result["b"]["error_kinds"] == {}
    assert result["b"]["tools"] == {"Bash": 3, "Edit": 1}
    assert result["difference"]["tools"] == {"Bash": 1, "Edit": 1}
    assert (result["b"]["files_changed"], result["b"]["lines_added"], result["b"]["files"]) == (1, 2, {path: 1})
    assert result["a"]["time"]["tools_ms"] == 2_000
    for side, file in (("a", a), ("b", b)):
        (usage,) = rows(run("usage", file, "--by", "month", "--json"))
        assert result[side]["tokens"] == {name: usage[name] for name in result[side]["tokens"]}
        assert result[side]["cost_usd"] == pytest.approx(usage["cost_usd"])


def test_without_names_the_last_two_sessions_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    projects = tmp_path / "projects" / "-home-dev-project"
    for number, name in enumerate(("cccc", "aaaa", "bbbb")):
        session = TranscriptBuilder(session_id=name, start=datetime(2026, 1, number + 1, tzinfo=UTC)).prompt("Go.")
        run_command(session, "make")
        session.write(projects / f"{name}.jsonl")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))

    result = compare()
    assert [Path(result[side]["name"]).stem for side in "ab"] == ["aaaa", "bbbb"]


def test_two_sessions_part_where_their_actions_differ(tmp_path: Path) -> None:
    first, second = make_session("aaaa", "ls", "make"), make_session("bbbb", "ls", "make test")
    a, b = (builder.write(tmp_path / f"{builder.session_id}.jsonl") for builder in (first, second))

    parting = compare(a, b)["parting"]

    assert parting["shared_steps"] == 2
    assert (parting["last_shared"]["text"], parting["a"]["text"], parting["b"]["text"]) == ("ls", "make", "make test")
    assert parting["first_different_result"] is None
    assert "diverge after" in run("compare", a, b).stdout


def test_an_earlier_difference_of_results_is_named(tmp_path: Path) -> None:
    first, second = TranscriptBuilder(session_id="aaaa").prompt("go"), TranscriptBuilder(session_id="bbbb").prompt("go")
    call = run_command(first, "cat version", output="1")
    run_command(second, "cat version", output="2")
    run_command(first, "echo same")
    run_command(second, "echo same")
    a, b = (builder.write(tmp_path / f"{builder.session_id}.jsonl") for builder in (first, second))

    parting = compare(a, b)["parting"]

    assert parting["first_different_result"]["call"] == call
    assert (parting["shared_steps"], parting["a"], parting["b"]) == (3, None, None)


def test_the_working_folder_of_a_copy_makes_no_difference(tmp_path: Path) -> None:
    for name, cwd in (("aaaa", "/home/dev/one"), ("bbbb", "/home/dev/two")):
        builder = TranscriptBuilder(session_id=name, cwd=cwd).prompt("go")
        run_command(builder, f"cat {cwd}/a.txt")
        builder.write(tmp_path / f"{name}.jsonl")

    parting = compare(tmp_path / "aaaa.jsonl", tmp_path / "bbbb.jsonl")["parting"]

    assert (parting["shared_steps"], parting["a"], parting["first_different_result"]) == (2, None, None)


def test_sessions_with_different_prompts_do_not_begin_alike(tmp_path: Path) -> None:
    a = TranscriptBuilder(session_id="aaaa").prompt("one").text("x").write(tmp_path / "aaaa.jsonl")
    b = TranscriptBuilder(session_id="bbbb").prompt("two").text("x").write(tmp_path / "bbbb.jsonl")

    assert compare(a, b)["parting"] is None
    assert "begin differently" in run("compare", a, b).stdout


def test_two_periods_are_compared_at_a_time(tmp_path: Path) -> None:
    builder = make_session("aaaa", "ls")
    builder.wait(86_400_000).prompt("again")
    for command in ("make", "make test"):
        run_command(builder, command)
    path = builder.write(tmp_path / "aaaa.jsonl")
    began = datetime.fromisoformat(rows(run("calls", path, "--json"))[0]["requested"])
    middle = (began + timedelta(hours=1)).isoformat()

    result = compare(path, "--at", middle)
    limited = compare(path, "--at", middle, "--since", (began + timedelta(minutes=1)).isoformat())

    assert (result["a"]["name"], result["a"]["calls"], result["b"]["name"], result["b"]["calls"]) == (
        "before", 1, "after", 2,
    )  # fmt: skip
    assert (limited["a"]["calls"], limited["b"]["calls"]) == (0, 2)
    assert result["a"]["tokens"]["output_tokens"] + result["b"]["tokens"]["output_tokens"] > 0


def test_folders_count_forks_once(tmp_path: Path) -> None:
    builder = make_session("aaaa", "ls", "make")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    builder.write(tmp_path / "one" / "aaaa.jsonl")
    builder.write(tmp_path / "two" / "aaaa.jsonl")
    fork = builder.fork("bbbb").prompt("more")
    run_command(fork, "make test")
    fork.write(tmp_path / "two" / "bbbb.jsonl")

    result = compare(tmp_path / "one", tmp_path / "two")

    assert (result["a"]["calls"], result["b"]["calls"], result["parting"]) == (2, 3, None)


@pytest.mark.parametrize("arguments", [["a"], ["--since", "14d"], ["a", "b", "c"]])
def test_compare_needs_two_names_or_a_time(arguments: list[str]) -> None:
    assert "--at" in run("compare", *arguments, code=2).stderr


def test_the_time_must_lie_in_the_period(tmp_path: Path) -> None:
    path = make_session("aaaa", "ls").write(tmp_path / "aaaa.jsonl")

    assert "earlier" in run("compare", path, "--since", "7d", "--at", "14d", code=2).stderr
