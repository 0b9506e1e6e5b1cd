"""Strategies for generated tests: JSON, Claude Code's lines, whole transcripts with damage.

`claude_entries()` are lines as clients write them, `odd_entries()` lines whose known keys hold
anything, `claude_transcripts()` whole files together with the pairing a reader must find.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st
from msgspec import Struct

from toolspan.formats.claude.records import (
    ApiMessage,
    Attachment,
    CallReference,
    Entry,
    EntryOrigin,
    ForkedFrom,
    MessageBlock,
    MessageUsage,
    ProgressData,
    StructuredFacts,
)

Record = dict[str, Any]

_TOOLS = ("Bash", "Read", "Edit", "Grep", "Task", "TodoWrite", "mcp__shop__find", "Unheard")
_INPUTS: tuple[Record, ...] = (
    {},
    {"command": "make test", "description": "Run the tests"},
    {"file_path": "/w/é.py", "limit": 20},
    {"pattern": '}{"', "path": "/w"},
    {"todos": [{"content": "a", "status": "pending"}]},
)
_CONTENTS: tuple[Any, ...] = (
    "ok",
    "",
    "line one\nline two\u2028three",
    [{"type": "text", "text": "ok"}],
    [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "data": ""}}],
    [],
)
_ERRORS: tuple[str, ...] = (
    "<tool_use_error>File does not exist.</tool_use_error>",
    "Exit code 2\nmake: no rule",
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "Sibling tool call errored",
    "Permission to use Bash has been denied.",
    "boom",
)
_INTERRUPT = "[Request interrupted by user for tool use]"
_STRUCTURED: tuple[Any, ...] = (
    None,
    "Error: boom",
    [{"type": "text", "text": "ok"}],
    {"stdout": "ok", "stderr": "", "interrupted": False, "isImage": False},
    {"filenames": ["a.py"], "durationMs": 3.5, "numFiles": 1, "truncated": False},
    {"status": "async_launched", "agentId": "a1", "isAsync": True},
)


def to_json(value: object, *, ascii_only: bool = True) -> bytes:
    """Compact JSON as clients write it; with `ascii_only`, half a surrogate pair survives."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only).encode()


def to_lines(records: list[Record]) -> bytes:
    """Records as a file."""
    return b"".join(to_json(record, ascii_only=False) + b"\n" for record in records)


def _texts(*, surrogates: bool = False) -> st.SearchStrategy[str]:
    if surrogates:
        return st.text(st.characters(), max_size=8)
    return st.text(max_size=8)


def json_values(*, surrogates: bool = False) -> st.SearchStrategy[Any]:
    """Any JSON value; with `surrogates`, texts may hold halves of surrogate pairs."""
    texts = _texts(surrogates=surrogates)
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=2**63, max_value=2**80),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    )
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
    )


def _calls(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Record]:
    return st.builds(
        lambda call_id, name, value: {"type": "tool_use", "id": call_id, "name": name, "input": value},
        ids,
        st.sampled_from(_TOOLS),
        st.sampled_from(_INPUTS),
    )


def _results(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Record]:
    flags: st.SearchStrategy[Record] = st.sampled_from([{}, {"is_error": False}])
    fine = st.builds(lambda content, flag: {"content": content, **flag}, st.sampled_from(_CONTENTS), flags)
    wrong = st.sampled_from(_ERRORS).map(lambda text: {"content": text, "is_error": True})
    return st.builds(lambda call_id, reply: {"type": "tool_result", "tool_use_id": call_id, **reply}, ids, fine | wrong)


def _ids() -> st.SearchStrategy[str]:
    return st.sampled_from([f"toolu_{n:02}" for n in range(6)])


_NAMES = st.sampled_from(["u1", "u2", "u3", "6f1c0e4e-0000-4000-8000-000000000000"])
_TIMES = st.sampled_from(["2026-01-05T10:00:00.000Z", "2026-01-05T10:00:01.250Z", "yesterday"])


