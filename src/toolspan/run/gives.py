"""What a tool's function returned, as an output.

In: any value. Out: an `Output`: a text as it is, blocks as blocks, anything else as compact JSON
for the model and as the JSON value for programs. Bytes are refused: nobody said what they are.
"""

import os
from collections.abc import Mapping

import msgspec

from toolspan.errors import BadTool
from toolspan.model.live import Content
from toolspan.run.tool import Failure, Output

_BLOCKS = frozenset({
    "audio", "document", "image", "resource", "resource_link", "search_result", "text",
    "tool_reference",
})  # fmt: skip


def as_output(name: str, value: object, *, structured: bool = False) -> Output | Failure:
    """Make an output of what the function of tool `name` returned.

    Raises:
        BadTool: the value cannot be given to a model.
    """
    match value:
        case str():
            return Output(value, structured_output=value if structured else None)
        case None:
            return Output()
        case Output() | Failure():
            return value
        case bytes() | bytearray() | memoryview():
            raise BadTool(f"{name} returned bytes; return text, or a list of content blocks")
        case _:
            return _json_output(name, value, structured=structured)


def _json_output(name: str, value: object, *, structured: bool) -> Output:
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)
        blocks = _blocks(plain)
        content: Content = msgspec.json.encode(plain).decode() if blocks is None else blocks
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise BadTool(f"{name} returned what JSON cannot show: {error}") from error
    return Output(content, structured=plain, structured_output=plain if structured else None)


def _blocks(plain: object) -> list[dict[str, object]] | None:
    """A list of content blocks, if it is one."""
    if isinstance(plain, list) and plain and all(_is_block(one) for one in plain):
        return plain
    return None


def _is_block(one: object) -> bool:
    return isinstance(one, dict) and one.get("type") in _BLOCKS and len(one) > 1


def _plain(value: object) -> object:
    """What msgspec does not know: pydantic models, paths, and mappings of other kinds."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise NotImplementedError(f"a {type(value).__name__}")
