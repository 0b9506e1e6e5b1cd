"""An archive of very many files is read part by part, and its answers do not depend on the parts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.analysis.usage import GROUPINGS
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import MIN_CACHED_BYTES, FileEngine
from toolspan.archive.errors import find_errors
from toolspan.archive.filters import Filter
from toolspan.archive.reporter import Reporter
from toolspan.archive.sessions import SORT_ALIASES, SORT_COLUMNS, list_sessions
from toolspan.archive.usage import sum_usage
from toolspan.errors import NotFound
from toolspan.reading import sample
from toolspan.reading.cache import Cache, default_folder
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.lineage import FileLinks

SESSIONS = [f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abcd"]
AGENTS = ["a1", "a2", SESSIONS[0]]
Sessions = st.sampled_from(SESSIONS)
Paths = st.one_of(
    st.builds("{}/{}.jsonl".format, st.sampled_from("pq"), st.one_of(Sessions, st.sampled_from(["notes", "x"]))),
    st.builds("p/{}/subagents/agent-{}.jsonl".format, Sessions, st.sampled_from(AGENTS)),
    st.builds("{}/agent-{}.jsonl".format, st.sampled_from("pq"), st.sampled_from(AGENTS)),
)
Turns = st.fixed_dictionaries(
    {
        "session": Sessions,
        "agent": st.sampled_from([None, None, *AGENTS]),
        "uuid": st.sampled_from(["u1", "u2", "u3", "u4"]),
        "call": st.sampled_from(["c1", "c2", "c3"]),
        "message": st.sampled_from(["m1", "m2", "m3", None]),
        "tokens": st.integers(0, 9),
        "minute": st.integers(0, 5),
        "is_answered": st.booleans(),
        "forked_from": st.sampled_from([None, None, *SESSIONS]),
    }
)
Archives = st.dictionaries(Paths, st.lists(Turns, max_size=3), min_size=1, max_size=8)


@pytest.fixture(scope="module", autouse=True)
def _own_cache() -> Iterator[None]:
    """Only files that can be cached are read part by part. A process may still store facts at the end."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as environ:
        environ.delenv("TOOLSPAN_NO_CACHE")
        environ.setenv("XDG_CACHE_HOME", folder)
        yield


def make_records(turn: dict[str, Any]) -> list[dict[str, Any]]:
    shared = {
        "sessionId": turn["session"], "timestamp": f"2026-11-02T09:0{turn['minute']}:00.000Z", "cwd": "/w/p",
        "version": "2.1.0", "isSidechain": turn["agent"] is not None,
    }  # fmt: skip
    if turn["agent"]:
        shared["agentId"] = turn["agent"]
    if turn["forked_from"]:
        shared["forkedFrom"] = {"sessionId": turn["forked_from"], "messageUuid": "u"}
    call = {"type": "tool_use", "id": turn["call"], "name": "Bash", "input": {"command": "ls"}}
    message = {
        "role": "assistant", "content": [call], "model": "claude-sonnet-4-5",
        "usage": {"input_tokens": turn["tokens"], "output_tokens": 1},
    }  # fmt: skip
    if turn["message"]:
        message["id"] = turn["message"]
    result = {"type": "tool_result", "tool_use_id": turn["call"], "content": "x"}
    records = [
        {"type": "user", "uuid": turn["uuid"], "message": {"role": "user", "content": f"go {turn['minute']}"}},
        {"type": "assistant", "uuid": f"{turn['uuid']}-a", "parentUuid": turn["uuid"], "message": message},
    ]
    if turn["is_answered"]:
        answer = {"role": "user", "content": [result]}
        records.append(
            {"type": "user", "uuid": f"{turn['uuid']}-r", "parentUuid": f"{turn['uuid']}-a", "message": answer}
        )
    return [{**shared, **record} for record in records]


def write_archive(folder: Path, files: dict[str, list[dict[str, Any]]]) -> None:
    for name, turns in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for turn in turns for record in make_records(turn)))


def ask(
    folder: Path, part_files: int, call_filter: Filter, sort: str | None = None, limit: int | None = None
) -> object:
    """Return the rows, their number and the warnings, or the error."""
    order = SortOrder.parse(sort, SORT_COLUMNS, SORT_ALIASES)
    return ask_engine(folder, part_files, lambda engine: list_sessions(engine, call_filter, sort=order, limit=limit))


def ask_engine(folder: Path, part_files: int, question: Callable[[FileEngine], Rows[Any]]) -> object:
    warnings: list[object] = []
    engine = FileEngine([str(folder)], last=False, reporter=Reporter(warn=warnings.append), part_files=part_files)
    try:
        rows = question(engine)
    except NotFound as error:
        return str(error)
    return list(rows), rows.total, getattr(rows, "calls", None), warnings


