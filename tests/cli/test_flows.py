"""`toolspan flows`: recoveries, and the order of calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests.cli.command import rows as rows_of
from tests.cli.command import run
from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

EDIT = {"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}


def flows(*arguments: str | Path, code: int = 0) -> Result:
    return run("flows", *arguments, code=code)


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return rows_of(flows(*arguments, "--json"))


def session_with_recovery(session_id: str = "s") -> TranscriptBuilder:
    """Build an edit that succeeds after a read, and a denied write that a command then does."""
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    steps = (
        ("Edit", EDIT, claude_results.refused("File has not been read yet.")),
        ("Read", {"file_path": "/w/a.py"}, claude_results.read("/w/a.py", "a")),
        ("Edit", EDIT, claude_results.edited("/w/a.py", "a", "a", "b")),
        ("Write", {"file_path": "/w/b.py", "content": "b"}, claude_results.rejected()),
        ("Bash", {"command": "echo b > /w/b.py"}, claude_results.ran()),
        ("Read", {"file_path": "/w/north.py"}, claude_results.read("/w/north.py", "x")),
        ("Read", {"file_path": "/w/south.py"}, claude_results.read("/w/south.py", "y")),
    )
    for tool, tool_input, body in steps:
        builder.result(builder.call(tool, tool_input, after_ms=1_000), body, after_ms=500)
    return builder


def test_summary_comes_first_then_chains_evasions_and_missed_batches(tmp_path: Path) -> None:
    output = flows(session_with_recovery().write(tmp_path / "s.jsonl")).stdout

    assert output.startswith("2 of 2 unsuccessful calls in 7 calls were recovered (100%)")
    assert "1 possible evasion" in output
    assert "Write(user_denied) → Bash" in output
    assert "1 missed batch: 2 messages" in output
    assert "error_recovery" in output
    assert "Edit → Read → Edit" in output


def test_json_has_one_object_per_flow(tmp_path: Path) -> None:
    result = rows(session_with_recovery().write(tmp_path / "s.jsonl"))

    assert {row["type"] for row in result} == {"chain", "flow", "missed", "sequence"}
    assert [row["name"] for row in result if row["type"] == "chain"] == ["read_before_write", "tool_switch"]


def test_chains_are_selected_by_name_or_failed_call(tmp_path: Path) -> None:
    file = session_with_recovery().write(tmp_path / "s.jsonl")

    assert [row["name"] for row in rows(file, "--chain", "tool_switch")] == ["tool_switch"]
    assert "Edit(read_required) → Read → Edit" in flows(file, "--chain", "read_before_write").stdout
    assert [row["start"]["tool"] for row in rows(file, "--tool", "Write") if "start" in row] == ["Write"]


def test_counts_respect_the_filters(tmp_path: Path) -> None:
    session_with_recovery().write(tmp_path / "s.jsonl")
    rollout = RolloutBuilder().prompt("go")
    rollout.output(rollout.call("exec_command", {"cmd": "make"}), codex_builder.command_output("", code=2))
    rollout.write(tmp_path / "rollout-2026-01-01T00-00-00-r.jsonl")

    assert "in 8 calls" in flows(tmp_path).stdout.splitlines()[0]
    assert "0 of 1 unsuccessful call in 1 call " in flows(tmp_path, "--client", "codex").stdout
    assert "in 7 calls" in flows(tmp_path, "--client", "claude").stdout
    chosen = flows(tmp_path, "--tool", "Write").stdout
    assert chosen.startswith("1 of 1 unsuccessful call was recovered")
    later = flows(tmp_path, "--since", "2999-01-01").stdout
    assert later == "0 unsuccessful calls\n"


def test_errors_shows_how_many_of_a_group_were_recovered_and_how(tmp_path: Path) -> None:
    session_with_recovery("one").write(tmp_path / "one.jsonl")
    lonely = TranscriptBuilder(session_id="two").prompt("go")
    lonely.result(lonely.call("Edit", EDIT), claude_results.refused("File has not been read yet."))
    lonely.write(tmp_path / "two.jsonl")

    for arguments in ((), ("--since", "2000-01-01")):
        completed = CliRunner().invoke(app, ["errors", str(tmp_path), "--json", *arguments])
        result = {row["kind"]: row for row in map(json.loads, completed.stdout.splitlines())}

        assert (result["read_required"]["count"], result["read_required"]["recovered"]) == (2, 1)
        assert result["read_required"]["recovered_by"] == {"read_before_write": 1}
    output = CliRunner().invoke(app, ["errors", str(tmp_path)]).stdout
    assert "recovered 1 of 2: read the file first" in output
