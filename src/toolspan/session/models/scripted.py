"""A model that follows a script, for tests, demos and offline runs.

A script is a list of steps: blocks, replies, failures, or functions of the messages so far. It can
also be loaded from JSON. Requests are validated as they are by the API. Start at `ScriptedModel`.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import secrets
import string
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from toolspan.errors import ToolspanError
from toolspan.session.models.base import (
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelStream,
    ReplyBegan,
    ReplyStopped,
    TextDelta,
    ThinkingDelta,
    Usage,
    failure_from_status,
)
from toolspan.session.models.history import Block, Message, check_history, check_tools, message_blocks, parse_call_input

StopReason = Literal[
    "end_turn", "max_tokens", "model_context_window_exceeded", "pause_turn", "refusal", "stop_sequence", "tool_use"
]

CONNECTION_DROPPED = "dropped"
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True)
class ScriptedReply:
    """An assistant message. Most scripts use a plain list of blocks instead."""

    blocks: Sequence[Mapping[str, object]]
    stop_reason: StopReason | None = None
    """The stop reason. If None, it is `tool_use` if there are calls and `end_turn` otherwise."""
    is_truncated: bool = False
    """True to cut the last block in half."""
    stop_details: Mapping[str, object] | None = None


@dataclass(frozen=True)
class ScriptedFailure:
    """A failed request."""

    status: int
    type: str
    message: str
    retry_after: float | None = None
    """The value of the `retry-after` header, in seconds."""
    after: Sequence[Mapping[str, object]] = ()
    """The blocks streamed before the error."""


ScriptAnswer = Mapping[str, object] | Sequence[Mapping[str, object]] | ScriptedReply | ScriptedFailure
"""The value of a step: a block, a list of blocks, a reply or a failure."""
ScriptStep = ScriptAnswer | Callable[[list[Message]], ScriptAnswer | Awaitable[ScriptAnswer]]
"""One step in a script. A function receives the messages so far and may be asynchronous. Its
exceptions propagate to the model's caller.
"""


def say(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def use(tool: str, /, **arguments: object) -> Block:
    """Return a call. Its id is added when the model sends it."""
    return {"type": "tool_use", "name": tool, "input": arguments}


def think(text: str) -> Block:
    """Return a thinking block. Its fake signature is added when the model sends it."""
    return {"type": "thinking", "thinking": text}


def cut(*blocks: Mapping[str, object]) -> ScriptedReply:
    """Return a reply that reaches `max_tokens` in the middle of its last block."""
    if not blocks:
        raise ValueError("Expected at least one block to cut")
    return ScriptedReply(blocks, "max_tokens", is_truncated=True)


def refuse(*blocks: Mapping[str, object], explanation: str | None = None) -> ScriptedReply:
    """Return a reply that ends with a refusal."""
    details = {"type": "refusal", "category": None, "explanation": explanation}
    return ScriptedReply(blocks, "refusal", stop_details=details)


def fail(
    status: int,
    type: str | None = None,
    message: str | None = None,
    *,
    retry_after: float | None = None,
    after: Sequence[Mapping[str, object]] = (),
) -> ScriptedFailure:
    """Return a request failure, such as `fail(529)` or `fail(400, message="prompt is too long")`."""
    kind = type or _ERROR_TYPES.get(status, "api_error")
    text = message or kind.removesuffix("_error").replace("_", " ").capitalize()
    return ScriptedFailure(status, kind, text, retry_after, tuple(after))


def drop(*blocks: Mapping[str, object]) -> ScriptedFailure:
    """Return a failure in which the connection is lost after these blocks."""
    return ScriptedFailure(0, CONNECTION_DROPPED, "The connection was lost", after=blocks)


def garble(*blocks: Mapping[str, object]) -> ScriptedReply:
    """Return a complete reply whose last call has truncated input."""
    return ScriptedReply(blocks, "tool_use", is_truncated=True)


def last_result_texts(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the text of each result in the last message, for steps that need it."""
    results = [block for block in message_blocks(messages[-1]) if block.get("type") == "tool_result"]
    return ["".join(str(part.get("text", "")) for part in message_blocks(result)) for result in results]


