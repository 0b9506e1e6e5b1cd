"""An MCP server with one tool, `ask`, that answers permission questions as configured.

Started as `prompt_server.py MANNER`; what it was asked is the line `asked` of its folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MANNER = sys.argv[1]


def answer(arguments: dict[str, object]) -> dict[str, object]:
    Path("asked").write_text(json.dumps(arguments), encoding="utf-8")
    fields = arguments["input"]
    reply: dict[str, dict[str, object]] = {
        "allow": {"behavior": "allow", "updatedInput": fields},
        "bare": {"behavior": "allow"},
        "change": {"behavior": "allow", "updatedInput": {"command": "echo changed", "more": 1}},
        "deny": {"behavior": "deny", "message": "not today"},
        "stop": {"behavior": "deny", "message": "not today", "interrupt": True},
    }
    text = json.dumps(reply[MANNER]) if MANNER in reply else MANNER
    return {"content": [{"type": "text", "text": text}], "isError": MANNER == "broken"}


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "prompt", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
        case "tools/call" if MANNER == "silent":
            continue
        case "tools/call" if MANNER == "die":
            sys.exit(1)
        case "tools/call":
            result = answer(message["params"]["arguments"])
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)  # noqa: T201
