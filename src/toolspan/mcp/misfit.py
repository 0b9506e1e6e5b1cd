"""Messages that do not fit the protocol, though somebody waits for them.

In: what came from a server. Out: a message; in place of an answer that is none, an error for the
call that waits for it, which would else wait until its time is over. Does not know who waits.
"""

import json

from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from toolspan.mcp.halves import without_halves

UNREADABLE = "Invalid answer of the server"
"""How the error begins that stands in place of an answer."""
_UNPARSED = ("Failed to parse JSON response", "Failed to parse SSE message")
"""How the SDK begins the same."""


def message_of(text: bytes) -> JSONRPCMessage:
    """The message that a text is.

    Raises:
        ValueError: it is none, and nobody can be told.
    """
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        found, fitting = without_halves(text)
    try:
        return jsonrpc_message_adapter.validate_json(fitting, by_name=False)
    except ValidationError as error:
        answer = _in_place_of(found, error)
        if answer is None:
            raise
        return answer


def understood(error: Exception) -> SessionMessage | Exception:
    """The message behind an error of a transport that has read it by itself; else the error."""
    text = _text_behind(error) if isinstance(error, ValidationError) else None
    if text is None:
        return error
    try:
        return SessionMessage(message_of(text))
    except ValueError:
        return error


def unreadable(code: int, message: str) -> str | None:
    """What is wrong with the answer that an error stands for; None: the server meant the error."""
    if code != PARSE_ERROR:
        return None
    if message.startswith(_UNPARSED):  # and goes on with everything that the SDK has tried
        return f"{UNREADABLE}: it is no message of the protocol"
    return message if message.startswith(UNREADABLE) else None


def _in_place_of(found: object, error: ValidationError) -> JSONRPCError | None:
    if not isinstance(found, dict) or "method" in found:
        return None
    match found.get("id"):
        case int() | str() as number if not isinstance(number, bool):
            told = ErrorData(code=PARSE_ERROR, message=f"{UNREADABLE}: {_fault(found, error)}")
            return JSONRPCError(jsonrpc="2.0", id=number, error=told)
        case _:
            return None


def _fault(found: dict[str, object], error: ValidationError) -> str:
    """What keeps it from being the answer it looks like."""
    wanted = "JSONRPCError" if "error" in found else "JSONRPCResponse"
    for one in error.errors(include_url=False, include_input=False):
        kind, *where = one["loc"]
        if kind == wanted:
            return f"{'.'.join(str(step) for step in where)}: {one['msg']}"
    return "it is no message of the protocol"


def _text_behind(error: ValidationError) -> bytes | None:
    for one in error.errors(include_url=False):
        given: object = one["input"]
        match one["type"]:
            case "json_invalid" if isinstance(given, str):
                return given.encode("utf-8", "surrogatepass")
            case "missing" if one["loc"][-1] == "method":  # the whole message lacks it
                return json.dumps(given).encode()
            case _:
                pass
    return None
