"""A reply that still comes in.

In: the events of a model's stream. Out: the blocks that may be written down and started now, and
at the end the message as the history keeps it. A block waits for the event after it, so that the
last one is known as the last; texts wait for the next call, so that a reply which begins anew has
left no trace before something was started. Knows nothing of batches and files. Read `take` first.
"""

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from toolspan.llm.model import (
    Began,
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    Retrying,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Usage,
)

Block = dict[str, object]


class Ready(NamedTuple):
    """Blocks whose time has come."""

    blocks: list[Block]
    is_end: bool = False
    """Nothing comes after them."""


class Incoming:
    """A reply, as far as it is there."""

    def __init__(self, *, early: bool) -> None:
        """Take whether calls start while the message still streams."""
        self.head: dict[str, object] = {"id": _new_id(), "role": "assistant", "stop_reason": None}
        """The message without its content."""
        self.request_id: str | None = None
        self.kept: list[Block] = []
        """The blocks that count: written down, and started if they are calls."""
        self._early = early
        self._waiting: list[Block] = []
        self._text: list[str] = []
        """What came of a text that is not complete."""

    @property
    def asks(self) -> bool:
        """Whether a call of it counts."""
        return any(block["type"] == "tool_use" for block in self.kept)

    @property
    def is_cut(self) -> bool:
        """Whether it ended because it got too long."""
        return self.head["stop_reason"] == "max_tokens"

    @property
    def is_whole(self) -> bool:
        """Whether it came to its end."""
        return self.head["stop_reason"] is not None

    def take(self, event: ModelEvent) -> Ready | None:
        """Take in an event; the blocks whose time has come by it."""
        match event:
            case Began():
                self._begin(event)
            case BlockDone():
                self._add(event.block)
            case Usage():
                before = self.head.get("usage")
                told = before if isinstance(before, Mapping) else {}
                self.head["usage"] = {**told, **event.tokens}
            case Stopped():
                return self._stop(event)
            case Retrying():
                self._waiting, self._text = [], []
            case TextDelta():
                self._text.append(event.text)
                return self._next_begins()
            case ThinkingDelta() | CallBegan() | InputDelta():
                return self._next_begins()
        return None

    def break_off(self) -> Ready:
        """The stream has failed: whole calls count, what came after the last of them does not."""
        calls = [n for n, block in enumerate(self._waiting, 1) if block["type"] == "tool_use"]
        return self._release(self._waiting[: calls[-1]] if calls else [])

    def interrupt(self) -> Ready:
        """Somebody has heard enough: what was said stays, calls that were not started do not."""
        texts = [block for block in self._waiting if block["type"] == "text"]
        if "".join(self._text).strip():
            texts.append({"type": "text", "text": "".join(self._text)})
        return self._release(texts)

    def _begin(self, event: Began) -> None:
        self.head = {"id": event.message_id or _new_id(), "role": "assistant", "stop_reason": None}
        self.head["model"] = event.model
        self.request_id = event.request_id

    def _add(self, block: Block) -> None:
        self._text = []
        if not is_blank(block):
            self._waiting.append(dict(block))

    def _next_begins(self) -> Ready | None:
        """Another block begins: a call before it need not wait for the end of the message."""
        if self._early and any(block["type"] == "tool_use" for block in self._waiting):
            return self._release(self._waiting)
        return None

    def _stop(self, event: Stopped) -> Ready:
        self.head["stop_reason"] = event.reason
        if event.details is not None:
            self.head["stop_details"] = event.details
        return self._release(self._waiting, is_end=True)

    def _release(self, blocks: list[Block], *, is_end: bool = False) -> Ready:
        self._waiting, self._text = [], []
        return Ready(blocks, is_end)


def is_blank(block: Block) -> bool:
    """Whether it is a text that says nothing; no server takes one back."""
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def sendable(blocks: list[Block]) -> list[Block]:
    """Blocks as a server takes them back: no unsigned thinking, none at the end."""
    kept = [one for one in blocks if one.get("type") != "thinking" or one.get("signature")]
    while kept and kept[-1].get("type") in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


def _new_id() -> str:
    return f"msg_{uuid.uuid4().hex[:24]}"
