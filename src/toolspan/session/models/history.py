"""Messages API messages and blocks, and the checks that the API performs.

Problems are reported with the API's wording and in its order. Unknown block types are accepted,
because the API grows. Rules that depend on the model or a beta header (prefill, thinking budgets,
cache markers) are not checked. Start at `check_history`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import msgspec

from toolspan.runtime.pending_call import UNNAMED_TOOL
from toolspan.runtime.schema.issues import unparsed_input

Message = dict[str, object]
Block = dict[str, object]

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_LENGTH = 128
_ROLES = ("user", "assistant", "system")
_UNANSWERED_CALLS = (
    "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
_UNEXPECTED_RESULT = (
    "{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block"
    " must have a corresponding `tool_use` block in the previous message."
)


@dataclass(frozen=True)
class _LocatedBlock:
    """A block and its location in the request."""

    message: int
    index: int
    block: Mapping[str, object]

    @property
    def location(self) -> str:
        return f"messages.{self.message}.content.{self.index}"

    @property
    def type(self) -> object:
        return self.block["type"]


@dataclass(frozen=True)
class _RoleTurn:
    """Consecutive messages with the same role, which the API merges."""

    role: str
    last_message: int
    blocks: tuple[_LocatedBlock, ...]

    def blocks_of_type(self, kind: str) -> list[_LocatedBlock]:
        return [located for located in self.blocks if located.type == kind]


def check_history(messages: object) -> list[str]:
    """Return the problems that would make the API reject these messages."""
    if not _is_list(messages):
        return ["messages: Input should be a valid list"]
    if not messages:
        return ["messages: at least one message is required"]
    malformed = [*_malformed_messages(messages)]
    if malformed:  # further checks need well-formed messages
        return malformed
    objects = [message for message in messages if _is_object(message)]
    turns = _group_turns(objects)
    return [*_misplaced_blocks(turns), *_empty_messages(objects), *_unpaired_calls(turns)]


def check_tools(tools: object) -> list[str]:
    """Return the problems that would make the API reject these tools."""
    if not _is_list(tools):
        return ["tools: Input should be a valid list"]
    problems: list[str] = []
    for n, tool in enumerate(tools):
        if not _is_object(tool):
            problems.append(f"tools.{n}: Input should be an object")
        elif tool.get("type", "custom") in ("custom", None):  # all others are server tools, which have their own fields
            location, schema = f"tools.{n}.custom", tool.get("input_schema")
            problems += _missing_fields(location, tool, name=str, input_schema=dict)
            problems += _mismatched_fields(location, tool, name=TOOL_NAME)
            if _is_object(schema) and schema.get("type") != "object":
                problems.append(f"{location}.input_schema.type: Input should be 'object'")
    names = [str(tool.get("name")) for tool in tools if _is_object(tool)]
    if len(set(names)) < len(names):
        problems.append("tools: Tool names must be unique.")
    return problems


def message_blocks(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the blocks in a message. A string becomes one text block."""
    match message.get("content"):
        case str(text):
            return [{"type": "text", "text": text}] if text else []
        case list(blocks):
            return [block for block in blocks if _is_object(block)]
        case _:
            return []


def parse_call_input(text: str) -> dict[str, object]:
    """Parse a call's input. Text that is not a JSON object is kept as unparsed input."""
    if not text.strip():
        return {}
    try:
        arguments: dict[str, object] = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return dict(unparsed_input(text))
    return arguments


def unique_call_id(proposed: str | None, used_ids: Container[str]) -> str:
    """Return a valid and unused call id, which is `proposed` if possible."""
    cleaned = _FORBIDDEN.sub("_", proposed or "")
    if cleaned and cleaned not in used_ids:
        return cleaned
    return f"call_{uuid.uuid4().hex[:24]}"


