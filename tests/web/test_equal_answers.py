"""Python, the command line, the web API and tables give the same answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from tests.cli.command import rows, run
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
    {"program": "pytest"},
]
SESSION_FILTERS = [words for words in FILTERS if not {"tool", "kind", "program", "state", "session"} & set(words)]
HOOK_FILTERS = [words for words in FILTERS if "state" not in words]
QUESTIONS: dict[str, tuple[dict[str, str], list[dict[str, str]]]] = {
    "sessions": ({}, SESSION_FILTERS),
    "sessions by cost": ({"sort": "cost", "limit": "3"}, SESSION_FILTERS),
    "sessions by unsuccessful calls": ({"sort": "unsuccessful", "limit": "4"}, SESSION_FILTERS),
    "calls": ({}, FILTERS),
    "calls by duration": ({"sort": "duration", "limit": "5"}, FILTERS),
    "errors": ({}, FILTERS),
    "errors by harm": ({"sort": "harm", "limit": "4"}, FILTERS),
    "stats": ({}, FILTERS),
    "stats by day": ({"by": "day"}, FILTERS),
    "usage": ({}, [words for words in FILTERS if not {"tool", "kind", "program", "state"} & set(words)]),
    "usage by model": ({"by": "model"}, SESSION_FILTERS),
    "time": ({"limit": "3"}, FILTERS),
    "flows": ({}, FILTERS),
    "files": ({}, [words for words in FILTERS if not {"kind", "program"} & set(words)]),
}
CASES = [
    pytest.param(question.split()[0], {**options, **words}, id=f"{question} {' '.join(words.values())}".strip())
    for question, (options, filters) in QUESTIONS.items()
    for words in filters
]
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


def option_words(words: dict[str, str]) -> list[str]:
    """Return a filter as options of a command."""
    return [text for name, value in words.items() for text in (f"--{name.replace('_', '-')}", value)]


def ask_command(question: str, words: dict[str, str], *sources: str | Path) -> list[Any]:
    options = option_words(words)
    return rows(run(question, *sources, "--json", *options))


@pytest.mark.parametrize(("question", "words"), CASES)
def test_python_command_line_and_api_give_equal_answers(server: Server, question: str, words: dict[str, str]) -> None:
    expected = ask_archive(Archive(sample.archive()), question, words)

    assert ask_command(question, words, sample.archive()) == expected
    answer = server.get(question, **words)
    assert ([answer] if question in SINGLE else answer) == expected


def _encode(*answers: Any) -> list[Any]:
    return [json.loads(encode_json_line(answer)) for answer in answers]


SESSION, OTHER, CALL = "c2a9", "91b7", "toolu_01LqInaXPh"
VIEWS = "/home/mira/paperboat/app/views.py"
FIRST, LAST = "toolu_01Z1I1Mfzv5H", "toolu_01logZHEN71j"
Ask = Callable[[Archive, dict[str, Any]], list[Any]]
OTHERS: dict[str, tuple[Ask, list[str], str | None, dict[str, str], list[dict[str, str]]]] = {
    "overview": (lambda archive, _: [_overview(archive)], [], "overview", {}, [{}]),
    "live": (
        lambda archive, words: _encode(*archive.live(**words)), ["sessions", "--live"], "sessions", {"live": "1"},
        [{}, {"project": "paperboat"}],
    ),
    "calls of commands": (
        lambda archive, words: _encode(*map(public_row, archive.calls(commands=True, sort="duration", **words))),
        ["calls", "--commands", "--sort", "duration"], "calls", {"commands": "1", "sort": "duration"},
        [{}, {"kind": "shell"}],
    ),
    "context": (
        lambda archive, words: _encode(*archive.context(**words).to_rows()), ["usage", "--context"], "usage",
        {"context": "1"}, [{}, {"tool": "Bash"}, {"since": "2026-11-05"}, {"about": "gauge"}],
    ),
    "stats of servers": (
        lambda archive, words: _encode({"servers": archive.stats(**words).servers}), ["stats", "--mcp"], "stats",
        {"mcp": "1"}, [{}, {"tool": "mcp__*"}],
    ),
    "search": (
        lambda archive, words: _encode(*archive.search("due", limit=20, **words)), ["search", "due"], "search",
        {"q": "due", "limit": "20"}, FILTERS,
    ),
    "error_totals": (
        lambda archive, words: _encode(*archive.error_totals(by="program", sort="lost", **words)),
        ["errors", "--by", "program", "--sort", "lost"], "errors", {"by": "program", "sort": "lost"}, FILTERS,
    ),
    "errors that nothing recovered": (
        lambda archive, words: _encode(*archive.errors(recovered=False, **words)), ["errors", "--recovered", "no"],
        "errors", {"recovered": "no"}, [{}, {"tool": "Bash"}],
    ),
    "error_totals of recovered calls": (
        lambda archive, words: _encode(*archive.error_totals(by="tool", recovered=True, **words)),
        ["errors", "--by", "tool", "--recovered", "yes"], "errors", {"by": "tool", "recovered": "yes"}, [{}],
    ),
    "error_totals of versions": (
        lambda archive, words: _encode(*archive.error_totals(by="client-version", **words)),
        ["errors", "--by", "client-version"], "errors", {"by": "client-version"}, [{}, {"tool": "Bash"}],
    ),
    "agents": (lambda archive, words: _encode(*archive.agents(**words)), ["agents"], "agents", {}, SESSION_FILTERS),
    "digest": (
        lambda archive, words: _encode(archive.digest(**words)), ["digest"], "digest", {},
        [{"since": "2026-11-05", "until": "2026-11-06"},
         {"since": "2026-11-04", "until": "2026-11-08", "project": "paperboat"}],
    ),
    "disk": (lambda archive, words: _encode(*archive.disk(**words)), ["disk"], "disk", {}, SESSION_FILTERS),
    "risky": (lambda archive, words: _encode(*archive.risky(**words)), ["risky"], "risky", {}, FILTERS),
    "prompts": (
        lambda archive, words: _encode(*archive.prompts(**words)), ["prompts"], "prompts", {}, FILTERS,
    ),
    "denials": (
        lambda archive, words: _encode(*archive.denials(every=True, **words)), ["denials", "--all"], "denials",
        {"every": "1"}, FILTERS,
    ),
    "hooks": (lambda archive, words: _encode(*archive.hooks(**words)), ["hooks"], "hooks", {}, HOOK_FILTERS),
    "hook_runs": (
        lambda archive, words: _encode(*archive.hook_runs(sort="duration", **words)),
        ["hooks", "--runs", "--sort", "duration"], "hooks", {"runs": "1", "sort": "duration"}, HOOK_FILTERS,
    ),
    "search in prompts": (
        lambda archive, words: _encode(*archive.search("the", within="prompts", **words)),
        ["search", "the", "--in", "prompts", "--limit", "0"], "search", {"q": "the", "in": "prompts"},
        SESSION_FILTERS,
    ),
    "session": (
        lambda archive, _: _encode(archive.session(SESSION).to_dict()), ["show", SESSION], f"session/{SESSION}", {},
        [{}],
    ),
    "call": (lambda archive, _: _encode(archive.call(CALL).to_dict()), ["show", CALL], f"call/{CALL}", {}, [{}]),
    "why": (lambda archive, _: _encode(archive.why(CALL)), ["why", CALL], f"call/{CALL}/why", {}, [{}]),
    "compare": (
        lambda archive, words: _encode(archive.compare(SESSION, OTHER, **words)), ["compare", SESSION, OTHER],
        "compare", {"a": SESSION, "b": OTHER}, [{}, {"tool": "Bash"}, {"since": "2026-11-05"}],
    ),
    "file_history": (
        lambda archive, words: _encode(*archive.file_history(VIEWS, **words)), ["files", "--path", VIEWS], None, {},
        [{}, {"tool": "Edit"}, {"since": "2026-11-05"}],
    ),
    "file_content": (
        lambda archive, _: _encode(archive.file_content(VIEWS, before=FIRST)),
        ["files", "--path", VIEWS, "--before", FIRST], None, {}, [{}],
    ),
    "file_difference": (
        lambda archive, _: _encode(archive.file_difference(VIEWS, FIRST, LAST)),
        ["files", "--path", VIEWS, "--between", FIRST, LAST], "file/diff",
        {"path": VIEWS, "from": FIRST, "to": LAST}, [{}],
    ),
    "blame_recorded": (
        lambda archive, _: _encode(*archive.blame_recorded(VIEWS, LAST)), [], "file/blame",
        {"path": VIEWS, "at": LAST}, [{}],
    ),
    "compare_periods": (
        lambda archive, words: _encode(archive.compare_periods("2026-11-05", **words)),
        ["compare", "--at", "2026-11-05"], None, {}, [{}, {"tool": "Bash"}, {"project": "paperboat"}],
    ),
    "file_contents": (
        lambda archive, _: _encode(archive.file_contents(VIEWS)), ["files", "--path", VIEWS, "--contents"], "file",
        {"path": VIEWS}, [{}],
    ),
    "doctor": (
        lambda archive, _: _encode(*(file.to_dict() for file in archive.doctor())), ["doctor"], "doctor", {}, [{}],
    ),
}  # fmt: skip
"""The way to ask each question in Python, on the command line and over HTTP, and the filters to try."""
IN_TABLES = (
    "error_totals", "error_totals of versions",
    "calls of commands", "context", "stats of servers", "agents", "risky", "prompts", "denials", "hooks", "hook_runs",
    "compare_periods", "digest",
)  # fmt: skip
"""Those of them that tables answer too."""


def test_every_question_is_compared() -> None:
    public = {name for name, value in vars(Archive).items() if callable(value) and not name.startswith("_")}
    compared = {name.split()[0] for name in (*QUESTIONS, *OTHERS)}

    # the rows of `calls`, one by one; input of `policy`; only for agents, over MCP; what `disk --delete` deletes; from
    # the client's settings; about a file on disk, which the API does not read
    assert public - compared == {"iter_calls", "permissions", "known_errors", "retention", "blame", "deletable"}
    assert compared <= public


def _overview(archive: Archive) -> Any:
    recent = archive.overview()
    overview = msgspec.to_builtins(recent.overview, builtin_types=(datetime,))
    return json.loads(encode_json_line({**overview, "live": recent.live_statuses}))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        pytest.param(question, words, id=f"{question} {' '.join(words.values())}".strip())
        for question, (*_, filters) in OTHERS.items()
        for words in filters
    ],
)
def test_every_other_question_has_one_answer(server: Server, question: str, words: dict[str, str]) -> None:
    ask, command, path, params, _ = OTHERS[question]
    expected = ask(Archive(sample.archive()), words)

    if command:  # the overview is for the transcripts of the user only; `blame` is about a file on disk
        options = option_words(words)
        assert rows(run(*command, sample.archive(), "--json", *options, code=None)) == expected
    if path is None:
        return
    answer = server.get(f"{path}?{urlencode({**params, **words})}")
    assert (answer if isinstance(answer, list) else [answer]) == expected


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("duckdb")
    out = tmp_path_factory.mktemp("tables") / "out"
    run("tables", sample.archive(), "-o", out, "--content")
    return out


@pytest.mark.parametrize(("question", "words"), CASES)
def test_tables_give_the_answers_of_the_transcripts(tables: Path, question: str, words: dict[str, str]) -> None:
    expected = ask_archive(Archive(sample.archive()), question, words)

    assert ask_archive(Archive.from_tables(tables), question, words) == expected
    if question != "files":  # the command reads backups too, which tables do not contain
        assert ask_command(question, words, "--tables", tables) == expected


@pytest.mark.parametrize(
    ("question", "words"),
    [
        pytest.param(question, words, id=f"{question} {' '.join(words.values())}".strip())
        for question in IN_TABLES
        for words in OTHERS[question][-1]
    ],
)
def test_tables_answer_other_questions_like_the_transcripts(tables: Path, question: str, words: dict[str, str]) -> None:
    ask, command, *_ = OTHERS[question]
    expected = ask(Archive(sample.archive()), words)

    assert ask(Archive.from_tables(tables), words) == expected
    if question != "compare_periods":  # the command compares transcripts
        assert rows(run(*command, "--tables", tables, "--json", *option_words(words))) == expected


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


def test_the_list_and_the_page_of_a_session_have_the_same_numbers(server: Server) -> None:
    for row in server.get("sessions"):
        head = server.get(f"session/{row['id']}/timeline")["session"]
        copied = sum(copy["calls"] for copy in server.get(f"session/{row['id']}/copies") if copy["is_original"])
        states = {state: count for state, count in head["calls"].items() if state != "orphan_result"}
        assert sum(states.values()) - copied == row["calls"]
        length = datetime.fromisoformat(head["ended_at"]) - datetime.fromisoformat(head["started_at"])
        assert round(length.total_seconds() * 1000) == row["duration_ms"]
        if not copied:
            assert states == {state: count for state, count in row["states"].items() if state != "orphan_result"}
