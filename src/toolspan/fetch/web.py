"""The web as a model sees it: pages as text.

In: an address. Out: a `Page`, kept for a quarter of an hour, or `Moved`. Knows nothing of prompts
and models. Read `Web.page` first.
"""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import urlsplit, urlunsplit

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.fetch.address import Lookup, lookup
from toolspan.fetch.markdown import to_markdown
from toolspan.fetch.request import LONGEST_URL, Came, Limits, Moved, Way, fetch

KEPT_FOR = 15 * 60.0
"""Seconds."""
MOST_KEPT = 32
"""Pages."""
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset({"application/json", "application/xml", "application/javascript"})


@dataclass(frozen=True, slots=True)
class Page:
    """What an address holds."""

    url: str
    status: int
    size: int
    """Bytes that came."""
    media_type: str
    text: str | None
    """As Markdown, or as it is; None for what is no text."""
    body: bytes = b""
    """What is no text, as it came."""


@dataclass(slots=True, kw_only=True)
class Web:
    """A way to pages, with those that came lately."""

    private: bool = False
    """Also hosts that are not of the public internet, such as this machine."""
    upgrade: bool = True
    """Ask by HTTPS, also where HTTP is said."""
    limits: Limits = field(default_factory=Limits)
    lookup: Lookup = lookup
    clock: Callable[[], float] = time.monotonic
    _trust: ssl.SSLContext | None = None
    _kept: dict[str, tuple[float, Page | Moved]] = field(default_factory=dict)

    async def page(self, url: str) -> Page | Moved:
        """What is at an address now, or was a short while ago.

        Raises:
            ToolError: it is no address of the web, or nothing can be had from there.
        """
        asked = self.checked(url)
        kept = self._kept.get(asked)
        if kept is not None and self.clock() - kept[0] < KEPT_FOR:
            return kept[1]
        came = await fetch(
            asked, Way(await self._trusted(), self.limits, self.private, self.lookup)
        )
        page = came if isinstance(came, Moved) else await _page(came)
        self._keep(asked, page)
        return page

    def checked(self, url: str) -> str:
        """The address that is asked.

        Raises:
            ToolError: it is none, or holds a password.
        """
        parts = urlsplit(url.strip())
        fine = parts.scheme in ("http", "https") and parts.hostname and len(url) <= LONGEST_URL
        if not fine or parts.username or parts.password:
            raise ToolError("Invalid URL", kind="invalid_input")
        if self.upgrade and parts.scheme == "http":
            parts = parts._replace(scheme="https")
        return urlunsplit(parts)

    async def _trusted(self) -> ssl.SSLContext:
        """Whose certificates are believed; reading them takes a while, so it is done once."""
        if self._trust is None:
            import httpx

            self._trust = await to_thread.run_sync(httpx.create_ssl_context)
        return self._trust

    def _keep(self, url: str, page: Page | Moved) -> None:
        self._kept.pop(url, None)
        self._kept[url] = (self.clock(), page)
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


async def _page(came: Came) -> Page:
    if came.status >= 400:
        raise ToolError(f"Request failed with status code {came.status}", kind="network")
    header = Message()
    header["Content-Type"] = came.headers.get("content-type", "text/html")
    kind, charset = header.get_content_type(), header.get_content_charset()
    size = len(came.body)
    if not _is_text(kind):
        return Page(came.url, came.status, size, kind, None, came.body)
    if kind in _HTML:
        text = await to_thread.run_sync(to_markdown, came.body, charset)
    else:
        text = _decoded(came.body, charset)
    return Page(came.url, came.status, size, kind, text)


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _HTML | _TEXTS or kind.endswith(("+json", "+xml"))


def _decoded(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8", "replace")
    except LookupError:  # a charset nobody knows
        return body.decode("utf-8", "replace")
