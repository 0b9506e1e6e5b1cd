"""The conversation, kept twice: as the messages that a server takes, as lines of the transcript.

In: what is said, when it is said. Out: `messages`, and the same as lines where there is a recorder.
Results and hooks are lines as soon as they come (`scribe.py`); here they only join the messages.
Who speaks while a reply is under way is put behind its results: no server takes words between a
call and its result. What may be said, and when, is the session's business.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from toolspan.session.models.base import ModelFailed, Retrying
from toolspan.session.models.history import Block
from toolspan.session.recording import Compaction, Recorder, RequestFailure
from toolspan.session.recording.entries import INTERRUPTED
from toolspan.session.reply import PartialReply, ReplyBlock, is_blank, sendable_blocks
from toolspan.types.events import Content, Finished

_MODEL_BLOCK_TYPES = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Blocks that nobody but the model and its calls put into a conversation."""

_COPY_DEPTH = 6
"""A list of blocks, a block, its list, a block of that, its source. An input may go far deeper."""


def check_prompt(content: object) -> None:
    """See to it that somebody can say this: a text, or a list of blocks.

    Raises:
        ValueError: no server would take it.
    """
    if content is not None and not isinstance(content, str | list):
        raise ValueError(f"a prompt is a text or a list of blocks, not {type(content).__name__}")
    if not content or (isinstance(content, str) and not content.strip()):
        raise ValueError("a prompt needs some words")
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str):
            raise ValueError("a prompt is a text or a list of blocks, each with its type")
        if kind in _MODEL_BLOCK_TYPES:
            raise ValueError(f"a prompt holds no {kind} block")
        if kind == "text" and not isinstance(block.get("text"), str | None):
            raise ValueError("a text of a prompt is no text")
        if is_blank(dict(block)):
            raise ValueError("a text of a prompt is empty")


