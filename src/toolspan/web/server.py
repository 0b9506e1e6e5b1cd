"""The server of `toolspan ui`: start it, or find one that is already running. Start at `serve`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from toolspan.errors import ToolspanError
from toolspan.integrations.web_approver import RunningServer, running_servers, state_folder

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from toolspan.web.answers import Answers
    from toolspan.web.security import Secrets

_FIRST_PORT = 8787
_PORTS_TRIED = 100
_STOP_SECONDS = 1
_FIRST_DATA = {
    "overview": (
        "/api/stats?by=hour", "/api/usage?by=day", "/api/sessions?sort=-ended&limit=12",
        "/api/errors?fields=id%2Ckind%2Ctool%2Cprogram%2Ctext%2Cper_day%2Ccount%2Ccause",
    ),
    "sessions": ("/api/sessions", "/api/usage?by=session"),
}  # fmt: skip
"""perf: the data that each view requests first. The browser loads it together with the modules of the view."""
_ALL_ADDRESSES = ("0.0.0.0", "::")


class UiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `toolspan ui`."""

    roots: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None


Ready = Callable[[str, Callable[[], str]], None]


def serve(options: UiOptions, ready: Ready) -> None:
    """Serve the UI until SIGINT or SIGTERM.

    When the server accepts requests, `ready` is called with its URL and a function that returns a new URL. Each URL can
    be opened in one browser.
    """
    from toolspan.web.worker import start_workers, stop_workers

    listener = _listen(options)
    with tempfile.TemporaryDirectory(prefix="toolspan-ui-") as folder:
        address = f"{folder}/workers"
        empty = Path(folder, "empty")
        empty.mkdir()
        pid = start_workers(address, str(empty))  # before this process has threads
        try:
            asyncio.run(_serve(options, listener, address, ready))
        finally:
            stop_workers(pid, address)


async def _serve(options: UiOptions, listener: socket.socket, address: str, ready: Ready) -> None:
    import uvicorn

    from toolspan.web.answers import Answers
    from toolspan.web.security import Secrets

    port = listener.getsockname()[1]
    own = Secrets(options.host, port)
    host = "127.0.0.1" if options.host in _ALL_ADDRESSES else options.host
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    url = f"{base}?token={own.token}"
    answers = Answers(options.roots, address)
    state = RunningServer(os.getpid(), url, options.roots, options.host, port, own.page_token)
    file = state_folder() / f"{port}.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            _write_private(file, msgspec.json.encode(state))
            ready(url, lambda: f"{base}?token={own.make_token()}")

        async def main_loop(self) -> None:
            await stopped.wait()  # the default checks ten times a second whether to stop

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - called by uvicorn
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # cancelled requests are not errors
            self.should_exit = True  # the default raises the signal again, which would skip the clean-up
            loop.call_soon_threadsafe(stopped.set)
            loop.call_soon_threadsafe(answers.close)  # ends the event streams

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    config = uvicorn.Config(
        build_app(answers, own), log_config=None, access_log=False, server_header=False, date_header=False, ws="none",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )  # fmt: skip
    try:
        await Server(config).serve(sockets=[listener])
    finally:
        file.unlink(missing_ok=True)


def build_app(answers: Answers, own: Secrets) -> Starlette:
    """Return the application: the page, its static files and the API."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Mount, Route

    from toolspan.archive.words import page_words
    from toolspan.web.answers import watching
    from toolspan.web.api import api_routes
    from toolspan.web.requests import ApiError, respond_to_error
    from toolspan.web.security import Guard
    from toolspan.web.static_files import VersionedFiles

    files = VersionedFiles(Path(str(resources.files("toolspan.web") / "static")))
    loader = PackageLoader("toolspan.web")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("index.html")

    async def show_page(request: Request) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": f"no route {request.url.path}"}, 404)
        view, _, name = request.url.path[1:].partition("/")  # the page's router shows it; named here to load it sooner
        view = view or "overview"
        static = f"/static/{files.find_version()}"
        modules = files.find_imports("app.js", f"views/{view}.js")
        data = _FIRST_DATA.get(view, ()) if "q" not in request.query_params else ()
        if view == "session" and re.fullmatch("[A-Za-z0-9_-]+", name):
            data = (f"/api/session/{name}/timeline",)
        return HTMLResponse(
            template.render(
                page_token=own.page_token,
                position=answers.position,
                static=static,
                modules=modules,
                data=data,
                words=Markup(msgspec.json.encode(page_words()).decode()),
            )
        )

    async def make_token(_: Request) -> Response:
        return JSONResponse({"token": own.make_token()})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with watching(answers):
            yield

    return Starlette(
        routes=[
            *api_routes(answers),
            Route("/api/token", make_token, methods=["POST"]),
            Mount("/static", files),
            Route("/{path:path}", show_page),
        ],
        middleware=[Middleware(Guard, own=own, public=("/static/",))],
        exception_handlers={ApiError: respond_to_error},
        lifespan=lifespan,
    )


def _listen(options: UiOptions) -> socket.socket:
    """Return a socket that listens on the given port, or on the first free one."""
    ports = [options.port] if options.port is not None else range(_FIRST_PORT, _FIRST_PORT + _PORTS_TRIED)
    for port in ports:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(options.host, port, type=socket.SOCK_STREAM)[0]
        except socket.gaierror as error:
            raise ToolspanError(f"{options.host}: {error.strerror}; use an address of this machine") from error
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(128)  # two starts can bind the same port, but only one can listen
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and options.port is None:
                continue
            raise ToolspanError(f"cannot listen on {options.host}:{port}: {error.strerror}") from error
        return listener
    raise ToolspanError(f"no free port from {_FIRST_PORT}; choose one with --port")


# The running server


def running_server(options: UiOptions) -> str | None:
    """Return a new URL of this user's running server for the same transcripts, or None if there is none."""
    for server in running_servers():
        if (server.roots, server.host) == (options.roots, options.host) and options.port in (None, server.port):
            answer = server.post("/api/token", b"{}")
            if answer is not None:
                return f"{server.url.partition('?')[0]}?token={msgspec.json.decode(answer)['token']}"
    return None


def _write_private(file: Path, data: bytes) -> None:
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)


def open_browser(url: str) -> bool:
    """Open an address in the user's browser. Return False if there is none."""
    import webbrowser

    return webbrowser.open(url)
