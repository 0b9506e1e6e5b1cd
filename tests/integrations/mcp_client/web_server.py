"""A loopback MCP server over HTTP, streamable and legacy SSE, that can misbehave. Standard library.

Its life is a `with WebServer() as server` block; `server.url` is where it listens. Tools: `echo`,
`hang` (never answers), `drop` (closes the connection), `news` (progress, then an answer, as a
stream), `crash` (HTTP 500), `empty` (null for a result), `broken` (the same, as a stream),
`halves` (half of a letter), `flood` (an endless answer), `zipped` (a compressed one). `forget()`
makes it lose its sessions, `die()` its connections.
"""

from __future__ import annotations

import gzip
import json
import queue
import socket
import threading
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Message = dict[str, object]
TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object"}}
    for name in ("echo", "hang", "drop", "news", "crash", "empty", "broken", "halves", "flood", "zipped")
]


class WebServer:
    """The server in a thread of its own."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.methods: list[str] = []
        self.streams: dict[str, queue.Queue[Message | None]] = {}
        self.over = threading.Event()
        self.connections: list[socket.socket] = []
        owner = self

        class Handler(_Handler):
            server_ = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for stream in self.streams.values():
            stream.put(None)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def die(self) -> None:
        """Cut all connections, as the end of a process would."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        self.sessions.clear()


class _Handler(BaseHTTPRequestHandler):
    server_: WebServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server_.connections.append(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        message: Message = json.loads(self.rfile.read(length))
        self.server_.headers.append({key.lower(): value for key, value in self.headers.items()})
        self.server_.methods.append(str(message.get("method")))
        if self.path.startswith("/messages/"):
            self._legacy(message)
        elif "id" not in message:
            self._reply(202)
        else:
            self._streamable(message)

    def do_DELETE(self) -> None:
        self._reply(200)

    def do_GET(self) -> None:
        if self.path != "/sse":
            self._reply(405)
            return
        name = uuid.uuid4().hex
        stream = self.server_.streams[name] = queue.Queue()
        self._begin_stream()
        self._event("endpoint", f"/messages/{name}")
        while (message := stream.get()) is not None:
            self._event("message", json.dumps(message))
        self.close_connection = True

    def _legacy(self, message: Message) -> None:
        match self._tool(message):
            case "flood":
                self._flood(as_events=False)
                return
            case "crash":
                self._reply(500)
                return
            case "drop":
                self.close_connection = True
                return
            case _:
                self._reply(202, headers={"connection": "close"})
        answer = self._answer(message) if "id" in message else None
        if answer is not None:
            self.server_.streams[self.path.rpartition("/")[2]].put(answer)

    def _streamable(self, message: Message) -> None:
        session = self.headers.get("mcp-session-id")
        first = message["method"] in ("initialize", "server/discover")
        if not first and session not in self.server_.sessions:
            self._reply(404)
            return
        if message["method"] == "initialize":
            session = uuid.uuid4().hex
            self.server_.sessions.add(session)
        name = self._tool(message)
        if name in ("news", "broken"):
            self._news(message)
            return
        if name == "zipped":
            body = gzip.compress(json.dumps(self._answer(message)).encode())
            self._reply(200, body, {"mcp-session-id": session or "", "content-encoding": "gzip"})
            return
        if name == "flood":
            arguments = message["params"]["arguments"]  # type: ignore[index]
            self._flood(as_events=arguments.get("events", False))
            return
        answer = self._answer(message)
        if answer is not None:
            self._reply(200, json.dumps(answer).encode(), {"mcp-session-id": session or ""})

    def _tool(self, message: Message) -> str | None:
        params = message.get("params")
        named = message["method"] == "tools/call" and isinstance(params, dict)
        return str(params["name"]) if named and isinstance(params, dict) else None

    def _answer(self, message: Message) -> Message | None:
        match self._tool(message):
            case "hang":
                self.server_.over.wait()
                self.close_connection = True
                return None
            case "drop":
                self.close_connection = True
                return None
            case "crash":
                self._reply(500)
                return None
            case _:
                return {"jsonrpc": "2.0", "id": message["id"], **_result(message)}

    def _news(self, message: Message) -> None:
        params = message["params"]
        assert isinstance(params, dict)
        token = params["_meta"]["progressToken"]
        self._begin_stream()
        output = {"progressToken": token, "progress": 1, "total": 1, "message": "nearly"}
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": output}
        self._event("message", json.dumps(progress))
        answer = {"jsonrpc": "2.0", "id": message["id"], **_result(message)}
        self._event("message", json.dumps(answer))
        self.close_connection = True

    def _flood(self, *, as_events: bool) -> None:
        """Send one message that never ends."""
        self._begin_stream("text/event-stream" if as_events else "application/json")
        self.close_connection = True
        with suppress(OSError):
            self.wfile.write(b'event: message\ndata: {"a": "' if as_events else b'{"a": "')
            while not self.server_.over.is_set():
                self.wfile.write(b"x" * (1 << 20))

    def _begin_stream(self, kind: str = "text/event-stream") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()

    def _event(self, kind: str, data: str) -> None:
        self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())
        self.wfile.flush()

    def _reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if body:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _result(message: Message) -> Message:
    params = message.get("params")
    fields = params if isinstance(params, dict) else {}
    match message["method"]:
        case "initialize":
            about = {"serverInfo": {"name": "web", "version": "1"}, "capabilities": {"tools": {}}}
            return {"result": {"protocolVersion": fields["protocolVersion"], **about}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call" if fields["name"] in ("empty", "broken"):
            return {"result": None}
        case "tools/call" if fields["name"] == "halves":
            return {"result": {"content": [{"type": "text", "text": "cut in \ud83d half"}]}}
        case "tools/call":
            text = json.dumps(fields.get("arguments"))
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}
