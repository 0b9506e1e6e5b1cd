"""JSON documents: exact if complete, recovered if damaged."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import json_values, to_json
from toolspan.formats import json_repair
from toolspan.formats.claude import records as claude
from toolspan.formats.json_repair import RecoveredLine, RecoveredObject, recover_objects

A = b'{"type":"user","n":1}'
B = b'{"type":"assistant","n":2}'
C = b'{"type":"summary","n":3}'


def documents(data: bytes) -> list[bytes]:
    return [piece.data for piece in recover_objects(data).pieces]


def found_as_is(line: bytes, *records: bytes) -> list[RecoveredObject]:
    """Return the pieces for records that are in the line unchanged."""
    return [RecoveredObject(line.index(record), len(record), record) for record in records]


def test_lone_surrogate_is_kept() -> None:
    data = b'{"text":"smile \\ud83d"}'

    assert json_repair.decode_document(data) == {"text": "smile \ud83d"}
    assert json_repair.encode_document(json_repair.decode_document(data)) == data


@pytest.mark.parametrize(
    "number",
    [
        *("0", "-1", "18446744073709551616", "-123456789012345678901234567890"),
        *("1.10", "1e400", "-1E-400", "0.1000000000000000055511151231257827", "-0.0", "1E5"),
    ],
)
@pytest.mark.parametrize("beside", ["", "\\ud83d"])
def test_numbers_keep_every_digit(number: str, beside: str) -> None:
    data = f'{{"text":"{beside}","n":{number}}}'.encode()

    decoded = json_repair.decode_document(data)

    assert str(decoded["n"]) == str(Decimal(number))
    assert json_repair.is_same_json(json_repair.encode_document(decoded), data)


@pytest.mark.parametrize("number", ["1e9999999999999999999", "-1e-9999999999999999999", "9" * 5000])
def test_huge_number_is_kept_or_refused_as_damage(number: str) -> None:
    try:
        decoded = json_repair.decode_document(number.encode())
    except ValueError:
        return
    assert json_repair.is_same_json(json_repair.encode_document(decoded), number.encode())


@pytest.mark.parametrize(
    "data",
    [
        *(b"NaN", b'{"n":NaN}', b"Infinity", b'{"n":-Infinity}', b"", b" ", b"{", b'"torn', b"nul"),
        *(b"{} {}", b"{}x", b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b"01", b"'a'"),
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_anything_but_one_document_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        json_repair.decode_document(data)


@pytest.mark.parametrize("data", [b"NaN", b'{"text":"\\ud83d","n":Infinity}'])
def test_invalid_number_is_named(data: bytes) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        json_repair.decode_document(data)


def test_whitespace_around_a_document_is_ignored() -> None:
    assert json_repair.decode_document(b' \t{"a": 1}\r') == {"a": 1}


EQUAL = [
    (b"1", b"1"), (b'{"a": [1, 2]}', b'{"a":[1,2]}'), (b'"\\u00e9"', '"é"'.encode()),
    (b'"a\\/b"', b'"a/b"'), (b'"\\ud83d"', b'"\\ud83d"'),
    (b'{"a":"\\ud83d","n":1e400}', b'{"a": "\\ud83d", "n": 1e400}'),
]  # fmt: skip
UNEQUAL = [
    (b"1", b"1.0"), (b"1", b"true"), (b"1.0", b"true"), (b"0", b"false"), (b"null", b"false"),
    (b'"1"', b"1"), (b"1.10", b"1.1"), (b'"\\ud83d"', b'"\\ude00"'), (b"[1,2]", b"[2,1]"),
    (b'{"a":"\\ud83d","n":1.0}', b'{"a":"\\ud83d","n":1}'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "same"), [*((*pair, True) for pair in EQUAL), *((*pair, False) for pair in UNEQUAL)]
)
def test_equality_distinguishes_numbers_booleans_and_texts(first: bytes, second: bytes, same: bool) -> None:
    assert json_repair.is_same_json(first, second) is same


@given(value=json_values(surrogates=True))
def test_encoding_and_decoding_gives_the_same_document(value: object) -> None:
    data = to_json(value)

    assert json_repair.is_same_json(json_repair.encode_document(json_repair.decode_document(data)), data)


@pytest.mark.parametrize(
    ("line", "records", "reason"),
    [
        *(
            (gap.join(records), records, "glued_records")
            for gap in (b"", b" ", b"\r")
            for records in ([A, B], [A, B, C])
        ),
        (b'4AAQSk","n":7}' + A, [A], "torn_line"),
        (A + B[:-4], [A], "torn_line"),
        *((line, [], "torn_line") for line in (A[:-1], A[1:], b'{"a":', b"}", b"garbage", b"[1,2")),
        *((line, [], "not_an_object") for line in (b'"x"', b"7", b"null", b"[1]")),
        (b"\0" * 512 + A, [A], "nul_bytes"),
        (A + b"\0" * 512, [A], "nul_bytes"),
        (A + b"\0" * 512 + B, [A, B], "nul_bytes"),
        (A[:9] + b"\0" * 512 + B, [B], "nul_bytes"),
        (b"\0" * 512, [], "nul_bytes"),
        (b"\xef\xbb\xbf" + A, [A], "byte_order_mark"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_complete_records_in_a_damaged_line_are_found(line: bytes, records: list[bytes], reason: str) -> None:
    assert recover_objects(line) == RecoveredLine(found_as_is(line, *records), reason)


def test_many_records_on_one_line_are_found() -> None:
    assert documents(b"".join([A, B] * 60)) == [A, B] * 60


def test_records_around_a_torn_one_are_found() -> None:
    line = A + b'{"type":"us' + b'{"type":"x","a":{}}' + C

    assert documents(line)[0] == A
    assert documents(line)[-1] == C


def test_record_with_invalid_utf8_is_found_with_replaced_bytes() -> None:
    line = b'{"type":"user","text":"a\xff\xfeb"}'

    ((offset, length, data),), reason = recover_objects(line)

    assert (offset, length, reason) == (0, len(line), "invalid_utf8")
    assert json.loads(data) == {"type": "user", "text": "a\ufffd\ufffdb"}


def test_offsets_after_invalid_utf8_count_bytes() -> None:
    line = b'{"text":"\xff\xff\xff"}' + A

    assert [piece.offset for piece in recover_objects(line).pieces] == [0, line.index(A)]


@pytest.mark.parametrize("raw", ["\t", "\x01", "\x1f", "\r"])
def test_raw_control_character_in_a_string_is_reported_and_read(raw: str) -> None:
    line = f'{{"text":"a{raw}b"}}'.encode()

    ((offset, length, data),), reason = recover_objects(line)

    assert (offset, length, reason) == (0, len(line), "control_characters")
    assert json_repair.decode_document(data) == {"text": f"a{raw}b"}


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"text":"a\tb"}', b'{"n":NaN}' + A, b'{"n":-Infinity}', A + b'{"text":"\x01"}'),
        *(b'{"a":"\xff"}' + A, A + b"\0" + b'{"t":"\0"}', b'{"n":' + b"9" * 5000 + b"}" + A),
        *(b'{"n":1e9999999999999999999}' + A, b"\xef\xbb\xbf" + A, A + b'{"s":"\\ud83d"}'),
    ],
    ids=lambda line: repr(line[:24]),
)
def test_recovered_text_decodes_as_a_record(line: bytes) -> None:
    for piece in recover_objects(line).pieces:
        assert isinstance(json_repair.decode_document(piece.data), dict)
        claude.decode_entry(piece.data)


@pytest.mark.parametrize("depth", [900, 1000, 100_000])
def test_deep_nesting_is_damage(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth

    assert documents(A + deep)[:1] == [A]
    assert documents(deep + A)[-1:] == [A]


def test_recovery_gives_up_after_a_hundred_thousand_false_starts() -> None:
    assert recover_objects(b'}{"' * 100_000) == RecoveredLine([], "torn_line")
    assert recover_objects(b'\0{"' * 100_000) == RecoveredLine([], "nul_bytes")
    assert documents(A + b'}{"' * 100_000) == [A]


@given(
    data=st.lists(
        st.sampled_from([A, B, b'{"', b"}", b'}{"', b"\0", b'"', b"NaN", b":", b"\xff", b"\t"]) | st.binary(max_size=4)
    ).map(b"".join)
)
@example(b"")
@example(b'{"":NaN}')
@example(b'{"":"\t"}')
def test_recovery_never_raises_and_its_results_decode(data: bytes) -> None:
    end = 0

    for piece in recover_objects(data).pieces:
        own = data[piece.offset : piece.offset + piece.length]
        assert piece.offset >= end
        assert own[:1] == b"{"
        assert own[-1:] == b"}"
        assert isinstance(json_repair.decode_document(piece.data), dict)
        end = piece.offset + piece.length


@given(
    records=st.lists(
        st.dictionaries(st.text(max_size=3), json_values(), max_size=2).map(to_json), min_size=2, max_size=6
    )
)
def test_joined_records_are_found_in_order(records: list[bytes]) -> None:
    assert recover_objects(b"".join(records)).pieces == [
        RecoveredObject(sum(map(len, records[:n])), len(record), record) for n, record in enumerate(records)
    ]
