"""Defects of a transcript.

Each defect takes the lines of a sound transcript and returns damaged bytes; it is named as
`toolspan doctor` names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.session.recording.emitted import SESSION, Clock, decided, error, finished, message, use
from toolspan.session.recording import Recorder
from toolspan.types.events import Finished

Lines = list[bytes]
CWD = Path("/home/dev/proj")
"""The working folder of the recorded session."""


def read_call(call_id: str, name: str) -> dict[str, object]:
    """Return the block of a Read call."""
    return use(call_id, "Read", file_path=f"{CWD}/{name}")


def read_result(call_id: str, name: str, text: str) -> Finished:
    """Return the end of a Read call that the user allowed."""
    file = {"filePath": f"{CWD}/{name}", "content": text, "numLines": 1, "startLine": 1}
    return finished(
        call_id,
        "Read",
        text,
        structured={"type": "text", "file": {**file, "totalLines": 1}},
        decision=decided(call_id, allowed=True),
    )


def parallel(recorder: Recorder) -> None:
    """Record three parallel calls that finish in reverse order; one fails."""
    recorder.record_prompt("Look at the files, please")
    calls = (read_call("toolu_a", "a"), use("toolu_b", "Bash", command="false"), read_call("toolu_c", "c"))
    recorder.record_reply(message("I look at them.", *calls), request_id="req_1")
    recorder.record_result(read_result("toolu_c", "c", "1\tccc"))
    allowed = decided("toolu_b", allowed=True)
    recorder.record_result(error("toolu_b", "Bash", "Exit code 1", decision=allowed))
    recorder.record_result(read_result("toolu_a", "a", "1\taaa"))
    recorder.record_reply(message("One of them failed.", id="msg_02"), request_id="req_2")


def record_two_turns(recorder: Recorder) -> None:
    """Record two turns, so that something precedes and follows each defect."""
    parallel(recorder)
    recorder.record_prompt("And now?")
    recorder.record_reply(message("One more.", use("toolu_z", "Bash", command="z"), id="msg_03"))
    recorder.record_result(error("toolu_z", "Bash", "Exit code 1", at=Clock().now + 90))
    recorder.record_reply(message("That was all.", id="msg_04"))


def _find_line(lines: Lines, mark: bytes) -> int:
    return next(n for n, line in enumerate(lines) if mark in line)


def _join(lines: Lines) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _without(lines: Lines, *marks: bytes) -> Lines:
    return [line for line in lines if not any(mark in line for mark in marks)]


def torn_last_line(lines: Lines) -> bytes:
    """Cut the last line in half."""
    last = _find_line(lines, b"That was all.")
    return _join(lines[:last]) + lines[last][: len(lines[last]) // 2]


def torn_line(lines: Lines) -> bytes:
    """Cut a reply in the middle in half."""
    at = _find_line(lines, b"One of them failed.")
    return _join([*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]])


def torn_result(lines: Lines) -> bytes:
    """Cut a result in the middle in half."""
    at = _find_line(lines, b'"tool_use_id":"toolu_c"')
    return _join([*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]])


def glued_records(lines: Lines) -> bytes:
    """Join two lines."""
    at = _find_line(lines, b"One of them failed.")
    return _join([*lines[:at], lines[at] + lines[at + 1], *lines[at + 2 :]])


def unanswered_call(lines: Lines) -> bytes:
    """End the file after the last call, before its result."""
    return _join(lines[: _find_line(lines, b'"tool_use_id":"toolu_z"')])


def unanswered_in_the_middle(lines: Lines) -> bytes:
    """Remove a result of the first turn."""
    return _join(_without(lines, b'"tool_use_id":"toolu_c"'))


def orphan_result(lines: Lines) -> bytes:
    """Remove a call of the first turn, but not its result."""
    return _join(_without(lines, b'"id":"toolu_c"'))


def orphan_at_the_end(lines: Lines) -> bytes:
    """Append a result of an unknown call."""
    result = lines[_find_line(lines, b'"tool_use_id":"toolu_z"')]
    last = json.loads(lines[_find_line(lines, b"That was all.")])["uuid"]
    stray = json.loads(result.replace(b"toolu_z", b"toolu_never"))
    stray |= {"uuid": "00000000-0000-4000-8000-000000000001", "parentUuid": last}
    stray.pop("sourceToolAssistantUUID", None)
    return _join([*lines, json.dumps(stray, separators=(",", ":")).encode()])


def duplicate_result(lines: Lines) -> bytes:
    """Repeat a result under another uuid."""
    at = _find_line(lines, b'"tool_use_id":"toolu_z"')
    twin = json.loads(lines[at])
    twin |= {"uuid": "00000000-0000-4000-8000-000000000002", "parentUuid": twin["uuid"]}
    following = json.loads(lines[at + 1]) | {"parentUuid": twin["uuid"]}
    packed = [json.dumps(record, separators=(",", ":")).encode() for record in (twin, following)]
    return _join([*lines[: at + 1], *packed, *lines[at + 2 :]])


def duplicate_uuid(lines: Lines) -> bytes:
    """Repeat the line of a result."""
    at = _find_line(lines, b'"tool_use_id":"toolu_z"')
    return _join([*lines[: at + 1], lines[at], *lines[at + 1 :]])


def missing_parent(lines: Lines) -> bytes:
    """Give the second prompt an unknown parent."""
    at = _find_line(lines, b"And now?")
    prompt = json.loads(lines[at]) | {"parentUuid": "00000000-0000-4000-8000-000000000003"}
    packed = json.dumps(prompt, separators=(",", ":")).encode()
    return _join([*lines[:at], packed, *lines[at + 1 :]])


def parent_cycle(lines: Lines) -> bytes:
    """Make the last line the parent of the first prompt."""
    at = _find_line(lines, b"Look at the files")
    last = json.loads(lines[_find_line(lines, b"That was all.")])["uuid"]
    prompt = json.loads(lines[at]) | {"parentUuid": last}
    packed = json.dumps(prompt, separators=(",", ":")).encode()
    return _join([*lines[:at], packed, *lines[at + 1 :]])


def nul_bytes(lines: Lines) -> bytes:
    """Replace a part of a line with NUL bytes."""
    at = _find_line(lines, b"One of them failed.")
    damaged = lines[at][:100] + b"\0" * 100 + lines[at][200:]
    return _join([*lines[:at], damaged, *lines[at + 1 :]])


def nul_block(lines: Lines) -> bytes:
    """Insert a block of NUL bytes before a line."""
    at = _find_line(lines, b"One of them failed.")
    return _join([*lines[:at], b"\0" * 512 + lines[at], *lines[at + 1 :]])


def invalid_utf8(lines: Lines) -> bytes:
    """Put a byte into a text that is not UTF-8."""
    return _join([line.replace(b"One of them failed.", b"One of them\xff failed.") for line in lines])


def control_characters(lines: Lines) -> bytes:
    """Put a raw control character into a text."""
    return _join([line.replace(b"One of them failed.", b"One of them\x01 failed.") for line in lines])


def byte_order_mark(lines: Lines) -> bytes:
    """Begin the file with a byte order mark."""
    return b"\xef\xbb\xbf" + _join(lines)


def not_an_object(lines: Lines) -> bytes:
    """Insert a JSON list."""
    at = _find_line(lines, b"One of them failed.")
    return _join([*lines[:at], b"[1]", *lines[at:]])


def foreign_session(lines: Lines) -> bytes:
    """Name another session in some lines."""
    other = b"11111111-1111-4111-8111-111111111111"
    at = _find_line(lines, b"And now?")
    return _join([line.replace(SESSION.encode(), other) for line in lines[:at]] + lines[at:])


def foreign_session_whole(lines: Lines) -> bytes:
    """Name another session in every line."""
    other = b"11111111-1111-4111-8111-111111111111"
    return _join([line.replace(SESSION.encode(), other) for line in lines])


DEFECTS: tuple[Callable[[Lines], bytes], ...] = (
    torn_last_line, torn_line, torn_result, glued_records, unanswered_call,
    unanswered_in_the_middle, orphan_result, orphan_at_the_end, duplicate_result, duplicate_uuid,
    missing_parent, parent_cycle, nul_bytes, nul_block, invalid_utf8, control_characters,
    byte_order_mark, not_an_object, foreign_session, foreign_session_whole,
)  # fmt: skip
