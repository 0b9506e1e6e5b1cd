"""Python, the command line, the web API and tables give the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import rows, run
from tests.requirement import requirement
from tests.web.conftest import Browser, Server
from toolspan import Archive
from toolspan.archive.calls import public_row
from toolspan.archive.words import format_duration
from toolspan.reading import sample
from toolspan.reading.rows import encode_json_line
from toolspan.types.state import STATE_SYMBOLS

FILTERS: list[dict[str, str]] = [
    {},
    {"tool": "Bash"},
    {"kind": "edit", "state": "failed"},
    {"project": "paperboat"},
    {"since": "2026-11-05", "until": "2026-11-06"},
    {"until": "2026-11-04"},
    {"client": "claude", "session": "c2a9"},
    {"model": "opus"},
    {"client_version": "2.1"},
    {"about": "gauge"},
]
SESSION_FILTERS = [words for words in FILTERS if not {"tool", "kind", "state", "session"} & set(words)]
QUESTIONS: dict[str, tuple[dict[str, str], list[dict[str, str]]]] = {
    "sessions": ({}, SESSION_FILTERS),
    "sessions by failures": ({"sort": "failed", "limit": "4"}, SESSION_FILTERS),
    "calls": ({}, FILTERS),
    "calls by duration": ({"sort": "took", "limit": "5"}, FILTERS),
    "errors": ({}, FILTERS),
    "stats": ({}, FILTERS),
    "stats by day": ({"by": "day"}, FILTERS),
    "usage": ({}, [words for words in FILTERS if not {"tool", "kind", "state"} & set(words)]),
    "usage by model": ({"by": "model"}, SESSION_FILTERS),
    "time": ({"limit": "3"}, FILTERS),
    "flows": ({}, FILTERS),
    "files": ({}, [words for words in FILTERS if "kind" not in words]),
}
CASES = [
    pytest.param(question.split()[0], {**options, **words}, id=f"{question} {' '.join(words.values())}".strip())
    for question, (options, filters) in QUESTIONS.items()
    for words in filters
]
IN_TABLES = ("sessions", "errors", "stats", "usage", "time")
SINGLE = ("stats", "time")


def ask_archive(archive: Archive, question: str, words: dict[str, Any]) -> list[Any]:
    words = {name: int(value) if name == "limit" else value for name, value in words.items()}
    limit = words.pop("limit", 0) if question == "flows" else None
    answer = getattr(archive, question)(**words)
    values: Iterable[Any] = [answer] if question in SINGLE else answer
    if question == "flows":
        values = answer.to_rows(limit)
    if question == "calls":
        values = map(public_row, answer)
    return [json.loads(encode_json_line(row)) for row in values]


def ask_command(question: str, words: dict[str, str], *sources: str | Path) -> list[Any]:
    options = [text for name, value in words.items() for text in (f"--{name.replace('_', '-')}", value)]
    return rows(run(question, *sources, "--json", *options))


@requirement("archive.front-ends")
@pytest.mark.parametrize(("question", "words"), CASES)
def test_python_command_line_and_api_give_equal_answers(server: Server, question: str, words: dict[str, str]) -> None:
    expected = ask_archive(Archive(sample.archive()), question, words)

    assert ask_command(question, words, sample.archive()) == expected
    answer = server.get(question, **words)
    assert ([answer] if question in SINGLE else answer) == expected


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("duckdb")
    out = tmp_path_factory.mktemp("tables") / "out"
    run("tables", sample.archive(), "-o", out)
    return out


@requirement("archive.front-ends")
@pytest.mark.parametrize(("question", "words"), [case for case in CASES if case.values[0] in IN_TABLES])
def test_tables_give_the_answers_of_the_transcripts(tables: Path, question: str, words: dict[str, str]) -> None:
    expected = ask_archive(Archive(sample.archive()), question, words)

    assert ask_archive(Archive.from_tables(tables), question, words) == expected
    assert ask_command(question, words, "--tables", tables) == expected


@requirement("archive.front-ends")
def test_the_page_writes_durations_and_states_as_the_command_line_does(browser: Browser) -> None:
    values = [0, 320, 999.4, 4_200, 59_960, 60_000, 185_000, 3_599_600, 7_800_000, 172_799_000, 200_000_000]
    browser.open("/calls")
    formatted = browser.driver.execute_async_script(
        "const [values, done] = arguments;"
        "const links = [...document.querySelectorAll('link[rel=modulepreload]')];"
        "const link = links.find((e) => e.href.endsWith('/format.js'));"
        "import(link.href).then(({ duration }) => done(values.map(duration)))",
        values,
    )

    assert formatted == [format_duration(value) for value in values]
    symbols = browser.run("return Object.entries(JSON.parse(document.getElementById('words').textContent).states)")
    assert {state: symbol for state, (symbol, _) in symbols} == STATE_SYMBOLS
