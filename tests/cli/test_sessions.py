"""`toolspan sessions`: the list of sessions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import rows, run
from toolspan.testing import TranscriptBuilder, claude_results


def printed(*arguments: str | Path) -> str:
    return run("sessions", *arguments).stdout


def sessions(*arguments: str | Path) -> list[dict[str, Any]]:
    return rows(run("sessions", *arguments, "--json"))


def write(builder: TranscriptBuilder, root: Path) -> Path:
    return builder.write(root / f"{builder.session_id}.jsonl")


def session_with_subagents(version: str) -> TranscriptBuilder:
    """Build a session with a call and two subagents, each with a call."""
    builder = TranscriptBuilder(session_id="family", version=version).prompt("Find  the\nbug")
    builder.result(builder.call("Bash", {"command": "x"}), claude_results.exited(1))
    for word in ("one", "two"):
        starter = builder.call("Task", {"description": word, "prompt": word})
        agent = builder.agent(starter).prompt(word)
        agent.result(agent.call("Read", {"file_path": "/a"}), claude_results.read("/a", "a"))
        report = claude_results.reported(agent.agent_id, "r", prompt="p", calls=1, took_ms=1, version=version)
        builder.result(starter, report)
    return builder


@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
def test_subagents_count_with_the_session_that_started_them(version: str, tmp_path: Path) -> None:
    write(session_with_subagents(version), tmp_path)

    (result,) = sessions(tmp_path)

    assert result["id"] == "family"
    assert (result["agents"], len(result["files"])) == (2, 3)
    assert result["states"] == {"failed": 1, "succeeded": 4}
    assert result["calls"] == 5
    assert "1 session\n" in printed(tmp_path)


def test_session_row_describes_the_session(tmp_path: Path) -> None:
    builder = session_with_subagents("2.1.327").wait(5_000).prompt("and now?").compact("so far")
    path = write(builder, tmp_path)

    (result,) = sessions(path)

    expected = {
        "id": "family",
        "title": None,
        "first_prompt": "Find the bug",
        "project": "/home/dev/project",
        "git_branch": "main",
        "started": "2026-11-02T09:00:00.000Z",
        "ended": "2026-11-02T09:00:05.000Z",
        "versions": ["2.1.327"],
        "models": ["claude-opus-5-5"],
        "prompts": 2,
        "compactions": 1,
        "calls": 3,
        "agents": 0,
        "malformed": 0,
        "files": [str(path)],
        "session_ids": ["family"],
    }
    assert {key: result[key] for key in expected} == expected


SUMMARY = {"type": "summary", "summary": "from a summary", "leafUuid": "x"}
AI = {"type": "ai-title", "aiTitle": "from the model", "sessionId": "s"}
LATER = {"type": "ai-title", "aiTitle": "from the model again", "sessionId": "s"}
CUSTOM = {"type": "custom-title", "customTitle": "from a person", "sessionId": "s"}


@pytest.mark.parametrize(
    ("records", "title"),
    [
        ([], None),
        ([SUMMARY], "from a summary"),
        ([SUMMARY, AI], "from the model"),
        ([AI, SUMMARY], "from the model"),
        ([AI, LATER], "from the model again"),
        ([CUSTOM, AI, SUMMARY], "from a person"),
        ([AI, CUSTOM, LATER], "from a person"),
    ],
)
def test_user_title_precedes_model_title_and_summary(
    records: list[dict[str, str]], title: str | None, tmp_path: Path
) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    for record in records:
        builder.raw(json.dumps(record).encode())
    path = write(builder, tmp_path)

    assert sessions(path)[0]["title"] == title
    assert (title or "go") in printed(path)


def test_first_prompt_is_the_first_message_of_the_user(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").state("mode", mode="normal")
    builder.prompt("<command-name>/clear</command-name>")
    builder.prompt("[Request interrupted by user]")
    builder.prompt("Mend the  roof").text("yes").prompt("second")

    (result,) = sessions(write(builder, tmp_path))

    assert result["first_prompt"] == "Mend the roof"


def test_newest_session_is_listed_last(tmp_path: Path) -> None:
    for name, day in (("b", 3), ("a", 5), ("c", 4)):
        start = datetime(2026, 11, day, tzinfo=UTC)
        write(TranscriptBuilder(session_id=name, start=start).prompt("go"), tmp_path)

    assert [result["id"] for result in sessions(tmp_path)] == ["b", "c", "a"]
    limited = printed(tmp_path, "--limit", "1")
    assert "2026-11-05" in limited
    assert "2026-11-04" not in limited
    assert "3 sessions, the last 1 shown" in limited


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--project", "shop"], ["a"]),
        (["--project", "/home"], ["a", "b"]),
        (["--since", "2026-11-04"], ["b"]),
        (["--until", "2026-11-03"], ["a"]),
        (["--until", "2026-11-04"], ["a", "b"]),
    ],
)
def test_sessions_are_selected_by_project_and_time(arguments: list[str], expected: list[str], tmp_path: Path) -> None:
    for name, cwd, day in (("a", "/home/dev/shop", 3), ("b", "/home/dev/bank", 4)):
        start = datetime(2026, 11, day, tzinfo=UTC)
        write(TranscriptBuilder(session_id=name, cwd=cwd, start=start).prompt("go"), tmp_path)

    assert [result["id"] for result in sessions(tmp_path, *arguments)] == expected


def test_continued_session_belongs_to_the_later_period_too(tmp_path: Path) -> None:
    start = datetime(2026, 11, 3, 23, 0, tzinfo=UTC)
    builder = TranscriptBuilder(session_id="a", start=start).prompt("go")
    write(builder.wait(7_200_000).prompt("and on"), tmp_path)

    assert sessions(tmp_path, "--since", "2026-11-04")
    assert sessions(tmp_path, "--until", "2026-11-03")
    assert not sessions(tmp_path, "--since", "2026-11-05")
    assert not sessions(tmp_path, "--until", "2026-11-02")


def test_fork_is_a_separate_session(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="one").prompt("go").text("yes")
    for each in (builder, builder.fork("two").prompt("more")):
        write(each, tmp_path)

    assert [(result["id"], result["prompts"]) for result in sessions(tmp_path)] == [("one", 1), ("two", 2)]


def test_subagent_of_a_missing_session_is_listed_under_its_session_id(tmp_path: Path) -> None:
    write(session_with_subagents("2.1.327"), tmp_path).unlink()

    (result,) = sessions(tmp_path)

    assert (result["id"], result["calls"]) == ("family", 2)


def test_orphan_results_are_not_counted_as_calls(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go").result("toolu_gone", "late")

    (result,) = sessions(write(builder, tmp_path))

    assert result["states"] == {"orphan_result": 1}
    assert result["calls"] == 0
