"""Checks that every transcript format must pass, for formats in toolspan and in other packages.

A test module subclasses `FormatContract`, gives it a sample, and pytest runs the inherited checks:

    class TestMyFormat(FormatContract):
        name = "myclient"
        file_name = "session-1.jsonl"

        def sample(self) -> bytes: ...
        def write(self, home: Path, data: bytes) -> Path: ...
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, get_args

from toolspan.formats.base import TranscriptFormat
from toolspan.formats.registry import (
    all_formats,
    choose_format,
    detect_client_in,
    format_of_path,
    get_format,
    parse_file_name,
)
from toolspan.formats.source import BytesSource
from toolspan.reading.diagnostics import check
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.transcript import read, read_content
from toolspan.types.inputs import UnknownInput
from toolspan.types.session import MessageAuthor
from toolspan.types.state import OPEN_STATES, STATES

_ODD_VALUES: tuple[object, ...] = (
    None, True, -1, 1.5, 10**30, "", "x", [], [1], ["x"], {}, {"a": 1}, [{}], [[]],
)  # fmt: skip
_ROUNDS = 60
"""The number of damaged files per check, the same ones in each run."""


class FormatContract:
    """The checks. The sample has one prompt, and at least one call that succeeded and one that failed."""

    name: ClassVar[str]
    """The name of the format."""
    file_name: ClassVar[str]
    """The name of a file that is read in this format, even if its content is damaged."""

    @abstractmethod
    def sample(self) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def write(self, home: Path, data: bytes) -> Path:
        """Write the sample below `home` where the client would, and return the path of the session."""

    @property
    def format(self) -> TranscriptFormat:
        """The format."""
        return get_format(self.name)

    def test_format_has_a_name_and_places(self) -> None:
        assert self.format.name == self.name
        assert self.format.title
        assert bool(self.format.home_variable) == bool(self.format.roots())

    def test_format_recognises_only_its_own_files(self) -> None:
        data = self.sample()

        assert detect_client_in(data) == self.name
        assert choose_format("<bytes>", data, 0, len(data)).name == self.name
        assert read(BytesSource(data)).client == self.name
        for other in all_formats():
            assert other.is_document(data) <= (other.name == self.name)

    def test_format_finds_and_reads_the_files_of_its_client(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, self.sample())

        (file,) = find_transcripts(tmp_path)
        assert file.path == path
        assert format_of_path(path).name == self.name
        assert file.name == parse_file_name(path)
        assert (file.name.role, bool(file.name.stem), bool(file.name.session_id)) == ("session", True, True)
        assert file.size > 0
        assert read(file.path).spans
        assert read(file.path).session_id

    def test_every_call_is_read_once_with_its_bodies(self, tmp_path: Path) -> None:
        for transcript in (read(BytesSource(self.sample())), read(self.write(tmp_path, self.sample()))):
            assert len(transcript.spans) >= 2
            assert set(Counter(span.id for span in transcript.spans).values()) == {1}
            for span in transcript.spans:
                assert span.state in STATES
                assert span.state not in OPEN_STATES
                assert span.evidence
                assert (span.error_kind is None) == (span.state in ("succeeded", "never_answered"))
                assert span.call.client == self.name
                assert span.call.arguments
                assert not isinstance(span.input, UnknownInput)
                if span.result is not None:
                    assert span.result.id == span.id
                    assert isinstance(span.result.text, str)
                    assert span.result.structured is None or span.result.structured
            assert {"succeeded", "failed"} <= {span.state for span in transcript.spans}

    def test_messages_info_and_timeline_agree(self) -> None:
        transcript = read(BytesSource(self.sample()))
        messages = list(transcript.messages())
        content = read_content(transcript)

        assert transcript.info.client == self.name
        prompts = [message for message in messages if message.voice == "prompt" and message.agent_id is None]
        assert transcript.info.prompts == len(prompts) == 1
        assert {message.voice for message in messages} <= set(get_args(MessageAuthor))
        assert (list(content.spans), len(content.messages)) == (transcript.spans, len(messages))

    def test_records_survive_encoding_without_drift(self) -> None:
        report = check(BytesSource(self.sample()), roundtrip=True)

        assert report.roundtrip_equal == sum(report.entries.values()) > 0
        assert not [finding for finding in report.findings if finding.code.startswith("unknown_")]

    def test_torn_and_damaged_bytes_never_raise(self) -> None:
        for seed in range(_ROUNDS):
            chance = random.Random(seed)
            data = bytearray(self.sample())
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data)) if data else 0
                data[at : at + chance.randint(0, 40)] = chance.randbytes(chance.randint(0, 8))
            self._read_everything(bytes(data[: chance.randint(0, len(data))]))

    def test_values_of_any_type_never_raise(self) -> None:
        lines = [line.data for line in read(BytesSource(self.sample())).reader.lines()]
        for seed in range(_ROUNDS):
            chance = random.Random(seed)
            records = [json.loads(line) for line in lines]
            record = chance.choice(records)
            holder = chance.choice([part for part in iter_objects(record) if part])
            holder[chance.choice(sorted(holder))] = chance.choice(_ODD_VALUES)
            for transcript_format in all_formats():
                transcript_format.is_record(record, json.dumps(record).encode())
            self._read_everything(b"".join(json.dumps(each).encode() + b"\n" for each in records))

    def _read_everything(self, data: bytes) -> None:
        source = BytesSource(data, self.file_name)
        transcript = read(source)
        for span in transcript.spans:
            assert span.state in STATES
            assert isinstance(span.call.arguments, dict)
            assert span.input is not None
            assert span.result is None or isinstance(span.result.text, str)
        assert all(isinstance(message.text, str) for message in transcript.messages())
        assert read_content(transcript).file == transcript.file
        check(source, roundtrip=True)

    def test_input_that_does_not_fit_is_kept_as_bytes(self) -> None:
        for tool, data in (("no such tool", b"{}"), ("Bash", b"[1"), ("shell", b"\xff"), ("glob", b'{"pattern":{}}')):
            assert isinstance(self.format.narrow_input(tool, data), UnknownInput)
        self.format.narrow_result("no such tool", b'{"a":1}')


def iter_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from iter_objects(part)
