"""`toolspan convert` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import run
from toolspan.reading.transcript import read
from toolspan.testing import TranscriptBuilder, claude_results


@pytest.fixture
def session(tmp_path: Path) -> Path:
    builder = TranscriptBuilder().prompt("Fix the test.")
    builder.result(builder.call("Bash", {"command": "make test"}), claude_results.ran("ok"))
    return builder.text("Done.").write(tmp_path / "session.jsonl")


def test_convert_prints_the_new_session_and_the_command_that_continues_it(session: Path, tmp_path: Path) -> None:
    printed = run("convert", session, "--to", "codex", "--home", tmp_path / "home", "--cwd", tmp_path)
    (path,) = (tmp_path / "home").rglob("*.jsonl")

    assert "3 messages and 1 call" in printed.stdout
    assert "codex resume" in printed.stdout
    assert [span.tool for span in read(path).spans] == ["exec_command"]
    assert read(path).info.cwd == str(tmp_path)


def test_convert_prints_one_object_as_json(session: Path, tmp_path: Path) -> None:
    written = json.loads(run("convert", session, "--to", "pi", "--home", tmp_path / "home", "--json").stdout)

    assert (written["client"], written["calls"], written["calls_as_text"]) == ("pi", 1, 0)
    assert Path(written["path"]).is_file()


def test_convert_prints_a_summary_without_a_client(session: Path) -> None:
    assert "## Goal\n\nFix the test." in run("convert", session, "--brief").stdout


@pytest.mark.parametrize(("options", "problem"), [((), "--brief"), (("--to", "cursor"), "claude, codex, pi")])
def test_convert_says_what_is_missing(session: Path, options: tuple[str, ...], problem: str) -> None:
    refused = run("convert", session, *options, code=2)

    assert problem in refused.stderr
