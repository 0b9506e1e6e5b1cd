"""Fetch web pages and search the web, for WebFetch and WebSearch.

`WebClient.fetch_page` fetches and converts a page; `TavilyProvider` searches. A host name is resolved once per fetch,
and only public addresses are used, so that a second DNS answer cannot redirect the request into the local network.
"""

from __future__ import annotations

import ipaddress
import re
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


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
HostResolver = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""A function that resolves a host and port to addresses. It raises OSError or UnicodeError if there are none."""
_NON_PUBLIC_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        # Special-purpose networks that some versions of `ipaddress` take for public ones. 192.0.0.192 serves cloud
        # metadata; 64:ff9b:1::/48 translates to private IPv4 networks.
        ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "100::/64", "2001::/23", "3fff::/20", "5f00::/16",
         "fec0::/10"),
    )
)  # fmt: skip
_SUFFIX_EMBEDDINGS = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Networks whose last 32 bits are an IPv4 address: IPv4-compatible, mapped, translated and NAT64 addresses."""
_ISATAP_IDS = frozenset({0x00005EFE, 0x02005EFE})
"""Upper halves of the interface ids of ISATAP addresses, whose last 32 bits are an IPv4 address."""
CACHE_SECONDS = 15 * 60.0
MAX_CACHED_PAGES = 32
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/javascript"})
_IGNORED_TAGS = ("script", "style", "noscript", "template", "svg", "iframe", "title", "head")
MAX_URL_CHARS = 2000
_REQUEST_HEADERS = {"Accept": "text/markdown, text/html;q=0.9, */*;q=0.5", "User-Agent": "toolspan"}
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
TAVILY_KEY = "TAVILY_API_KEY"
"""The environment variable that contains the API key."""
_TAVILY_ENDPOINT = "https://api.tavily.com/search"
_SEARCH_TIMEOUT = 30.0


# Addresses


async def resolve_host(host: str, port: int) -> tuple[str, ...]:
    """Return all addresses of a host, in order of preference.

    Raises:
        OSError: the host has no address, or the name server does not answer.
        UnicodeError: `host` is not a valid host name.
    """
    infos = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))


async def resolve_allowed_addresses(
    host: str, port: int, *, allow_private: bool, resolver: HostResolver = resolve_host
) -> tuple[str, ...]:
    """Return the addresses of a host, which must be public unless `allow_private` is set.

    Raises:
        ToolError: the host has no address, or one that is not allowed.
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
    """Return whether an address is on the public internet: not loopback, private, link-local or reserved.

    An IPv6 address that embeds an IPv4 address is public only if that one is, because a gateway may connect to it.
    Teredo addresses are never public.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return _is_public(_embedded_ipv4(address) or address)


def _is_public(address: IpAddress) -> bool:
    if any(address in network for network in _NON_PUBLIC_NETWORKS):
        return False
    return address.is_global and not address.is_multicast