def _envelopes() -> st.SearchStrategy[Record]:
    return st.fixed_dictionaries(
        {"uuid": _NAMES, "timestamp": _TIMES},
        optional={
            "parentUuid": st.none() | _NAMES,
            "sessionId": st.just("s1"),
            "session_id": st.just("s1"),
            "isSidechain": st.booleans(),
            "agentId": st.just("a1"),
            "userType": st.just("external"),
            "cwd": st.just("/w"),
            "version": st.sampled_from(["1.0.3", "2.0.65", "2.1.325"]),
            "gitBranch": st.just("HEAD"),
            "requestId": st.just("req_1"),
            "isMeta": st.booleans(),
            "parent_tool_use_id": st.none() | _ids(),
            "origin": st.just({"kind": "task-notification"}),
            "forkedFrom": st.just({"sessionId": "s0", "messageUuid": "u0"}),
        },
    )


def _assistants() -> st.SearchStrategy[Record]:
    blocks = st.one_of(
        _calls(_ids()),
        _texts().map(lambda text: {"type": "text", "text": text}),
        _texts().map(lambda text: {"type": "thinking", "thinking": text, "signature": "c2ln"}),
        st.just({"type": "redacted_thinking", "data": "x"}),
    )
    usages = st.fixed_dictionaries(
        {"input_tokens": st.integers(0, 9), "output_tokens": st.integers(0, 99)},
        optional={
            "cache_creation_input_tokens": st.integers(0, 9),
            "cache_read_input_tokens": st.none() | st.integers(0, 9),
            "service_tier": st.just("standard"),
        },
    )
    messages = st.fixed_dictionaries(
        {"content": st.lists(blocks, max_size=3)},
        optional={
            "id": st.sampled_from(["msg_1", "msg_2"]),
            "type": st.just("message"),
            "role": st.just("assistant"),
            "model": st.sampled_from(["claude-x", "<synthetic>"]),
            "stop_reason": st.none() | st.just("tool_use"),
            "usage": usages,
        },
    )
    return messages.map(lambda message: {"type": "assistant", "message": message})


def _users() -> st.SearchStrategy[Record]:
    reply = _texts() | st.just(_INTERRUPT)
    blocks = _results(_ids()) | reply.map(lambda text: {"type": "text", "text": text})
    contents: st.SearchStrategy[Any] = reply | st.lists(blocks, max_size=3)
    return st.builds(
        lambda content, extra: {"type": "user", "message": {"role": "user", "content": content}, **extra},
        contents,
        st.fixed_dictionaries(
            {},
            optional={
                "toolUseResult": st.sampled_from(_STRUCTURED),
                "tool_use_result": st.sampled_from(_STRUCTURED),
                "toolDenialKind": st.sampled_from(["user-rejected", "permission-rule", "other"]),
                "permissionDecision": st.just({"decision": "allow", "source": "config"}),
                "sourceToolAssistantUUID": _NAMES,
            },
        ),
    )


def _others() -> st.SearchStrategy[Record]:
    hooks = st.builds(
        lambda kind, call_id: {
            "type": "attachment",
            "attachment": {
                "type": kind,
                "hookName": "PreToolUse:Bash",
                "hookEvent": "PreToolUse",
                "toolUseID": call_id,
                "durationMs": 12.5,
                "exitCode": 2,
                "blockingError": {"blockingError": "no", "command": "check"},
            },
        },
        st.sampled_from(["hook_success", "hook_blocking_error", "hook_brand_new"]),
        _ids(),
    )
    progress = st.builds(
        lambda kind, call_id: {
            "type": "progress",
            "toolUseID": "agent_msg_1",
            "parentToolUseID": call_id,
            "data": {"type": kind, "hookEvent": "PostToolUse", "agentId": "a1", "n": 1},
        },
        st.sampled_from(["hook_progress", "bash_progress", "agent_progress"]),
        _ids(),
    )
    plain: st.SearchStrategy[Record] = st.sampled_from(
        [
            {"type": "summary", "summary": "A title", "leafUuid": "u1"},
            {"type": "custom-title", "customTitle": "Mine"},
            {"type": "system", "subtype": "compact_boundary", "logicalParentUuid": "u1"},
            {"type": "system", "subtype": "init", "tools": ["Bash"], "mcp_servers": []},
            {"type": "file-history-snapshot", "snapshot": {"trackedFileBackups": {}}},
            {"type": "queue-operation", "operation": "enqueue", "content": "go on"},
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "permission_denials": [{"tool_name": "Bash", "tool_use_id": "toolu_00"}],
                "deferred_tool_use": {"id": "toolu_01"},
            },
            {"type": "tool_progress", "parent_tool_use_id": "toolu_02", "elapsed": 1.5},
            {"type": "never-seen-before", "payload": {"deep": [1, 2.50, None]}},
            {"toolUseResult": {}},
            {},
        ]
    )
    return hooks | progress | plain


