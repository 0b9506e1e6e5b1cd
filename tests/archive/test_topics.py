"""Sessions found by topic, calls found by program, and failures ranked by harm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.command import rows, run
from toolspan import Ambiguous, Archive, NotFound
from toolspan.testing import TranscriptBuilder, claude_results

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write(root: Path, name: str, *prompts: str, day: int = 0, title: str | None = None) -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=name, cwd="/home/ada/lamp", start=START + timedelta(days=day))
    for prompt in prompts:
        builder.prompt(prompt).text("done", after_ms=1_000)
    if title is not None:
        builder.title(title)
    builder.write(root / f"{name}.jsonl")
    return builder


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    write(tmp_path, "aaa1", "tidy up", "then fix the LOGIN page", day=3)
    write(tmp_path, "bbb2", "the login form", "and the login button", day=1)
    write(tmp_path, "ccc3", "something else", day=2)
    write(tmp_path, "ddd4", "go", title="Login of guests")
    return Archive(tmp_path)


def test_sessions_are_found_by_all_their_prompts_and_the_most_relevant_comes_first(archive: Archive) -> None:
    found = archive.sessions(about="login")

    assert [row.id for row in found] == ["ddd4", "bbb2", "aaa1"]
    assert [row.relevance for row in found] == sorted((row.relevance or 0 for row in found), reverse=True)
    assert [row.id for row in archive.sessions(about="login page")] == ["aaa1"]
    assert [row.id for row in archive.sessions(about="lamp", sort="started")] == ["ddd4", "bbb2", "ccc3", "aaa1"]
    assert archive.sessions()[0].relevance is None


def test_about_selects_the_same_sessions_for_every_question(archive: Archive) -> None:
    assert {prompt.session for prompt in archive.prompts(about="login")} == {"aaa1", "bbb2", "ddd4"}
    assert {match.session for match in archive.search("fix", about="page")} == {"aaa1"}
    assert {match.session for match in archive.search("fix", about="button")} == set()


def test_show_finds_one_session_by_words_and_lists_several(archive: Archive) -> None:
    (root,) = archive.names

    assert archive.session("button").id == "bbb2"
    assert "bbb2" in run("show", "login", "button", root).output.splitlines()[0]
    several = run("show", "login", root, code=2)
    assert "3 sessions are about 'login'" in several.stderr
    assert [line.split()[0] for line in several.stdout.splitlines()[2:5]] == ["ddd4", "bbb2", "aaa1"]
    with pytest.raises(Ambiguous):
        archive.session("login")
    with pytest.raises(NotFound, match="no session is about it"):
        archive.session("moth")
    assert run("show", "login", root, "--json", code=2).stdout == ""


def run_commands(builder: TranscriptBuilder, *commands: tuple[str, str | None]) -> None:
    """Add commands, each with the output of its failure or None."""
    for command, failure in commands:
        call = builder.call("Bash", {"command": command}, after_ms=2_000)
        body = claude_results.ran("ok") if failure is None else claude_results.Body(content=failure, is_error=True)
        builder.result(call, body, after_ms=3_000)


@pytest.fixture
def failures(tmp_path: Path) -> Archive:
    builder = TranscriptBuilder(session_id="eee5", cwd="/home/ada/lamp", start=START, version="2.0.65").prompt("go")
    long_line = f"echo {'x' * 200} && cargo build"
    run_commands(
        builder,
        ("pytest -q", "Exit code 1\nE   AssertionError: lamp"),
        ("pytest -q tests", "Exit code 1\nE   AssertionError: lamp"),
        ("pytest -q", None),
        ("git push", "Exit code 128\nfatal: no remote"),
        ("ls && git log", None),
        (long_line, None),
    )
    builder.write(tmp_path / "eee5.jsonl")
    return Archive(tmp_path)


def test_program_selects_command_lines_that_run_it_wherever_it_stands(failures: Archive) -> None:
    assert len(failures.calls(program="git")) == 2
    assert len(failures.calls(program="cargo")) == 1  # far behind the beginning that rows keep
    assert failures.stats(program="pytest").calls == 3
    assert [match.call for match in failures.search("fatal", program="git")] == [failures.calls()[3].id]
    with pytest.raises(NotFound, match="no program 'pytset' among 5 programs; did you mean pytest"):
        failures.calls(program="pytset")


def test_errors_of_a_program_are_those_in_which_it_failed(failures: Archive) -> None:
    assert [(group.program, group.count) for group in failures.errors(program="git")] == [("git", 1)]
    totals = {row.name: row for row in failures.error_totals(by="program")}
    assert {name: (row.unsuccessful, row.calls) for name, row in totals.items()} == {"pytest": (2, 3), "git": (1, 2)}
    assert totals["git"].share == 0.5
    assert "fatal: no remote" in run("errors", *failures.names, "--by", "program").stdout


@pytest.mark.parametrize("by", ["tool", "kind", "client", "client-version", "model", "project", "session", "day"])
def test_every_grouping_counts_every_unsuccessful_call_once(failures: Archive, by: str) -> None:
    (row,) = failures.error_totals(by=by)

    assert row.unsuccessful == 3
    assert row.calls == (None if by == "kind" else 6)
    assert row.name in ("Bash", "command_failed", "claude", "claude 2.0.65", "/home/ada/lamp", "eee5", "2026-03-01",
                        failures.session("eee5").info.models[0])  # fmt: skip


def test_harm_counts_the_time_until_the_last_attempt_and_what_was_given_up(failures: Archive) -> None:
    (root,) = failures.names
    by_program = {group.program: group for group in failures.errors(sort="harm")}
    pytest_group, git_group = by_program["pytest"], by_program["git"]

    # Two failures of 3 s, each with 2 s of the model until the next attempt.
    assert (pytest_group.lost_ms, pytest_group.repeated, pytest_group.abandoned) == (10_000, 1, 0)
    assert (git_group.lost_ms, git_group.repeated, git_group.abandoned) == (3_000, 0, 1)
    assert 0 < git_group.harm < pytest_group.harm < 1
    shown = run("errors", root, "--sort", "harm").stdout
    assert "sorted by harm" in shown
    assert "lost 10.0 s" in shown
    assert [row["program"] for row in rows(run("errors", root, "--sort", "abandoned", "--json"))] == ["git", "pytest"]


def test_an_ambiguous_file_name_lists_the_files_with_their_changes(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="fff6", cwd="/home/ada/lamp", start=START).prompt("go")
    for path in ("/home/ada/lamp/a/view.py", "/home/ada/lamp/b/view.py", "/home/ada/lamp/b/view.py"):
        call = builder.call("Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, after_ms=1_000)
        builder.result(call, claude_results.edited(path, "a\n", "a", "b"), after_ms=100)
    builder.write(tmp_path / "fff6.jsonl")

    result = run("files", "view.py", tmp_path, code=2)

    assert "2 changed files end in view.py" in result.stderr
    listed = [line.split()[:2] for line in result.stdout.splitlines() if "view.py" in line]
    assert [(path.rpartition("lamp/")[2], changes) for path, changes in listed] == [
        ("b/view.py", "2"),
        ("a/view.py", "1"),
    ]
    assert [row.path for row in Archive(tmp_path).files(name="a/view.py")] == ["/home/ada/lamp/a/view.py"]
    assert run("files", "view.py", tmp_path, "--json", code=2).stdout == ""


def test_lists_of_sessions_have_title_cost_model_size_and_last_activity(archive: Archive) -> None:
    (root,) = archive.names
    header = run("sessions", root, env={"COLUMNS": "170"}).stdout.splitlines()[0].split()

    assert {"started", "last", "unsuccessful", "size", "model", "about"} <= set(header)
    for column in ("cost", "model", "size", "last", "prompts", "unsuccessful", "title"):
        assert len(archive.sessions(sort=column)) == 4
    sizes = [row.bytes for row in archive.sessions(sort="size")]
    assert sizes == sorted((path.stat().st_size for path in Path(root).glob("*.jsonl")), reverse=True)
    assert "size" in run("sessions", root, "--sort", "size").stdout.splitlines()[0]


def test_usage_by_session_has_titles_and_show_has_cost_and_context(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="aaa1", cwd="/home/ada/lamp", start=START)
    for prompt, cached in (("mend the lamp", 100_000), ("and the other", 50_000)):
        builder.prompt(prompt).text("done", after_ms=1_000)
        builder.usage(input_tokens=1_000, output_tokens=10, cache_creation_input_tokens=0,
                      cache_read_input_tokens=cached)  # fmt: skip
    builder.write(tmp_path / "aaa1.jsonl")
    archive = Archive(tmp_path)
    (row,) = archive.usage(by="session")

    assert (row.session, row.title) == ("aaa1", "mend the lamp")
    assert "mend the lamp" in run("usage", tmp_path, "--by", "session").stdout
    usage = archive.session("aaa1").usage
    assert (usage.cost_usd, usage.context_max, usage.context_last) == (row.cost_usd, 101_000, 51_000)
    assert f"${row.cost_usd:.2f} · context up to 101k tokens · 51.0k at the end" in run("show", tmp_path).stdout