def _embedded_ipv4(address: IpAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which a gateway may translate an IPv6 address, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.sixtofour is not None:
        return address.sixtofour
    is_isatap = (int(address) >> 32) & 0xFFFFFFFF in _ISATAP_IDS
    if is_isatap or any(address in network for network in _SUFFIX_EMBEDDINGS):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


# Fetching


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits for a fetch."""

    max_bytes: int = 10 << 20
    """The maximum size of the decompressed body in bytes."""
    timeout: float = 60.0
    max_redirects: int = 10


@dataclass(frozen=True, slots=True)
class CrossHostRedirect:
    """A redirect to another host, which is not followed."""

    url: str
    target: str
    status: int


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """A server's response."""

    url: str
    """The final URL after redirects."""
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Fetch:
    """A single fetch, during which each host is resolved once."""

    http: httpx.AsyncClient
    limits: FetchLimits
    allow_private: bool
    resolver: HostResolver
    resolved_hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def follow_redirects(self, url: str) -> FetchedResponse | CrossHostRedirect:
        """Fetch a URL and follow redirects within the same site."""
        for _ in range(self.limits.max_redirects + 1):
            response = await self._get(url)
            location = response.headers.get("location")
            if response.status not in _REDIRECT_STATUSES or location is None:
                return response
            target = urljoin(url, location)
            if not _is_same_site(urlsplit(url), urlsplit(target)):
                return CrossHostRedirect(url, target, response.status)
            url = target
        raise ToolError(f"{url} redirects more than {self.limits.max_redirects} times", kind="network")

    async def _get(self, url: str) -> FetchedResponse:
        """Request a URL from the first of its host's addresses that accepts a connection."""
        import httpx

        parts = urlsplit(url)
        host = parts.hostname or ""
        if host not in self.resolved_hosts:
            self.resolved_hosts[host] = await resolve_allowed_addresses(
                host, _url_port(parts), allow_private=self.allow_private, resolver=self.resolver
            )
        connect_error: httpx.ConnectError | None = None
        for address in self.resolved_hosts[host]:
            try:
                return await self._get_from_address(address, url)
            except httpx.ConnectError as error:
                connect_error = error
        raise connect_error or httpx.ConnectError("no address answers")

    async def _get_from_address(self, address: str, url: str) -> FetchedResponse:
        import httpx

        parsed_url = httpx.URL(url)
        request = self.http.build_request(
            "GET",
            parsed_url.copy_with(host=address, fragment=None),
            headers={**_REQUEST_HEADERS, "Host": parsed_url.netloc.decode("ascii")},
            extensions={"sni_hostname": parsed_url.raw_host.decode("ascii")},
        )
        response = await self.http.send(request, stream=True)
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > self.limits.max_bytes:
                    raise ToolError(
                        f"The page is larger than {self.limits.max_bytes >> 20} MB, which is the most that is fetched",
                        kind="too_large",
                    )
        finally:
            await response.aclose()
        return FetchedResponse(url, response.status_code, dict(response.headers), bytes(body))


def _url_port(parts: SplitResult) -> int:
    """Return the port in a URL, or the default port for its scheme."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def status_reason(status: int) -> str:
    """Return the reason phrase for an HTTP status, or an empty string if the status is unknown."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _is_same_site(source: SplitResult, target: SplitResult) -> bool:
    """Return whether both hosts are equal, ignoring `www.`, and HTTPS is not downgraded to HTTP."""
    if target.scheme not in (source.scheme, "https") or target.username or target.password:
        return False
    if source.scheme == target.scheme and _url_port(source) != _url_port(target):
        return False
    source_host, target_host = ((parts.hostname or "").removeprefix("www.") for parts in (source, target))
    return source_host == target_host


# Pages


@dataclass(frozen=True, slots=True)
class WebPage:
    """The content of a web page."""

    url: str
    status: int
    size: int
    """The number of bytes received."""
    media_type: str
    text: str | None
    """Markdown or the body as text, or None if the body is not text."""
    body: bytes = b""
    """The body, if it is not text."""


@dataclass(slots=True, kw_only=True)
class WebClient:
    """A client that fetches pages and caches them for a short time."""

    allow_private: bool = False
    """True to allow hosts that are not on the public internet, such as this machine."""
    upgrade_to_https: bool = True
    """True to request `http:` URLs over HTTPS."""
    limits: FetchLimits = field(default_factory=FetchLimits)
    resolver: HostResolver = resolve_host
    clock: Callable[[], float] = time.monotonic
    _ssl_context: ssl.SSLContext | None = None
    _cache: dict[str, tuple[float, WebPage | CrossHostRedirect]] = field(default_factory=dict)

    async def fetch_page(self, url: str) -> WebPage | CrossHostRedirect:
        """Return the page at a URL, from the cache if it was fetched recently.

        Raises:
            ToolError: the URL is invalid or the page cannot be fetched.
        """
        normalized_url = self.normalize_url(url)
        cached = self._cache.get(normalized_url)
        if cached is not None and self.clock() - cached[0] < CACHE_SECONDS:
            return cached[1]
        response = await self._fetch(normalized_url)
        page = response if isinstance(response, CrossHostRedirect) else await _parse_page(response)
        self._cache_page(normalized_url, page)
        return page

    def normalize_url(self, url: str) -> str:
        """Validate a URL and return the URL to request.

        Raises:
            ToolError: the URL is invalid or contains a password.
        """
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in ("http", "https") and parts.hostname and len(url) <= MAX_URL_CHARS
        if not is_valid or parts.username or parts.password:
            raise ToolError("Invalid URL", kind="invalid_input")
        if self.upgrade_to_https and parts.scheme == "http":
            parts = parts._replace(scheme="https")
        return urlunsplit(parts)

    async def _fetch(self, url: str) -> FetchedResponse | CrossHostRedirect:
        import httpx

        seconds = self.limits.timeout
        # Proxies from the environment would defeat the address pinning. Each step gets less time than the whole fetch,
        # because a step that is cancelled from outside leaves its socket open.
        http = httpx.AsyncClient(verify=await self._load_ssl_context(), trust_env=False, timeout=seconds * 0.8)
        try:
            with anyio.fail_after(seconds):
                async with http:
                    return await _Fetch(http, self.limits, self.allow_private, self.resolver).follow_redirects(url)
        except (TimeoutError, httpx.TimeoutException) as error:
            text = f"{url} did not answer within {seconds:g} seconds"
            raise ToolError(text, kind="network") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise ToolError(f"Unable to fetch from {url}: {reason}", kind="network") from error

    async def _load_ssl_context(self) -> ssl.SSLContext:
        """Load the trusted certificates once, in a thread because loading is slow."""
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
    except LookupError:  # unknown charset
        return body.decode("utf-8", "replace")


def to_markdown(html: bytes, charset: str | None) -> str:
    """Convert an HTML page to Markdown, with the title first and without scripts and styles."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(html, "html.parser", from_encoding=charset)
    title = " ".join(soup.title.get_text(" ").split()) if soup.title else ""
    for part in soup(_IGNORED_TAGS):
        part.decompose()
    try:
        text = str(MarkdownConverter(heading_style="atx").convert_soup(soup))
    except RecursionError:  # thousands of nested elements
        text = str(soup.get_text("\n", strip=True))
    lines = (line.rstrip() for line in text.strip().split("\n"))
    body = re.sub("\n{3,}", "\n\n", "\n".join(lines))
    return f"# {title}\n\n{body}" if title and not body.startswith("# ") else body


# Search


@dataclass(frozen=True, slots=True)
class WebSearchQuery:
    """A query and its domain filters."""

    text: str
    allowed_domains: tuple[str, ...] = ()
    """If not empty, the only domains to search."""
    blocked_domains: tuple[str, ...] = ()


class WebSearchHit(msgspec.Struct, frozen=True):
    """One page in the search results."""

    title: str
    url: str
    content: str = ""
    """An excerpt from the page."""


class SearchProvider(Protocol):
    """A service that searches the web."""

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        """Return the hits, best first.

        Raises:
            ToolError: the search failed. The model sees the message.
        """
        ...


class _TavilyResponse(msgspec.Struct):
    results: list[WebSearchHit] = []


@dataclass(frozen=True, slots=True)
class TavilyProvider:
    """A search provider that uses tavily.com."""

    key: str = field(repr=False)
    endpoint: str = _TAVILY_ENDPOINT
    max_results: int = 10

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        """Return the hits, best first.

        Raises:
            ToolError: the service does not respond or rejects the key.
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
