"""A model that says what a script tells it to.

In: a script (`script.py`), one step per reply, and requests as the Messages API takes them. Out:
replies as that API gives them, or its errors: a request the API would refuse is refused here in the
same words. Ids come from a seeded counter, token counts from lengths, so the same script gives the
same bytes. Knows nothing of HTTP; `testing/model_api.py` serves a model, `testing/model_stream.py`
takes a reply apart into stream events. Read `ScriptedModel.reply` first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from toolspan.errors import ToolspanError
from toolspan.llm.blocks import parsed
from toolspan.llm.history import Block, Message, blocks_of, check_history, check_tools
from toolspan.llm.model import (
    Began,
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    ModelFailed,
    Request,
    Stopped,
    Stream,
    TextDelta,
    ThinkingDelta,
    Usage,
    failed_status,
)
from toolspan.llm.script import DROPPED, Failure, Reply, Step, answer_of, fail
from toolspan.llm.seeded import Ids

MODEL_NAME = "claude-scripted"
"""The model's name, when a request names none."""


class ApiError(ToolspanError):
    """The API said no: status, type and message as in its error body."""

    def __init__(self, failure: "Failure") -> None:
        super().__init__(f"{failure.status} {failure.type}: {failure.message}")
        self.failure = failure
        self.status = failure.status
        self.type = failure.type
        self.message = failure.message