def load_script(text: str | bytes) -> list[ScriptStep]:
    """Load a script from JSON: a list of steps.

    A step is a block, a list of blocks, or an object with one key: `{"cut": [blocks]}`, `{"refuse": [blocks]}`,
    `{"garble": [blocks]}`, `{"drop": [blocks]}`, or `{"fail": {"status": 529}}` with the arguments of `fail`.

    Raises:
        ValueError: the JSON is not a valid script.
    """
    try:
        return [_parse_step(n, step) for n, step in enumerate(msgspec.json.decode(text, type=list[object]))]
    except msgspec.DecodeError as error:
        raise ValueError(f"Expected a list of steps as JSON: {error}") from error


class _FailStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: int
    type: str | None = None
    message: str | None = None
    retry_after: float | None = None
    after: tuple[Block, ...] = ()


def _parse_step(n: int, step: object) -> ScriptStep:
    kind, value = next(iter(step.items())) if isinstance(step, dict) and len(step) == 1 else (None, step)
    if kind == "fail":
        return fail(**msgspec.structs.asdict(msgspec.convert(value, _FailStep)))
    make_answer: Callable[..., ScriptAnswer] | None = _STEP_KINDS.get(str(kind))
    blocks = value if make_answer else step
    if blocks is step and isinstance(step, dict):
        blocks = [step]
    if not isinstance(blocks, list) or not all(isinstance(block, dict) and "type" in block for block in blocks):
        raise ValueError(f"Expected a list of content blocks as step {n} of the script")
    content = msgspec.convert(blocks, list[Block])
    return make_answer(*content) if make_answer else content


_STEP_KINDS: Mapping[str, Callable[..., ScriptAnswer]] = {"cut": cut, "refuse": refuse, "garble": garble, "drop": drop}
_ID_LETTERS = string.digits + string.ascii_letters


class SeededIds:
    """A generator of reproducible ids in the clients' formats. The same seed yields the same ids."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def next_uuid(self) -> str:
        """Return an id for a session, a record or a prompt."""
        return str(uuid.UUID(bytes=self._next_bytes()[:16], version=4))

    def next_token(self, prefix: str, length: int = 22) -> str:
        """Return an id for a call (`toolu_01`), a message (`msg_01`) or a request (`req_011`)."""
        return prefix + "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in self._next_bytes()[:length])

    def next_hex(self, length: int) -> str:
        """Return the hexadecimal part of a subagent id."""
        return self._next_bytes().hex()[:length]

    def next_signature(self) -> str:
        """Return a fake signature."""
        return base64.b64encode(self._next_bytes()).decode("ascii")

    def _next_bytes(self) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._seed}:{self._count}".encode()).digest()


MODEL_NAME = "claude-scripted"


class ApiError(ToolspanError):
    """Raised for a scripted API error, with the status, type and message from its body."""

    def __init__(self, failure: ScriptedFailure) -> None:
        super().__init__(f"{failure.status} {failure.type}: {failure.message}")
        self.failure = failure
        self.status = failure.status
        self.type = failure.type
        self.message = failure.message


class ScriptExhausted(ToolspanError):  # noqa: N818 - the name of a fact
    """Raised if a request is made after the last step of a script."""


@dataclass(frozen=True)
class RenderedReply:
    """A reply as the API would send it."""

    message: Message
    truncated_input: str | None = None
    """The JSON text of the last call's input, up to the cut."""
    failure: ScriptedFailure | None = None
    """The error at the end of the stream."""


