"""Checks that every registered format must pass. A new format adds its sample to `SAMPLES`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import gemini_chats
from tests.requirement import requirement
from toolspan import check, read
from toolspan.analysis.search.query import TRANSCRIPT_GLOBS
from toolspan.errors import UnknownDialect
from toolspan.formats.registry import (
    FORMAT_NAMES,
    all_formats,
    choose_format,
    detect_dialect_in,
    format_of_path,
    get_format,
    parse_file_name,
)
from toolspan.formats.source import BytesSource
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.transcript import read_content
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.inputs import UnknownInput
from toolspan.types.session import MessageAuthor
from toolspan.types.state import OPEN_STATES, STATES


def claude_sample() -> bytes:
    builder = TranscriptBuilder().prompt("go").text("I look.")
    builder.result(builder.call("Bash", {"command": "ls"}), "x")
    builder.result(builder.call("Read", {"file_path": "/x"}), "File does not exist.", is_error=True)
    builder.call("Bash", {"command": "sleep 9"})
    return builder.data()


def codex_sample() -> bytes:
    rollout = RolloutBuilder().prompt("go").text("I look.")
    rollout.output(rollout.call("shell", {"command": ["ls"]}), "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nx")
    rollout.output(rollout.call("shell", {"command": ["false"]}), "Exit code: 1\nWall time: 0.1 seconds\nOutput:\n")
    return rollout.data()


def write_claude(home: Path, data: bytes) -> Path:
    path = home / "projects" / "-home-dev" / FILE_NAMES["claude"]
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def write_codex(home: Path, data: bytes) -> Path:
    path = home / "sessions" / FILE_NAMES["codex"]
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


SAMPLES: dict[str, tuple[Callable[[], bytes], Callable[[Path, bytes], Path]]] = {
    "claude": (claude_sample, write_claude),
    "codex": (codex_sample, write_codex),
    "gemini": (gemini_chats.document, gemini_chats.write_chat),
}

FILE_NAMES = {
    "claude": "00000000-0000-4000-8000-000000000001.jsonl",
    "codex": "rollout-2026-03-02T10-20-30-00000000-0000-7000-8000-000000000001.jsonl",
    "gemini": "session-2026-03-02T10-20-1a2b3c4d.json",
}
"""Names that decide which format a file is read in if its content does not."""

ODD_VALUES: st.SearchStrategy[object] = st.sampled_from(
    [None, True, -1, 1.5, 10**30, "", "\ud800", "x", [], [1], ["x"], {}, {"a": 1}, [{}], [[]]]
)

each_format = pytest.mark.parametrize("name", FORMAT_NAMES)


def sample(name: str) -> bytes:
    return SAMPLES[name][0]()


@requirement("formats.contract")
@each_format
def test_format_recognises_only_its_own_files(name: str) -> None:
    data = sample(name)

    assert detect_dialect_in(data) == name
    assert choose_format("<bytes>", data, 0, len(data)).name == name
    assert read(BytesSource(data)).dialect == name
    for other in all_formats():
        assert other.is_document(data) <= (other.name == name)


@requirement("formats.contract")
@each_format
def test_format_finds_and_reads_the_files_of_its_client(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name][1](tmp_path, sample(name))

    (file,) = find_transcripts(tmp_path)
    assert file.path == path
    assert format_of_path(path).name == name
    assert file.name == parse_file_name(path)
    assert (file.name.role, bool(file.name.stem), bool(file.name.session_id)) == ("session", True, True)
    assert read(file.path).spans
    assert read(file.path).session_id


@requirement("formats.contract")
@each_format
def test_every_call_is_read_once_with_its_bodies(name: str) -> None:
    transcript = read(BytesSource(sample(name)))

    assert len(transcript.spans) >= 2
    assert set(Counter(span.id for span in transcript.spans).values()) == {1}
    for span in transcript.spans:
        assert span.state in STATES
        assert span.state not in OPEN_STATES
        assert span.evidence
        assert (span.error_kind is None) == (span.state in ("succeeded", "never_answered"))
        assert span.call.dialect == name
        assert span.call.arguments
        assert not isinstance(span.input, UnknownInput)
        if span.result is not None:
            assert span.result.id == span.id
            assert isinstance(span.result.text, str)
            assert span.result.structured is None or span.result.structured
    assert {"succeeded", "failed"} <= {span.state for span in transcript.spans}


@requirement("formats.contract")
@each_format
def test_messages_info_and_timeline_agree(name: str) -> None:
    transcript = read(BytesSource(sample(name)))
    messages = list(transcript.messages())
    content = read_content(transcript)

    assert transcript.info.dialect == name
    assert transcript.info.prompts == sum(message.voice == "prompt" for message in messages) == 1
    assert {message.voice for message in messages} <= set(get_args(MessageAuthor))
    assert (list(content.spans), len(content.messages)) == (transcript.spans, len(messages))
    assert len(transcript.success_keys) == sum(span.state == "succeeded" for span in transcript.spans)


@requirement("formats.contract")
@each_format
def test_records_survive_encoding_without_drift(name: str) -> None:
    report = check(BytesSource(sample(name)), roundtrip=True)

    assert report.roundtrip_equal == sum(report.entries.values()) > 0
    assert not [finding for finding in report.findings if finding.code.startswith("unknown_")]


@requirement("formats.contract")
@each_format
@given(data=st.data())
def test_torn_and_damaged_bytes_never_raise(name: str, data: st.DataObject) -> None:
    original = bytearray(sample(name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(original) - 1))
        original[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
        if not original:
            break
    damaged = bytes(original[: data.draw(st.integers(0, len(original)))])

    source = BytesSource(damaged, FILE_NAMES[name])
    transcript = read(source)
    for span in transcript.spans:
        assert span.state in STATES
        assert isinstance(span.call.arguments, dict)
        assert span.input is not None
        assert span.result is None or isinstance(span.result.text, str)
    assert all(isinstance(message.text, str) for message in transcript.messages())
    assert read_content(transcript).file == transcript.file
    check(source, roundtrip=True)


@requirement("formats.contract")
@each_format
@given(data=st.data())
def test_values_of_any_type_never_raise(name: str, data: st.DataObject) -> None:
    records = [json.loads(line.data) for line in read(BytesSource(sample(name))).reader.lines()]
    record = data.draw(st.sampled_from(records))
    holder = data.draw(st.sampled_from([part for part in iter_objects(record) if part]))
    holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(ODD_VALUES)
    source = BytesSource(b"".join(json.dumps(each).encode() + b"\n" for each in records), FILE_NAMES[name])

    for transcript_format in all_formats():
        transcript_format.is_record(record, json.dumps(record).encode())
    transcript = read(source)
    assert all(span.state in STATES and span.input is not None for span in transcript.spans)
    assert all(isinstance(message.text, str) for message in transcript.messages())
    check(source, roundtrip=True)


def iter_objects(value: object) -> Iterator[dict[str, object]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from iter_objects(part)


@requirement("formats.contract")
@each_format
def test_input_that_does_not_fit_is_kept_as_bytes(name: str) -> None:
    transcript_format = get_format(name)

    assert transcript_format.name == name
    assert transcript_format.title
    assert transcript_format.roots()
    for tool, data in (("no such tool", b"{}"), ("Bash", b"[1"), ("shell", b"\xff"), ("glob", b'{"pattern":{}}')):
        assert isinstance(transcript_format.narrow_input(tool, data), UnknownInput)
    transcript_format.narrow_result("no such tool", b'{"a":1}')


@requirement("formats.contract")
def test_ripgrep_searches_the_files_of_every_format() -> None:
    for transcript_format in all_formats():
        for glob in transcript_format.file_globs:
            assert glob in TRANSCRIPT_GLOBS or (glob.endswith(".jsonl") and "*.jsonl" in TRANSCRIPT_GLOBS)


@requirement("formats.contract")
def test_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownDialect, match="known formats: claude, codex, gemini"):
        get_format("aider")
