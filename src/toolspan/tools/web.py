"""Which address a host has, and whether it may be talked to.

In: a host's name. Out: its addresses, resolved once, so that a second answer of the name server
cannot lead elsewhere; or a `ToolError` when one of them is not of the public internet. Talks to
the name server, to nobody else.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import anyio
import msgspec
from anyio import to_thread

from toolspan.errors import ToolError

if TYPE_CHECKING:
    import httpx
    from bs4 import BeautifulSoup


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
HostResolver = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""From a host and a port to addresses; raises OSError or UnicodeError when there are none."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


async def resolve_host(host: str, port: int) -> tuple[str, ...]:
    """All addresses of a host, best first.

    Raises:
        OSError: it has none, or nobody can say.
        UnicodeError: it is no name of a host.
    """
    infos = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))


async def resolve_allowed_addresses(
    host: str, port: int, *, allow_private: bool, resolver: HostResolver = resolve_host
) -> tuple[str, ...]:
    """The addresses of a host that may be talked to; with `private`, also hidden ones.

    Raises:
        ToolError: it has none, or one that is not public.
    """
    try:
        resolved = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"The address of {host} cannot be found: {error}", kind="network") from error
    non_public = [text for text in resolved if not is_public_address(text)]
    if non_public and not allow_private:
        raise ToolError(
            f"Unable to verify if domain {host} is safe to fetch. {non_public[0]} is not an address of"
            " the public internet.",
            kind="network",
        )
    return resolved


def is_public_address(text: str) -> bool:
    """Whether an address is one of the internet: not loopback, private, link-local or reserved."""
    try:
        address = _embedded_ipv4(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return False
    return address.is_global and not address.is_multicast


def _embedded_ipv4(address: IpAddress) -> IpAddress:
    """The IPv4 address that some IPv6 addresses stand for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


_IGNORED_TAGS = ("script", "style", "noscript", "template", "svg", "iframe", "title", "head")


def to_markdown(html: bytes, charset: str | None) -> str:
    """The content of an HTML page, without scripts and styles; its title first."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser", from_encoding=charset)
    title = " ".join(soup.title.get_text(" ").split()) if soup.title else ""
    for part in soup(_IGNORED_TAGS):
        part.decompose()
    text = _convert_soup(soup).strip()
    lines = (line.rstrip() for line in text.split("\n"))
    body = _collapse_blank_lines("\n".join(lines))
    return f"# {title}\n\n{body}" if title and not body.startswith("# ") else body


def _convert_soup(soup: BeautifulSoup) -> str:
    from markdownify import MarkdownConverter

    try:
        return str(MarkdownConverter(heading_style="atx").convert_soup(soup))
    except RecursionError:  # a page of thousands of nested boxes
        return str(soup.get_text("\n", strip=True))


def _collapse_blank_lines(text: str) -> str:
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


MAX_URL_CHARS = 2000
_REQUEST_HEADERS = {"Accept": "text/markdown, text/html;q=0.9, */*;q=0.5", "User-Agent": "toolspan"}
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much is waited for and taken in."""

    max_bytes: int = 10 << 20
    """Bytes of a page, unpacked."""
    timeout: float = 60.0
    max_redirects: int = 10


@dataclass(frozen=True, slots=True)
class CrossHostRedirect:
    """The page is on another host now; nobody went there."""

    url: str
    target: str
    status: int


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """An answer of a server."""

    url: str
    """After redirects."""
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class FetchSession:
    """How pages are fetched; remembers the addresses of hosts for one fetch."""

    ssl_context: ssl.SSLContext
    """Whose certificates are believed."""
    limits: FetchLimits = field(default_factory=FetchLimits)
    allow_private: bool = False
    """Also from addresses that are not of the public internet."""
    resolver: HostResolver = resolve_host
    resolved_hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def addresses_for(self, parts: SplitResult) -> tuple[str, ...]:
        """The addresses of a host, resolved once."""
        host = parts.hostname or ""
        if host not in self.resolved_hosts:
            self.resolved_hosts[host] = await resolve_allowed_addresses(
                host, url_port(parts), allow_private=self.allow_private, resolver=self.resolver
            )
        return self.resolved_hosts[host]


def url_port(parts: SplitResult) -> int:
    """The port of an address of the web."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def status_reason(status: int) -> str:
    """A status in words."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