def claude_entries() -> st.SearchStrategy[Record]:
    """Lines as clients of all ages write them, file form and stream form, with unknown keys."""
    unknown = st.dictionaries(st.sampled_from(["x-new", "zeta", "Ünbekannt"]), json_values())
    return st.builds(
        lambda record, envelope, more: {**envelope, **record, **more},
        _assistants() | _users() | _others(),
        _envelopes() | st.just({}),
        unknown | st.just({}),
    )


def _keys(*shapes: type[Struct]) -> list[str]:
    return sorted({
        known.encode_name for shape in shapes for known in msgspec.structs.fields(shape)
    })  # fmt: skip


def odd_entries(*, surrogates: bool = False) -> st.SearchStrategy[Record]:
    """Objects whose known keys hold anything at all, inner objects among it."""
    anything = json_values(surrogates=surrogates)
    inner = st.dictionaries(
        st.sampled_from(
            _keys(Attachment, ProgressData, StructuredFacts, MessageUsage, EntryOrigin, ForkedFrom)
            + _keys(CallReference)
        ),
        anything,
        max_size=4,
    )
    kinds = st.sampled_from(["tool_use", "tool_result", "text", "web_search_tool_result"])
    blocks = st.builds(
        lambda block, kind: {**block, **kind},
        st.dictionaries(st.sampled_from(_keys(MessageBlock)), anything | inner, max_size=4),
        st.fixed_dictionaries({}, optional={"type": kinds}),
    )
    messages = st.builds(
        lambda message, content: {**message, **content},
        st.dictionaries(st.sampled_from(_keys(ApiMessage)), anything | inner, max_size=3),
        st.fixed_dictionaries({}, optional={"content": st.lists(blocks | anything, max_size=3)}),
    )
    lines = st.dictionaries(st.sampled_from(_keys(Entry)), anything | inner | st.lists(inner, max_size=2), max_size=5)
    return st.builds(
        lambda line, known: {**line, **known},
        lines,
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["user", "assistant", "attachment", "progress", "result"]),
                "message": messages,
            },
        ),
    )


class Recorded(NamedTuple):
    """A transcript, and the result that a reader must return."""

    records: list[Record]
    asked: list[str]
    """Ids of the calls in request order."""
    answered: frozenset[str]
    """Ids with a result, whether or not their call is there."""

    @property
    def data(self) -> bytes:
        """The file."""
        return to_lines(self.records)

    @property
    def orphans(self) -> frozenset[str]:
        """Ids with a result and no call."""
        return self.answered - set(self.asked)


_PARTS = st.sampled_from(["cr", "cr", "cr", "c", "r", "ccr", "crr", "rc", "crcr"])
_CALL = _calls(st.just(""))
_RESULT = _results(st.just(""))


@st.composite
def claude_transcripts(draw: st.DrawFn, max_calls: int = 4) -> Recorded:
    """Files with calls and results in any order, repeated, unanswered, unasked, many to a line."""
    blocks: list[Record] = []
    for n, parts in enumerate(draw(st.lists(_PARTS, max_size=max_calls))):
        for part in parts:
            if part == "c":
                blocks.append({**draw(_CALL), "id": f"toolu_{n:02}"})
            else:
                blocks.append({**draw(_RESULT), "tool_use_id": f"toolu_{n:02}"})
    if draw(st.booleans()):
        blocks = draw(st.permutations(blocks))
    records = _as_records(draw, blocks)
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return Recorded(_chained(records), list(dict.fromkeys(asked)), frozenset(answered))


