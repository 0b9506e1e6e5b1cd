"""A file that grows gives the calls of the whole file, whichever way it was cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspan.reading import read, sample
from toolspan.reading.growing import FileGrowth, GrowingFile, WholeFile, open_file
from toolspan.testing import RolloutBuilder, TranscriptBuilder
from toolspan.types.session import SessionInfo

CLAUDE = sorted(sample.archive().glob("claude/projects/*/*.jsonl"))
CallFacts = tuple[str, str | None, str]


def no_evidence(_file: str, _info: SessionInfo) -> None:
    return None


def runs(_file: str, _info: SessionInfo) -> str:
    return "its process runs"


def call_facts(growth: FileGrowth) -> dict[str, CallFacts]:
    return {span.id: (span.state, span.error_kind, span.branch) for span in growth.content.spans}


def whole_facts(path: Path) -> dict[str, CallFacts]:
    return {span.id: (span.state, span.error_kind, span.branch) for span in read(path).spans}


@pytest.mark.parametrize("source", CLAUDE, ids=lambda path: path.stem[:8])
@given(cuts=st.lists(st.floats(0.05, 0.95), min_size=1, max_size=4).map(sorted))
@settings(max_examples=5)
def test_growth_adds_up_to_the_whole_file(
    source: Path, cuts: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = source.read_bytes()
    ends = [max(data.index(b"\n") + 1, int(len(data) * cut)) for cut in cuts]
    path = tmp_path_factory.mktemp("project") / source.name
    path.write_bytes(data[: ends[0]])
    file, growth = open_file(path, no_evidence)
    facts = call_facts(growth)
    for end in [*ends[1:], len(data)]:
        path.write_bytes(data[:end])
        next_growth = file.poll_growth()
        if next_growth is None:  # the file ended in a whole record without its newline
            file, next_growth = open_file(path, no_evidence)
            facts = {}
        facts |= call_facts(next_growth)

    assert facts == whole_facts(path)


def open_session(tmp_path: Path) -> Path:
    builder = TranscriptBuilder()
    builder.prompt("Go")
    builder.result(builder.call("Bash", {"command": "true"}), "done")
    builder.call("Bash", {"command": "sleep 9"})
    path = tmp_path / "5e551011-0000-4000-8000-000000000001.jsonl"
    path.write_bytes(builder.data())
    return path


def test_open_calls_of_the_last_message_run_as_long_as_their_client(tmp_path: Path) -> None:
    path = open_session(tmp_path)

    _, alone = open_file(path, no_evidence)
    growing, growth = open_file(path, runs)
    whole = WholeFile(path, runs).poll_growth()

    assert isinstance(growing, GrowingFile)
    assert whole is not None
    states = [[span.state for span in found.content.spans] for found in (alone, growth, whole)]
    assert states == [["succeeded", "never_answered"], ["succeeded", "running"], ["succeeded", "running"]]


def test_a_replaced_file_is_read_anew(tmp_path: Path) -> None:
    path = open_session(tmp_path)
    file, _ = open_file(path, no_evidence)
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes().replace(b"sleep 9", b"sleep 8"))
    other.replace(path)

    assert file.poll_growth() is None


def test_a_record_without_its_newline_is_read_with_the_whole_file(tmp_path: Path) -> None:
    path = open_session(tmp_path)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))

    file, growth = open_file(path, no_evidence)

    assert isinstance(file, WholeFile)
    assert call_facts(growth) == whole_facts(path)


def test_a_file_that_cannot_be_continued_is_read_whole_after_each_change(tmp_path: Path) -> None:
    builder = RolloutBuilder().prompt("Go")
    builder.output(builder.call("shell", {"command": ["true"]}), "done")
    path = tmp_path / "rollout-2026-01-01T00-00-00-5e551011-0000-4000-8000-000000000001.jsonl"
    path.write_bytes(builder.data())

    file, growth = open_file(path, no_evidence)
    unchanged = file.poll_growth()
    facts = whole_facts(path)
    with path.open("ab") as stream:
        stream.write(b"{}\n")

    assert isinstance(file, WholeFile)
    assert call_facts(growth) == facts
    assert unchanged is not None
    assert not unchanged.content.spans
    assert file.poll_growth() is None
