"""Transcripts with one defect each, and what a client made of them.

In: the lines of a sound transcript. Out: its bytes with a defect, named as `toolspan doctor` names
it; and from the messages a client sent, how much it lost. Pure; `__main__.py` runs the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.oracle.compare import Said, sent, spoken
from tests.oracle.stories import parallel
from tests.session.recording.emitted import SESSION, Clock, error, message, use
from toolspan.session.recording import Recorder
from toolspan.testing import check_history

Lines = list[bytes]


def base(recorder: Recorder) -> None:
    """Two turns, so that there is something before and behind each defect."""
    parallel(recorder)
    recorder.record_prompt("And now?")
    recorder.record_reply(message("One more.", use("toolu_z", "Bash", command="z"), id="msg_03"))
    recorder.record_result(error("toolu_z", "Bash", "Exit code 1", at=Clock().now + 90))
    recorder.record_reply(message("That was all.", id="msg_04"))


def _number(lines: Lines, mark: bytes) -> int:
    return next(n for n, line in enumerate(lines) if mark in line)


def _joined(lines: Lines) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _without(lines: Lines, *marks: bytes) -> Lines:
    return [line for line in lines if not any(mark in line for mark in marks)]


def torn_last_line(lines: Lines) -> bytes:
    """The last words of the model are half there."""
    last = _number(lines, b"That was all.")
    return _joined(lines[:last]) + lines[last][: len(lines[last]) // 2]


def torn_line(lines: Lines) -> bytes:
    """The model's words in the middle are half there."""
    at = _number(lines, b"One of them failed.")
    return _joined([*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]])


def torn_result(lines: Lines) -> bytes:
    """A result in the middle is half there."""
    at = _number(lines, b'"tool_use_id":"toolu_c"')
    return _joined([*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]])


def glued_records(lines: Lines) -> bytes:
    """Two lines have become one."""
    at = _number(lines, b"One of them failed.")
    return _joined([*lines[:at], lines[at] + lines[at + 1], *lines[at + 2 :]])


def unanswered_call(lines: Lines) -> bytes:
    """The last call has no result, and nothing follows."""
    return _joined(lines[: _number(lines, b'"tool_use_id":"toolu_z"')])


def unanswered_in_the_middle(lines: Lines) -> bytes:
    """A call of the first turn has no result; its line is just not there."""
    return _joined(_without(lines, b'"tool_use_id":"toolu_c"'))


def orphan_result(lines: Lines) -> bytes:
    """A call of the first turn is not there, its result is."""
    return _joined(_without(lines, b'"id":"toolu_c"'))


def orphan_at_the_end(lines: Lines) -> bytes:
    """A result whose call nobody knows, at the end."""
    result = lines[_number(lines, b'"tool_use_id":"toolu_z"')]
    last = json.loads(lines[_number(lines, b"That was all.")])["uuid"]
    stray = json.loads(result.replace(b"toolu_z", b"toolu_never"))
    stray |= {"uuid": "00000000-0000-4000-8000-000000000001", "parentUuid": last}
    stray.pop("sourceToolAssistantUUID", None)
    return _joined([*lines, json.dumps(stray, separators=(",", ":")).encode()])


def duplicate_result(lines: Lines) -> bytes:
    """A result is there twice, under two ids."""
    at = _number(lines, b'"tool_use_id":"toolu_z"')
    twin = json.loads(lines[at])
    twin |= {"uuid": "00000000-0000-4000-8000-000000000002", "parentUuid": twin["uuid"]}
    following = json.loads(lines[at + 1]) | {"parentUuid": twin["uuid"]}
    packed = [json.dumps(one, separators=(",", ":")).encode() for one in (twin, following)]
    return _joined([*lines[: at + 1], *packed, *lines[at + 2 :]])


def duplicate_uuid(lines: Lines) -> bytes:
    """A result's line is there twice."""
    at = _number(lines, b'"tool_use_id":"toolu_z"')
    return _joined([*lines[: at + 1], lines[at], *lines[at + 1 :]])


