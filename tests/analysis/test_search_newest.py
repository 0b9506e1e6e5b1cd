"""The newest matches are the first ones of a full search."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.analysis.search import find as newest_module
from toolspan.analysis.search.find import MatchSelector, SearchMatch, SearchResults, search, search_newest
from toolspan.analysis.search.query import Candidate, find_candidates, find_ripgrep, query_of
from toolspan.formats import zstd
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder

START = datetime(2026, 11, 2, 9, tzinfo=UTC)
QUERY = query_of(["lantern"])
PROGRAMS = [find_ripgrep(), None]


@pytest.fixture(autouse=True)
def _plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat any amount of work as too much to scan all files."""
    monkeypatch.setattr(newest_module, "_SMALL_SEARCH_BYTES", 0)


def candidates(root: Path, program: str | None) -> list[Candidate]:
    return find_candidates([root], QUERY.rarest_filter, program=program)


def search_newest_in(root: Path, most: int, *, program: str | None, keep: MatchSelector = list) -> SearchResults:
    return search_newest(candidates(root, program), QUERY, most, keep=keep, program=program)


def texts(matches: Sequence[SearchMatch]) -> list[str]:
    return [match.snippet.after.strip() for match in matches]


def write_session(root: Path, name: str, *minutes: int, changed: int = 100) -> Path:
    """Write a session with the prompt `lantern N` at each of these minutes, in this order."""
    builder = TranscriptBuilder(session_id=name, start=START)
    for before, minute in zip((0, *minutes), minutes, strict=False):
        builder.prompt(f"lantern {minute} {name}", after_ms=(minute - before) * 60_000)
        builder.text("and so on " * 500)
    path = builder.write(root / f"{name}.jsonl")
    when = (START + timedelta(minutes=changed)).timestamp()
    os.utime(path, (when, when))
    return path


@pytest.mark.parametrize("program", PROGRAMS)
def test_only_the_newest_files_are_scanned(tmp_path: Path, program: str | None) -> None:
    for number in range(9):
        write_session(tmp_path, f"n{number}", number, number + 10, changed=number + 10)

    results = search_newest_in(tmp_path, 2, program=program)

    assert texts(results.matches)[:2] == ["18 n8", "17 n7"]
    assert len(results.matches) == 3
    assert results.among == 9


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_whose_lines_are_not_in_order_hides_nothing(tmp_path: Path, program: str | None) -> None:
    write_session(tmp_path, "even", 40, 50)
    write_session(tmp_path, "odd", 60, 1)
    write_session(tmp_path, "old", 2, 3)

    assert texts(search_newest_in(tmp_path, 1, program=program).matches)[:1] == ["60 odd"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_matches_are_known_if_all_files_were_scanned(tmp_path: Path, program: str | None) -> None:
    write_session(tmp_path, "a", 1, 2)
    write_session(tmp_path, "b", 3)

    results = search_newest_in(tmp_path, 5, program=program)

    assert texts(results.matches) == ["3 b", "2 a", "1 a"]
    assert results.among is None


def test_older_files_are_scanned_if_the_filter_keeps_few_matches(tmp_path: Path) -> None:
    for number in range(60):
        write_session(tmp_path, f"n{number:02}", number, changed=number)

    def old(matches: Sequence[SearchMatch]) -> list[SearchMatch]:
        return [match for match in matches if match.file.endswith("n01.jsonl")]

    results = search_newest_in(tmp_path, 1, program=PROGRAMS[0], keep=old)

    assert texts(results.matches) == ["1 n01"]
    assert results.among is None


def test_all_files_are_scanned_if_it_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_module, "_MAX_SERIAL_BYTES", 0)
    for number in range(5):
        write_session(tmp_path, f"n{number}", number, changed=number)

    results = search_newest_in(tmp_path, 2, program=PROGRAMS[0])

    assert texts(results.matches) == [f"{number} n{number}" for number in (4, 3, 2, 1, 0)]
    assert results.among is None


def test_matches_of_compressed_files_are_sorted_by_time(tmp_path: Path) -> None:
    write_session(tmp_path, "plain", 5)
    for name, minutes in (("old", (1, 2)), ("odd", (8, 3))):
        path = write_session(tmp_path, name, *minutes)
        packed = zstd.compress(path.read_bytes())
        path.with_name(f"{path.name}.zst").write_bytes(packed)
        path.unlink()

    results = search_newest_in(tmp_path, 2, program=PROGRAMS[0])

    assert texts(results.matches)[:3] == ["8 odd", "5 plain", "3 odd"]


def test_matches_of_rollouts_are_sorted_by_time(tmp_path: Path) -> None:
    write_session(tmp_path, "claude", 5)
    for minute in (2, 8):
        builder = RolloutBuilder(start=START, cwd="/home/dev")
        builder.prompt(f"lantern {minute} codex", after_ms=minute * 60_000)
        builder.write(tmp_path / str(minute))

    assert texts(search_newest_in(tmp_path, 2, program=PROGRAMS[0]).matches)[:2] == ["8 codex", "5 claude"]


@given(
    st.lists(st.lists(st.integers(0, 59), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_newest_matches_are_the_first_of_a_full_search(minutes: list[list[int]], most: int, copied: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number, those in enumerate(minutes):
            write_session(root, f"n{number}", *those)
        if copied:
            (root / "copy.jsonl").write_bytes((root / "n0.jsonl").read_bytes())
        some = candidates(root, PROGRAMS[0])
        results = search_newest(some, QUERY, most, program=PROGRAMS[0]).matches

        assert results[:most] == search(some, QUERY).matches[:most]
