"""Read the messages between the calls of a rollout.

Most texts are recorded twice, as an item that the model reads or wrote and as an event for people; each is returned
once, whichever comes first. Start at `read_rollout_messages`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Raw

from toolspan.formats import json_repair
from toolspan.formats.codex.records import ABSENT, RolloutItem, RolloutRecord
from toolspan.formats.codex.thread import RolloutThread, message_author
from toolspan.formats.decoding import content_to_text, extract_text
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Message, MessageAuthor

_COMPARED_LENGTH = 200
"""Number of characters by which texts are compared."""

VoicedText = tuple[MessageAuthor, str]


def read_rollout_messages(records: Iterable[tuple[RolloutRecord, SourceLocation]]) -> Iterator[Message]:
    """Yield the messages in file order, each once."""
    thread = RolloutThread()
    duplicates = _DuplicateFilter()
    for record, place in records:
        thread.add(record)
        for voice, text in _record_texts(record):
            if text.strip() and duplicates.is_new(voice, text, event=record.is_event):
                yield Message(
                    voice=voice, text=text, at=record.timestamp, agent_id=thread.agent_id,
                    place=place,
                )  # fmt: skip


class _DuplicateFilter:
    """Remembers texts that were recorded as an item and await their event, or the reverse."""

    def __init__(self) -> None:
        self._unmatched: Counter[tuple[bool, MessageAuthor, str]] = Counter()

    def is_new(self, voice: MessageAuthor, text: str, *, event: bool) -> bool:
        key = text.strip()[:_COMPARED_LENGTH]
        if self._unmatched[not event, voice, key] > 0:
            self._unmatched[not event, voice, key] -= 1
            return False
        if voice in ("prompt", "text", "thinking", "interrupt", "summary"):
            self._unmatched[event, voice, key] += 1
        return True


def _record_texts(record: RolloutRecord) -> Iterator[VoicedText]:
    item = record.item
    if record.is_event:
        yield from _event_texts(item)
    elif record.type == "compacted":
        yield "summary", extract_text(item.message) or "Conversation compacted"
    elif item.type == "reasoning":
        yield from (("thinking", text) for text in _reasoning_parts(item))
    elif item.role == "assistant":
        yield "text", extract_text(item.content)
    elif item.role not in (None, "tool"):
        text = extract_text(item.content)
        yield message_author(item, text), _interrupt_text(text)
    elif item.type == "agent_message":
        yield "notification", extract_text(item.content)


def _interrupt_text(text: str) -> str:
    return "Turn aborted: interrupted" if text.lstrip().startswith("<turn_aborted>") else text


_EVENT_VOICES: dict[str, MessageAuthor] = {
    "agent_message": "text",
    "error": "error",
    "stream_error": "error",
    "warning": "system",
    "deprecation_notice": "system",
}
"""Events that only carry a message, and their authors."""


def _event_texts(item: RolloutItem) -> Iterator[VoicedText]:
    match item.type:
        case kind if kind in _EVENT_VOICES:
            yield _EVENT_VOICES[kind], extract_text(item.message)
        case "user_message":
            text = extract_text(item.message)
            yield message_author(RolloutItem(role="user"), text), text
        case "agent_reasoning" | "agent_reasoning_raw_content":
            yield "thinking", extract_text(item.text)
        case "item_completed":
            yield from _completed_item_texts(item)
        case "task_complete" | "turn_complete" if item.error != ABSENT:
            yield "error", _failure_message(item)
        case "turn_aborted":
            yield "interrupt", f"Turn aborted: {extract_text(item.reason) or 'interrupted'}"
        case "thread_rolled_back":
            yield "system", f"{item.num_turns or 0} turns taken back"
        case _:
            return


def _completed_item_texts(item: RolloutItem) -> Iterator[VoicedText]:
    inner = item.done
    if inner is None:
        return
    match inner.type:
        case "UserMessage":
            text = extract_text(inner.content)
            yield message_author(RolloutItem(role="user"), text), text
        case "AgentMessage":
            yield "text", extract_text(inner.content)
        case "Plan":
            yield "text", extract_text(inner.text)
        case _:
            return


def _decode_raw(raw: Raw) -> object:
    """Decode a part; None if it is nested too deeply."""
    try:
        return json_repair.decode_document(bytes(raw))
    except ValueError:
        return None


def _failure_message(item: RolloutItem) -> str:
    error = _decode_raw(item.error)
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else "The turn failed"


def _reasoning_parts(item: RolloutItem) -> Iterator[str]:
    """Yield the parts of a reasoning summary, and of the reasoning itself if recorded."""
    for raw in (item.summary, item.content):
        if raw == ABSENT:
            continue
        parts = _decode_raw(raw)
        for part in parts if isinstance(parts, list) else ():
            yield content_to_text([part])
