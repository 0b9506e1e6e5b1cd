"""The fast path for successful results agrees with the full inference."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolspan.formats.claude.pairing import SUCCEEDED, TranscriptBodyStore, parse_plain_success, parse_result
from toolspan.formats.claude.records import Entry, MessageBlock, decode_entry
from toolspan.formats.source import BytesSource
from toolspan.types.ids import CallId
from toolspan.types.span import Call

TEXTS = st.sampled_from([
    "", "fine", "[1] 4242", "[Request interrupted by user]", "Error: no", "Errors: none",
    "<tool_use_error>no</tool_use_error>", "result (70,000 characters) exceeds maximum allowed",
    "out\n[Exit code: 3]", "done\nagentId: a1b2c3", "Command running in background with ID: b1",
    "Command was manually backgrounded by user", "Async agent launched successfully.",
    "<persisted-output>\nOutput too large. Full output saved to: /tmp/x.txt", "saved to nowhere",
])  # fmt: skip
CONTENTS = TEXTS | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=2)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "interrupted": st.booleans(),
        "wasInterrupted": st.booleans(),
        "backgroundTaskId": st.sampled_from(["", "b1"]),
        "timedOutAfterMs": st.sampled_from([0, 120_000]),
        "persistedOutputPath": st.sampled_from(["", "/tmp/x.txt"]),
        "status": st.sampled_from(["completed", "async_launched", "teammate_spawned"]),
        "agentId": st.sampled_from(["", "a1"]),
        "taskId": st.just("t1"),
        "isAsync": st.booleans(),
        "durationMs": st.just(12),
        "durationSeconds": st.just(1.5),
        "totalDurationMs": st.just(99),
    },
)
LINES = st.fixed_dictionaries(
    {"type": st.just("user"), "timestamp": st.just("2026-01-02T03:04:05.678Z")},
    optional={
        "toolUseResult": FACTS | TEXTS | st.lists(TEXTS, max_size=1),
        "tool_use_result": FACTS,
        "toolDenialKind": st.sampled_from(["user-rejected", "permission-rule"]),
        "version": st.sampled_from(["1.0.60", "2.1.80"]),
    },
)
FLAGS = st.fixed_dictionaries({}, optional={"is_error": st.none() | st.booleans()})
TOOLS = st.sampled_from(["", "Bash", "Task", "Read", "mcp__a__b"])


def written(line: dict[str, Any], content: object, flags: dict[str, Any]) -> tuple[MessageBlock, Entry]:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content, **flags}
    data = json.dumps({**line, "message": {"content": [block]}}, separators=(",", ":")).encode()
    entry = decode_entry(data).entry
    assert entry.message is not None
    assert isinstance(entry.message.content, list)
    return entry.message.content[0], entry


@given(line=LINES, content=CONTENTS, flags=FLAGS, tool=TOOLS)
def test_fast_path_agrees_with_the_full_inference(
    line: dict[str, Any], content: object, flags: dict[str, Any], tool: str
) -> None:
    block, entry = written(line, content, flags)
    shelf = TranscriptBodyStore(BytesSource(b""))
    call = Call(id=CallId("t1"), tool=tool, at=1, requested_at=None, target=None, body_store=shelf)

    plain = parse_plain_success(call, block, entry, 7)

    if plain is not None:
        assert parse_result(call, block, entry, 7) == (plain, SUCCEEDED, "", None)


def test_most_results_take_the_fast_path() -> None:
    shelf = TranscriptBodyStore(BytesSource(b""))
    for tool in ("Bash", "Read", "mcp__a__b"):
        block, entry = written({"type": "user"}, "fine", {})
        call = Call(id=CallId("t1"), tool=tool, at=1, requested_at=None, target=None, body_store=shelf)

        assert parse_plain_success(call, block, entry, 7) is not None
