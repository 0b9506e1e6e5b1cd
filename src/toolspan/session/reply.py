"""A model's reply, whoever sent it: an SDK's object or plain JSON.

In: a whole reply. Out: a plain message, and its calls in a batch. Replies that stream are heard
in `hearing.py`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from toolspan.errors import BadCall
from toolspan.run.batch import Batch
from toolspan.run.blocks import read_block
from toolspan.run.desk import Job
from toolspan.session.incoming import is_blank


class Dumps(Protocol):
    """An SDK's message: pydantic models have this."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, object]:
        """The message as plain values."""
        ...


_PLAIN = frozenset({str, dict, list, bool, int, float})
Reply = Mapping[str, object] | Dumps
"""An assistant message of the Messages API."""


def plain_reply(reply: Reply) -> dict[str, object]:
    """The message as plain values, its content a list of blocks.

    Raises:
        BadCall: it is no assistant message.
    """
    if isinstance(reply, (dict, Mapping)):  # an abstract class alone is slow to ask
        message = dict(reply)
    elif hasattr(reply, "model_dump"):
        message = reply.model_dump(mode="json", exclude_none=True)
    else:
        raise BadCall(f"a reply is an assistant message, not {type(reply).__name__}")
    inner = message.get("message")
    if message.get("type") == "assistant" and isinstance(inner, Mapping):
        message = dict(inner)
    if message.get("role", "assistant") != "assistant":
        raise BadCall(f"a reply has the role assistant, not {message.get('role')!r}")
    message["role"] = "assistant"
    message["content"] = _blocks(message.get("content"))
    return message


def _blocks(content: object) -> list[dict[str, object]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise BadCall("a reply has its content as a text or a list of blocks")
    plain = []
    for number, block in enumerate(content):
        if not isinstance(block, (dict, Mapping)) or not isinstance(block.get("type"), str):
            raise BadCall(f"block {number} of the reply is no object with a type")
        plain.append(_plain(block))
    return plain


class Accepted(NamedTuple):
    """What of a reply counts."""

    blocks: list[dict[str, object]]
    jobs: list[Job]
    """Its calls, to be run."""


def accept(message: dict[str, object], batch: Batch) -> Accepted:
    """The reply without what says nothing, and without calls whose id was there before.

    Raises:
        BadCall: one of its calls cannot be answered; none is accepted.
    """
    blocks = message["content"]
    if not isinstance(blocks, list):
        raise BadCall("a reply has its content as a list of blocks")
    read = [read_block(block) if block["type"] == "tool_use" else None for block in blocks]
    cut = blocks[-1] if blocks and message.get("stop_reason") == "max_tokens" else None
    kept: list[dict[str, object]] = []
    jobs: list[Job] = []
    for block, asked in zip(blocks, read, strict=True):
        if asked is None:
            if not is_blank(block):
                kept.append(block)
            continue
        job = batch.accept(asked, cut=block is cut)
        if job is not None:
            jobs.append(job)
            block["input"] = job.shelf.arguments_
            kept.append(block)
    message["content"] = kept
    return Accepted(kept, jobs)


def _plain(block: Mapping[str, object]) -> dict[str, object]:
    """A block without what servers send but do not take back."""
    if _PLAIN.issuperset(map(type, block.values())):  # as nearly always
        return dict(block)
    return {
        key: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        for key, value in block.items()
        if value is not None
    }