_SPOKEN: st.SearchStrategy[Record] = st.sampled_from(["Wait.", _INTERRUPT]).map(
    lambda text: {"type": "user", "message": {"role": "user", "content": text}}
)
_BETWEEN: st.SearchStrategy[list[Record]] = st.one_of(
    st.just([]),
    st.just([]),
    _SPOKEN.map(lambda record: [record]),
    _others().filter(lambda record: "type" in record).map(lambda record: [record]),
)
"""Records between calls and results that belong to neither."""


def _as_records(draw: st.DrawFn, blocks: list[Record]) -> list[Record]:
    """Blocks as lines, several to one where they come from the same side, others between them."""
    records: list[Record] = [{"type": "user", "message": {"role": "user", "content": "Go on."}}]
    for block in blocks:
        kind = "assistant" if block["type"] == "tool_use" else "user"
        content = records[-1]["message"]["content"] if "message" in records[-1] else None
        joins = records[-1]["type"] == kind and isinstance(content, list) and draw(st.booleans())
        if joins and isinstance(content, list):
            content.append(block)
        else:
            records.extend(draw(_BETWEEN))
            records.append({"type": kind, "message": {"role": kind, "content": [block]}})
    return records


def _chained(records: list[Record]) -> list[Record]:
    """Each line the child of the one before, as in a session without rewinds."""
    return [
        {
            "parentUuid": f"u{n - 1}" if n else None,
            "uuid": f"u{n}",
            "sessionId": "s1",
            "version": "2.1.325",
            "timestamp": f"2026-01-05T10:{n // 60:02}:{n % 60:02}.000Z",
            **record,
        }
        for n, record in enumerate(records)
    ]


def split_blocks(records: list[Record]) -> list[Record]:
    """The same transcript with one block to a line."""
    result: list[Record] = []
    for record in records:
        content = record.get("message", {}).get("content")
        if isinstance(content, list):
            result += [{**record, "message": {**record["message"], "content": [block]}} for block in content]
        else:
            result.append(record)
    return result


def merge_blocks(records: list[Record]) -> list[Record]:
    """The same transcript with as many blocks to a line as come from one side in a row."""
    result: list[Record] = []
    for record in records:
        content = record.get("message", {}).get("content")
        before = result[-1]["message"]["content"] if result and "message" in result[-1] else None
        same = bool(result) and result[-1]["type"] == record["type"]
        if same and isinstance(content, list) and isinstance(before, list):
            joined = {**record["message"], "content": [*before, *content]}
            result[-1] = {**result[-1], "message": joined}
        else:
            result.append(record)
    return result


_PLACES = st.integers(0, 9_999)
_MUTATIONS = st.one_of(
    st.tuples(st.just("flip"), _PLACES, st.integers(1, 255)),
    st.tuples(st.just("put"), _PLACES, st.sampled_from([0, 0x0A, 0x22, 0x7B, 0x7D, 9, 0xFF])),
    st.tuples(st.just("cut"), _PLACES, st.integers(1, 40)),
    st.tuples(st.just("join"), _PLACES, st.just(0)),
    st.tuples(st.just("blank"), _PLACES, st.integers(1, 40)),
)


def mutations() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """Some damage; see `mutated`."""
    return st.lists(_MUTATIONS, min_size=1, max_size=4)


def mutated(data: bytes, damage: list[tuple[str, int, int]]) -> bytes:
    """The bytes after flipping, inserting, cutting, losing newlines, and blocks of NUL."""
    spoiled = bytearray(data)
    for kind, where, what in damage:
        at = where % (len(spoiled) + 1)
        if kind == "flip" and at < len(spoiled):
            spoiled[at] ^= what
        elif kind == "put":
            spoiled[at:at] = bytes([what])
        elif kind == "cut":
            del spoiled[at : at + what]
        elif kind == "blank":
            spoiled[at : at + what] = bytes(len(spoiled[at : at + what]))
        elif kind == "join" and (newline := spoiled.find(b"\n", at)) >= 0:
            del spoiled[newline]
    return bytes(spoiled)