class ScriptExhausted(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """A request came after the last step of a script."""


@dataclass(frozen=True)
class Spoken:
    """A reply as it left the model."""

    message: Message
    torn: str | None = None
    """The JSON text of the last call's input as far as it came, when it was cut."""
    failure: Failure | None = None
    """The error that ends it, if it is streamed."""


class ScriptedModel:
    """A model whose replies are known beforehand, step by step."""

    def __init__(
        self,
        script: Sequence[Step],
        *,
        then: Step | None = None,
        goes_on: bool = False,
        seed: str = "scripted",
    ) -> None:
        """Take a script.

        Args:
            script: one step per reply.
            then: what is said to every request after the last step; None raises instead.
            goes_on: begin after as many steps as the first request has replies in it: the script
                of a conversation that is resumed.
            seed: models with different seeds never give the same ids.
        """
        self.name = MODEL_NAME
        self.requests: list[Message] = []
        """Every request, in the order they came; refused ones too."""
        self._script = tuple(script)
        self._then = then
        self._taken = 0
        self._goes_on = goes_on
        self._ids = Ids(f"model/{seed}")

    @property
    def left(self) -> int:
        """How many steps of the script nobody has asked for."""
        return len(self._script) - self._taken

    async def create(self, *, messages: Sequence[object], **request: object) -> Message:
        """The next reply, as `POST /v1/messages` gives it.

        Raises:
            ApiError: the request is invalid, or the script says that it fails.
            ScriptExhausted: the script has no more steps.
        """
        spoken = await self.reply({"messages": messages, **request})
        if spoken.failure:
            raise ApiError(spoken.failure)
        return spoken.message

    async def reply(self, request: Mapping[str, object]) -> Spoken:
        """The next reply to a whole request, for those who deliver it themselves."""
        asked = self._noted(request)
        messages = checked(asked)
        if self._goes_on:
            self._goes_on = False
            replies = sum(message["role"] == "assistant" for message in messages)
            self._taken = min(replies, len(self._script))
        answer = await answer_of(self._next(), messages)
        if isinstance(answer, Failure) and not answer.after:
            raise ApiError(answer)
        return self._spoken(asked, answer)

    async def stream(self, request: Request) -> Stream:
        """The next reply as it comes, for those who take any model.

        Raises:
            ModelFailed: the request is invalid, the script says that it fails, or is at its end.
        """
        asked: Message = {"model": request.model or self.name, "max_tokens": request.max_tokens}
        asked |= {"system": request.system, "messages": request.messages, "tools": request.tools}
        try:
            spoken = await self.reply(asked)
        except ApiError as error:
            raise _failed(error.failure) from error
        except ScriptExhausted as error:
            raise ModelFailed(str(error), kind="script_exhausted") from error
        for event in _told(spoken):
            yield event
        if spoken.failure:
            raise _failed(spoken.failure)

    async def close(self) -> None:
        """There is nothing to let go; any model has this."""

    def _noted(self, request: Mapping[str, object]) -> Message:
        # Through JSON: a copy that the caller cannot change, and nothing that could not be sent.
        asked: Message = msgspec.json.decode(msgspec.json.encode(request), type=dict[str, object])
        self.requests.append(asked)
        return asked

    def _next(self) -> Step:
        if self._taken < len(self._script):
            self._taken += 1
            return self._script[self._taken - 1]
        if self._then is None:
            raise ScriptExhausted(
                f"Expected at most {len(self._script)} requests, one per step of the script;"
                f" request {len(self.requests)} has no step (then=... answers any further ones)"
            )
        return self._then

    def _spoken(self, asked: Message, answer: Reply | Failure) -> Spoken:
        failure = answer if isinstance(answer, Failure) else None
        reply = Reply(answer.after) if isinstance(answer, Failure) else answer
        used = set(_call_ids(asked))
        content = [self._finished(block, used) for block in reply.blocks]
        torn = None
        if reply.is_cut:
            content[-1], torn = _cut(content[-1])
        return Spoken(self._message(asked, content, reply), torn, failure)

    def _finished(self, block: Mapping[str, object], used: set[object]) -> Block:
        """A block with everything the API adds to it."""
        match block.get("type"):
            case "tool_use" if "id" not in block:
                identifier = self._ids.token("toolu_01")
                while identifier in used:  # a conversation that another model began
                    identifier = self._ids.token("toolu_01")
                return {"type": "tool_use", "id": identifier, **block}
            case "thinking" if "signature" not in block:
                return {**block, "signature": self._ids.signature()}
            case _:
                return dict(block)

    def _message(self, asked: Message, content: list[Block], reply: Reply) -> Message:
        asks = any(block["type"] == "tool_use" for block in content)
        message: Message = {
            "id": self._ids.token("msg_01"),
            "type": "message",
            "role": "assistant",
            "model": asked.get("model", MODEL_NAME),
            "content": content,
            "stop_reason": reply.stop_reason or ("tool_use" if asks else "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": count_tokens(asked),
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": _tokens(content),
            },
        }
        if reply.stop_details:
            message["stop_details"] = dict(reply.stop_details)
        return message


def _told(spoken: Spoken) -> Iterator[ModelEvent]:
    """A reply as events; one that fails has no end."""
    message = spoken.message
    yield Began(str(message["id"]), str(message["model"]))
    blocks = cast("list[Block]", message["content"])
    for number, block in enumerate(blocks, 1):
        yield from _told_block(block, spoken.torn if number == len(blocks) else None)
    if spoken.failure is None:
        yield Usage(cast("Message", message["usage"]))
        details = cast("Message | None", message.get("stop_details"))
        yield Stopped(str(message["stop_reason"]), details)


def _told_block(block: Block, torn: str | None) -> Iterator[ModelEvent]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield TextDelta(text)
        case {"type": "thinking", "thinking": str(text)}:
            yield ThinkingDelta(text)
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": given}:
            text = msgspec.json.encode(given).decode() if torn is None else torn
            yield CallBegan(call_id, name)
            yield InputDelta(call_id, text)
            block = {**block, "input": parsed(text)}
        case _:
            pass
    yield BlockDone(block)


def _failed(failure: Failure) -> ModelFailed:
    if failure.type == DROPPED:
        return ModelFailed(failure.message, kind="connection", retry=True)
    failed = failed_status(failure.status, failure.message, kind=failure.type)
    failed.retry_after = failure.retry_after
    return failed


def checked(request: Message) -> list[Message]:
    """The messages of a request that the API would take.

    Raises:
        ApiError: it would not.
    """
    problems = [*check_history(request.get("messages")), *check_tools(request.get("tools") or [])]
    if problems:
        raise ApiError(fail(400, message=problems[0]))
    return cast("list[Message]", request["messages"])


def error_body(failure: Failure) -> Message:
    """The JSON the API answers with."""
    return {"type": "error", "error": {"type": failure.type, "message": failure.message}}


def count_tokens(request: Mapping[str, object]) -> int:
    """About how many tokens a request has: a quarter of its characters, at least one."""
    return _tokens([request.get(field) for field in ("system", "tools", "messages")])


def _call_ids(request: Message) -> Iterator[object]:
    for message in cast("list[Message]", request["messages"]):
        yield from (block.get("id") for block in blocks_of(message))


def _cut(block: Block) -> tuple[Block, str | None]:
    """A block that ends in its middle, and the text of its input if it has one."""
    match block:
        case {"type": "tool_use", "input": dict(given)}:
            members = [*given.items()]
            kept = dict(members[:-1])
            return {**block, "input": kept}, _torn(kept, members[-1] if members else None)
        case {"type": "text", "text": str(text)}:
            return {**block, "text": _half(text)}, None
        case {"type": "thinking", "thinking": str(text)}:
            return {**block, "thinking": _half(text)}, None
        case _:
            raise ValueError(f"Expected text, thinking or a call to cut, not {block.get('type')}")


def _torn(kept: Mapping[str, object], last: tuple[str, object] | None) -> str:
    """The JSON of an input up to the middle of its last member."""
    begun = msgspec.json.encode(kept).decode()[:-1]
    if last is None:
        return begun
    key, value = last
    comma = "," if kept else ""
    half = msgspec.json.encode(_half(value)).decode()[:-1] if isinstance(value, str) else ""
    return f"{begun}{comma}{msgspec.json.encode(key).decode()}:{half}"


def _half(text: str) -> str:
    return text[: (len(text) + 1) // 2]


def _tokens(value: object) -> int:
    return max(1, len(msgspec.json.encode(value)) // 4)
