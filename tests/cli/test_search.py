"""`toolspan search`: words, places, filters; and what it prints."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.command import run
from toolspan.analysis.search import find
from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder, claude_results


def search(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["search", *map(str, arguments)], env={"COLUMNS": "80"})
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in search(*arguments, "--json").stdout.splitlines()]


def calls(*arguments: str | Path) -> list[str]:
    return [row["call"] or row["voice"] for row in rows(*arguments)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Write a session; return the folder of its project."""
    builder = TranscriptBuilder(session_id="5e551011").prompt("light the lantern")
    for number, tool in enumerate(["Bash", "Bash", "Read"]):
        tool_input = {"command": f"lantern {number}", "file_path": "lantern.txt"}
        call = builder.call(tool, tool_input, id=f"c{number}", after_ms=60_000)
        body = claude_results.exited(2, "dark") if number == 1 else claude_results.ran("bright")
        builder.result(call, body, after_ms=1_000)
    builder.write(tmp_path / "projects" / "-harbour" / "5e551011.jsonl")
    return tmp_path / "projects"


@pytest.fixture
def at_home(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to the client's folder, which contains the archive."""
    monkeypatch.chdir(archive.parent)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(archive.parent))


def test_json_has_every_match_complete(archive: Path) -> None:
    result = rows("lantern", archive)

    assert [(row["call"], row["tool"], row["state"]) for row in result] == [
        ("c2", "Read", "succeeded"), ("c1", "Bash", "failed"), ("c0", "Bash", "succeeded"),
        (None, None, None),
    ]  # fmt: skip
    assert result[1]["error"] == "command_failed"
    assert result[3]["voice"] == "prompt"
    assert result[3]["line"] == 1
    assert len(rows("lantern", archive, "--limit", "2")) == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tool", "read"], ["c2"]),
        (["--state", "failed"], ["c1"]),
        (["--error", "command_failed"], ["c1"]),
        (["--in", "message"], ["prompt"]),
        (["--in", "input", "--since", "2026-11-02T09:02:00Z"], ["c2", "c1"]),
        (["--until", "2026-11-02T09:00:30Z"], ["prompt"]),
        (["--project", "harbour", "--tool", "Read"], ["c2"]),
        (["--project", "/home/dev/pro", "--tool", "Read"], ["c2"]),  # where the session worked
        (["--session", "5e55", "--tool", "Read"], ["c2"]),
        (["--client", "codex"], []),
        (["--client", "claude", "--tool", "Read"], ["c2"]),
    ],
)
def test_common_filters_apply(archive: Path, options: list[str], expected: list[str]) -> None:
    assert calls("lantern", archive, *options) == expected


@pytest.mark.parametrize("option", ["--project", "--agent", "--tool"])
def test_filter_without_a_match_is_an_error(archive: Path, option: str) -> None:
    assert "elsewhere" in search("lantern", archive, option, "elsewhere", code=2).output


def test_text_output_shows_match_tool_time_and_the_number_of_hidden_ones(archive: Path) -> None:
    output = search("lantern", archive, "--limit", "2").stdout

    assert "Read input  c2" in output
    assert "Bash failed input  c1" in output
    assert "    lantern 1" in output
    assert "4 matches, the newest 2 shown (--limit 0: all)" in output
    assert "1 match\n" in search("light", archive).stdout
    assert "0 matches" in search("beacon", archive).stdout


def test_uncounted_matches_are_reported_as_such(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_SMALL_SEARCH_BYTES", 0)
    other = TranscriptBuilder(session_id="0ther", start=datetime(2026, 11, 1, tzinfo=UTC))
    other.prompt("an old lantern").write(archive / "-harbour" / "0ther.jsonl")

    few = search("lantern", archive, "--limit", "2").stdout

    assert "more than 2 matches, the newest 2 shown (--limit 0: all, in up to 2 files)" in few
    assert "5 matches\n" in search("lantern", archive, "--limit", "0").stdout
    assert "5 matches\n" in search("lantern", archive, "--limit", "5").stdout
    assert [row["call"] for row in rows("lantern", archive, "--limit", "1")] == ["c2"]


@pytest.mark.usefixtures("at_home")
def test_first_argument_is_always_a_word_and_paths_follow() -> None:
    assert calls("light", "lantern", "./projects") == ["prompt"]
    assert calls("light", "projects/-harbour/5e551011.jsonl") == ["prompt"]
    assert calls("light") == ["prompt"]
    assert calls("light", "projects") == []  # a word, although a folder has this name
    assert calls("./projects") == []


def test_missing_path_is_reported_if_nothing_matches(archive: Path) -> None:
    assert "./nowhere is not a folder" in search("light", "./nowhere", archive).stdout


@pytest.mark.usefixtures("at_home")
def test_folder_without_a_slash_is_a_word_with_a_notice(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "projects was searched for as a word; to search in the folder, write ./projects"

    assert hint in search("lantern", "projects").output
    assert hint not in search("lantern", "./projects").output
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(archive / "nowhere"))
    monkeypatch.setenv("CODEX_HOME", str(archive / "nowhere"))
    assert hint in search("lantern", "projects", code=2).output


def test_invalid_query_exits_with_2_and_prints_one_line(archive: Path) -> None:
    assert "not a regular expression" in search("(", archive, "--regex", code=2).output
    assert "nothing to look for" in search("", archive, code=2).output
    search(code=2)


def test_large_archives_are_cached_and_the_cache_can_be_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOOLSPAN_NO_CACHE", raising=False)
    builder = TranscriptBuilder(session_id="s").prompt("x" * (5 << 20))
    builder.result(builder.call("Bash", {"command": "make"}), claude_results.exited(2, "dark"))
    path = builder.write(tmp_path / "archive" / "s.jsonl")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    first = run("errors", str(path.parent), "--json")
    assert run("errors", str(path.parent), "--json") == first
    output = json.loads(run("cache", "--json"))
    assert output["path"] == str(tmp_path / "cache" / "toolspan" / "facts.sqlite3")
    assert json.loads(run("cache", "--clear", "--json"))["files"] == 0
    assert "0 files" in run("cache")
    monkeypatch.setenv("TOOLSPAN_NO_CACHE", "1")
    assert run("errors", str(path.parent), "--json") == first
    assert CliRunner().invoke(app, ["cache"]).exit_code == 2


@pytest.mark.parametrize(
    ("env", "coloured"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"TERM": "xterm"}, True)]
)
def test_output_without_colours_has_no_escape_codes(
    env: dict[str, str], coloured: bool, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    result = CliRunner().invoke(app, ["search", "bright", str(archive)], env=env, color=True)

    assert ("\x1b[" in result.stdout) == coloured


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_cut_excerpts_are_marked(tmp_path: Path, columns: int) -> None:
    words = " ".join(f"word{n}" for n in range(40))
    path = TranscriptBuilder().prompt(f"{words} needle {words}").prompt("a needle here").write(tmp_path / "s.jsonl")

    output = run("search", "needle", path, env={"COLUMNS": str(columns)}).stdout
    excerpts = [line for line in output.splitlines() if line.startswith("    ")]

    assert sorted(line.strip() == "a needle here" for line in excerpts) == [False, True]
    (cut,) = (line.strip() for line in excerpts if "word" in line)
    assert (cut[0], cut[-1]) == ("…", "…")
    assert len(cut) <= columns - 4
