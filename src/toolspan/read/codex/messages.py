"""What was said between the calls of a rollout, and by whom.

In: records in file order. Out: `Message`s. Most words stand there twice, as an item that the model
reads or wrote and as an event for people; each is told once, whichever comes first. Calls and
outputs are spans, not messages. Read `messages` first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Raw

from toolspan.model.message import Message, Voice
from toolspan.model.place import Place
from toolspan.read.codex.thread import Thread
from toolspan.read.codex.voice import voice_of
from toolspan.wire import document
from toolspan.wire.codex import NOTHING, Item, Record
from toolspan.wire.views import plain, text_of

_ALIKE = 200
"""So many characters tell whether two texts are the same one."""

Said = tuple[Voice, str]


def messages(records: Iterable[tuple[Record, Place]]) -> Iterator[Message]:
    """What was said, in file order, each thing once."""
    thread = Thread()
    pairs = _Pairs()
    for record, place in records:
        thread.add(record)
        for voice, text in _voices(record):
            if text.strip() and pairs.new(voice, text, event=record.is_event):
                yield Message(
                    voice=voice, text=text, at=record.timestamp, agent_id=thread.agent_id,
                    place=place,
                )  # fmt: skip


class _Pairs:
    """Knows which words have been told as an item and wait for their event, or the reverse."""

    def __init__(self) -> None:
        self._waiting: Counter[tuple[bool, Voice, str]] = Counter()

    def new(self, voice: Voice, text: str, *, event: bool) -> bool:
        key = text.strip()[:_ALIKE]
        if self._waiting[not event, voice, key] > 0:
            self._waiting[not event, voice, key] -= 1
            return False
        if voice in ("prompt", "text", "thinking", "interrupt", "summary"):
            self._waiting[event, voice, key] += 1
        return True


def _voices(record: Record) -> Iterator[Said]:
    item = record.item
    if record.is_event:
        yield from _event(item)
    elif record.type == "compacted":
        yield "summary", text_of(item.message) or "Conversation compacted"
    elif item.type == "reasoning":
        yield from (("thinking", text) for text in _parts(item))
    elif item.role == "assistant":
        yield "text", text_of(item.content)
    elif item.role not in (None, "tool"):
        text = text_of(item.content)
        yield voice_of(item, text), _interrupt(text)
    elif item.type == "agent_message":
        yield "notification", text_of(item.content)


def _interrupt(text: str) -> str:
    return "Turn aborted: interrupted" if text.lstrip().startswith("<turn_aborted>") else text


_PLAIN: dict[str, Voice] = {
    "agent_message": "text",
    "error": "error",
    "stream_error": "error",
    "warning": "system",
    "deprecation_notice": "system",
}
"""Events that are a message and nothing else, by who speaks."""


def _event(item: Item) -> Iterator[Said]:
    match item.type:
        case kind if kind in _PLAIN:
            yield _PLAIN[kind], text_of(item.message)
        case "user_message":
            text = text_of(item.message)
            yield voice_of(Item(role="user"), text), text
        case "agent_reasoning" | "agent_reasoning_raw_content":
            yield "thinking", text_of(item.text)
        case "item_completed":
            yield from _completed(item)
        case "task_complete" | "turn_complete" if item.error != NOTHING:
            yield "error", _failure(item)
        case "turn_aborted":
            yield "interrupt", f"Turn aborted: {text_of(item.reason) or 'interrupted'}"
        case "thread_rolled_back":
            yield "system", f"{item.num_turns or 0} turns taken back"
        case _:
            return


def _completed(item: Item) -> Iterator[Said]:
    inner = item.done
    if inner is None:
        return
    match inner.type:
        case "UserMessage":
            text = text_of(inner.content)
            yield voice_of(Item(role="user"), text), text
        case "AgentMessage":
            yield "text", text_of(inner.content)
        case "Plan":
            yield "text", text_of(inner.text)
        case _:
            return


def _decoded(raw: Raw) -> object:
    """A part as decoded JSON; None when it is nested too deeply for that."""
    try:
        return document.decode(bytes(raw))
    except ValueError:
        return None


def _failure(item: Item) -> str:
    found = _decoded(item.error)
    words = found.get("message") if isinstance(found, dict) else found
    return words if isinstance(words, str) else "The turn failed"


def _parts(item: Item) -> Iterator[str]:
    """The summary of a thought, part by part; its whole text where there is one."""
    for raw in (item.summary, item.content):
        if raw == NOTHING:
            continue
        found = _decoded(raw)
        for part in found if isinstance(found, list) else ():
            yield plain([part])
