"""Errors of MCP connections, and the repair of messages. This module does not import the SDK."""

from __future__ import annotations

import json
from typing import Literal

McpErrorKind = Literal["tool", "protocol", "timeout", "closed", "not_connected", "connect", "unreadable"]
"""The kind of failure: the tool reported an error, the server returned one, the call timed out, the
connection broke, the server is not connected, connecting failed, or the response is invalid.
"""
CONNECTION_CLOSED = -32_000


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


def replace_lone_surrogates(line: bytes) -> tuple[object, str]:
    """Decode a line and return its value, and its JSON text with lone surrogates replaced.

    Raise ValueError if the line is not JSON.
    """
    try:
        value: object = json.loads(line)
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
