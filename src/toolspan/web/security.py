"""Decide which requests the server answers.

The Host of a request must be this server (against DNS rebinding), and its Origin must not be another site. Requests for
data also need the secret of this server in `Authorization: Bearer`. A browser sends the header only because a script of
the page adds it, so that other sites cannot make it do so; and it keeps the secret in the storage of this address and
port, so that other servers of this machine do not get it, as they would get a cookie.

The secret stays the same when the server starts again, so that open tabs and bookmarks continue to work. A browser gets
it in exchange for a token, which is then invalid: a URL in a history or in a list of processes is useless.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_DOWNLOAD = re.compile("/api/session/[^/]+/export")
_SECRET_BYTES = 32
SIGN_IN_PATH = "/api/sign-in"


def secret_file() -> Path:
    """Return the path of the file with the key from which the secrets of this user's servers are computed."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "toolspan" / "ui-secret"


def load_key(file: Path) -> bytes:
    """Return the key in a file, and create the file if there is none that only its owner can use.

    If it cannot be written, the key is new at each start.
    """
    with contextlib.suppress(OSError):
        status = file.lstat()
        is_private = os.name == "nt" or (status.st_uid == os.getuid() and not status.st_mode & 0o077)
        if is_private and stat.S_ISREG(status.st_mode) and status.st_size == _SECRET_BYTES:
            return file.read_bytes()
    key = secrets.token_bytes(_SECRET_BYTES)
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, key)
    return key


def write_private(file: Path, data: bytes) -> None:
    """Replace a file by one that only its owner can read. It is unchanged if that fails."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class Secrets:
    """The secret of a server, the tokens that it has not exchanged yet, and the host names that it accepts."""

    def __init__(self, host: str, port: int, key: bytes) -> None:
        """Compute the secret from a key. Each address has its own, so that one server cannot use that of another."""
        digest = hmac.digest(key, f"{host} {port}".encode(), "sha256")
        self.secret = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        self._unused_tokens: set[str] = set()
        self._port = port
        self._names = {"127.0.0.1", "localhost", "::1", host}
        self._is_public = not is_loopback(host)
        if self._is_public:
            self._names.add(socket.gethostname().lower())

    def accepts_host(self, host: str) -> bool:
        """Return whether the value of a Host header is a name and port of this server."""
        if "@" in host:
            return False
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        return port == self._port and (name in self._names or (self._is_public and _is_address(name)))

    def make_token(self) -> str:
        """Return a new token, which can be used once."""
        token = secrets.token_urlsafe(24)
        self._unused_tokens.add(token)
        return token

    def use_token(self, token: str | None) -> bool:
        """Return whether a token is valid, and make it invalid."""
        match = next((unused for unused in self._unused_tokens if token is not None and _equal(token, unused)), None)
        self._unused_tokens.discard(match or "")
        return match is not None

    def accepts_secret(self, secret: str) -> bool:
        """Return whether this is the secret of the server."""
        return _equal(secret, self.secret)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode())


class Guard:
    """ASGI middleware that rejects requests from other sites, and requests for data without the secret.

    The page and its static files contain no data: everyone who reaches the server may load them.
    """

    def __init__(self, app: ASGIApp, *, own: Secrets) -> None:
        """Wrap an application."""
        self._app = app
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a request, or pass it on to the application."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        is_static = scope["path"].startswith("/static/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache" if is_static else "no-store")
            await send(message)

        refusal = self._check(Request(scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _check(self, request: Request) -> Response | None:
        """Return a response that rejects a request, or None if the application may answer it."""
        if not self._own.accepts_host(request.headers.get("host", "")):
            return JSONResponse({"error": "This is not an address of the server."}, 421)
        if not _is_same_origin(request.headers):
            return JSONResponse({"error": "Requests from other sites are refused."}, 403)
        path = request.url.path
        if not path.startswith("/api/") or path == SIGN_IN_PATH:
            return None
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._own.accepts_secret(secret.strip()):
            return None
        is_download = request.method == "GET" and _DOWNLOAD.fullmatch(path) is not None
        if is_download and self._own.use_token(request.query_params.get("token")):  # links have no headers
            return None
        return JSONResponse({"error": "This browser is not signed in. Run toolspan ui to sign it in."}, 401)


def _is_same_origin(headers: Headers) -> bool:
    origin = headers.get("origin")
    return origin is None or origin == f"http://{headers.get('host', '')}"
