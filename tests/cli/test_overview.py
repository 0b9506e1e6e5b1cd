"""`toolspan` alone, and `toolspan sessions --live`."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.codex_builder import RolloutBuilder

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def run(home: Path, *arguments: str) -> Result:
    env = {"CLAUDE_CONFIG_DIR": str(home / ".claude"), "CODEX_HOME": str(home / ".codex")}
    return CliRunner().invoke(app, arguments, env={**env, "COLUMNS": "100"})


def write(home: Path, builder: TranscriptBuilder) -> Path:
    return builder.write(home / ".claude" / "projects" / "-w" / f"{builder.session_id}.jsonl")


def a_week() -> TranscriptBuilder:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Read", {"file_path": "/w/a.py"}, after_ms=2_000)
    builder.result(call, claude_results.failed(f"File does not exist.{ESCAPE}"), after_ms=500)
    call = builder.call("Bash", {"command": "ls"}, after_ms=1_000)
    return builder.result(call, claude_results.ran("a"), after_ms=1_000).text("done", after_ms=500)


def test_overview_shows_the_last_week_with_activity(home: Path) -> None:
    write(home, a_week())

    result = run(home)

    assert result.exit_code == 0, result.output
    assert "1 session in 1 folder, 2 calls" in result.output
    assert "1 succeeded" in result.output
    assert "Read: not found" in result.output
    assert "model 3.5 s" in result.output
    assert "toolspan show " in result.output
    assert "\x1b" not in result.output


def test_projects_are_working_folders_for_every_client(home: Path) -> None:
    midnight = datetime(2026, 11, 2, tzinfo=UTC)
    for seconds, folder in ((-1, "lake"), (1, "lake"), (2, "sea")):
        start = midnight + timedelta(seconds=seconds)
        builder = RolloutBuilder(cwd=f"/home/dev/{folder}", start=start).prompt("go")
        builder.call("shell", {"command": ["ls"]}, id=f"call_{seconds}")
        builder.write(home / ".codex")

    result = json.loads(run(home, "--json").output)

    assert (result["sessions"], result["folders"]) == (3, 2)


def test_overview_is_available_as_json(home: Path) -> None:
    write(home, a_week())

    result = json.loads(run(home, "--json").output)

    assert (result["sessions"], result["calls"]) == (1, 2)
    assert result["states"] == {"failed": 1, "succeeded": 1}
    split = result["split"]
    parts = ("model", "tools", "permission", "hooks", "idle")
    assert sum(split[f"{part}_ms"] for part in parts) == split["wall_ms"] == 5_000


def test_earlier_weeks_are_left_out(home: Path) -> None:
    builder = a_week()
    builder.prompt("again", after_ms=30 * 86_400_000)
    call = builder.call("Bash", {"command": "ls"}, after_ms=1_000)
    path = write(home, builder.result(call, claude_results.ran("a"), after_ms=1_000).text("done"))
    os.utime(path)

    assert json.loads(run(home, "--json").output)["calls"] == 1


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z"],
)
def test_extreme_times_are_shown_or_left_out(home: Path, text: str) -> None:
    builder = a_week()
    builder.call("Bash", {"command": "sleep 9"})
    path = write(home, builder.prompt("more"))
    path.write_bytes(re.sub(rb'"timestamp":"[^"]*"', f'"timestamp":"{text}"'.encode(), path.read_bytes()))

    for message in ("", "sessions", "calls", "stats", "errors", "time", "show --last", "flows"):
        assert run(home, *message.split()).exit_code == 0, message
    assert run(home, "repair", str(path)).exit_code == 0


def test_overview_without_transcripts_prints_advice(home: Path) -> None:
    result = run(home)
    assert result.exit_code == 0
    assert "toolspan --demo errors" in result.output


def test_live_sessions_have_status_call_and_evidence(home: Path) -> None:
    builder = TranscriptBuilder().prompt(f"go {ESCAPE}")
    builder.call("Bash", {"command": "make"})
    write(home, builder)
    folder = home / ".claude" / "sessions"
    folder.mkdir()
    entry = {"pid": os.getpid(), "sessionId": builder.session_id, "cwd": "/w", "status": "waiting"}
    (folder / "1.json").write_text(json.dumps(entry), encoding="utf-8")

    result = run(home, "sessions", "--live")

    assert result.exit_code == 0, result.output
    assert "waiting for you" in result.output
    assert "Bash make" in result.output
    assert f"process {os.getpid()} reports waiting" in result.output
    assert "\x1b" not in result.output
    row = json.loads(run(home, "sessions", "--live", "--json").output)
    assert (row["status"], row["calls"][0]["tool"]) == ("waiting", "Bash")


@pytest.mark.parametrize(
    "fields",
    [
        '"pid":%d,"statusUpdatedAt":1e30',
        '"pid":%d,"startedAt":253402300800000',
        '"pid":%d,"statusUpdatedAt":-1e17',
        '"pid":-1',
        '"pid":9223372036854775807',
        '"pid":%d,"other":' + "[" * 60_000,
    ],
)
def test_damaged_entry_of_the_process_list_is_skipped(home: Path, fields: str) -> None:
    builder = a_week()
    write(home, builder)
    folder = home / ".claude" / "sessions"
    folder.mkdir()
    entry = fields.replace("%d", str(os.getpid()))
    (folder / "1.json").write_text(f'{{"sessionId":"{builder.session_id}","status":"busy",{entry}}}', encoding="utf-8")

    assert run(home).exit_code == 0
    assert run(home, "sessions", "--live").exit_code == 0


def test_live_refuses_a_period(home: Path) -> None:
    result = run(home, "sessions", "--live", "--since", "7d")
    assert result.exit_code == 2
    assert "does not apply to live sessions" in result.output
