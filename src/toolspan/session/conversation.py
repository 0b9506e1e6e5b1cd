"""The conversation as messages for the model, recorded in the transcript as it grows.

`Conversation` adds prompts, replies and results. A prompt that arrives during a reply is held until the reply has its
results, because no server accepts text between a call and its result.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from toolspan.runtime.outcome import NO_MESSAGE
from toolspan.session.models.base import ModelFailed, Retrying
from toolspan.session.models.history import CALL_ID, TOOL_NAME, Block, Message
from toolspan.session.recording import ConversationEvent, Interruption, Recorder, RequestFailure
from toolspan.session.reply import PartialReply, is_blank, sendable_blocks
from toolspan.types.events import Content, Finished

_MODEL_BLOCK_TYPES = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
_COPY_DEPTH = 6
"""The nesting depth of a message: a list of blocks, a block, its list, a block in that list, its
source. Inputs may be nested deeper and are shared.
"""


class Conversation:
    """The messages in a session. Each addition is recorded if the session has a recorder."""

    def __init__(self, history: Sequence[Mapping[str, object]], recorder: Recorder | None) -> None:
        self.messages: list[Message] = copy_messages(history)
        self.last_reply: Message = {}
        """The last recorded reply, to which recovery calls are added."""
        self.is_reply_pending = False
        """True while a reply is in progress. Prompts are held until `release_prompts` is called."""
        self.on_block: Callable[[Message, Block], None] = lambda _message, _block: None
        """A callback that receives the message and each accepted block of a streamed reply before its
        call starts. It must not raise.
        """
        self._recorder = recorder
        self._pending_prompts: list[tuple[list[Block], Content, str | None]] = []

    def record(self, event: ConversationEvent) -> None:
        """Record an event that does not add a message."""
        if self._recorder is not None:
            self._recorder.handle(event)

    def add_prompt(self, content: Content, contexts: Iterable[str], prompt_id: str | None) -> list[Block]:
        """Add a prompt preceded by context, either now or after the results of the reply in progress.

        Return the blocks of the message, to which the caller may append.
        """
        blocks = text_blocks(contexts)
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else copy_messages(content)
        self._pending_prompts.append((blocks, content, prompt_id))
        if not self.is_reply_pending:
            self.release_prompts()
        return blocks

    def release_prompts(self) -> bool:
        """Add the held prompts and return whether there were any."""
        self.is_reply_pending = False
        pending_prompts, self._pending_prompts = self._pending_prompts, []
        for blocks, content, prompt_id in pending_prompts:
            self.messages.append({"role": "user", "content": blocks})
            if self._recorder is not None:
                self._recorder.record_prompt(content, prompt_id=prompt_id)
        return bool(pending_prompts)

    def add_user_texts(self, texts: Iterable[str]) -> None:
        """Add a user message that is recorded elsewhere."""
        self.messages.append({"role": "user", "content": text_blocks(texts)})

    def add_reply(self, blocks: list[Block], message: Message | None = None) -> None:
        """Add the accepted blocks of a reply. A streamed reply is already recorded; for others, pass the `message`."""
        if message is not None and blocks and self._recorder is not None:
            if "id" not in message:
                message["id"] = f"msg_{uuid.uuid4().hex[:24]}"
            self.last_reply = message
            self._recorder.record_reply(message)
        sendable = sendable_blocks(blocks)
        if sendable:
            self.messages.append({"role": "assistant", "content": sendable})

    def record_block(self, reply: PartialReply, block: Block, *, last: bool) -> None:
        """Record one block of a streamed reply. `add_reply` adds it to the messages later."""
        self.last_reply = reply.head
        if self._recorder is not None:
            self._recorder.record_reply(reply.head, [block], last=last, request_id=reply.request_id)
        self.on_block(reply.head, block)

    def add_results(self, results: Sequence[Finished], notes: list[Block], interruption: str | None) -> None:
        """Add the results for a reply, followed by notes and, if the user interrupted it, the interruption note."""
        blocks: list[Block] = []
        for finished in results:
            result = finished.span.result
            block: Block = {"type": "tool_result", "tool_use_id": finished.span.call.id, "content": finished.content}
            if result is not None and result.is_error is not None:
                block["is_error"] = result.is_error
            blocks.append(block)
        for finished in results:
            if finished.companions or finished.contexts:
                blocks += companion_blocks(finished)
        blocks += notes
        if interruption is not None:
            blocks += text_blocks([interruption])
            self.record(Interruption())
        if blocks:
            self.messages.append({"role": "user", "content": blocks})

    def record_failure(self, failure: ModelFailed, retry: Retrying | None = None) -> None:
        """Record a failed request, and whether it will be retried."""
        self.record(
            RequestFailure(
                message=failure.message,
                kind=failure.kind,
                status=failure.status,
                text=failure.describe(),
                attempt=retry.attempt if retry else 0,
                max_retries=retry.max_retries if retry else 0,
                wait_s=retry.wait_s if retry else 0.0,
            )
        )


def check_prompt(content: object) -> None:
    """Check that a prompt is a string or a list of content blocks that a user may send."""
    if content is not None and not isinstance(content, str | list):
        raise ValueError(f"a prompt must be a string or a list of blocks, not {type(content).__name__}")
    if not content or (isinstance(content, str) and not content.strip()):
        raise ValueError("a prompt must not be empty")
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str):
            raise ValueError("a prompt must be a string or a list of blocks, each with its type")
        if kind in _MODEL_BLOCK_TYPES:
            raise ValueError(f"a prompt must not contain a {kind} block")
        if kind == "text" and not isinstance(block.get("text"), str | None):
            raise ValueError("the text of a text block must be a string")
        if is_blank(dict(block)):
            raise ValueError("a text block of a prompt must not be empty")


def copy_messages(messages: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Copy messages, including their blocks and the blocks within their results."""
    return [{key: _copy_value(value, _COPY_DEPTH) for key, value in message.items()} for message in messages]


