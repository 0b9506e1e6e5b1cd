"""What a session puts into the conversation, as blocks: prompts, results, what is said beside."""

from collections.abc import Iterable, Mapping, Sequence

from toolspan.model.live import Finished
from toolspan.session.incoming import is_blank

_OF_THE_TURN = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Blocks that nobody but the model and its calls put into a conversation."""

_DEPTH = 6
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
        if kind in _OF_THE_TURN:
            raise ValueError(f"a prompt holds no {kind} block")
        if kind == "text" and not isinstance(block.get("text"), str | None):
            raise ValueError("a text of a prompt is no text")
        if is_blank(dict(block)):
            raise ValueError("a text of a prompt is empty")


def copied(messages: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Messages whose blocks nobody else holds, nor the blocks within results."""
    return [{key: _copied(value, _DEPTH) for key, value in message.items()} for message in messages]


def _copied(value: object, depth: int) -> object:
    if not depth:
        return value
    if isinstance(value, dict):
        return {key: _copied(one, depth - 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_copied(one, depth - 1) for one in value]
    return value


def result_blocks(results: Sequence[Finished]) -> list[dict[str, object]]:
    """The results of calls, as the model reads them; what is said beside them comes after."""
    blocks = [_result_block(finished) for finished in results]
    for finished in results:
        if finished.companions or finished.contexts:
            blocks += beside(finished)
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


def words(texts: Iterable[str]) -> list[dict[str, object]]:
    """Texts, a block each."""
    return [{"type": "text", "text": text} for text in texts]


def beside(finished: Finished) -> list[dict[str, object]]:
    """What the model reads after a result: notes of the tool, what hooks add."""
    blocks: list[dict[str, object]] = []
    for companion in finished.companions:
        blocks += [{"type": "text", "text": companion}] if isinstance(companion, str) else companion
    for context in finished.contexts:
        text = context.words or f"{context.name} hook additional context: {context.text}"
        blocks.append({"type": "text", "text": text})
    return blocks
