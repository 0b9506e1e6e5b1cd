"""What a search starts before its command line is understood."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.requirement import requirement
from toolspan.analysis.search.query import find_ripgrep, query_of
from toolspan.cli.app import app
from toolspan.cli.ripgrep_prestart import prestart_ripgrep
from toolspan.testing import TranscriptBuilder

PROGRAM = find_ripgrep()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="without ripgrep nothing is started")


def guessed(*arguments: str) -> tuple[str, ...] | None:
    started = prestart_ripgrep(arguments)
    if started is None:
        return None
    started.close()
    return started.command


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    TranscriptBuilder(session_id="s").prompt("light the lantern").write(tmp_path / "s.jsonl")
    return tmp_path


@requirement("search.ahead")
@pytest.mark.parametrize("options", [[], ["--json"], ["--in", "result"], ["--limit=3"], ["--tool", "Bash", "--json"]])
def test_ripgrep_is_started_for_what_is_asked(archive: Path, options: list[str]) -> None:
    wanted = query_of(["lantern"]).rarest_filter.ripgrep_command(PROGRAM, [str(archive)])

    assert guessed("lantern", *options, str(archive)) == wanted
    assert guessed(*options, "lantern", f"{archive}/") == wanted


@requirement("search.ahead")
@pytest.mark.parametrize("words", [["git push"], ["one", "lantern", "buoys"], ["a.b:c-d_e"], ["naïve"], ['"', "x/y"]])
def test_all_sorts_of_words_are_looked_for_as_the_command_does(archive: Path, words: list[str]) -> None:
    wanted = query_of(words).rarest_filter.ripgrep_command(PROGRAM, [str(archive)])

    assert guessed(*words, f"{archive}//.") == wanted


@requirement("search.ahead")
def test_a_place_is_named_as_the_command_names_it(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(archive)
    (archive / "in" / "side").mkdir(parents=True)
    sieve = query_of(["lantern"]).rarest_filter

    for name in ("./", "./in//side/", "in/../in/", f"{archive}/./in"):
        assert guessed("lantern", name) == sieve.ripgrep_command(PROGRAM, [str(Path(name))])


@requirement("search.ahead")
def test_the_case_and_the_expression_are_heeded(archive: Path) -> None:
    for options, query in (
        (["-i"], query_of(["lantern"], ignore_case=True)),
        (["--regex"], query_of(["lantern"], regex=True)),
    ):
        wanted = query.rarest_filter.ripgrep_command(PROGRAM, [str(archive)])
        assert guessed(*options, "lantern", str(archive)) == wanted


@requirement("search.ahead")
def test_without_a_place_the_clients_own_folders_are_meant(user: Path) -> None:
    folders = [user / ".claude" / "projects", user / ".codex" / "archived_sessions"]
    for folder in folders:
        folder.mkdir(parents=True)

    wanted = query_of(["lantern"]).rarest_filter.ripgrep_command(PROGRAM, [*map(str, folders)])
    assert guessed("lantern") == wanted


@requirement("search.ahead")
@pytest.mark.parametrize("arguments", [[], [""], ["--help"], ["--", "-x"], ["-x", "word"], ["--regex", "("]])
def test_what_is_not_plain_starts_nothing(archive: Path, arguments: list[str]) -> None:
    assert guessed(*arguments, *([str(archive)] if arguments else [])) is None


@requirement("search.ahead")
@pytest.mark.parametrize("change", [lambda words: words, lambda words: ["--", *words]])
def test_the_answer_is_the_same_with_and_without_it(archive: Path, change: Callable[[list[str]], list[str]]) -> None:
    words = ["search", *change(["lantern", str(archive)])]

    done = subprocess.run([sys.executable, "-m", "toolspan", *words], capture_output=True, text=True, check=True)

    assert "1 match\n" in done.stdout
    assert done.stdout == CliRunner().invoke(app, words, env={"COLUMNS": ""}).stdout
