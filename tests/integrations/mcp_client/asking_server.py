"""A stdio MCP server that shows the arguments it received and asks its client for input.

Started as `asking_server.py SCHEMAS`, a JSON file with an input schema per tool. Each tool returns its arguments as
they were sent, except `ask`, `elicit`, `elicit_first`, `open_first` and `big`. Standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_SCHEMAS: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
_opened: list[str] = []
_PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_RESOURCES: dict[str, list[dict[str, Any]]] = {
    "mem://data": [{"uri": "mem://data", "blob": "AAEC", "_meta": {"k": 1}}],
    "mem://text": [{"uri": "mem://text", "mimeType": "text/plain", "text": "hello", "title": "T"}],
}


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the client and return its response."""
    _send({"id": "asked", "method": method, "params": params})
    response: dict[str, Any] = json.loads(sys.stdin.readline())
    return {key: response[key] for key in ("result", "error") if key in response}


def _call(name: str, arguments: dict[str, Any], line: str) -> dict[str, Any]:
    match name:
        case "elicit":
            form = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
            text = json.dumps(_ask("elicitation/create", form))
        case "ask":
            asked = [_ask("elicitation/create", arguments["form"]) for _ in range(arguments.get("times", 1))]
            text = json.dumps([answer.get("result", answer) for answer in asked])
        case "open_first" if not _opened:
            _opened.append(name)
            return {"error": {"code": -32042, "message": "open it", "data": {"elicitations": [arguments]}}}
        case "elicit_first":
            return {"error": {"code": -32042, "message": "open it", "data": {"elicitations": []}}}
        case "roots":
            text = json.dumps(_ask("roots/list", {}))
        case "big":
            blocks: list[dict[str, Any]] = []
            for count in arguments["texts"]:
                picture = {"type": "image", "data": _PICTURE, "mimeType": "image/png"}
                blocks.append({"type": "text", "text": "\U0001f600" * count} if count else picture)
            return {"result": {"content": blocks}}
        case _:
            text = line[line.index('"arguments":') + len('"arguments":') :].rpartition("}}")[0]
    return {"result": {"content": [{"type": "text", "text": text}]}}


def _answer(method: str, params: dict[str, Any], line: str) -> dict[str, Any]:
    """Return the member of a response: `result` or `error`."""
    match method:
        case "initialize":
            offered: dict[str, Any] = {"tools": {}, "resources": {}}
            info = {"name": "asking", "version": "1.0"}
            version = params["protocolVersion"]
            return {"result": {"protocolVersion": version, "capabilities": offered, "serverInfo": info}}
        case "tools/list":
            tools = [{"name": name, "description": name, "inputSchema": schema} for name, schema in _SCHEMAS.items()]
            return {"result": {"tools": tools}}
        case "resources/read" if params["uri"] in _RESOURCES:
            return {"result": {"contents": _RESOURCES[params["uri"]]}}
        case "resources/read":
            return {"error": {"code": -32002, "message": "Resource not found"}}
        case "tools/call":
            return _call(params["name"], params.get("arguments") or {}, line)
        case _:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def main() -> None:
    """Answer the requests of a client until it closes stdin."""
    for line in iter(sys.stdin.readline, ""):
        message: dict[str, Any] = json.loads(line)
        if "id" in message:
            _send({"id": message["id"], **_answer(message["method"], message.get("params") or {}, line.strip())})


if __name__ == "__main__":
    main()
