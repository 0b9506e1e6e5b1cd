"""Filters that match nothing say so, and dates are understood as people write them."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from tests.fork_server import run_toolspan
from toolspan.reading.sample import archive
from toolspan.testing import TranscriptBuilder

pytestmark = pytest.mark.usefixtures("fork_server")


def toolspan(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_toolspan(*arguments, env={**os.environ, "TOOLSPAN_NO_CACHE": "1", **variables})


ARCHIVE = str(archive())


@pytest.mark.parametrize("command", ["calls", "errors", "stats", "time"])
def test_an_unknown_tool_is_an_error_with_near_names(command: str) -> None:
    result = toolspan(command, ARCHIVE, "--tool", "Bsh")

    assert result.returncode == 2
    assert "no tool 'Bsh' among " in result.stderr
    assert "did you mean Bash" in result.stderr


def test_near_names_that_differ_in_case_are_all_suggested(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("List the files")
    for tool in ("Bash", "bash"):
        builder.result(builder.call(tool, {"command": "ls"}), "a.py")
    result = toolspan("calls", str(builder.write(tmp_path / "s.jsonl")), "--tool", "Bsh")

    assert "did you mean Bash or bash?" in result.stderr


@pytest.mark.parametrize("command", ["calls", "errors", "stats", "time", "sessions", "files", "usage", "flows"])
def test_an_unknown_project_is_an_error(command: str) -> None:
    result = toolspan(command, ARCHIVE, "--project", "no-such-project")

    assert result.returncode == 2
    assert "no project 'no-such-project' among " in result.stderr


def test_an_unknown_agent_is_an_error() -> None:
    result = toolspan("calls", ARCHIVE, "--agent", "zzz")

    assert (result.returncode, "no agent 'zzz' among " in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["calls", "sessions"])
def test_an_empty_period_names_the_period_that_has_data(command: str) -> None:
    result = toolspan(command, ARCHIVE, "--since", "2999-01-01")

    assert result.returncode == 0
    assert "in this period; " in result.stderr


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    result = toolspan("errors", str(tmp_path))

    assert f"{tmp_path}: no transcripts there" in result.stderr


def test_tools_are_selected_by_globs() -> None:
    rows = [json.loads(line) for line in toolspan("calls", ARCHIVE, "--tool", "mcp__*", "--json").stdout.splitlines()]

    assert rows
    assert all(row["tool"].startswith("mcp__") for row in rows)


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = toolspan("sesions")

    assert (result.returncode, "Did you mean sessions?" in result.stderr) == (2, True)


def test_minutes_and_months_are_refused_as_ambiguous() -> None:
    result = toolspan("calls", ARCHIVE, "--since", "1m")

    assert result.returncode == 2
    assert "could be minutes or months" in result.stderr


def write_call(folder: Path, at: datetime) -> None:
    stamp = at.isoformat().replace("+00:00", "Z")
    message = {
        "role": "assistant",
        "id": "m",
        "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}],
    }
    record = {
        "type": "assistant",
        "uuid": "a",
        "parentUuid": None,
        "sessionId": "s",
        "timestamp": stamp,
        "message": message,
    }
    (folder / "s.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("since", "days_ago"),
    [("today", 0), ("yesterday", 1), ("this week", 6), ("last week", 13), ("monday", 6), ("this month", 30), ("7d", 6)],
)
def test_named_days_begin_at_local_midnight(tmp_path: Path, since: str, days_ago: int) -> None:
    write_call(tmp_path, datetime.now(UTC))

    assert toolspan("calls", str(tmp_path), "--json", "--since", since, TZ="UTC").stdout
    write_call(tmp_path, datetime.now(UTC) - timedelta(days=days_ago + 2))
    assert not toolspan("calls", str(tmp_path), "--json", "--since", since, TZ="UTC").stdout


def test_a_month_and_a_day_are_local(tmp_path: Path) -> None:
    write_call(tmp_path, datetime(2026, 2, 28, 16, tzinfo=UTC))  # 1 March in Tokyo

    for since in ("2026-03", "2026-03-01"):
        assert toolspan("calls", str(tmp_path), "--json", "--since", since, TZ="Asia/Tokyo").stdout
        assert not toolspan("calls", str(tmp_path), "--json", "--since", since, TZ="UTC").stdout


@pytest.mark.parametrize("command", ["calls", "errors", "stats", "time", "sessions", "files", "usage", "flows"])
@pytest.mark.parametrize("since", [[], ["--since", "2026-11"]])
def test_until_includes_the_day_or_the_month_that_it_names(command: str, since: list[str]) -> None:
    def ask(*until: str) -> str:
        return toolspan(command, ARCHIVE, "--json", *since, *until, TZ="UTC").stdout

    assert ask("--until", "2026-11") == ask()
    assert ask("--until", "2026-11-04") == ask("--until", "2026-11-04T23:59:59.999Z") != ask("--until", "2026-11-03")


@pytest.mark.parametrize(
    ("command", "column", "field"),
    [
        ("calls", "took", "duration_ms"),
        ("calls", "duration", "duration_ms"),
        ("sessions", "started", "started"),
        ("files", "changes", "changes"),
    ],
)
def test_numbers_sort_descending_and_texts_ascending_unless_reversed(command: str, column: str, field: str) -> None:
    def values(order: str) -> list[Any]:
        rows = map(json.loads, toolspan(command, ARCHIVE, "--json", "--sort", order).stdout.splitlines())
        wait = "wait_ms" if field == "duration_ms" else ""  # a wait for permission is not the time of a call
        return [row[field] - (row.get(wait) or 0) if wait else row[field] for row in rows if row[field] is not None]

    is_number = isinstance(values(column)[0], int)
    assert values(column) == sorted(values(column), reverse=is_number)
    assert values(f"-{column}") == sorted(values(column), reverse=not is_number)


def test_an_unknown_sort_column_names_the_columns() -> None:
    result = toolspan("stats", ARCHIVE, "--sort", "colour")

    assert (result.returncode, "no column 'colour'; the columns are tool, calls" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["calls", "--state", "faild"], "did you mean failed?"),
        (["errors", "--error", "comand-failed"], "did you mean command_failed"),
        (["stats", "--by", "days"], "did you mean day?"),
    ],
)
def test_similar_value_of_an_option_is_suggested(arguments: list[str], suggestion: str) -> None:
    assert suggestion in run(*arguments, archive(), code=2).stderr
