"""Compare the history that a client sends with the recorded transcript.

`differences` reports what is missing, changed or out of order. Pure; `__main__.py` runs the client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from toolspan.testing import check_history

_BEGIN, _END = "<system-reminder>\n", "\n</system-reminder>"

HistoryItem = tuple[str, object]
"""A role with a text, or the kind of a block (`call`, `result`, `thinking`) with its content."""


def differences(transcript: Path, messages: list[dict[str, Any]], *, repaired: bool) -> list[str]:
    """Return what is wrong with a history; `repaired`: calls without a result may be dropped."""
    messages = with_content(messages)
    problems = [f"invalid: {problem}" for problem in check_history(messages)]
    everything = "\n".join(_text(message["content"]) for message in messages)
    problems += [f"not sent: {text!r}" for text in _hook_contexts(transcript) if text not in everything]
    recorded, sent = read_transcript(transcript), read_messages(messages)
    answered = {call_id for kind, (call_id, *_) in _blocks(recorded) if kind == "result"}
    expected = [item for item in _sort_results(recorded) if not (repaired and _is_open_call(item, answered))]
    rest = iter(_sort_results(sent))
    for item in expected:
        if not any(item == other for other in rest):
            problems.append(f"not sent, changed or out of order: {item!r}"[:400])
            rest = iter(_sort_results(sent))
    call_ids = [call_id for kind, (call_id, *_) in _blocks(sent) if kind == "call"]
    if len(call_ids) != len(set(call_ids)):
        problems.append("a call is sent twice")
    return problems


def read_messages(messages: list[dict[str, Any]]) -> list[HistoryItem]:
    """Return the items of a request's messages."""
    return [item for message in with_content(messages) for item in _items(message["role"], message["content"])]


def read_transcript(transcript: Path) -> list[HistoryItem]:
    """Return the items of a transcript's messages; skip lines that are not JSON."""
    items: list[HistoryItem] = []
    for line in transcript.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("type") in ("user", "assistant"):
            items += _items(record["type"], record["message"]["content"])
    return items


def find_losses(history: list[HistoryItem], messages: list[dict[str, Any]]) -> list[str]:
    """Return the items of a history that a client's messages lack."""
    sent = read_messages(messages)
    problems = [f"invalid: {problem}" for problem in check_history(with_content(messages))]
    return problems + [f"lost: {item!r}"[:160] for item in history if item not in sent]


def with_content(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out empty system messages, which only set the effort of the model."""
    return [
        message
        for message in messages
        if message["role"] != "system" or message["content"] or "output_config" not in message
    ]


def _is_open_call(item: HistoryItem, answered: set[str]) -> bool:
    kind, content = item
    return kind == "call" and isinstance(content, tuple) and content[0] not in answered


def _blocks(items: Iterable[HistoryItem]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    return ((kind, content) for kind, content in items if isinstance(content, tuple))


def _sort_results(items: list[HistoryItem]) -> list[HistoryItem]:
    """Sort results that follow each other, which a client may send in any order."""
    result: list[HistoryItem] = []
    batch: list[HistoryItem] = []
    for item in items:
        if item[0] == "result":
            batch.append(item)
            continue
        result += sorted(batch, key=repr)
        batch = []
        result.append(item)
    return result + sorted(batch, key=repr)


def _hook_contexts(transcript: Path) -> Iterator[str]:
    """Yield the texts that hooks added for the model."""
    for line in transcript.read_bytes().split(b"\n"):
        if b'"rendered"' in line:
            for message in json.loads(line)["rendered"]:
                yield message["content"].removeprefix(_BEGIN).removesuffix(_END)


def _items(role: str, content: Any) -> Iterator[HistoryItem]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content:
        match block["type"]:
            case "text":
                yield (role, block["text"].strip())
            case "tool_use":
                yield ("call", (block["id"], block["name"], json.dumps(block["input"])))
            case "tool_result":
                is_error = bool(block.get("is_error"))
                yield ("result", (block["tool_use_id"], _text(block["content"]), is_error))
            case "thinking":
                yield ("thinking", block["thinking"])
            case _:
                yield (role, json.dumps(block))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", block["type"])) for block in content)
