"""Decide which requests the server answers.

The Host of a request must be this server (against DNS rebinding), and its Origin must not be another site. It must also
contain a secret that was created when the server started: the cookie, or the printed token (`Authorization: Bearer`).
A token in a URL can be exchanged for the cookie only once, so that a URL in a history or a process list is useless.
Requests that change something also need the page token in `X-Toolspan-Token`.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from html import escape
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
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
_SAFE_METHODS = ("GET", "HEAD")
PAGE_TOKEN_HEADER = "X-Toolspan-Token"


class Secrets:
    """The secrets of one run of the server, and the host names that it accepts."""

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        """The token in the printed URL. Programs send it with each request."""
        self._unused_tokens = {self.token}
        self.cookie = secrets.token_urlsafe(24)
        self.page_token = secrets.token_urlsafe(24)
        """The token in the page, which sends it back with each request that changes something."""
        self.cookie_name = f"toolspan_{port}"  # browsers send cookies to all ports of a host
        self._port = port
        self._names = {"127.0.0.1", "localhost", "::1", host}
        self._is_public = not is_loopback(host)
        if self._is_public:
            self._names.add(socket.gethostname().lower())

    def accepts_host(self, host: str) -> bool:
        """Return whether the value of a Host header is a name and port of this server."""
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        return port == self._port and (name in self._names or (self._is_public and _is_address(name)))

    def make_token(self) -> str:
        """Return a new token, with which one browser can sign in."""
        token = secrets.token_urlsafe(24)
        self._unused_tokens.add(token)
        return token

    def use_token(self, token: str) -> bool:
        """Return whether a browser can sign in with a token, and make the token invalid for signing in again."""
        match = next((unused for unused in self._unused_tokens if _equal(token, unused)), None)
        self._unused_tokens.discard(match or "")
        return match is not None

    def accepts_token(self, token: str | None) -> bool:
        """Return whether this is the token that programs send."""
        return token is not None and _equal(token, self.token)

    def accepts_cookie(self, cookie: str | None) -> bool:
        """Return whether this is the cookie of a browser that has signed in."""
        return cookie is not None and _equal(cookie, self.cookie)

    def accepts_page_token(self, token: str | None) -> bool:
        """Return whether this is the token in the page."""
        return token is not None and _equal(token, self.page_token)


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
    """ASGI middleware that rejects requests from other sites and requests without a secret of this server."""

    def __init__(self, app: ASGIApp, *, own: Secrets, public: Iterable[str] = ()) -> None:
        """Wrap an application. Paths that begin with one of `public`, such as static files, need no secret."""
        self._app = app
        self._own = own
        self._public = tuple(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a request, redirect it, or pass it on to the application."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        is_public = scope["path"].startswith(self._public)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache" if is_public else "no-store")
            await send(message)

        refusal = self._check(Request(scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _check(self, request: Request) -> Response | None:
        """Return a response that rejects or redirects a request, or None if the application may answer it."""
        headers = request.headers
        if not self._own.accepts_host(headers.get("host", "")):
            return _refuse(request, 421, "This is not an address of the server.")
        if not _is_same_origin(headers):
            return _refuse(request, 403, "Requests from other sites are refused.")
        if request.url.path.startswith(self._public) and request.method in _SAFE_METHODS:
            return None
        token = request.query_params.get("token")
        has_cookie = self._own.accepts_cookie(request.cookies.get(self._own.cookie_name))
        if token is not None and request.method == "GET" and not _is_api(request):
            if self._own.use_token(token) or has_cookie:
                return self._sign_in(request)
            return _refuse(request, 403, "This address was already used. Run toolspan ui again for a new one.")
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        has_token = (_is_api(request) and self._own.accepts_token(token)) or (
            scheme.lower() == "bearer" and self._own.accepts_token(bearer.strip())
        )
        if not (has_cookie or has_token):
            return _refuse(request, 403, "This browser is not signed in. Run toolspan ui again to open the page.")
        if request.method in _SAFE_METHODS:
            return None
        if not self._own.accepts_page_token(headers.get(PAGE_TOKEN_HEADER)):
            return _refuse(request, 403, "The token of the page is missing or wrong. Reload the page.")
        return None

    def _sign_in(self, request: Request) -> Response:
        """Set the cookie and redirect to the same address without the token."""
        query = QueryParams([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
        path = "/" + request.url.path.lstrip("/")  # `//host` would redirect to another host
        target = path + (f"?{urlencode(query.multi_items())}" if query else "")
        response = RedirectResponse(target, 303)
        response.set_cookie(self._own.cookie_name, self._own.cookie, httponly=True, samesite="strict", path="/")
        return response


def _is_same_origin(headers: Headers) -> bool:
    origin = headers.get("origin")
    return origin is None or origin == f"http://{headers.get('host', '')}"


def _is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _refuse(request: Request, status: int, reason: str) -> Response:
    if _is_api(request):
        return JSONResponse({"error": reason}, status)
    # A link from another site does not send the cookie; a click on this page does.
    again = escape(request.url.path if request.url.path.startswith("/") else "/", quote=True)
    again += escape(f"?{request.url.query}" if request.url.query else "", quote=True)
    link = f'<p><a href="{again}">Try again</a></p>' if status == 403 and not again.startswith("//") else ""
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>toolspan</title>'
        '<link rel="stylesheet" href="/static/page/app.css">'
        f'<main class="refused"><h1>toolspan</h1><p>{escape(reason)}</p>{link}</main></html>'
    )
    return HTMLResponse(page, status)
