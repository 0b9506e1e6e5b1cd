"""A stdio MCP server whose tools return what a call asks for, so that a generator can choose any result.

Standard library only: cases run it with the system's Python. `give` returns its argument `result` as it is; `fail`
answers with a JSON-RPC error; `leave` ends the server.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_OBJECT = {"type": "object", "properties": {"result": {"type": "object"}}, "required": ["result"]}
_TOOLS: list[dict[str, Any]] = [
    {"name": "give", "description": "Returns the result.", "inputSchema": _OBJECT},
    {
        "name": "give_read_only",
        "description": "Returns the result.",
        "inputSchema": _OBJECT,
        "annotations": {"readOnlyHint": True},
    },
    {"name": "give.dotted", "description": "Returns the result.", "inputSchema": _OBJECT},
    {
        "name": "fail",
        "description": "Fails.",
        "inputSchema": {
            "type": "object",
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
            "required": ["code"],
        },
    },
    {"name": "leave", "description": "Ends the server.", "inputSchema": {"type": "object", "properties": {}}},
]


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the member of a response: `result` or `error`."""
    match method:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "shapes", "version": "1.0"},
                }
            }
        case "tools/list":
            return {"result": {"tools": _TOOLS}}
        case "tools/call":
            return _call(params["name"], params.get("arguments") or {})
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "leave":
        os._exit(3)
    if name == "fail":
        return {"error": {"code": arguments.get("code", -32000), "message": arguments.get("message", "")}}
    if "result" not in arguments:
        seen = json.dumps(arguments, sort_keys=True)
        return {"result": {"content": [{"type": "text", "text": f"arguments: {seen}"}]}}
    return {"result": arguments["result"]}


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer = _answer(message["method"], message.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