class ScriptedModel:
    """A model that sends scripted replies."""

    def __init__(
        self,
        script: Sequence[ScriptStep],
        *,
        then: ScriptStep | None = None,
        resumes: bool = False,
        seed: str | None = None,
        name: str = MODEL_NAME,
    ) -> None:
        """Create a model.

        Args:
            script: One step per reply.
            then: The step for all requests after the script. By default, they raise an error.
            resumes: Skip one step per reply in the first request, to resume a conversation.
            seed: Models with the same seed generate the same ids. Without a seed, ids of calls are reproducible and ids
                of messages are not, so that readers do not take two sessions for copies.
            name: The name of the model, by which its price is found.
        """
        self.name = name
        self.requests: list[Message] = []
        """All requests in order, including rejected ones."""
        self._script = tuple(script)
        self._then = then
        self._next_step = 0
        self._resumes = resumes
        self._ids = SeededIds(f"model/{seed or 'scripted'}")
        self._message_ids = self._ids if seed else SeededIds(secrets.token_hex(8))

    @property
    def remaining_steps(self) -> int:
        """The number of steps that have not been used yet."""
        return len(self._script) - self._next_step

    async def create(self, *, messages: Sequence[object], **request: object) -> Message:
        """Return the next reply as `POST /v1/messages` does."""
        reply = await self.render_reply({"messages": messages, **request})
        if reply.failure:
            raise ApiError(reply.failure)
        return reply.message

    async def render_reply(self, request: Mapping[str, object]) -> RenderedReply:
        """Return the next reply to a raw request, for callers that deliver it themselves."""
        # JSON makes a copy that the caller cannot change, and rejects values that could not be sent.
        recorded: Message = msgspec.json.decode(msgspec.json.encode(request), type=dict[str, object])
        self.requests.append(recorded)
        messages = validated_messages(recorded)
        if self._resumes:
            self._resumes = False
            replies = sum(message["role"] == "assistant" for message in messages)
            self._next_step = min(replies, len(self._script))
        step = self._script[self._next_step] if self._next_step < len(self._script) else self._then
        if step is None:
            raise ScriptExhausted(
                f"Expected at most {len(self._script)} requests, one per step of the script;"
                f" request {len(self.requests)} has no step (then=... answers any further ones)"
            )
        self._next_step = min(self._next_step + 1, len(self._script))
        value = step(messages) if callable(step) else step
        answer = await value if inspect.isawaitable(value) else value
        match answer:
            case ScriptedFailure() if not answer.after:
                raise ApiError(answer)
            case ScriptedFailure():
                return self._render_message(recorded, ScriptedReply(answer.after), answer)
            case ScriptedReply():
                return self._render_message(recorded, answer)
            case Mapping():
                return self._render_message(recorded, ScriptedReply([answer]))
            case _:
                return self._render_message(recorded, ScriptedReply(answer))

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the next reply."""
        body: Message = {"model": request.model or self.name, "max_tokens": request.max_tokens}
        body |= {"system": request.system, "messages": request.messages, "tools": request.tools}
        try:
            reply = await self.render_reply(body)
        except ApiError as error:
            raise _model_failure(error.failure) from error
        except ScriptExhausted as error:
            raise ModelFailed(str(error), kind="script_exhausted") from error
        message = reply.message
        yield ReplyBegan(str(message["id"]), str(message["model"]))
        blocks = cast("list[Block]", message["content"])
        for number, block in enumerate(blocks, 1):
            for event in _block_events(block, reply.truncated_input if number == len(blocks) else None):
                yield event
        if reply.failure:
            raise _model_failure(reply.failure)
        yield Usage(cast("Message", message["usage"]))
        yield ReplyStopped(str(message["stop_reason"]), cast("Message | None", message.get("stop_details")))

    async def close(self) -> None:
        """Do nothing. Required by the `Model` protocol."""

    def _render_message(
        self, request: Message, reply: ScriptedReply, failure: ScriptedFailure | None = None
    ) -> RenderedReply:
        messages = cast("list[Message]", request["messages"])
        used_ids = {block.get("id") for message in messages for block in message_blocks(message)}
        content = [self._complete_block(block, used_ids) for block in reply.blocks]
        truncated_input = None
        if reply.is_truncated:
            content[-1], truncated_input = _truncate_block(content[-1])
        has_calls = any(block["type"] == "tool_use" for block in content)
        message: Message = {
            "id": self._message_ids.next_token("msg_01"),
            "type": "message",
            "role": "assistant",
            "model": request.get("model", MODEL_NAME),
            "content": content,
            "stop_reason": reply.stop_reason or ("tool_use" if has_calls else "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": count_tokens(request),
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": _estimate_tokens(content),
            },
        }
        if reply.stop_details:
            message["stop_details"] = dict(reply.stop_details)
        return RenderedReply(message, truncated_input, failure)

    def _complete_block(self, block: Mapping[str, object], used_ids: set[object]) -> Block:
        """Return a block with the id or signature that the API would add."""
        match block.get("type"):
            case "tool_use" if "id" not in block:
                identifier = self._ids.next_token("toolu_01")
                while identifier in used_ids:  # the conversation may contain calls made by another model
                    identifier = self._ids.next_token("toolu_01")
                return {"type": "tool_use", "id": identifier, **block}
            case "thinking" if "signature" not in block:
                return {**block, "signature": self._ids.next_signature()}
            case _:
                return dict(block)


def _block_events(block: Block, truncated_input: str | None) -> Iterator[ModelEvent]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield TextDelta(text)
        case {"type": "thinking", "thinking": str(text)}:
            yield ThinkingDelta(text)
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": arguments}:
            text = msgspec.json.encode(arguments).decode() if truncated_input is None else truncated_input
            yield CallBegan(call_id, name)
            yield InputDelta(call_id, text)
            block = {**block, "input": parse_call_input(text)}
        case _:
            pass
    yield BlockDone(block)


def _model_failure(failure: ScriptedFailure) -> ModelFailed:
    if failure.type == CONNECTION_DROPPED:
        return ModelFailed(failure.message, kind="connection", retry=True)
    model_failure = failure_from_status(failure.status, failure.message, kind=failure.type)
    model_failure.retry_after = failure.retry_after
    return model_failure


def validated_messages(request: Message) -> list[Message]:
    """Check a request and return its messages."""
    problems = [*check_history(request.get("messages")), *check_tools(request.get("tools") or [])]
    if problems:
        raise ApiError(fail(400, message=problems[0]))
    return cast("list[Message]", request["messages"])


def error_body(failure: ScriptedFailure) -> Message:
    """Return the JSON body of an API error."""
    return {"type": "error", "error": {"type": failure.type, "message": failure.message}}


def count_tokens(request: Mapping[str, object]) -> int:
    """Estimate the number of tokens in a request as a quarter of its characters, but at least one."""
    return _estimate_tokens([request.get(field) for field in ("system", "tools", "messages")])


def _truncate_block(block: Block) -> tuple[Block, str | None]:
    """Cut a block in half. Return it, with the truncated input text if it is a call."""
    match block:
        case {"type": "tool_use", "input": dict(arguments)}:
            complete = dict(list(arguments.items())[:-1])
            text = msgspec.json.encode(complete).decode()[:-1]
            for key, value in list(arguments.items())[-1:]:
                half_value = msgspec.json.encode(_first_half(value)).decode()[:-1] if isinstance(value, str) else ""
                text += f"{',' if complete else ''}{msgspec.json.encode(key).decode()}:{half_value}"
            return {**block, "input": complete}, text
        case {"type": "text" | "thinking" as kind}:
            return {**block, kind: _first_half(str(block[kind]))}, None
        case _:
            raise ValueError(f"Expected text, thinking or a call to cut, not {block.get('type')}")


def _first_half(text: str) -> str:
    return text[: (len(text) + 1) // 2]


def _estimate_tokens(value: object) -> int:
    return max(1, len(msgspec.json.encode(value)) // 4)
