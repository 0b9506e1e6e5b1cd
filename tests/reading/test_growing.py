"""A file that grows gives the calls of the whole file, whichever way it was cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspan.reading import read, sample
from toolspan.reading.facts import summarize_transcript
from toolspan.reading.growing import FileGrowth, GrowingFile, KeptFiles, WholeFile, open_file
from toolspan.reading.timeline import TimelineBuilder, build_timeline, turn_rows
from toolspan.reading.transcript import read_content
from toolspan.testing import RolloutBuilder, TranscriptBuilder
from toolspan.types.session import SessionInfo

CLAUDE = sorted(sample.archive().glob("claude/projects/*/*.jsonl"))
FILES = sorted(path for path in sample.archive().rglob("*.jsonl") if path.stat().st_size > 2000)
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


@pytest.mark.parametrize("source", CLAUDE, ids=lambda path: path.stem[:8])
def test_timeline_of_a_file_that_grows_by_lines_is_that_of_the_whole_file(source: Path, tmp_path: Path) -> None:
    path = tmp_path / source.name
    lines = source.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    file, growth = open_file(path, no_evidence)
    builder = TimelineBuilder()
    builder.add(0, growth.content)
    for line in lines[1:]:
        with path.open("ab") as stream:
            stream.write(line)
        next_growth = file.poll_growth()
        assert next_growth is not None
        builder.add(0, next_growth.content, has_moved=next_growth.moved_line is not None)

    whole = build_timeline([read_content(read(path))])
    assert turn_rows(builder.build(), lambda _: True) == turn_rows(whole, lambda _: True)


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


@pytest.mark.parametrize("original", FILES, ids=lambda path: path.name[:12])
def test_a_file_read_in_parts_equals_the_whole(original: Path, tmp_path: Path) -> None:
    data = original.read_bytes()
    path = tmp_path / original.name
    path.write_bytes(b"")
    file = GrowingFile(path)
    cuts = range(1, len(data), max(1, len(data) // 7))  # most are in the middle of a line
    for end in sorted({*cuts, *(data.find(b"\n", cut) + 1 for cut in cuts), len(data)} - {0}):
        path.write_bytes(data[:end])
        transcript = file.read_transcript()
        if data[:end].endswith(b"\n"):
            assert transcript is not None
            expected = read(path)
            assert transcript.findings == expected.findings
            assert summarize_transcript(transcript, transcript.spans) == summarize_transcript(expected, expected.spans)
        else:
            assert transcript is None


@pytest.mark.parametrize("change", ["replaced", "truncated", "rewritten", "removed", "foreign"])
def test_a_transcript_of_a_changed_file_is_never_mixed_with_the_earlier_one(change: str, tmp_path: Path) -> None:
    path, copy = tmp_path / CLAUDE[1].name, tmp_path / "copy"
    lines = CLAUDE[1].read_bytes().splitlines(keepends=True)
    path.write_bytes(b'{"some": "log"}\n' * 40 if change == "foreign" else b"".join(lines))
    file = GrowingFile(path)
    assert (file.read_transcript() is None) == (change == "foreign")
    match change:
        case "replaced":
            shutil.copyfile(path, copy)
            copy.rename(path)
        case "truncated":
            path.write_bytes(b"".join(lines[:3]))
        case "rewritten":
            path.write_bytes(path.read_bytes().replace(b"1", b"2"))
        case "removed":
            path.unlink()
        case _:
            pass

    transcript = file.read_transcript()

    if change in ("removed", "foreign"):
        assert transcript is None
    else:
        assert transcript is not None
        whole = read(path)
        assert summarize_transcript(transcript, transcript.spans) == summarize_transcript(whole, whole.spans)


def test_a_timeline_and_a_job_read_the_same_growing_file(tmp_path: Path) -> None:
    path = open_session(tmp_path)
    file, growth = open_file(path, no_evidence)
    assert isinstance(file, GrowingFile)
    assert file.read_transcript() is not None
    builder = TranscriptBuilder()
    builder.result(builder.prompt("More").call("Bash", {"command": "make"}), "made")
    with path.open("ab") as stream:
        stream.write(builder.data())
    transcript = file.read_transcript()

    later = file.poll_growth()

    assert transcript is not None
    assert later is not None
    assert call_facts(growth) | call_facts(later) == whole_facts(path)
    assert [span.id for span in transcript.spans] == [span.id for span in read(path).spans]


def test_only_the_files_that_grew_last_are_kept(tmp_path: Path) -> None:
    path = open_session(tmp_path)
    paths = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for other in paths:
        shutil.copyfile(path, other)
    files = KeptFiles(max_files=2)
    files.keep(map(str, paths))

    kept = [other for other in paths if files.read(other) is not None]

    assert kept == paths[1:]