WORDS: list[dict[str, str]] = [
    {"session": "a"}, {"session": "zz"}, {"project": "/w"}, {"project": "none"}, {"about": "go 1"},
    {"since": "2026-11-02T09:03Z"}, {"since": "2027-01-01"}, {"tool": "Bash"}, {"tool": "Bach"}, {"agent": "a1"},
    {"agent": "zz"}, {"state": "never_answered"},
]  # fmt: skip


SORTS = [*SORT_COLUMNS, *(f"-{column}" for column in SORT_COLUMNS)]
FewWords = st.lists(st.sampled_from(WORDS), min_size=2, max_size=2)


@given(
    files=Archives, part_files=st.integers(1, 3), limit=st.sampled_from([None, 1, 2, 5]), some=FewWords,
    sorts=st.lists(st.sampled_from(SORTS), min_size=4, max_size=4),
)  # fmt: skip
def test_sessions_do_not_depend_on_the_parts_in_which_files_are_read(
    files: dict[str, list[dict[str, Any]]],
    part_files: int,
    limit: int | None,
    some: list[dict[str, str]],
    sorts: list[str],
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_archive(folder, files)
        for sort in (None, *sorts):
            whole = ask(folder, len(files), Filter(), sort, limit)
            assert ask(folder, part_files, Filter(), sort, limit) == whole
        for words in some:
            call_filter = Filter.parse(**words)
            assert ask(folder, part_files, call_filter, None, limit) == ask(folder, 99, call_filter, None, limit)


def test_parts_have_fewer_files_if_these_are_large() -> None:
    def count(size: int) -> int:
        files = [TranscriptFile(location=f"{n}.jsonl", size=size, modified=0.0) for n in range(10)]
        return FileEngine([], reporter=Reporter(), part_files=1_000).count_part(files)

    assert count(100) == 999
    assert 300 < count(200_000) < 500
    assert count(1_000_000_000) == 1


@given(files=Archives, part_files=st.integers(1, 3), some=FewWords)
def test_errors_do_not_depend_on_the_parts_in_which_files_are_read(
    files: dict[str, list[dict[str, Any]]], part_files: int, some: list[dict[str, str]]
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_archive(folder, files)
        for words in ({}, *some):
            call_filter = Filter.parse(**words)

            def find(engine: FileEngine, call_filter: Filter = call_filter) -> Rows[Any]:
                return find_errors(engine, call_filter)

            assert ask_engine(folder, part_files, find) == ask_engine(folder, 99, find)


@given(files=Archives, part_files=st.integers(1, 3))
def test_usage_does_not_depend_on_the_parts_in_which_files_are_read(
    files: dict[str, list[dict[str, Any]]], part_files: int
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_archive(folder, files)
        (folder / "padding.jsonl").write_text(" " * MIN_CACHED_BYTES)  # smaller archives are read as a whole
        for by in GROUPINGS:

            def add_up(engine: FileEngine, by: str = by) -> Rows[Any]:
                return sum_usage(engine, Filter(), by=by)

            assert ask_engine(folder, part_files, add_up) == ask_engine(folder, 99, add_up)


def test_files_with_common_numbers_are_in_one_part() -> None:
    links = FileLinks()
    for numbers in ([1, 2], [3], [2, 4], [5], [], [6], [4]):
        links.add(numbers)

    assert list(links.split(2)) == [([0, 2, 6], True), ([1, 3], False), ([4, 5], False)]


def test_files_of_other_programs_are_left_out_once(tmp_path: Path) -> None:
    turn = {
        "session": SESSIONS[0], "agent": None, "uuid": "u1", "call": "c1", "message": "m1", "tokens": 1, "minute": 1,
        "is_answered": True, "forked_from": None,
    }  # fmt: skip
    folder = tmp_path / "archive"
    write_archive(folder, {"p/a.jsonl": [turn], "p/b.jsonl": [{**turn, "session": SESSIONS[1]}]})
    (folder / "p" / "c.jsonl").write_text('{"other":"program"}\n' * 3)
    os.mkfifo(folder / "p" / "d.jsonl")

    assert ask(folder, 1, Filter()) == ask(folder, 99, Filter())


def test_links_from_the_cache_give_the_same_sessions() -> None:
    whole = ask(sample.archive(), 99, Filter())

    assert ask(sample.archive(), 2, Filter()) == whole
    assert ask(sample.archive(), 2, Filter()) == whole
    assert Cache(default_folder() or Path()).usage()[0] > 2
