"""What a session puts into the conversation, as blocks: results, and what is said beside them."""

from collections.abc import Iterable

from toolspan.model.live import Finished


def result_block(finished: Finished) -> dict[str, object]:
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
