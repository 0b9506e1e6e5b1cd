"""What a scripted model is told to say: the steps of a script, by hand or as JSON.

In: blocks, replies, failures, functions of what was said before. Out: the `Reply` or the `Failure`
that a step gives. Knows nothing of requests; `scripted.py` plays a script.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from toolspan.llm.history import Block, Message, blocks_of

StopReason = Literal[
    "end_turn",
    "max_tokens",
    "model_context_window_exceeded",
    "pause_turn",
    "refusal",
    "stop_sequence",
    "tool_use",
]

DROPPED = "dropped"
"""The type of a failure that is none of the API's: nobody answers any more."""
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
class Reply:
    """One assistant message to be; most are written as a plain list of blocks."""

    blocks: Sequence[Mapping[str, object]]
    stop_reason: StopReason | None = None
    """None: `tool_use` when a tool is asked for, else `end_turn`."""
    is_cut: bool = False
    """The last block ends in its middle."""
    stop_details: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Failure:
    """A request that fails, as the API fails it."""

    status: int
    type: str
    message: str
    retry_after: float | None = None
    """Seconds, for the header of that name."""
    after: Sequence[Mapping[str, object]] = ()
    """What a stream brings before it breaks off with the error."""


Answer = Mapping[str, object] | Sequence[Mapping[str, object]] | Reply | Failure
"""What a step gives: a block, blocks, or one of the two above."""
Step = Answer | Callable[[list[Message]], Answer | Awaitable[Answer]]
"""One entry of a script. A function gets the messages so far; it is called once, may be a
coroutine function, and what it raises reaches whoever asked."""


def say(text: str) -> Block:
    """Text."""
    return {"type": "text", "text": text}


def use(tool: str, /, **given: object) -> Block:
    """A call of a tool; its id is made when it is said."""
    return {"type": "tool_use", "name": tool, "input": given}


def think(text: str) -> Block:
    """Thinking; its signature is made when it is said and verifies nowhere."""
    return {"type": "thinking", "thinking": text}


def cut(*blocks: Mapping[str, object]) -> Reply:
    """A reply that reaches `max_tokens` in the middle of its last block."""
    if not blocks:
        raise ValueError("Expected at least one block to cut")
    return Reply(blocks, "max_tokens", is_cut=True)


def refuse(*blocks: Mapping[str, object], explanation: str | None = None) -> Reply:
    """A reply that ends, perhaps after a few words, with a refusal."""
    details = {"type": "refusal", "category": None, "explanation": explanation}
    return Reply(blocks, "refusal", stop_details=details)


def fail(
    status: int,
    type: str | None = None,
    message: str | None = None,
    *,
    retry_after: float | None = None,
    after: Sequence[Mapping[str, object]] = (),
) -> Failure:
    """A failing request: `fail(529)`, `fail(400, message="prompt is too long")`."""
    kind = type or _ERROR_TYPES.get(status, "api_error")
    words = message or kind.removesuffix("_error").replace("_", " ").capitalize()
    return Failure(status, kind, words, retry_after, tuple(after))


def drop(*blocks: Mapping[str, object]) -> Failure:
    """A connection that is lost, before anything was said or after these blocks."""
    return Failure(0, DROPPED, "The connection was lost", after=blocks)


def garble(*blocks: Mapping[str, object]) -> Reply:
    """A reply whose last call has an input that breaks off, though the reply does not."""
    return Reply(blocks, "tool_use", is_cut=True)


def results_of(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """The texts of the results in the last message, in their order; for steps that need them."""
    found = [block for block in blocks_of(messages[-1]) if block.get("type") == "tool_result"]
    return ["".join(_texts(block)) for block in found]


def load_script(text: str | bytes) -> list[Step]:
    """A script written as JSON: a list of steps.

    A step is a block, a list of blocks, or an object with one key: `{"cut": [blocks]}`,
    `{"refuse": [blocks]}`, `{"garble": [blocks]}`, `{"drop": [blocks]}`, or
    `{"fail": {"status": 529}}` with the arguments of `fail`.

    Raises:
        ValueError: it is not such a list.
    """
    try:
        steps = msgspec.json.decode(text, type=list[object])
        return [_loaded(n, step) for n, step in enumerate(steps)]
    except msgspec.DecodeError as error:
        raise ValueError(f"Expected a list of steps as JSON: {error}") from error


class _FailStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: int
    type: str | None = None
    message: str | None = None
    retry_after: float | None = None
    after: tuple[Block, ...] = ()


def _loaded(n: int, step: object) -> Step:
    match step:
        case {"fail": given, **rest} if not rest:
            told = msgspec.convert(given, _FailStep)
            return fail(
                told.status,
                told.type,
                told.message,
                retry_after=told.retry_after,
                after=told.after,
            )
        case {"cut": blocks, **rest} if not rest:
            return cut(*_loaded_blocks(n, blocks))
        case {"refuse": blocks, **rest} if not rest:
            return refuse(*_loaded_blocks(n, blocks))
        case {"garble": blocks, **rest} if not rest:
            return garble(*_loaded_blocks(n, blocks))
        case {"drop": blocks, **rest} if not rest:
            return drop(*_loaded_blocks(n, blocks))
        case {"type": str()}:
            return _loaded_blocks(n, [step])
        case _:
            return _loaded_blocks(n, step)


def _loaded_blocks(n: int, blocks: object) -> list[Block]:
    match blocks:
        case list() if all(isinstance(block, dict) and "type" in block for block in blocks):
            return msgspec.convert(blocks, list[Block])
        case _:
            raise ValueError(f"Expected a list of content blocks as step {n} of the script")


async def answer_of(step: Step, messages: list[Message]) -> Reply | Failure:
    """What a step gives to these messages."""
    given = step(messages) if callable(step) else step
    answer = await given if inspect.isawaitable(given) else given
    match answer:
        case Reply() | Failure():
            return answer
        case Mapping():
            return Reply([answer])
        case _:
            return Reply(answer)


def _texts(block: Mapping[str, object]) -> Iterator[str]:
    for part in blocks_of(block):
        yield str(part.get("text", ""))
