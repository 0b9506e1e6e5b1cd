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
    from toolspan.web.pool import WorkerPool
    from toolspan.web.security import Secrets

_FIRST_PORT = 8787
_PORTS_TRIED = 100
_STOP_SECONDS = 1
_SESSION_LIST = (
    "/api/sessions?fields=id%2Cclient%2Ctitle%2Cfirst_prompt%2Cproject%2Cgit_branch%2Cstarted%2Cended%2Cduration_ms%2C"
    "models%2Ccalls%2Cunsuccessful%2Cstates%2Ctools%2Cagents"
)
_FIRST_DATA = {
    "overview": (
        "/api/stats?by=hour", "/api/usage?by=day", "/api/sessions?sort=-ended&limit=12",
        "/api/errors?fields=id%2Ckind%2Ctool%2Cprogram%2Cmessage%2Cper_day%2Ccount%2Ccause",
    ),
    "sessions": (_SESSION_LIST, "/api/usage?by=session"),
}  # fmt: skip
"""perf: the data that each view requests first. The browser loads it together with the modules of the view."""
_ALL_ADDRESSES = ("0.0.0.0", "::")


class UiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `toolspan ui`."""

    roots: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    timeout: float = 60.0
    """The seconds after which a question is stopped."""


Ready = Callable[[Callable[[], str]], None]


def serve(options: UiOptions, ready: Ready) -> None:
    """Serve the UI until SIGINT or SIGTERM.

    When the server accepts requests, `ready` is called with a function that returns a new URL. Each URL signs one
    browser in.
    """
    from toolspan.web.pool import WorkerPool

    listener = _listen(options)
    with tempfile.TemporaryDirectory(prefix="toolspan-ui-") as scratch:
        empty = Path(scratch, "empty")
        empty.mkdir()
        # Workers run in an empty folder: a name in a request is never a file in it, and it has no modules to import.
        with contextlib.chdir(empty):
            pool = WorkerPool()
            pool.start()
            try:
                asyncio.run(_serve(options, listener, pool, Path(scratch), ready))
            finally:
                pool.close()


async def _serve(options: UiOptions, listener: socket.socket, pool: WorkerPool, scratch: Path, ready: Ready) -> None:
    import uvicorn

    from toolspan.web.answers import Answers
    from toolspan.web.header_timers import HeaderTimers
    from toolspan.web.security import Secrets, load_key, secret_file, write_private

    port = listener.getsockname()[1]
    own = Secrets(options.host, port, load_key(secret_file()))
    host = find_address() if options.host in _ALL_ADDRESSES else options.host
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    answers = Answers(options.roots, pool, scratch, options.timeout)
    state = RunningServer(os.getpid(), base, options.roots, options.host, port, own.secret)
    file = state_folder() / f"{port}.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            write_private(file, msgspec.json.encode(state))
            ready(lambda: f"{base}?token={own.make_token()}")

        async def main_loop(self) -> None:
            await stopped.wait()  # the default checks ten times a second whether to stop

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - called by uvicorn
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # cancelled requests are not errors
            self.should_exit = True  # the default raises the signal again, which would skip the clean-up
            loop.call_soon_threadsafe(stopped.set)
            loop.call_soon_threadsafe(answers.close)  # ends the event streams

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    timers = HeaderTimers()
    app = timers.wrap(build_app(answers, own))
    config = uvicorn.Config(
        app, http=timers.make_protocol(), log_config=None, access_log=False, server_header=False, date_header=False,
        ws="none", timeout_graceful_shutdown=_STOP_SECONDS,
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
    from toolspan.web.requests import ApiError, CancelAbandoned, read_body, respond_to_error
    from toolspan.web.security import SIGN_IN_PATH, Guard
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
        data = data if "token" not in request.query_params else ()  # it must be exchanged first
        if view == "session" and re.fullmatch("[A-Za-z0-9_-]+", name):
            data = (f"/api/session/{name}/timeline",)
        await answers.refresh()
        return HTMLResponse(
            template.render(
                position=answers.position,
                static=static,
                modules=modules,
                data=data,
                words=Markup(msgspec.json.encode(page_words()).decode()),
            )
        )

    async def make_token(_: Request) -> Response:
        return JSONResponse({"token": own.make_token()})

    async def sign_in(request: Request) -> Response:
        body = await read_body(request, dict[str, str])
        if not own.use_token(body.get("token")):
            raise ApiError(403, "This address was already used. Run toolspan ui again for a new one.")
        return JSONResponse({"secret": own.secret})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with watching(answers):
            yield

    return Starlette(
        routes=[
            *api_routes(answers),
            Route("/api/token", make_token, methods=["POST"]),
            Route(SIGN_IN_PATH, sign_in, methods=["POST"]),
            Mount("/static", files),
            Route("/{path:path}", show_page),
        ],
        middleware=[Middleware(Guard, own=own), Middleware(CancelAbandoned)],
        exception_handlers={ApiError: respond_to_error},
        lifespan=lifespan,
    )


def find_address() -> str:
    """Return the address at which other machines reach this one, or that of this machine alone if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # chooses an interface, and sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


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
                return f"{server.url}?token={msgspec.json.decode(answer)['token']}"
    return None


def open_browser(url: str) -> bool:
    """Open an address in the user's browser. Return False if there is none."""
    import webbrowser

    return webbrowser.open(url)
