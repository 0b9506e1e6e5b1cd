"""Is what the client sends what we recorded?

In: a transcript, and the messages of the request a client made of it. Out: what is missing, changed
or out of order, in words. Pure; `__main__.py` runs the client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from toolspan.testing import check_history

_BEGIN, _END = "<system-reminder>\n", "\n</system-reminder>"

Said = tuple[str, object]
"""Who or what, and what they said."""


def differences(transcript: Path, messages: list[dict[str, Any]], *, repaired: bool) -> list[str]:
    """What is wrong with a history; `repaired`: calls without a result may be dropped."""
    messages = spoken(messages)
    problems = [f"invalid: {problem}" for problem in check_history(messages)]
    everything = "\n".join(_words(message["content"]) for message in messages)
    problems += [f"not sent: {words!r}" for words in _contexts(transcript) if words not in everything]
    written, said_again = list(_recorded(transcript)), list(_sent(messages))
    answered = {name for kind, (name, *_) in _pairs(written) if kind == "result"}
    wanted = [said for said in _unordered(written) if not (repaired and _open_call(said, answered))]
    rest = iter(_unordered(said_again))
    for said in wanted:
        if not any(said == other for other in rest):
            problems.append(f"not sent, changed or out of order: {said!r}"[:400])
            rest = iter(_unordered(said_again))
    counted = [said for kind, said in _pairs(said_again) if kind == "call"]
    if len(counted) != len({name for name, *_ in counted}):
        problems.append("a call is sent twice")
    return problems


def sent(messages: list[dict[str, Any]]) -> list[Said]:
    """Everything that a request says."""
    return list(_sent(spoken(messages)))


def spoken(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that say something."""
    return [message for message in messages if not _controls(message)]


def recorded(transcript: Path) -> list[Said]:
    """Everything that a transcript says."""
    return list(_recorded(transcript))


def _open_call(said: Said, answered: set[str]) -> bool:
    kind, told = said
    return kind == "call" and isinstance(told, tuple) and told[0] not in answered


def _pairs(said: Iterable[Said]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    return ((kind, told) for kind, told in said if isinstance(told, tuple))


def _unordered(said: list[Said]) -> list[Said]:
    """Results that follow each other are sorted: a client may send them in either order."""
    found: list[Said] = []
    batch: list[Said] = []
    for each in said:
        if each[0] == "result":
            batch.append(each)
            continue
        found += sorted(batch, key=repr)
        batch = []
        found.append(each)
    return found + sorted(batch, key=repr)


def _recorded(transcript: Path) -> Iterator[Said]:
    for line in transcript.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("type") in ("user", "assistant"):
            yield from _said(entry["type"], entry["message"]["content"])


def _contexts(transcript: Path) -> Iterator[str]:
    """What hooks told the model."""
    for line in transcript.read_bytes().split(b"\n"):
        if b'"rendered"' in line:
            for told in json.loads(line)["rendered"]:
                yield told["content"].removeprefix(_BEGIN).removesuffix(_END)


def _controls(message: dict[str, Any]) -> bool:
    """A message without words, which only sets how hard the model shall think."""
    return message["role"] == "system" and not message["content"] and "output_config" in message


def _sent(messages: list[dict[str, Any]]) -> Iterator[Said]:
    for message in messages:
        yield from _said(message["role"], message["content"])


def _said(role: str, content: Any) -> Iterator[Said]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content:
        match block["type"]:
            case "text":
                yield (role, block["text"].strip())
            case "tool_use":
                yield ("call", (block["id"], block["name"], json.dumps(block["input"])))
            case "tool_result":
                flag = bool(block.get("is_error"))
                yield ("result", (block["tool_use_id"], _words(block["content"]), flag))
            case "thinking":
                yield ("thinking", block["thinking"])
            case _:
                yield (role, json.dumps(block))


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", block["type"])) for block in content)
