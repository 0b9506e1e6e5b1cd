"""Claude Code records: decoding, encoding and odd values."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.strategies import claude_entries, json_values, odd_entries, to_json
from toolspan.formats import json_repair
from toolspan.formats.claude import records as claude
from toolspan.formats.claude.records import (
    ABSENT,
    ApiMessage,
    Entry,
    MessageBlock,
    StructuredFacts,
    decode_bodies,
    decode_entries,
    decode_entry,
    encode_entry,
)
from toolspan.formats.decoding import DECODE_ERRORS, DecodedLine, TypedDecoder, content_to_text, extract_text
from toolspan.types.ids import EntryId

VIEW = TypedDecoder(Entry)


def line(**keys: Any) -> bytes:
    return to_json(keys)


def blocks(entry: Entry) -> list[MessageBlock]:
    assert entry.message is not None
    assert isinstance(entry.message.content, list)
    return entry.message.content


def whole(data: bytes) -> Entry:
    entry, odd = decode_entry(data)
    assert odd == ()
    return entry


def shown(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return json_repair.decode_document(bytes(value)) if bytes(value) else None
    if isinstance(value, msgspec.Struct):
        return {name: shown(getattr(value, name)) for name in value.__struct_fields__}
    return [shown(item) for item in value] if isinstance(value, list) else value


def test_result_record_of_a_file_is_read() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok", "is_error": False}
    structured = {"stdout": "ok", "interrupted": True, "durationMs": 1.5}

    entry = whole(line(type="user", message={"content": [result]}, toolUseResult=structured))

    assert entry.structured == StructuredFacts(interrupted=True, duration_ms=1.5)
    (block,) = blocks(entry)
    assert (block.tool_use_id, block.is_error) == ("toolu_1", False)
    assert extract_text(block.content) == "ok"


def test_stream_form_has_the_same_meaning() -> None:
    data = line(
        type="user",
        session_id="s1",
        request_id="req_1",
        parent_tool_use_id="toolu_0",
        message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]},
        tool_use_result={"status": "async_launched", "agentId": "a1"},
    )

    entry = whole(data)

    assert (entry.session, entry.request_id_snake) == ("s1", "req_1")
    assert entry.parent_tool_use_id_snake == "toolu_0"
    assert entry.structured == StructuredFacts(status="async_launched", agent_id="a1")
    assert json_repair.is_same_json(
        decode_bodies(data).structured or b"", b'{"status":"async_launched","agentId":"a1"}'
    )


@pytest.mark.parametrize("kind", ["brand-new", "", "User"])
def test_unknown_type_is_a_record(kind: str) -> None:
    data = line(type=kind, uuid="u1", payload={"n": [1, 2.5]})

    decoded = decode_entry(data)

    assert decoded == DecodedLine(Entry(type=kind, uuid=EntryId("u1")), ())
    assert not decoded.entry.is_known
    assert json_repair.is_same_json(encode_entry(decoded.entry, data), data)


@pytest.mark.parametrize("kind", ["user", "queue-operation", "artifact-3", "marble-origami-x"])
def test_types_in_use_are_known(kind: str) -> None:
    assert decode_entry(line(type=kind)).entry.is_known


def test_empty_object_is_a_record_without_type() -> None:
    assert decode_entry(b"{}") == DecodedLine(Entry(), ())


def test_unknown_keys_survive_at_every_depth() -> None:
    data = (
        b'{"new":{"n":1.10,"big":123456789012345678901},"type":"assistant","message":{"x":null,'
        b'"content":[{"type":"tool_use","id":"t","caller":{"type":"direct"},"input":{"a":1e400}},'
        b'{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"\\u2028"}]},'
        b'{"type":"brand_new","z":[]}],"usage":{"input_tokens":1,"speed":"fast"}},'
        b'"toolUseResult":{"interrupted":false,"stdout":"x","extra":[[]]},"permissionDecision":{}}'
    )

    entry = whole(data)

    assert json_repair.is_same_json(encode_entry(entry, data), data)


@given(record=claude_entries(), ascii_only=st.booleans())
def test_client_records_survive_decoding_and_encoding(record: dict[str, Any], ascii_only: bool) -> None:
    data = to_json(record, ascii_only=ascii_only)

    entry = whole(data)

    assert json_repair.is_same_json(encode_entry(entry, data), data)


@given(record=odd_entries(surrogates=True))
def test_any_value_of_a_known_key_survives_decoding_and_encoding(record: dict[str, Any]) -> None:
    data = to_json(record)

    assert json_repair.is_same_json(encode_entry(decode_entry(data).entry, data), data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":5}',
        b'{"type":null,"uuid":"u1"}',
        b'{"type":"user","message":{"content":[{"type":["text"]},7,null]}}',
        b'{"type":"attachment","attachment":{"type":{},"toolUseID":3}}',
        b'{"type":"progress","data":{"type":false}}',
        b'{"type":"user","uuid":"\\ud83d","toolUseResult":{"durationMs":1e400}}',
        b'{"type":"user","toolUseResult":{"durationMs":1.10,"timedOutAfterMs":12}}',
        b'{"type":"user","toolUseResult":1e400}',
        b'{"type":"user","toolUseResult":0.1000000000000000055511151231257827}',
    ],
)
def test_odd_values_are_encoded_unchanged(data: bytes) -> None:
    decoded = decode_entry(data)

    assert json_repair.is_same_json(encode_entry(decoded.entry, data), data)


def test_odd_values_are_reported_and_the_rest_is_read() -> None:
    data = line(
        type="assistant",
        uuid=7,
        sessionId="s1",
        isSidechain="yes",
        message={
            "id": "msg_1",
            "model": ["claude"],
            "usage": {"input_tokens": "three", "output_tokens": 9},
            "content": [
                {"type": "tool_use", "id": "toolu_1", "name": 3, "input": {"command": "ls"}},
                "a text",
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": "/w/a.py"},
            ],
        },
    )

    entry, odd = decode_entry(data)

    assert sorted(odd) == [
        "isSidechain",
        "message.content[0].name",
        "message.content[1]",
        "message.content[2].input",
        "message.model",
        "message.usage.input_tokens",
        "uuid",
    ]
    assert (entry.type, entry.session, entry.uuid) == ("assistant", "s1", None)
    assert entry.message is not None
    assert (entry.message.id, entry.message.usage) == ("msg_1", claude.MessageUsage(output_tokens=9))
    assert [(block.id, block.name) for block in blocks(entry)] == [("toolu_1", None), (None, None), ("toolu_2", "Read")]


@pytest.mark.parametrize(
    ("data", "odd"),
    [
        (b'{"type":"user","message":"hello"}', ("message",)),
        (b'{"type":"user","message":[]}', ("message",)),
        (b'{"type":"user","message":{"content":{"type":"text"}}}', ("message.content",)),
        (b'{"type":"user","message":{"content":[[]]}}', ("message.content[0]",)),
        (b'{"type":"attachment","attachment":"x"}', ("attachment",)),
        (b'{"type":"user","toolUseResult":{"durationMs":"long"}}', ("toolUseResult.durationMs",)),
        (b'{"type":"result","permission_denials":{}}', ("permission_denials",)),
    ],
)
def test_each_odd_value_is_reported_by_its_path(data: bytes, odd: tuple[str, ...]) -> None:
    assert decode_entry(data).mismatches == odd


def test_number_beside_an_odd_value_is_not_odd() -> None:
    entry, odd = decode_entry(b'{"type":"user","uuid":5,"toolUseResult":{"durationMs":1.5}}')

    assert odd == ("uuid",)
    assert entry.structured == StructuredFacts(duration_ms=1.5)


def test_lone_surrogate_is_not_an_odd_value() -> None:
    data = b'{"type":"user","uuid":"u1","cwd":"/w/\\ud83d","message":{"content":"\\ude00"}}'

    entry = whole(data)

    assert (entry.cwd, entry.uuid) == ("/w/\ud83d", "u1")
    assert entry.message == ApiMessage(content="\ude00")


@requirement("reading.message-spread-from-a-string")
def test_message_spread_from_a_string_is_tolerated() -> None:
    spelled = {str(n): letter for n, letter in enumerate("event: message_start")}
    data = line(type="assistant", uuid="u1", message={**spelled, "content": []})

    entry = whole(data)

    assert entry.message == ApiMessage(content=[])
    assert json_repair.is_same_json(encode_entry(entry, data), data)


@pytest.mark.parametrize("data", [b"", b" ", b"null", b"[]", b"7", b'"x"', b"{", b"{}{}", b'{"type":NaN}'])
def test_anything_but_one_object_is_a_value_error(data: bytes) -> None:
    for step in (decode_entry, VIEW.decode_loosely, decode_bodies):
        with pytest.raises(ValueError):
            step(data)


@pytest.mark.parametrize("data", [b'{"type":"\xff"}', b'{"uuid":"\xed\xa0\x80"}'])
def test_invalid_utf8_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_entry(data)


@given(data=st.binary() | odd_entries(surrogates=True).map(to_json))
def test_any_bytes_give_a_record_or_a_value_error(data: bytes) -> None:
    for step in (decode_entry, VIEW.decode_loosely, decode_bodies):
        with suppress(ValueError):
            step(data)


@pytest.mark.parametrize("key", ["type", "uuid", "message", "toolUseResult", "content", "x"])
@pytest.mark.parametrize("depth", [*range(960, 1010, 3), 100_000])
def test_deep_nesting_is_a_value_error_at_worst(key: str, depth: int) -> None:
    data = f'{{"{key}":'.encode() + b"[" * depth + b"]" * depth + b"}"

    for step in (decode_entry, VIEW.decode_loosely, decode_bodies):
        try:
            step(data)
        except ValueError as error:
            assert "nested too deeply" in str(error)


@given(record=claude_entries())
def test_slow_decoder_agrees_with_the_fast_one(record: dict[str, Any]) -> None:
    data = to_json(record)

    entry, odd = VIEW.decode_loosely(data)

    assert odd == ()
    assert shown(entry) == shown(VIEW.decode_typed(data))


@given(record=claude_entries())
def test_bodies_and_records_have_the_same_blocks(record: dict[str, Any]) -> None:
    data = to_json(record)
    message = decode_entry(data).entry.message
    content = message.content if message else None
    expected = content if isinstance(content, list) else []

    bodies = decode_bodies(data)

    assert [(body.type, body.id, body.tool_use_id) for body in bodies.blocks] == [
        (block.type, block.id, block.tool_use_id) for block in expected
    ]


def by_line(data: bytes) -> list[tuple[Any, int, int]] | None:
    if data and not data.endswith(b"\n"):
        return None
    items = []
    start = 0
    for piece in data.split(b"\n")[:-1]:
        try:
            items.append((shown(VIEW.decode_typed(piece)), start, start + len(piece)))
        except DECODE_ERRORS:
            return None
        start += len(piece) + 1
    return items


def at_once(data: bytes) -> list[tuple[Any, int, int]] | None:
    result = decode_entries(data)
    if result is None:
        return None
    entries, ends = result
    starts = [0, *(end + 1 for end in ends)]
    return [(shown(e), start, end) for e, start, end in zip(entries, starts, ends, strict=False)]


@given(
    data=st.lists(
        claude_entries().map(to_json)
        | st.sampled_from([b"{}", b'{"type":"user"}', b"{", b"}", b'{"type":', b'"x"', b"", b"7"]),
        max_size=5,
    ).flatmap(
        lambda pieces: st.lists(
            st.sampled_from([b"\n", b"\n", b"\n\n", b" ", b"", b"\r\n", b" \n"]),
            min_size=len(pieces),
            max_size=len(pieces),
        ).map(lambda gaps: b"".join(piece + gap for piece, gap in zip(pieces, gaps, strict=True)))
    )
)
def test_bulk_decoding_gives_the_same_records_or_none(data: bytes) -> None:
    result = at_once(data)

    assert result is None or result == by_line(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"user"} {"type":"user"}\n\n',
        b'{"type":"user"}{"type":"user"}\n\n',
        b'{\n"type":"user"}\n{"type":"user"} {"type":"user"}\n',
        b'{"type":\n"user"}\n{"type":"user"}{}\n',
        b'{"type":"user"}\n\n{"type":"user"}\n',
        b'{"type":"user"}\n{"type":"user"}',
        b'{"type":"user"}\n{"type":5}\n',
        b'{"type":"user"}\n{"type":"us\n',
    ],
)
def test_bulk_decoding_rejects_lines_that_are_not_one_record_each(data: bytes) -> None:
    assert decode_entries(data) is None


@given(records=st.lists(claude_entries(), min_size=1, max_size=5))
def test_complete_lines_are_decoded_at_once(records: list[dict[str, Any]]) -> None:
    data = b"".join(to_json(record) + b"\n" for record in records)

    assert at_once(data) == by_line(data)
    assert at_once(data) is not None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ({"a": 1}, ""),
        ([{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}], "a\nb\nc"),
        ([{"type": "image", "source": {}}], "[image]"),
        ([{"type": "tool_reference", "tool_name": "Bash"}], "[tool Bash]"),
        ([{"type": 3}, None, 4], "\n\n"),
    ],
)
def test_content_reads_as_text(content: Any, text: str) -> None:
    assert content_to_text(content) == text
    assert extract_text(msgspec.Raw(json.dumps(content).encode())) == text


def test_missing_text_is_empty() -> None:
    assert extract_text(ABSENT) == ""


@given(data=st.binary() | json_values(surrogates=True).map(to_json))
def test_any_bytes_have_a_text(data: bytes) -> None:
    assert isinstance(extract_text(msgspec.Raw(data)), str)
