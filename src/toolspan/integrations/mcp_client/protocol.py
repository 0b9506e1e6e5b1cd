"""Messages that do not fit the protocol, though somebody waits for them.

In: what came from a server. Out: a message; in place of an answer that is none, an error for the
call that waits for it, which would else wait until its time is over. Does not know who waits.
"""

from __future__ import annotations

import json
from typing import Literal

from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError


def replace_lone_surrogates(line: bytes) -> tuple[object, str]:
    """The value of a line, and JSON of it without halves.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        value: object = json.loads(line)
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


INVALID_ANSWER = "Invalid answer of the server"
"""How the error begins that stands in place of an answer."""
_SDK_PARSE_FAILURES = ("Failed to parse JSON response", "Failed to parse SSE message")
"""How the SDK begins the same."""


def parse_message(text: bytes) -> JSONRPCMessage:
    """The message that a text is.

    Raises:
        ValueError: it is none, and nobody can be told.
    """
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        value, repaired = replace_lone_surrogates(text)
    try:
        return jsonrpc_message_adapter.validate_json(repaired, by_name=False)
    except ValidationError as error:
        answer = _error_reply(value, error)
        if answer is None:
            raise
        return answer


def recover_message(error: Exception) -> SessionMessage | Exception:
    """The message behind an error of a transport that has read it by itself; else the error."""
    text = _rejected_text(error) if isinstance(error, ValidationError) else None
    if text is None:
        return error
    try:
        return SessionMessage(parse_message(text))
    except ValueError:
        return error


def unreadable_reason(code: int, message: str) -> str | None:
    """What is wrong with the answer that an error stands for; None: the server meant the error."""
    if code != PARSE_ERROR:
        return None
    if message.startswith(_SDK_PARSE_FAILURES):  # and goes on with everything that the SDK has tried
        return f"{INVALID_ANSWER}: it is no message of the protocol"
    return message if message.startswith(INVALID_ANSWER) else None


def _error_reply(value: object, error: ValidationError) -> JSONRPCError | None:
    if not isinstance(value, dict) or "method" in value:
        return None
    match value.get("id"):
        case int() | str() as number if not isinstance(number, bool):
            error_data = ErrorData(code=PARSE_ERROR, message=f"{INVALID_ANSWER}: {_describe_mismatch(value, error)}")
            return JSONRPCError(jsonrpc="2.0", id=number, error=error_data)
        case _:
            return None


def _describe_mismatch(value: dict[str, object], error: ValidationError) -> str:
    """What keeps it from being the answer it looks like."""
    message_type = "JSONRPCError" if "error" in value else "JSONRPCResponse"
    for detail in error.errors(include_url=False, include_input=False):
        kind, *where = detail["loc"]
        if kind == message_type:
            return f"{'.'.join(str(step) for step in where)}: {detail['msg']}"
    return "it is no message of the protocol"


def _rejected_text(error: ValidationError) -> bytes | None:
    for detail in error.errors(include_url=False):
        rejected: object = detail["input"]
        match detail["type"]:
            case "json_invalid" if isinstance(rejected, str):
                return rejected.encode("utf-8", "surrogatepass")
            case "missing" if detail["loc"][-1] == "method":  # the whole message lacks it
                return json.dumps(rejected).encode()
            case _:
                pass
    return None


McpErrorKind = Literal["tool", "protocol", "timeout", "closed", "not_connected", "connect", "unreadable"]
"""The tool reported an error; the server answered with one; no answer in time; the connection broke
in the middle; there is none; it cannot be made; the answer is none that the protocol knows."""

CONNECTION_CLOSED = -32_000
"""The code that stands for a broken connection."""


class McpError(Exception):
    """A call, or a connection, that came to nothing."""

    def __init__(
        self, kind: McpErrorKind, message: str, code: int | None = None, *, seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: McpErrorKind = kind
        self.message = message
        self.code = code
        self.seconds = seconds
        """How long was waited, for a timeout."""


def exception_text(error: BaseException) -> str:
    """What an exception says, without the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__