async def fetch_url(url: str, session: FetchSession) -> FetchedResponse | CrossHostRedirect:
    """What is at an address.

    Raises:
        ToolError: nothing can be had from there, or not in time, or too much.
    """
    import httpx

    seconds = session.limits.timeout
    # What the environment says of proxies would undo the pinning. Each step has less time than all
    # together: one that is cut off from outside leaves its socket open.
    client = httpx.AsyncClient(verify=session.ssl_context, trust_env=False, timeout=seconds * 0.8)
    try:
        with anyio.fail_after(seconds):
            async with client:
                return await _follow_redirects(url, session, client)
    except (TimeoutError, httpx.TimeoutException) as error:
        text = f"{url} did not answer within {seconds:g} seconds"
        raise ToolError(text, kind="network") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ToolError(f"Unable to fetch from {url}: {reason}", kind="network") from error


async def _follow_redirects(
    url: str, session: FetchSession, client: httpx.AsyncClient
) -> FetchedResponse | CrossHostRedirect:
    for _ in range(session.limits.max_redirects + 1):
        response = await _get_any_address(url, session, client)
        location = response.headers.get("location")
        if response.status not in _REDIRECT_STATUSES or location is None:
            return response
        target = urljoin(url, location)
        if not _is_same_site(urlsplit(url), urlsplit(target)):
            return CrossHostRedirect(url, target, response.status)
        url = target
    raise ToolError(f"{url} redirects more than {session.limits.max_redirects} times", kind="network")


def _is_same_site(source: SplitResult, target: SplitResult) -> bool:
    """The same host, `www.` or not, and no step back to plain HTTP."""
    if target.scheme not in (source.scheme, "https") or target.username or target.password:
        return False
    if source.scheme == target.scheme and url_port(source) != url_port(target):
        return False
    return _bare_host(source) == _bare_host(target)


def _bare_host(parts: SplitResult) -> str:
    return (parts.hostname or "").removeprefix("www.")


async def _get_any_address(url: str, session: FetchSession, client: httpx.AsyncClient) -> FetchedResponse:
    import httpx

    parts = urlsplit(url)
    connect_error: httpx.ConnectError | None = None
    for address in await session.addresses_for(parts):
        try:
            return await _get_from_address(address, url, session, client)
        except httpx.ConnectError as error:
            connect_error = error
    raise connect_error or httpx.ConnectError("no address answers")


async def _get_from_address(
    address: str, url: str, session: FetchSession, client: httpx.AsyncClient
) -> FetchedResponse:
    import httpx

    parsed_url = httpx.URL(url)
    request = client.build_request(
        "GET",
        parsed_url.copy_with(host=address, fragment=None),
        headers={**_REQUEST_HEADERS, "Host": parsed_url.netloc.decode("ascii")},
        extensions={"sni_hostname": parsed_url.raw_host.decode("ascii")},
    )
    response = await client.send(request, stream=True)
    try:
        return FetchedResponse(url, response.status_code, dict(response.headers), await _read_body(response, session))
    finally:
        await response.aclose()


async def _read_body(response: httpx.Response, session: FetchSession) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > session.limits.max_bytes:
            raise ToolError(
                f"The page is larger than {session.limits.max_bytes >> 20} MB, which is the most that is fetched",
                kind="too_large",
            )
    return bytes(body)


TAVILY_KEY = "TAVILY_API_KEY"
"""The variable of the environment that holds the key."""
_TAVILY_ENDPOINT = "https://api.tavily.com/search"
_SEARCH_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class WebSearchQuery:
    """What is looked for."""

    text: str
    allowed_domains: tuple[str, ...] = ()
    """Only these domains, when there are any."""
    blocked_domains: tuple[str, ...] = ()


class WebSearchHit(msgspec.Struct, frozen=True):
    """One page that was found."""

    title: str
    url: str
    content: str = ""
    """What it says about the query."""


class SearchProvider(Protocol):
    """Somebody who searches the web."""

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        """The hits, best first.

        Raises:
            ToolError: nothing can be found out; the model reads why.
        """
        ...


class _TavilyResponse(msgspec.Struct):
    results: list[WebSearchHit] = []