def copy_messages(messages: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Messages whose blocks nobody else holds, nor the blocks within results."""
    return [{key: _copy_value(value, _COPY_DEPTH) for key, value in message.items()} for message in messages]


def _copy_value(value: object, depth: int) -> object:
    if not depth:
        return value
    if isinstance(value, dict):
        return {key: _copy_value(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy_value(item, depth - 1) for item in value]
    return value


def result_blocks(results: Sequence[Finished]) -> list[dict[str, object]]:
    """The results of calls, as the model reads them; what is said beside them comes after."""
    blocks = [_result_block(finished) for finished in results]
    for finished in results:
        if finished.companions or finished.contexts:
            blocks += companion_blocks(finished)
    return blocks


def _result_block(finished: Finished) -> dict[str, object]:
    """The result of a call, as the model reads it."""
    result = finished.span.result
    block: dict[str, object] = {
        "type": "tool_result",
        "tool_use_id": finished.span.call.id,
        "content": finished.content,
    }
    if result is not None and result.is_error is not None:
        block["is_error"] = result.is_error
    return block


def text_blocks(texts: Iterable[str]) -> list[dict[str, object]]:
    """Texts, a block each."""
    return [{"type": "text", "text": text} for text in texts]


def companion_blocks(finished: Finished) -> list[dict[str, object]]:
    """What the model reads after a result: notes of the tool, what hooks add."""
    blocks: list[dict[str, object]] = []
    for companion in finished.companions:
        blocks += [{"type": "text", "text": companion}] if isinstance(companion, str) else companion
    for context in finished.contexts:
        text = context.model_text or f"{context.name} hook additional context: {context.text}"
        blocks.append({"type": "text", "text": text})
    return blocks


Message = dict[str, object]


class _PendingPrompt(NamedTuple):
    """What somebody said."""

    blocks: list[ReplyBlock]
    content: Content
    prompt_id: str | None


class Conversation:
    """What was said: to the model as messages, to whoever reads it later as lines."""

    def __init__(self, history: Sequence[Mapping[str, object]], recorder: Recorder | None) -> None:
        self.messages: list[Message] = copy_messages(history)
        self.last_reply: Message = {}
        """The last reply that was written down; calls that belong to it hang on it."""
        self._recorder = recorder
        self.is_reply_pending = False
        """Whether a reply is under way: prompts wait."""
        self._pending_prompts: list[_PendingPrompt] = []

    def add_prompt(self, content: Content, contexts: Iterable[str], prompt_id: str | None) -> list[ReplyBlock]:
        """Somebody speaks, after words that stand before it; the blocks, to be added to.

        They are said at once, or when the reply that is under way has its results.
        """
        blocks = text_blocks(contexts)
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else copy_messages(content)
        self._pending_prompts.append(_PendingPrompt(blocks, content, prompt_id))
        if not self.is_reply_pending:
            self.release_prompts()
        return blocks

    def hold_prompts(self) -> None:
        """A reply is under way: who speaks now is heard after it."""
        self.is_reply_pending = True

    def release_prompts(self) -> bool:
        """The reply is there, and its results: what was said meanwhile comes now, if anything."""
        self.is_reply_pending = False
        pending_prompts, self._pending_prompts = self._pending_prompts, []
        for prompt in pending_prompts:
            self.messages.append({"role": "user", "content": prompt.blocks})
            if self._recorder is not None:
                self._recorder.record_prompt(prompt.content, prompt_id=prompt.prompt_id)
        return bool(pending_prompts)

    def add_notifications(self, texts: Sequence[str], prompt_id: str | None) -> None:
        """A turn begins with news of the background."""
        self.add_user_texts(texts)
        for text in texts:
            if self._recorder is not None:
                self._recorder.record_prompt(text, prompt_id=prompt_id, is_notification=True)

    def add_user_texts(self, texts: Iterable[str]) -> None:
        """The model is to read this; as lines it is there already, or will be."""
        self.messages.append({"role": "user", "content": text_blocks(texts)})

    def add_reply(self, message: Message, blocks: list[ReplyBlock]) -> None:
        """The model has spoken: its message, of which these blocks count."""
        if blocks and self._recorder is not None:
            if "id" not in message:
                message["id"] = f"msg_{uuid.uuid4().hex[:24]}"
            self.last_reply = message
            self._recorder.record_reply(message)
        self.add_reply_message(blocks)

    def add_block(self, incoming: PartialReply, block: ReplyBlock, *, last: bool) -> None:
        """A block of a reply that streams: a line now, part of a message with `add_heard`."""
        self.last_reply = incoming.head
        if self._recorder is not None:
            request_id = incoming.request_id
            self._recorder.record_reply_block(incoming.head, block, last=last, request_id=request_id)

    def add_reply_message(self, blocks: list[ReplyBlock]) -> None:
        """The blocks of a reply whose lines are written, as a message."""
        blocks_to_send = sendable_blocks(blocks)
        if blocks_to_send:
            self.messages.append({"role": "assistant", "content": blocks_to_send})

    def extend_reply(self, blocks: Iterable[ReplyBlock]) -> None:
        """Calls that a recovery made stand in the reply like those the model asked for."""
        content = self.messages[-1]["content"]
        if isinstance(content, list):
            content.extend(blocks)

    def add_results(self, blocks: list[ReplyBlock], interruption: str | None) -> None:
        """What the model reads of its calls, and how it is told that somebody ended them."""
        if interruption is not None:
            blocks = [*blocks, *text_blocks([interruption])]
            if self._recorder is not None:
                self._recorder.record_interruption()
        if blocks:
            self.messages.append({"role": "user", "content": blocks})

    def add_interruption(self) -> None:
        """Somebody ended the turn while nothing ran."""
        self.add_user_texts([INTERRUPTED])
        if self._recorder is not None:
            self._recorder.record_interruption(tool_use=False)

    def restart_from_summary(self, summary: str, contexts: Iterable[str]) -> None:
        """Nothing that was said before is sent any more."""
        self.messages = []
        self.add_user_texts([summary, *contexts])

    # Lines that are no part of the messages

    def record_compaction(self, compaction: Compaction) -> None:
        """A summary takes the place of what was said."""
        if self._recorder is not None:
            self._recorder.record_compaction(compaction)

    def record_notifications(self, texts: Iterable[str]) -> None:
        """News that the model is told within a turn."""
        for text in texts:
            if self._recorder is not None:
                self._recorder.record_notice(text)

    def record_retry(self, retry: Retrying) -> None:
        """A reply begins anew."""
        if self._recorder is not None:
            self._recorder.record_retry(_request_failure(retry.failure, retry))

    def record_failure(self, failure: ModelFailed) -> None:
        """There is no reply."""
        if self._recorder is not None:
            self._recorder.record_failure(_request_failure(failure), failure.describe())

    def record_turn_limit(self, max_turns: int, turns: int) -> None:
        """The model has spoken often enough."""
        if self._recorder is not None:
            self._recorder.record_turn_limit(max_turns, turns)


def _request_failure(failure: ModelFailed, retry: Retrying | None = None) -> RequestFailure:
    """What went wrong with a model, as a transcript tells it."""
    return RequestFailure(
        message=failure.message,
        kind=failure.kind,
        status=failure.status,
        attempt=retry.attempt if retry else 0,
        max_retries=retry.max_retries if retry else 0,
        wait_s=retry.wait_s if retry else 0.0,
    )


_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def sanitize_blocks(content: object) -> list[Block]:
    """The blocks of a message that can be sent."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [sanitized for block in _typed_blocks(content) if (sanitized := _sanitize_block(dict(block))) is not None]


def _typed_blocks(content: object) -> Iterator[Mapping[str, object]]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and isinstance(block.get("type"), str):
            yield block


def _sanitize_block(block: Block) -> Block | None:
    match block["type"]:
        case "text":
            return block if isinstance(block.get("text"), str) and not is_blank(block) else None
        case "tool_use":
            return _sanitize_call(block)
        case "tool_result":
            return _sanitize_result(block)
        case "thinking":
            is_signed = isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str)
            return block if is_signed else None
        case _:
            return block


def _sanitize_call(block: Block) -> Block | None:
    name, call_id = block.get("name"), block.get("id")
    if not (isinstance(call_id, str) and _CALL_ID.fullmatch(call_id)):
        return None
    if not (isinstance(name, str) and _TOOL_NAME.fullmatch(name)):
        return None
    arguments = block.get("input")
    return {**block, "input": arguments if isinstance(arguments, dict) else {}}


def _sanitize_result(block: Block) -> Block | None:
    if not isinstance(block.get("tool_use_id"), str):
        return None
    content = block.get("content")
    if isinstance(content, list):
        parts = sanitize_blocks(content)
        if any(part["type"] != "text" for part in parts):  # an error holds nothing but texts
            block.pop("is_error", None)
        return {**block, "content": parts}
    return block if isinstance(content, str | None) else {**block, "content": str(content)}