def missing_parent(lines: Lines) -> bytes:
    """The second prompt hangs on a line that is not there."""
    at = _number(lines, b"And now?")
    prompt = json.loads(lines[at]) | {"parentUuid": "00000000-0000-4000-8000-000000000003"}
    packed = json.dumps(prompt, separators=(",", ":")).encode()
    return _joined([*lines[:at], packed, *lines[at + 1 :]])


def parent_cycle(lines: Lines) -> bytes:
    """The first prompt hangs on the last line."""
    at = _number(lines, b"Look at the files")
    last = json.loads(lines[_number(lines, b"That was all.")])["uuid"]
    prompt = json.loads(lines[at]) | {"parentUuid": last}
    packed = json.dumps(prompt, separators=(",", ":")).encode()
    return _joined([*lines[:at], packed, *lines[at + 1 :]])


def nul_bytes(lines: Lines) -> bytes:
    """A block of a line was lost by the disk."""
    at = _number(lines, b"One of them failed.")
    whole = lines[at]
    hurt = whole[:100] + b"\0" * 100 + whole[200:]
    return _joined([*lines[:at], hurt, *lines[at + 1 :]])


def nul_block(lines: Lines) -> bytes:
    """A block of nothing stands before a line."""
    at = _number(lines, b"One of them failed.")
    return _joined([*lines[:at], b"\0" * 512 + lines[at], *lines[at + 1 :]])


def invalid_utf8(lines: Lines) -> bytes:
    """A byte in a text is none of UTF-8."""
    return _joined([line.replace(b"One of them failed.", b"One of them\xff failed.") for line in lines])


def control_characters(lines: Lines) -> bytes:
    """A raw control character stands in a text."""
    return _joined([line.replace(b"One of them failed.", b"One of them\x01 failed.") for line in lines])


def byte_order_mark(lines: Lines) -> bytes:
    """The file begins with a mark."""
    return b"\xef\xbb\xbf" + _joined(lines)


def not_an_object(lines: Lines) -> bytes:
    """A line is JSON, but a list."""
    at = _number(lines, b"One of them failed.")
    return _joined([*lines[:at], b"[1]", *lines[at:]])


def foreign_session(lines: Lines) -> bytes:
    """Some lines name another session."""
    other = b"11111111-1111-4111-8111-111111111111"
    at = _number(lines, b"And now?")
    return _joined([line.replace(SESSION.encode(), other) for line in lines[:at]] + lines[at:])


def foreign_session_whole(lines: Lines) -> bytes:
    """Every line names another session."""
    other = b"11111111-1111-4111-8111-111111111111"
    return _joined([line.replace(SESSION.encode(), other) for line in lines])


DEFECTS: tuple[Callable[[Lines], bytes], ...] = (
    torn_last_line, torn_line, torn_result, glued_records, unanswered_call,
    unanswered_in_the_middle, orphan_result, orphan_at_the_end, duplicate_result, duplicate_uuid,
    missing_parent, parent_cycle, nul_bytes, nul_block, invalid_utf8, control_characters,
    byte_order_mark, not_an_object, foreign_session, foreign_session_whole,
)  # fmt: skip


HARMLESS = frozenset({
    "orphan_at_the_end", "duplicate_result", "duplicate_uuid", "missing_parent", "parent_cycle",
    "byte_order_mark", "not_an_object", "foreign_session", "foreign_session_whole",
})  # fmt: skip
"""By these the clients from 2.1.197 on lose nothing: what `toolspan doctor` says rests on it."""
STURDY = ("2.1.197", "2.1.325")


def lost(whole: list[Said], messages: list[dict[str, Any]]) -> list[str]:
    """What of a sound transcript is not in what a client sent of the damaged one."""
    there = sent(messages)
    problems = [f"invalid: {problem}" for problem in check_history(spoken(messages))]
    return problems + [f"lost: {said!r}"[:160] for said in whole if said not in there]
