"""Damaged transcripts can be resumed and repaired without further loss."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reading.repair.damage import Turn, calls_in, damaged, harms, recorded, turns, versions
from tests.session.recording.emitted import SESSION
from toolspan.errors import ToolspanError
from toolspan.formats.registry import detect_client
from toolspan.formats.source import source_for_path
from toolspan.reading.diagnostics import check, repair
from toolspan.session.resume import load_history
from toolspan.testing import check_history


class Broken(NamedTuple):
    """A session, and what happened to its transcript."""

    story: list[Turn]
    harm: list[tuple[str, int, int]]
    version: str

    @contextmanager
    def transcript(self) -> Iterator[Path]:
        with session(self.story, self.version) as path:
            path.write_bytes(damaged(path.read_bytes(), self.harm))
            yield path


any_damage = st.builds(Broken, turns, harms, versions)


@contextmanager
def session(story: list[Turn], version: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{SESSION}.jsonl"
        recorded(path, story, version)
        yield path


def calls_and_results(path: Path) -> tuple[Counter[str], dict[str, str]]:
    messages = load_history(path)
    assert not messages or check_history(messages) == []
    calls: Counter[str] = Counter()
    results: dict[str, str] = {}
    for message in messages:
        content = message["content"]
        assert isinstance(content, list)
        for block in content:
            if block["type"] == "tool_use":
                calls[block["id"]] += 1
            elif block["type"] == "tool_result":
                results[block["tool_use_id"]] = block.get("content", "")
    return calls, results


def is_whole(story: list[Turn]) -> bool:
    return all(answered for _, answered in story)


CONCURRENT: list[Turn] = [([[], [("Bash", 0)], [("mcp__a__b", 0), ("Bash", 0), ("Bash", 0)]], True)]
"""Three calls in one message, with results on branches of their own."""


@given(any_damage)
@example(Broken(CONCURRENT, [("byte", 357, 736)], "2.1.327")).via("a call whose message has lost its id")
def test_any_damaged_transcript_is_resumed_with_each_call_and_result_once(broken: Broken) -> None:
    with broken.transcript() as path:
        calls, results = calls_and_results(path)
        _, there = calls_in(path)

    assert all(count == 1 for count in calls.values())
    for name, text in results.items():
        assert text == there.get(name, text)


@given(turns, st.integers(0, 1_000_000), versions)
def test_transcript_cut_anywhere_is_resumed_with_all_complete_records(
    story: list[Turn], cut: int, version: str
) -> None:
    with session(story, version) as path:
        data = path.read_bytes()
        path.write_bytes(data[: cut % (len(data) + 1)])
        calls, results = calls_and_results(path)
        request, there = calls_in(path)

    assert set(calls) == set(results) == request
    assert {name: results[name] for name in there} == there


@given(any_damage)
def test_any_damaged_session_is_repaired_without_loss(broken: Broken) -> None:
    with broken.transcript() as path:
        before = path.read_bytes()
        if detect_client(source_for_path(path)) != "claude":
            with pytest.raises(ToolspanError):
                repair(path)
            return
        repaired = repair(path)
        assert path.read_bytes() == before
        if repaired.path is None:
            assert not [finding for finding in check(path).findings if finding.severity == "error"]
            return
        wrong = [finding for finding in check(repaired.path).findings if finding.severity != "info"]
        calls, results = calls_and_results(repaired.path)
        request, there = calls_in(path)
        remaining, answered = calls_in(repaired.path)
        again = repair(repaired.path)

    assert wrong == []
    assert again.changes == []
    assert request <= remaining == set(answered)
    assert {name: answered[name] for name in there if name in request}.items() <= there.items()
    assert all(count == 1 for count in calls.values())
    assert all(results[name] == answered[name] for name in results)
