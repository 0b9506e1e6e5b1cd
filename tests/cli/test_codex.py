"""The commands take Codex rollouts wherever they take Claude's transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder


@pytest.fixture
def rollout(user: Path) -> RolloutBuilder:
    """Write one session of each client; return that of Codex."""
    other = TranscriptBuilder().prompt("Hello")
    other.result(other.call("Bash", {"command": "true"}), claude_results.ran("x"))
    other.write(user / ".claude/projects/-home-dev" / f"{other.session_id}.jsonl")
    builder = RolloutBuilder(cwd=str(user)).prompt("Do it").tokens(100, 10)
    builder.output(builder.call("exec_command", {"cmd": "make"}), codex_builder.command_output("boom", code=2))
    spawn = builder.call("spawn_agent", {"message": "look"}, after_ms=1000)
    child = builder.fork(agent="Mill")
    builder.output(spawn, json.dumps({"agent_id": child.thread_id}))
    child.prompt("look", after_ms=10)
    child.output(child.call("exec_command", {"cmd": "ls"}), codex_builder.command_output())
    child.write(user / ".codex")
    builder.write(user / ".codex")
    return builder


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    return result


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def test_both_clients_are_read_by_default_and_client_selects_one(rollout: RolloutBuilder) -> None:
    assert {row["tool"] for row in rows("calls")} == {"Bash", "exec_command", "spawn_agent"}
    assert {row["client"] for row in rows("calls", "--client", "codex")} == {"codex"}
    assert [row["tool"] for row in rows("calls", "--client", "claude")] == ["Bash"]
    assert {row["client"] for row in rows("sessions")} == {"claude", "codex"}
    assert rows("calls", "--dialect", "codex") == rows("calls", "--client", "codex")  # the former name
    assert rows("usage", "--by", "dialect") == rows("usage", "--by", "client")
    (session,) = rows("sessions", "--client", "codex")
    assert (session["id"], session["agents"], session["calls"]) == (rollout.thread_id, 1, 3)
    (stats,) = rows("stats", "--client", "codex")
    assert stats["tokens"]["input_tokens"] == 100


def test_session_is_selected_by_its_thread_id(rollout: RolloutBuilder) -> None:
    result = rows("calls", rollout.thread_id)
    assert [row["target"] for row in result] == ["make", "look", "ls"]
    assert result[2]["parent_call"] == result[1]["id"]


def test_errors_show_and_doctor_read_rollouts(
    rollout: RolloutBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "command failed" in run("errors").stdout
    output = run("show", rollout.thread_id).stdout
    assert "Do it" in output
    assert "make" in output
    assert "ls" in output
    monkeypatch.chdir(tmp_path)
    path = next((tmp_path / ".codex").rglob(f"*{rollout.thread_id}.jsonl"))
    (checkup,) = rows("doctor", "--roundtrip")
    assert checkup["file"] == str(path)
    assert checkup["roundtrip_equal"] == checkup["lines"]


def test_projects_of_rollouts_are_their_folders(rollout: RolloutBuilder, tmp_path: Path) -> None:
    assert rows("calls", "--project", tmp_path.name, "--client", "codex")


def test_file_that_is_not_a_transcript_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n')
    result = CliRunner().invoke(app, ["calls", str(path)])
    assert result.exit_code != 0


def test_call_without_an_id_has_none_in_json(tmp_path: Path) -> None:
    builder = RolloutBuilder()
    builder.item({"type": "web_search_call", "status": "completed", "action": {"query": "x"}})
    path = builder.write(tmp_path)
    assert [(row["id"], row["tool"]) for row in rows("calls", str(path))] == [("", "web_search")]