@dataclass(frozen=True, slots=True)
class TavilyProvider:
    """Search by tavily.com."""

    key: str = field(repr=False)
    endpoint: str = _TAVILY_ENDPOINT
    max_results: int = 10

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        """The hits, best first.

        Raises:
            ToolError: it does not answer, or refuses the key.
        """
        import httpx

        payload: dict[str, object] = {"query": query.text, "max_results": self.max_results}
        if query.allowed_domains:
            payload["include_domains"] = list(query.allowed_domains)
        if query.blocked_domains:
            payload["exclude_domains"] = list(query.blocked_domains)
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            with anyio.fail_after(_SEARCH_TIMEOUT):
                async with httpx.AsyncClient(timeout=_SEARCH_TIMEOUT * 0.9) as client:
                    response = await client.post(self.endpoint, json=payload, headers=headers)
        except (httpx.HTTPError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise ToolError(f"Web search failed: {reason}", kind="network") from error
        return _parse_hits(response.status_code, response.content)


def _parse_hits(status: int, body: bytes) -> Sequence[WebSearchHit]:
    if status in (401, 403):
        raise ToolError(f"Web search failed: the provider refuses the key in {TAVILY_KEY}", kind="network")
    if status == 429:
        raise ToolError("Web search failed: too many searches", kind="rate_limit")
    if status >= 400:
        raise ToolError(f"Web search failed with status code {status}", kind="network")
    try:
        return msgspec.json.decode(body, type=_TavilyResponse).results
    except msgspec.MsgspecError as error:
        raise ToolError(f"Web search gave no usable answer: {error}", kind="network") from error


CACHE_SECONDS = 15 * 60.0
"""Seconds."""
MAX_CACHED_PAGES = 32
"""Pages."""
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/javascript"})


@dataclass(frozen=True, slots=True)
class WebPage:
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
class WebClient:
    """A way to pages, with those that came lately."""

    allow_private: bool = False
    """Also hosts that are not of the public internet, such as this machine."""
    upgrade_to_https: bool = True
    """Ask by HTTPS, also where HTTP is said."""
    limits: FetchLimits = field(default_factory=FetchLimits)
    resolver: HostResolver = resolve_host
    clock: Callable[[], float] = time.monotonic
    _ssl_context: ssl.SSLContext | None = None
    _cache: dict[str, tuple[float, WebPage | CrossHostRedirect]] = field(default_factory=dict)

    async def fetch_page(self, url: str) -> WebPage | CrossHostRedirect:
        """What is at an address now, or was a short while ago.

        Raises:
            ToolError: it is no address of the web, or nothing can be had from there.
        """
        normalized_url = self.normalize_url(url)
        cached = self._cache.get(normalized_url)
        if cached is not None and self.clock() - cached[0] < CACHE_SECONDS:
            return cached[1]
        response = await fetch_url(
            normalized_url, FetchSession(await self._load_ssl_context(), self.limits, self.allow_private, self.resolver)
        )
        page = response if isinstance(response, CrossHostRedirect) else await _parse_page(response)
        self._cache_page(normalized_url, page)
        return page

    def normalize_url(self, url: str) -> str:
        """The address that is asked.

        Raises:
            ToolError: it is none, or holds a password.
        """
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in ("http", "https") and parts.hostname and len(url) <= MAX_URL_CHARS
        if not is_valid or parts.username or parts.password:
            raise ToolError("Invalid URL", kind="invalid_input")
        if self.upgrade_to_https and parts.scheme == "http":
            parts = parts._replace(scheme="https")
        return urlunsplit(parts)

    async def _load_ssl_context(self) -> ssl.SSLContext:
        """Whose certificates are believed; reading them takes a while, so it is done once."""
        if self._ssl_context is None:
            import httpx

            self._ssl_context = await to_thread.run_sync(httpx.create_ssl_context)
        return self._ssl_context

    def _cache_page(self, url: str, page: WebPage | CrossHostRedirect) -> None:
        self._cache.pop(url, None)
        self._cache[url] = (self.clock(), page)
        while len(self._cache) > MAX_CACHED_PAGES:
            del self._cache[next(iter(self._cache))]


async def _parse_page(response: FetchedResponse) -> WebPage:
    if response.status >= 400:
        raise ToolError(f"Request failed with status code {response.status}", kind="network")
    header = Message()
    header["Content-Type"] = response.headers.get("content-type", "text/html")
    media_type, charset = header.get_content_type(), header.get_content_charset()
    size = len(response.body)
    if not _is_text(media_type):
        return WebPage(response.url, response.status, size, media_type, None, response.body)
    if media_type in _HTML_TYPES:
        text = await to_thread.run_sync(to_markdown, response.body, charset)
    else:
        text = _decode_body(response.body, charset)
    return WebPage(response.url, response.status, size, media_type, text)


def _is_text(media_type: str) -> bool:
    return (
        media_type.startswith("text/")
        or media_type in _HTML_TYPES | _TEXT_TYPES
        or media_type.endswith(("+json", "+xml"))
    )


def _decode_body(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8", "replace")
    except LookupError:  # a charset nobody knows
        return body.decode("utf-8", "replace")