def _copy_value(value: object, depth: int) -> object:
    if depth and isinstance(value, dict):
        return {key: _copy_value(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list):
        return [_copy_value(item, depth - 1) for item in value]
    return value


def companion_blocks(finished: Finished) -> list[Block]:
    """Return the blocks that the model reads after a result: notes from the tool and context from hooks."""
    blocks: list[Block] = []
    for companion in finished.companions:
        blocks += [{"type": "text", "text": companion}] if isinstance(companion, str) else companion
    for context in finished.contexts:
        text = context.model_text or f"{context.name} hook additional context: {context.text}"
        blocks.append({"type": "text", "text": text})
    return blocks


def text_blocks(texts: Iterable[str]) -> list[Block]:
    """Return a text block for each string."""
    return [{"type": "text", "text": text} for text in texts]


def sanitize_blocks(content: object) -> list[Block]:
    """Return the blocks in a recorded message that the API accepts."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks: list[Block] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text"}:
                if isinstance(block.get("text"), str) and not is_blank(block):
                    blocks.append(dict(block))
            case {"type": "tool_use"}:
                name, call_id, arguments = block.get("name"), block.get("id"), block.get("input")
                has_id = isinstance(call_id, str) and CALL_ID.fullmatch(call_id)
                if has_id and isinstance(name, str) and TOOL_NAME.fullmatch(name):
                    blocks.append({**block, "input": arguments if isinstance(arguments, dict) else {}})
            case {"type": "tool_result"}:
                if isinstance(block.get("tool_use_id"), str):
                    blocks.append(_sanitize_result(dict(block)))
            case {"type": "thinking"}:
                if isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str):
                    blocks.append(dict(block))
            case {"type": str()}:
                blocks.append(dict(block))
            case _:
                pass
    return blocks


def _sanitize_result(block: Block) -> Block:
    content = block.get("content")
    if isinstance(content, list):
        parts = sanitize_blocks(content)
        if any(part["type"] != "text" for part in parts):  # the API allows only text in an error
            block.pop("is_error", None)
        content = parts
    elif not isinstance(content, str | None):
        content = str(content)
    if block.get("is_error") is True and not (content.strip() if isinstance(content, str) else content):
        content = NO_MESSAGE  # the API rejects an error without a text
    return block if content is None else {**block, "content": content}
