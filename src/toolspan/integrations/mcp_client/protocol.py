"""Parse messages that violate the protocol, so that waiting calls fail immediately instead of timing out."""

from __future__ import annotations

import json
from typing import Literal

from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError


def replace_lone_surrogates(line: bytes) -> tuple[object, str]:
    """Decode a line and return its value, and its JSON text with lone surrogates replaced.

    Raises:
        ValueError: the line is not JSON.
    """
    try:
        value: object = json.loads(line)
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


INVALID_ANSWER = "Invalid answer of the server"
"""The prefix of error messages for an invalid response."""
_SDK_PARSE_FAILURES = ("Failed to parse JSON response", "Failed to parse SSE message")
"""Prefixes of the SDK's error messages for an invalid response."""


def parse_message(text: bytes) -> JSONRPCMessage:
    """Parse a message.

    Raises:
        ValueError: the text is not a message and answers no request.
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
    """Return the message that caused a transport's parse error, or the error itself if there is none."""
    text = _rejected_text(error) if isinstance(error, ValidationError) else None
    if text is None:
        return error
    try:
        return SessionMessage(parse_message(text))
    except ValueError:
        return error


def unreadable_reason(code: int, message: str) -> str | None:
    """Return why a response is invalid, or None if the error came from the server."""
    if code != PARSE_ERROR:
        return None
    if message.startswith(_SDK_PARSE_FAILURES):  # followed by everything that the SDK has tried to parse
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
    """Describe why a message is not a valid response."""
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
            case "missing" if detail["loc"][-1] == "method":  # the whole message has no method
                return json.dumps(rejected).encode()
            case _:
                pass
    return None


McpErrorKind = Literal["tool", "protocol", "timeout", "closed", "not_connected", "connect", "unreadable"]
"""The kind of failure: the tool reported an error, the server returned one, the call timed out, the
connection broke, the server is not connected, connecting failed, or the response is invalid.
"""

CONNECTION_CLOSED = -32_000
"""The error code for a broken connection."""


class McpError(Exception):
    """Raised if a call or a connection fails."""

    def __init__(
        self, kind: McpErrorKind, message: str, code: int | None = None, *, seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: McpErrorKind = kind
        self.message = message
        self.code = code
        self.seconds = seconds
        """The timeout in seconds, if the call timed out."""


def exception_text(error: BaseException) -> str:
    """Return the message of an exception, unwrapping exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__
