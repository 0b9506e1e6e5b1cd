"""`toolspan doctor`: exit code, text and JSON."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.command import home_at, run
from tests.cli.command import rows as rows_of
from toolspan.testing import TranscriptBuilder, claude_results, project_name
from toolspan.testing.codex_builder import RolloutBuilder


def doctor(*arguments: str | Path, root: Path | None = None) -> Result:
    return run("doctor", *arguments, code=None, env=home_at(root))


def rows(*arguments: str | Path, root: Path | None = None) -> list[dict[str, Any]]:
    return rows_of(doctor(*arguments, "--json", root=root))


def healthy(session_id: str = "s") -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    return builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("a")).text("done")


def torn(session_id: str = "s") -> TranscriptBuilder:
    return healthy(session_id).raw(b'{"type":"us').raw(b'{"type":"mode"}')


def saved(builder: TranscriptBuilder, root: Path, cwd: str | Path, at: int = 1_000) -> Path:
    folder = root / "projects" / project_name(str(cwd))
    path = builder.write(folder / f"{builder.session_id}.jsonl")
    os.utime(path, (at, at))
    return path


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder.resolve()


def test_doctor_exits_with_1_if_a_file_needs_repair(tmp_path: Path) -> None:
    good, damaged = healthy("a").write(tmp_path / "a.jsonl"), torn("b").write(tmp_path / "b.jsonl")

    result = doctor(good)
    assert result.exit_code == 0
    assert "4 lines · 1 call · 0 malformed" in result.stdout
    assert "healthy; the client accepts it" in result.stdout

    result = doctor(damaged)
    assert result.exit_code == doctor(damaged, "--json").exit_code == 1
    assert re.search(r"error +torn_line +5 +1 +A line in the middle", result.stdout)
    assert "needs repair; the client skips damaged lines" in result.stdout

    result = doctor(tmp_path)
    assert result.exit_code == 1
    assert "b.jsonl" in result.stdout
    assert "a.jsonl" not in result.stdout
    assert "2 files checked, 1 needs repair" in result.stdout


def test_warnings_alone_exit_with_0(tmp_path: Path) -> None:
    result = doctor(healthy().result("toolu_gone", "late").write(tmp_path / "s.jsonl"))

    assert result.exit_code == 0
    assert "orphan_result" in result.stdout


def test_roundtrip_counts_lines_with_equal_json(tmp_path: Path) -> None:
    path = torn().write(tmp_path / "s.jsonl")

    assert "5 re-encode to equal JSON" in doctor(path, "--roundtrip").stdout
    assert rows(path, "--roundtrip")[0]["roundtrip_equal"] == 5
    assert rows(path)[0]["roundtrip_equal"] is None
    assert "re-encode" not in doctor(path).stdout


def test_json_has_one_object_per_file(tmp_path: Path) -> None:
    path = torn().write(tmp_path / "s.jsonl")

    assert rows(path) == [
        {
            "file": str(path),
            "healthy": False,
            "client": "claude",
            "acceptance": "skips",
            "lines": 6,
            "blank": 0,
            "malformed": 1,
            "recovered": 0,
            "entries": {"user": 2, "assistant": 2, "mode": 1},
            "calls": 1,
            "roundtrip_equal": None,
            "findings": [
                {
                    "code": "torn_line",
                    "severity": "error",
                    "place": f"{path}:5",
                    "explanation": (
                        "A line in the middle of the file is incomplete JSON: a write was interrupted"
                        " (0 entries recovered)"
                    ),
                    "acceptance": "skips",
                    "count": 1,
                    "on_resume": {
                        "now": "skips the line, and drops the other half of a call or result on it",
                        "older": "loses everything before the line",
                    },
                }
            ],
        }
    ]


def test_newest_session_of_the_current_folder_is_checked_by_default(tmp_path: Path, cwd: Path) -> None:
    saved(healthy("elsewhere"), tmp_path, "/elsewhere", 3_000)
    saved(healthy("twin"), tmp_path, f"{cwd}-two", 4_000)
    result = doctor(root=tmp_path)
    assert result.exit_code == 2
    assert "this folder has no session" in result.stderr

    saved(healthy("old"), tmp_path, cwd, 1_000)
    newest = saved(healthy("new"), tmp_path, cwd, 2_000)
    assert [row["file"] for row in rows(root=tmp_path)] == [str(newest)]


def test_repeated_findings_are_cut_except_in_json(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for n in range(50):
        builder.call("Bash", {"command": f"echo {n}"})
    path = builder.write(tmp_path / "s.jsonl")

    assert "and 30 more of unanswered_call (--json: all)" in doctor(path).stdout
    (row,) = rows(path)
    assert sum(result["code"] == "unanswered_call" for result in row["findings"]) == 50


def test_calls_of_an_unknown_tool_are_one_finding(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for n in range(3):
        builder.result(builder.call("deploy", {"to": f"town {n}", f"key{n}": n}), claude_results.ran("ok"))

    (row,) = rows(builder.write(tmp_path / "s.jsonl"))

    (result,) = [result for result in row["findings"] if result["code"] == "unknown_input"]
    assert result["count"] == 3
    assert "(deploy: no type for this tool's input)" in result["explanation"]


def test_unreadable_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(b"no frame")
    torn("b").write(tmp_path / "b.jsonl")

    result = doctor(tmp_path)

    assert "a.jsonl.zst" in result.stderr
    assert "torn_line" in result.stdout


@pytest.mark.parametrize("kind", ["codex", "other"])
def test_unrepairable_file_gets_no_repair_advice(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "things.jsonl"
    if kind == "codex":
        builder = RolloutBuilder().prompt("go")
        builder.call("shell", {"command": ["ls"]})
        path = builder.write(tmp_path)
    else:
        path.write_text("a list\nof things\n", encoding="utf-8")

    result = doctor(path)

    assert result.exit_code == 1
    assert "toolspan repair" not in result.stdout
    assert "Claude Code 2.1" not in result.stdout
    assert ("no_transcript" if kind == "other" else "unanswered_call") in result.stdout
    assert "torn_line" not in result.stdout


def test_damaged_subagent_is_repaired_with_its_session(tmp_path: Path, cwd: Path) -> None:
    path = saved(healthy("parent"), tmp_path, cwd)
    agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    torn("parent").write(agent)

    assert "toolspan repair parent " in doctor(agent, root=tmp_path).stdout
    assert f"toolspan repair {path} " in doctor(agent).stdout
    assert run("repair", "parent", "--dry-run", env=home_at(tmp_path)).stdout.count("torn_line")


def test_folder_without_transcripts_is_reported(tmp_path: Path) -> None:
    assert doctor(tmp_path).stdout == "0 files checked: there is no transcript\n"


def test_sandbox_report_takes_no_transcripts() -> None:
    assert "--sandbox can be combined only with --json" in run("doctor", "--sandbox", "--last", code=2).output
