"""Would the Messages API take this conversation?

In: the `messages` (and `tools`) of a request, as plain JSON. Out: what is wrong with them, in the
API's own words, in the order the API would find it; nothing means valid. Pure. Block types it does
not know are let through, because the API grows; what depends on the model or on a beta header
(prefill, thinking budgets, cache markers) is not judged. Read `check_history` first.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

Message = dict[str, object]
"""A message as plain JSON."""
Block = dict[str, object]
"""A content block as plain JSON."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ROLES = ("user", "assistant", "system")
_UNANSWERED = (
    "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
_UNEXPECTED = (
    "{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block"
    " must have a corresponding `tool_use` block in the previous message."
)


@dataclass(frozen=True)
class _Placed:
    """A block, and where in the request it stands."""

    message: int
    index: int
    block: Mapping[str, object]

    @property
    def place(self) -> str:
        return f"messages.{self.message}.content.{self.index}"

    @property
    def type(self) -> object:
        return self.block["type"]


@dataclass(frozen=True)
class _Turn:
    """Neighbouring messages of one role, which the API takes for one."""

    role: str
    last: int
    """The last message of them."""
    blocks: tuple[_Placed, ...]

    def of(self, kind: str) -> list[_Placed]:
        return [placed for placed in self.blocks if placed.type == kind]


def check_history(messages: object) -> list[str]:
    """What the API would refuse a request with these messages for; empty when it would not."""
    if not _is_list(messages):
        return ["messages: Input should be a valid list"]
    if not messages:
        return ["messages: at least one message is required"]
    malformed = [*_malformed_messages(messages)]
    if malformed:  # what they say can be judged only when it can be read
        return malformed
    turns = _turns([message for message in messages if _is_object(message)])
    return [*_misplaced(turns), *_empty(messages), *_unpaired(turns)]


def check_tools(tools: object) -> list[str]:
    """What the API would refuse a request with these tools for."""
    if not _is_list(tools):
        return ["tools: Input should be a valid list"]
    problems = [problem for n, tool in enumerate(tools) for problem in _malformed_tool(n, tool)]
    names = Counter(str(tool.get("name")) for tool in tools if _is_object(tool))
    repeated = any(times > 1 for times in names.values())
    return [*problems, *(["tools: Tool names must be unique."] if repeated else [])]


def blocks_of(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    """What a message holds, a plain string being one text block."""
    match message.get("content"):
        case str(text):
            return [{"type": "text", "text": text}] if text else []
        case list(blocks):
            return [block for block in blocks if _is_object(block)]
        case _:
            return []


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


def _malformed_block(place: str, block: object) -> Iterator[str]:
    if not _is_object(block):
        yield f"{place}: Input should be an object"
        return
    match block.get("type"):
        case "text":
            yield from _needs(f"{place}.text", block, text=str)
        case "tool_use":
            yield from _malformed_call(f"{place}.tool_use", block)
        case "tool_result":
            yield from _malformed_result(f"{place}.tool_result", block)
        case "thinking":
            yield from _needs(f"{place}.thinking", block, thinking=str, signature=str)
        case str():
            pass
        case _:
            yield f"{place}: Unable to extract tag using discriminator 'type'"


def _malformed_call(place: str, block: Mapping[str, object]) -> Iterator[str]:
    yield from _needs(place, block, id=str, name=str, input=dict)
    for field, pattern in (("id", _ID), ("name", _NAME)):
        value = block.get(field)
        if isinstance(value, str) and not pattern.fullmatch(value):
            yield f"{place}.{field}: String should match pattern '^{pattern.pattern}$'"


def _malformed_result(place: str, block: Mapping[str, object]) -> Iterator[str]:
    yield from _needs(place, block, tool_use_id=str)
    content = block.get("content")
    if not _is_list(content):
        if not isinstance(content, str | None):
            yield f"{place}.content: Input should be a valid string or list"
        return
    for index, part in enumerate(content):
        yield from _malformed_block(f"{place}.content.{index}", part)
    kinds = {part.get("type") for part in content if _is_object(part)}
    if block.get("is_error") is True and kinds - {"text"}:
        yield f"{place}: all content must be type `text` if `is_error` is true"


def _malformed_tool(n: int, tool: object) -> Iterator[str]:
    if not _is_object(tool):
        yield f"tools.{n}: Input should be an object"
        return
    if tool.get("type", "custom") not in ("custom", None):
        return  # a tool of the server: its shape is its own
    place = f"tools.{n}.custom"
    yield from _needs(place, tool, name=str, input_schema=dict)
    name, schema = tool.get("name"), tool.get("input_schema")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        yield f"{place}.name: String should match pattern '^{_NAME.pattern}$'"
    if _is_object(schema) and schema.get("type") != "object":
        yield f"{place}.input_schema.type: Input should be 'object'"


def _needs(place: str, block: Mapping[str, object], **fields: type) -> Iterator[str]:
    named: dict[type, str] = {str: "string", dict: "dictionary"}
    for field, kind in fields.items():
        if field not in block:
            yield f"{place}.{field}: Field required"
        elif not isinstance(block[field], kind):
            yield f"{place}.{field}: Input should be a valid {named[kind]}"


def _turns(messages: Sequence[Mapping[str, object]]) -> list[_Turn]:
    turns: list[_Turn] = []
    for n, message in enumerate(messages):
        role = str(message["role"])
        own = tuple(_Placed(n, index, block) for index, block in enumerate(blocks_of(message)))
        if turns and turns[-1].role == role:
            turns[-1] = _Turn(role, n, turns[-1].blocks + own)
        else:
            turns.append(_Turn(role, n, own))
    return turns


def _misplaced(turns: Sequence[_Turn]) -> Iterator[str]:
    """Blocks in a role that cannot hold them."""
    if turns[0].role != "user":
        yield 'messages: first message must use the "user" role'
    for turn in turns:
        for kind, role in (("tool_use", "assistant"), ("tool_result", "user")):
            for placed in turn.of(kind) if turn.role != role else ():
                where = f"messages.{placed.message}"
                yield f"{where}: `{kind}` blocks can only be in `{role}` messages"
        if turn.role == "assistant" and turn.blocks and turn.blocks[-1].type == "thinking":
            yield (
                f"messages.{turn.last}: The final block in an assistant message cannot be"
                " `thinking`."
            )


def _empty(messages: Sequence[object]) -> Iterator[str]:
    """Messages and texts that say nothing."""
    final = len(messages) - 1
    for n, message in enumerate(messages):
        if not _is_object(message):
            continue
        blocks = blocks_of(message)
        prefill = n == final and message["role"] == "assistant"
        if not blocks and not prefill:
            yield (
                f"messages.{n}: all messages must have non-empty content except for the optional"
                " final assistant message"
            )
        yield from _blank(blocks)
        if prefill and blocks and str(blocks[-1].get("text", "")) != _trimmed(blocks[-1]):
            yield "messages: final assistant content cannot end with trailing whitespace"


def _blank(blocks: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "tool_result":
            yield from _blank(blocks_of(block))
        if block["type"] == "text" and not block["text"]:
            yield "messages: text content blocks must be non-empty"
        elif block["type"] == "text" and not _trimmed(block):
            yield "messages: text content blocks must contain non-whitespace text"


def _trimmed(block: Mapping[str, object]) -> str:
    return str(block.get("text", "")).rstrip()


def _unpaired(turns: Sequence[_Turn]) -> Iterator[str]:
    """Calls without their one result, results without their call."""
    seen: set[object] = set()
    before: _Turn | None = None
    for turn in turns:
        yield from _answers(before, turn)
        for placed in turn.of("tool_use") if turn.role == "assistant" else ():
            if placed.block["id"] in seen:
                yield f"{placed.place}: `tool_use` ids must be unique"
            seen.add(placed.block["id"])
        before = turn
    yield from _answers(before, None)


def _answers(before: _Turn | None, turn: _Turn | None) -> Iterator[str]:
    """What is wrong between a turn and the next one; None stands for the end."""
    asked = before.of("tool_use") if before and before.role == "assistant" else []
    wanted = {str(placed.block["id"]): placed for placed in asked}
    user = turn if turn and turn.role == "user" else None
    in_front = {str(placed.block["tool_use_id"]) for placed in (_leading(user) if user else ())}
    missing = [identifier for identifier in wanted if identifier not in in_front]
    if missing:
        yield _UNANSWERED.format(wanted[missing[0]].message, ", ".join(missing))
    answered: set[str] = set()
    for placed in user.of("tool_result") if user else ():
        identifier = str(placed.block["tool_use_id"])
        if identifier not in wanted:
            yield _UNEXPECTED.format(placed.place, identifier)
        elif identifier in answered:
            yield (
                f"{placed.place}: each tool_use must have a single result. Found multiple"
                f" `tool_result` blocks with id: {identifier}"
            )
        answered.add(identifier)


def _leading(turn: _Turn) -> Iterator[_Placed]:
    """The results in front; the API looks no further for the answers to its calls."""
    for placed in turn.blocks:
        if placed.type != "tool_result":
            return
        yield placed


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