def valid_call_id(call_id: str) -> str:
    """Return an id that the API accepts: always the same one for the same id, and another one for another id."""
    if CALL_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.blake2s(call_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{_FORBIDDEN.sub('_', call_id)}_{digest}"


def sanitize_tool_name(proposed: str | None) -> str:
    """Return a valid tool name. A name that had to be changed matches no tool."""
    return _FORBIDDEN.sub("_", proposed or "")[:_MAX_NAME_LENGTH] or UNNAMED_TOOL


def iter_call_ids(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the ids of all calls in the messages."""
    for message in messages:
        for block in message_blocks(message):
            if block.get("type") == "tool_use":
                yield str(block.get("id"))


def text_with_placeholders(content: object) -> str:
    """Return the text of a message or result, with placeholders for images and documents."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image" | "document" as kind, "source": {"media_type": str(media)}}:
                texts.append(f"[{kind}, {media}: not shown to this model]")
            case {"type": str(kind)}:
                texts.append(f"[{kind}: not shown to this model]")
            case Mapping():
                texts.append("")
            case _:
                pass
    return "\n".join(texts)


def _malformed_messages(messages: Sequence[object]) -> Iterator[str]:
    for n, message in enumerate(messages):
        if not _is_object(message):
            yield f"messages.{n}: Input should be an object"
            continue
        if message.get("role") not in _ROLES:
            yield f"messages.{n}.role: Input should be 'user', 'assistant' or 'system'"
        match message.get("content"):
            case None:
                yield f"messages.{n}.content: Field required"
            case str():
                pass
            case list(blocks):
                for index, block in enumerate(blocks):
                    yield from _malformed_block(f"messages.{n}.content.{index}", block)
            case _:
                yield f"messages.{n}.content: Input should be a valid string or list"


def _malformed_block(location: str, block: object) -> Iterator[str]:
    if not _is_object(block):
        yield f"{location}: Input should be an object"
        return
    match block.get("type"):
        case "text":
            yield from _missing_fields(f"{location}.text", block, text=str)
        case "tool_use":
            yield from _missing_fields(f"{location}.tool_use", block, id=str, name=str, input=dict)
            yield from _mismatched_fields(f"{location}.tool_use", block, id=CALL_ID, name=TOOL_NAME)
        case "tool_result":
            yield from _malformed_result(f"{location}.tool_result", block)
        case "thinking":
            yield from _missing_fields(f"{location}.thinking", block, thinking=str, signature=str)
        case str():
            pass
        case _:
            yield f"{location}: Unable to extract tag using discriminator 'type'"


def _malformed_result(location: str, block: Mapping[str, object]) -> Iterator[str]:
    yield from _missing_fields(location, block, tool_use_id=str)
    yield from _mismatched_fields(location, block, tool_use_id=CALL_ID)
    content = block.get("content")
    if block.get("is_error") is True and not (content.strip() if isinstance(content, str) else content):
        yield f"{location}: content cannot be empty if `is_error` is true"
    if not _is_list(content):
        if not isinstance(content, str | None):
            yield f"{location}.content: Input should be a valid string or list"
        return
    for index, part in enumerate(content):
        yield from _malformed_block(f"{location}.content.{index}", part)
    kinds = {part.get("type") for part in content if _is_object(part)}
    if block.get("is_error") is True and kinds - {"text"}:
        yield f"{location}: all content must be type `text` if `is_error` is true"


def _missing_fields(location: str, block: Mapping[str, object], **fields: type) -> Iterator[str]:
    type_names: dict[type, str] = {str: "string", dict: "dictionary"}
    for field, kind in fields.items():
        if field not in block:
            yield f"{location}.{field}: Field required"
        elif not isinstance(block[field], kind):
            yield f"{location}.{field}: Input should be a valid {type_names[kind]}"


def _mismatched_fields(location: str, block: Mapping[str, object], **patterns: re.Pattern[str]) -> Iterator[str]:
    for field, pattern in patterns.items():
        value = block.get(field)
        if isinstance(value, str) and not pattern.fullmatch(value):
            yield f"{location}.{field}: String should match pattern '^{pattern.pattern}$'"


def _group_turns(messages: Sequence[Mapping[str, object]]) -> list[_RoleTurn]:
    turns: list[_RoleTurn] = []
    for n, message in enumerate(messages):
        role = str(message["role"])
        located_blocks = tuple(_LocatedBlock(n, index, block) for index, block in enumerate(message_blocks(message)))
        if turns and turns[-1].role == role:
            located_blocks = turns.pop().blocks + located_blocks
        turns.append(_RoleTurn(role, n, located_blocks))
    return turns


def _misplaced_blocks(turns: Sequence[_RoleTurn]) -> Iterator[str]:
    """Yield problems with blocks in messages with the wrong role."""
    if turns[0].role != "user":
        yield 'messages: first message must use the "user" role'
    for turn in turns:
        for kind, role in (("tool_use", "assistant"), ("tool_result", "user")):
            for located in turn.blocks_of_type(kind) if turn.role != role else ():
                where = f"messages.{located.message}"
                yield f"{where}: `{kind}` blocks can only be in `{role}` messages"
        if turn.role == "assistant" and turn.blocks and turn.blocks[-1].type == "thinking":
            yield (f"messages.{turn.last_message}: The final block in an assistant message cannot be `thinking`.")


def _empty_messages(messages: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield problems with empty messages and empty text blocks."""
    for n, message in enumerate(messages, 1):
        blocks = message_blocks(message)
        is_prefill = n == len(messages) and message["role"] == "assistant"
        if not blocks and not is_prefill:
            yield (
                f"messages.{n - 1}: all messages must have non-empty content except for the optional"
                " final assistant message"
            )
        yield from _blank_texts(blocks)
        last_text = str(blocks[-1].get("text", "")) if blocks else ""
        if is_prefill and last_text != last_text.rstrip():
            yield "messages: final assistant content cannot end with trailing whitespace"


def _blank_texts(blocks: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "tool_result":
            yield from _blank_texts(message_blocks(block))
        if block["type"] == "text" and not block["text"]:
            yield "messages: text content blocks must be non-empty"
        elif block["type"] == "text" and not str(block["text"]).strip():
            yield "messages: text content blocks must contain non-whitespace text"


def _unpaired_calls(turns: Sequence[_RoleTurn]) -> Iterator[str]:
    """Yield problems with calls that do not have exactly one result, and with results that have no call."""
    seen: set[object] = set()
    previous: _RoleTurn | None = None
    for turn in turns:
        yield from _pairing_problems(previous, turn)
        for located in turn.blocks_of_type("tool_use") if turn.role == "assistant" else ():
            if located.block["id"] in seen:
                yield f"{located.location}: `tool_use` ids must be unique"
            seen.add(located.block["id"])
        previous = turn
    yield from _pairing_problems(previous, None)


def _pairing_problems(previous: _RoleTurn | None, turn: _RoleTurn | None) -> Iterator[str]:
    """Yield pairing problems between a turn and the next one (None at the end)."""
    call_blocks = previous.blocks_of_type("tool_use") if previous and previous.role == "assistant" else []
    calls = {str(located.block["id"]): located for located in call_blocks}
    user = turn if turn and turn.role == "user" else None
    # The API expects all results at the start of the turn.
    leading = itertools.takewhile(lambda located: located.type == "tool_result", user.blocks if user else ())
    leading_ids = {str(located.block["tool_use_id"]) for located in leading}
    missing = [identifier for identifier in calls if identifier not in leading_ids]
    if missing:
        yield _UNANSWERED_CALLS.format(calls[missing[0]].message, ", ".join(missing))
    answered: set[str] = set()
    for located in user.blocks_of_type("tool_result") if user else ():
        identifier = str(located.block["tool_use_id"])
        if identifier not in calls:
            yield _UNEXPECTED_RESULT.format(located.location, identifier)
        elif identifier in answered:
            yield (
                f"{located.location}: each tool_use must have a single result. Found multiple"
                f" `tool_result` blocks with id: {identifier}"
            )
        answered.add(identifier)


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
