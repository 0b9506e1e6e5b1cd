"""Strategies for recorded and damaged transcripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from tests.session.recording.emitted import SESSION, error, finished, message, recorder, use

TOOLS = ("Bash", "Edit", "Read", "mcp__a__b")
Turn = tuple[list[list[tuple[str, int]]], bool]
"""Messages with the tools they call, each with the rank at which it ends; and whether it ends."""

calls = st.lists(st.tuples(st.sampled_from(TOOLS), st.integers(0, 9)), max_size=4)
turns = st.lists(st.tuples(st.lists(calls, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=3)
harms = st.lists(
    st.tuples(
        st.sampled_from(
            ["drop", "twice", "swap", "glue", "tear", "nul", "byte", "control", "stranger",
             "parent", "again", "foreign"]
        ),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
    ),
    max_size=5,
)  # fmt: skip
versions = st.sampled_from(["seed", "2.0.65", "2.1.327"])


def recorded(path: Path, story: Sequence[Turn], version: str) -> None:
    keeper = recorder(path, version=version)
    number = 0
    for n, (messages, answered) in enumerate(story):
        keeper.record_prompt(f"prompt {n}")
        for m, request in enumerate(messages):
            named = [(f"toolu_{number + k}", tool, rank) for k, (tool, rank) in enumerate(request)]
            number += len(request)
            blocks = [use(name, tool, command=name) for name, tool, _ in named]
            keeper.record_reply(message(f"words {n} {m}", *blocks, id=f"msg_{n}_{m}"))
            left = answered or m < len(messages) - 1
            for name, tool, rank in sorted(named, key=lambda item: item[2]) if left else ():
                output = f"of {name}"
                keeper.record_result(finished(name, tool, output) if rank else error(name, tool, output))
    keeper.close()


def damaged(data: bytes, done: Sequence[tuple[str, int, int]]) -> bytes:
    lines = data.splitlines()
    for kind, where, how in done:
        if lines:
            lines = _harmed(lines, kind, where % len(lines), how)
    return b"".join(line + b"\n" for line in lines)


def _harmed(lines: list[bytes], kind: str, at: int, how: int) -> list[bytes]:
    before, line, behind = lines[:at], lines[at], lines[at + 1 :]
    cut = how % (len(line) + 1)
    own: dict[str, list[bytes]] = {
        "drop": [],
        "twice": [line, *behind[: how % 3], line],
        "tear": [line[:cut]],
        "nul": [b"\0" * (how % 600) + line],
        "byte": [line[:cut] + b"\xff" + line[cut:]],
        "control": [line[:cut] + b"\x01" + line[cut:]],
        "swap": [*behind[:1], line],
        "glue": [line + b"".join(behind[:1])],
        "foreign": [line.replace(SESSION.encode(), b"other")],
        "again": [*lines[at : at + how % 5], line],
    }
    taken = {"twice": how % 3, "swap": 1, "glue": 1}.get(kind, 0)
    return [*before, *own.get(kind, _changed(line, kind, how)), *behind[taken:]]


def _changed(line: bytes, kind: str, how: int) -> list[bytes]:
    try:
        fields = json.loads(line)
    except ValueError:
        return [line]
    if not isinstance(fields, dict) or "uuid" not in fields:
        return [line]
    if kind == "parent":
        above = (fields["uuid"], "nobody", None)[how % 3]
        return [json.dumps({**fields, "parentUuid": above}).encode()]
    return [line, json.dumps({**fields, "type": "assistant"}).encode()]


def calls_in(path: Path) -> tuple[set[str], dict[str, str]]:
    request: set[str] = set()
    results: dict[str, str] = {}
    for data in path.read_bytes().splitlines():
        try:
            fields = json.loads(data)
            content = fields["message"]["content"]
        except (ValueError, KeyError, TypeError):
            continue
        for block in content if isinstance(content, list) else ():
            kind = fields.get("type"), block.get("type")
            if kind == ("assistant", "tool_use") and "id" in block:  # damage may have changed the key
                request.add(block["id"])
            elif kind == ("user", "tool_result") and "tool_use_id" in block:
                results.setdefault(block["tool_use_id"], block.get("content", ""))
    return request, results
