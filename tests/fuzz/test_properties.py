"""Properties of every transcript: pairing by id, prefixes, copies, and damage that never raises."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.traversal import visit
from tests.requirement import requirement
from tests.strategies import (
    Record,
    Recorded,
    claude_entries,
    claude_transcripts,
    merge_blocks,
    mutated,
    mutations,
    odd_entries,
    split_blocks,
    to_json,
    to_lines,
)
from toolspan.formats import jsonl
from toolspan.formats.claude.reader import ClaudeReader
from toolspan.formats.jsonl import read_chunks
from toolspan.formats.registry import get_format
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import Transcript, read
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.state import State

CALL = (
    b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash",'
    b'"input":{"command":"ls"}}]}}\n'
)
RESULT = b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}}\n'

Fate = tuple[str, State, ErrorKind | None]


def read_bytes(data: bytes) -> Transcript:
    return read(BytesSource(data))


def fates(records: list[Record]) -> list[Fate]:
    return fates_in(to_lines(records))


def fates_in(data: bytes) -> list[Fate]:
    return [(span.id, span.state, span.error_kind) for span in read_bytes(data).spans]


def calls(records: list[Record]) -> list[str]:
    spans = read_bytes(to_lines(records)).spans
    return [span.id for span in spans if span.call.place is not None]


@given(recorded=claude_transcripts())
def test_calls_and_results_pair_by_id_alone(recorded: Recorded) -> None:
    spans = read_bytes(recorded.data).spans

    assert [span.id for span in spans if span.call.place is not None] == recorded.asked
    assert {span.id for span in spans if span.result is not None} == recorded.answered
    assert {span.id for span in spans if span.state == "orphan_result"} == recorded.orphans


@given(recorded=claude_transcripts())
def test_each_result_pairs_with_at_most_one_call(recorded: Recorded) -> None:
    spans = read_bytes(recorded.data).spans
    results = [span.result for span in spans if span.result is not None]

    assert all(span.result is None or span.result.id == span.id for span in spans)
    assert len({(result.place, result.id) for result in results}) == len(results)
    assert len({span.id for span in spans}) == len(spans)


TELLING = [
    (b"Bash", b'"Command timed out after 2m","is_error":true'),
    (b"Bash", b'"no such thing here","is_error":true'),
    (b"Task", b'"done\\nagentId: a9"'),
    (b"Read", b'"x\\n[Exit code: 3]"'),
]


@pytest.mark.parametrize(("tool", "content"), TELLING)
def test_result_before_its_call_has_the_same_meaning_as_after_it(tool: bytes, content: bytes) -> None:
    request, answered = CALL.replace(b"Bash", tool), RESULT.replace(b'"ok"', content)
    request, answered = (line.replace(b'"message"', b'"version":"2.1.325","message"') for line in (request, answered))

    (after,) = read_bytes(request + answered).spans
    (before,) = read_bytes(answered + request).spans

    assert (before.state, before.error_kind, before.agent) == (after.state, after.error_kind, after.agent)
    assert before.result is not None
    assert after.result is not None
    assert before.result.exit_code == after.result.exit_code


@given(recorded=claude_transcripts())
def test_states_are_as_many_as_calls_and_orphans(recorded: Recorded) -> None:
    states = Counter(span.state for span in read_bytes(recorded.data).spans)

    assert states.total() == len(recorded.asked) + len(recorded.orphans)
    assert states["orphan_result"] == len(recorded.orphans)


@given(recorded=claude_transcripts())
def test_every_repetition_of_a_call_or_result_is_kept_as_a_copy(recorded: Recorded) -> None:
    blocks = [
        block
        for record in recorded.records
        for block in (record.get("message", {}).get("content") or ())
        if isinstance(block, dict)
    ]
    spans = read_bytes(recorded.data).spans
    remaining = sum((s.call.place is not None) + (s.result is not None) for s in spans)

    assert remaining + sum(len(span.copies) for span in spans) == len(blocks)


@given(recorded=claude_transcripts())
def test_one_block_per_record_or_several_are_the_same(recorded: Recorded) -> None:
    whole = fates(recorded.records)

    assert fates(split_blocks(recorded.records)) == whole
    assert fates(merge_blocks(recorded.records)) == whole


@given(recorded=claude_transcripts(), cut=st.integers(0, 9_999))
def test_prefix_of_a_file_gives_a_prefix_of_its_calls(recorded: Recorded, cut: int) -> None:
    n = cut % (len(recorded.records) + 1)
    first = calls(recorded.records[:n])

    assert calls(recorded.records)[: len(first)] == first


@requirement("reading.replays-change-nothing")
@given(recorded=claude_transcripts())
def test_file_replayed_in_itself_has_the_same_states(recorded: Recorded) -> None:
    assert fates(recorded.records * 2) == fates(recorded.records)


@given(recorded=claude_transcripts(), cut=st.integers(0, 9_999))
def test_file_cut_at_any_byte_loses_at_most_the_cut_record(recorded: Recorded, cut: int) -> None:
    data = recorded.data
    at = cut % (len(data) + 1)
    start = data.rfind(b"\n", 0, at) + 1
    whole = data.find(b"\n", start) == at  # nothing is missing but the newline

    assert fates_in(data[:at]) == fates_in(data[: at if whole else start])
    visit(data[:at])


@given(recorded=claude_transcripts(), garbage=st.binary(min_size=1, max_size=20), n=st.integers(0, 99))
def test_garbage_between_lines_changes_nothing_else(recorded: Recorded, garbage: bytes, n: int) -> None:
    spoiled = garbage.replace(b"\n", b"").replace(b"{", b"")
    lines = recorded.data.splitlines(keepends=True)
    lines.insert(n % (len(lines) + 1), spoiled + b"\n")

    assert fates_in(b"".join(lines)) == fates(recorded.records)


@given(recorded=claude_transcripts(), which=st.integers(0, 99))
def test_lost_newline_loses_no_call(recorded: Recorded, which: int) -> None:
    lines = recorded.data.splitlines(keepends=True)
    n = which % len(lines)
    lines[n] = lines[n][:-1]

    assert fates_in(b"".join(lines)) == fates(recorded.records)


@given(recorded=claude_transcripts(), damage=mutations())
def test_damaged_files_never_raise(recorded: Recorded, damage: list[tuple[str, int, int]]) -> None:
    visit(mutated(recorded.data, damage))


@given(records=st.lists(claude_entries() | odd_entries(surrogates=True), max_size=4))
def test_odd_values_never_raise(records: list[Record]) -> None:
    visit(b"".join(to_json(record) + b"\n" for record in records))


@given(data=st.binary())
@example(b'null\n[]\n7\n"x"\n')
def test_any_bytes_never_raise(data: bytes) -> None:
    visit(data)


def call(old: bytes = b"", new: bytes = b"") -> bytes:
    return CALL.replace(old, new) if old else CALL


def result(old: bytes = b"", new: bytes = b"") -> bytes:
    return RESULT.replace(old, new) if old else RESULT


def spilled(path: bytes) -> bytes:
    return result(b'"message"', b'"toolUseResult":{"persistedOutputPath":"' + path + b'"},"message"')


TOO_MANY = b"9" * 5000
TOO_LARGE = b"1e9999999999999999999"
WRONG: dict[str, bytes] = {
    "a raw tab in a known field": b'{"type":"user","cwd":"a\tb"}\n',
    "a raw tab in another field": b'{"type":"user","x":"a\tb"}\n',
    "NaN": b'{"type":"user","n":NaN}\n',
    "Infinity among glued records": b'{"type":"user","n":-Infinity}{"type":"user"}\n',
    "an exponent beyond bounds": b'{"type":5,"n":' + TOO_LARGE + b"}\n",
    "an exponent beyond bounds as input": call(b'"ls"', TOO_LARGE),
    "an exponent beyond bounds as result": call() + result(b'"ok"', TOO_LARGE),
    "an exponent beyond bounds as error": (call() + result(b'"ok"', TOO_LARGE + b',"is_error":true')),
    "more digits than Python converts": b'{"type":5,"n":' + TOO_MANY + b"}\n",
    "more digits as result": call() + result(b'"ok"', TOO_MANY),
    "an exit code of many digits": (call() + result(b'"ok"', b'"Exit code ' + TOO_MANY + b'","is_error":true')),
    "a version of many digits": (call() + result(b'"message"', b'"version":"' + TOO_MANY + b'","message"')).replace(
        b'"ok"', b'"no","is_error":true'
    ),
    "a result that is not UTF-8": call() + result(b"ok", b"a\xffb"),
    "an error that is not UTF-8": call() + result(b'"ok"', b'"a\xffb","is_error":true'),
    "an input that is not UTF-8": call(b'"ls"', b'"a\xffb"') + result(),
    "an input with a raw tab": call(b'"ls"', b'"a\tb"') + result(),
    "a result with a control character": call() + result(b"ok", b"a\x01b"),
    "half a pair in a call": call(b'"ls"', b'"\\ud83d"') + result(b"ok", b"\\ude00"),
    "a result without id": result(b'"tool_use_id":"t1",', b""),
    "a result with an empty id": result(b'"t1"', b'""'),
    "a result with a number as id": result(b'"t1"', b"7"),
    "a call without id": call(b'"id":"t1",', b""),
    "a call with an empty id": call(b'"t1"', b'""'),
    "a call with a number as id": call(b'"t1"', b"7"),
    "a call without id and input": (
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}\n'
    ),
    "calls without id glued on one line": call(b'"id":"t1",', b"")[:-1] + call(b'"id":"t1",', b""),
    "calls without id, the first without input": (
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"},'
        b'{"type":"tool_use","name":"Read","input":{"file_path":"/w"}}]}}\n'
    ),
    "results without id glued on one line": (
        result(b'"tool_use_id":"t1",', b"")[:-1] + result(b'"tool_use_id":"t1",', b"")
    ),
    "an id like the name of a nameless call": call(b'"t1"', b'"byte-0.0"') + result(),
    "calls that name each other": (
        call(b'"message"', b'"parent_tool_use_id":"t1","message"')
        + result(b'"message"', b'"parent_tool_use_id":"t1","isSidechain":true,"message"')
    ),
    "parents in a circle": (
        call(b'"message"', b'"uuid":"u1","parentUuid":"u2","message"')
        + result(b'"message"', b'"uuid":"u2","parentUuid":"u1","message"')
        + result(b'"message"', b'"uuid":"u3","parentUuid":"u3","message"')
    ),
    "a compaction that continues itself": (
        b'{"type":"system","subtype":"compact_boundary","uuid":"u1","logicalParentUuid":"u1",'
        b'"parentUuid":null,"compactMetadata":7}\n'
    ),
    "a sidecar with a long name": call() + spilled(b"/" + b"a" * 300),
    "a sidecar of its own with a long name": call() + spilled(b"/tool-results/" + b"a" * 300),
    "a sidecar with NUL in its name": call() + spilled(b"/tool-results/a\\u0000"),
    "a sidecar with half a pair in its name": call() + spilled(b"/tool-results/\\ud83d"),
    "damaged copies": (call() + call(b'"ls"', b'"a\tb"') + result() + result(b"ok", b"a\xff")),
    "times at both ends": (
        call(b'"message"', b'"timestamp":"0001-01-01T00:00:00+23:59","message"')
        + result(b'"message"', b'"timestamp":"9999-12-31T23:59:59-23:59","message"')
    ),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_file_with_one_fault_never_raises(data: bytes) -> None:
    visit(data)


@pytest.mark.parametrize("depth", [300, 600, 900, 950, 970, 20_000])
def test_deep_nesting_never_raises(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth

    visit(CALL.replace(b'"ls"', deep) + RESULT.replace(b'"ok"', deep))
    visit(CALL + RESULT.replace(b'"message"', b'"toolUseResult":' + deep + b',"message"'))


def test_line_over_the_limit_is_a_finding_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "CHUNK_SIZE", 64)
    source = BytesSource(CALL + b'{"text":"' + b"x" * 1000 + b'"}\n' + RESULT)
    reader = ClaudeReader(source)

    for chunk in read_chunks(source, limit=500):
        reader.add_chunk(chunk)

    transcript = Transcript(reader, get_format("claude"))
    assert [(span.id, span.state) for span in transcript.spans] == [("t1", "succeeded")]
    assert [finding.code for finding in transcript.findings] == ["line_too_long"]
    assert (transcript.counts.lines, transcript.counts.malformed) == (3, 1)


@given(recorded=claude_transcripts(), damage=mutations())
def test_every_location_is_a_line_of_the_file(recorded: Recorded, damage: list[tuple[str, int, int]]) -> None:
    data = mutated(recorded.data, damage)
    starts = [0, *(n + 1 for n, byte in enumerate(data) if byte == 0x0A), len(data) + 1]

    for span in read_bytes(data).spans:
        places = [span.call.place, span.result.place if span.result else None]
        places += [copy.place for copy in span.copies]
        for place in [place for place in places if place is not None]:
            assert starts[place.line - 1] <= place.offset
            assert place.offset + place.length < starts[place.line]
