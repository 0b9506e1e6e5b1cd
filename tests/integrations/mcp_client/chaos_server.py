"""An MCP server over stdio that misbehaves on request.

Started as `chaos_server.py LOG [habit...]`; every message it gets is a line of LOG. Habits are
about its whole life: `mute`, `dead`, `noisy`, `chatty`, `stubborn`, `gate=FILE`, `bare`. Its tools
are about single calls.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

Message = dict[str, object]

LOG = sys.argv[1]
HABITS = sys.argv[2:]
OUT = sys.stdout.buffer
LOCK = threading.Lock()
READ_ONLY = {"echo", "hang", "meet"}
NAMES = [
    "echo", "meta", "env", "pid", "hang", "flood", "die", "half", "huge", "wrong_id", "twice",
    "deaf", "close_stdout", "garbage", "fork", "progress", "change", "refuse", "fail", "misfit",
    "null_result", "number_result", "null_error", "neither", "no_version", "endless", "surrogate",
    "odd letters!", "structured", "mixed", "picture", "meet",
]  # fmt: skip
ADDED: list[str] = []
DEAF = threading.Event()
MEETING = threading.Barrier(2)


def write(data: bytes) -> None:
    with LOCK:
        OUT.write(data)
        OUT.flush()


def send(message: Message) -> None:
    if "chatty" in HABITS:
        write(b"starting up...\n{not json\n\n")
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(words: str) -> Message:
    return {"type": "text", "text": words}


def tools() -> list[Message]:
    return [
        {
            "name": name,
            "description": f"does {name}",
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}, "words": {"type": "string"}}},
            **({"annotations": {"readOnlyHint": True}} if name in READ_ONLY else {}),
        }
        for name in [*NAMES, *ADDED]
    ]


def echo(arguments: Message, _meta: Message) -> list[Message]:
    return [text(json.dumps(arguments))]


def progress(arguments: Message, meta: Message) -> list[Message]:
    for step in (1, 2):
        output = {"progressToken": meta.get("progressToken"), "progress": step, "total": 2}
        send({"method": "notifications/progress", "params": {**output, "message": f"step {step}"}})
    return [text("done")]


def flood(arguments: Message, _meta: Message) -> list[Message]:
    for number in range(int(str(arguments.get("n", 1000)))):
        params = {"level": "info", "data": f"line {number}"}
        send({"method": "notifications/message", "params": params})
    return [text("flooded")]


def fork(_arguments: Message, _meta: Message) -> list[Message]:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return [text(str(child.pid))]


def change(_arguments: Message, _meta: Message) -> list[Message]:
    ADDED.append("late")
    send({"method": "notifications/tools/list_changed"})
    return [text("changed")]


def meet(_arguments: Message, _meta: Message) -> list[Message]:
    MEETING.wait()
    return [text("met")]


def picture(_arguments: Message, _meta: Message) -> list[Message]:
    data = base64.b64encode(b"<svg/>").decode()
    return [{"type": "image", "data": data, "mimeType": "image/svg+xml"}]


ANSWERS: dict[str, Callable[[Message, Message], list[Message]]] = {
    "echo": echo,
    "odd letters!": echo,
    "late": echo,
    "meta": lambda _arguments, meta: [text(json.dumps(meta))],
    "env": lambda _arguments, _meta: [text(json.dumps(dict(os.environ)))],
    "pid": lambda _arguments, _meta: [text(str(os.getpid()))],
    "flood": flood,
    "huge": lambda arguments, _meta: [text("x" * int(str(arguments["n"])))],
    "fork": fork,
    "progress": progress,
    "change": change,
    "meet": meet,
    "picture": picture,
}


def misbehave(name: str, number: object) -> None:  # noqa: PLR0912 - a case for each
    answer: Message = {"id": number, "result": {"content": [text(name)]}}
    match name:
        case "hang":
            return
        case "die":
            os._exit(7)
        case "half":
            write(json.dumps({"jsonrpc": "2.0", **answer}).encode()[:20] + b"\n")
        case "wrong_id":
            send({**answer, "id": 999_999})
            send({**answer, "id": "nobody"})
        case "twice":
            send(answer)
            send({"id": number, "result": {"content": [text("again")]}})
        case "deaf":
            DEAF.set()
        case "close_stdout":
            os.close(1)
        case "garbage":
            write(b"\xff\xfe\x00 not utf-8\n[]\n" + b"[" * 5_000 + b"\n")
            send(answer)
        case "null_result":
            send({"id": number, "result": None})
        case "number_result":
            send({"id": number, "result": 5})
        case "null_error":
            send({"id": number, "error": None})
        case "neither":
            send({"id": number})
        case "no_version":
            write(json.dumps(answer).encode() + b"\n")
        case "surrogate":
            send({"id": number, "result": {"content": [text("cut in \ud83d half")]}})
        case "endless":
            write(b"x" * (66 << 20))
        case "refuse":
            send({"id": number, "error": {"code": -32602, "message": "no such thing"}})
        case "fail":
            content = [text("first"), text("second")]
            send({"id": number, "result": {"content": content, "isError": True}})
        case "misfit":
            send({"id": number, "result": {"content": "not a list"}})
        case "structured":
            result = {"content": [text("old")], "structuredContent": {"n": 3, "s": "é"}}
            send({"id": number, "result": result})
        case "mixed":
            send({"id": number, "result": {"content": mixed()}})
        case _:
            send({"id": number, "error": {"code": -32602, "message": f"no tool {name}"}})


def mixed() -> list[Message]:
    blob = base64.b64encode(b"\0\1\2").decode()
    return [
        {"type": "resource", "resource": {"uri": "mem://t", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "mem://b", "blob": blob}},
        {"type": "resource_link", "uri": "mem://l", "name": "link"},
        {"type": "audio", "data": blob, "mimeType": "audio/wav"},
    ]


def call(number: object, params: Message) -> None:
    name, meta = str(params["name"]), params.get("_meta")
    answer = ANSWERS.get(name)
    if answer is None:
        misbehave(name, number)
        return
    arguments = params.get("arguments")
    content = answer(arguments if isinstance(arguments, dict) else {}, meta if isinstance(meta, dict) else {})
    send({"id": number, "result": {"content": content}})


def initialize(params: Message) -> Message:
    offered: Message = {} if "bare" in HABITS else {"tools": {"listChanged": True}, "resources": {}}
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": offered,
        "serverInfo": {"name": "chaos", "version": "1"},
    }


RESOURCES: list[Message] = [{"uri": "mem://x", "name": "ex", "size": 3}]


def answer_to(method: str, params: Message) -> Message | None:
    match method:
        case "initialize":
            return initialize(params)
        case "tools/list":
            return pages(params)
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/read":
            blob = base64.b64encode(b"\0\1").decode()
            return {"contents": [{"uri": params["uri"], "blob": blob}]}
        case _:
            return None


def pages(params: Message) -> Message:
    all_tools = tools()
    if params.get("cursor") == "rest":
        return {"tools": all_tools[5:]}
    return {"tools": all_tools[:5], "nextCursor": "rest"}


def begin() -> None:
    if "stubborn" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "noisy" in HABITS:
        os.write(2, b"complaint\n" * 300_000)
    if "dead" in HABITS:
        sys.exit("no database")
    for habit in HABITS:
        if habit.startswith("gate="):
            with open(habit.removeprefix("gate="), encoding="utf-8") as gate:  # noqa: PTH123
                gate.read()  # a fifo: blocks until it is opened


def main() -> None:
    begin()
    for line in sys.stdin.buffer:
        if DEAF.is_set():
            threading.Event().wait()
        with open(LOG, "ab") as log:  # noqa: PTH123
            log.write(line)
        message = json.loads(line)
        if "mute" in HABITS or "id" not in message or "method" not in message:
            continue
        params = message.get("params") or {}
        if message["method"] == "tools/call":
            threading.Thread(target=call, args=(message["id"], params), daemon=True).start()
            continue
        result = answer_to(message["method"], params)
        if result is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
        else:
            send({"id": message["id"], "result": result})
    if "stubborn" in HABITS:
        threading.Event().wait()


main()
