"""WebFetch and WebSearch: fetch web pages and search the web.

WebFetch returns a model's answer to a question about a page or, without a model, the page as Markdown.
`WebClient.fetch_page` fetches and converts a page; `TavilyProvider` searches. A host name is resolved once per fetch,
and only public addresses are used, so that a second DNS answer cannot redirect the request into the local network.
"""

from __future__ import annotations

import json
import mimetypes
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import anyio
import msgspec
from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.addresses import HostResolver, is_public_address, resolve_host
from toolspan.runtime.context import ToolContext
from toolspan.runtime.output_limits import safe_file_name
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.schemas import TEXTS, object_schema, text

if TYPE_CHECKING:
    import httpx2


CACHE_SECONDS = 15 * 60.0
MAX_CACHED_PAGES = 32
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/javascript"})
_IGNORED_TAGS = ("script", "style", "noscript", "template", "svg", "iframe", "title", "head")
MAX_URL_CHARS = 2000
_REQUEST_HEADERS = {"Accept": "text/markdown, text/html;q=0.9, */*;q=0.5", "User-Agent": "toolspan"}
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
TAVILY_KEY = "TAVILY_API_KEY"
_TAVILY_ENDPOINT = "https://api.tavily.com/search"
_SEARCH_TIMEOUT = 30.0


# Addresses


async def resolve_allowed_addresses(
    host: str, port: int, *, allow_private: bool, resolver: HostResolver = resolve_host
) -> tuple[str, ...]:
    """Return the addresses of a host, which must be public unless `allow_private` is set.

    Raise ToolError if the host has no address, or one that is not allowed.
    """
    try:
        resolved = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"The host {host} cannot be resolved: {error}", kind="network") from error
    non_public = [text for text in resolved if not is_public_address(text)]
    if non_public and not allow_private:
        raise ToolError(
            f"Unable to verify if domain {host} is safe to fetch. {non_public[0]} is not a public address.",
            kind="network",
        )
    return resolved


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


def _url_port(parts: SplitResult) -> int:
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

        Raise ToolError if the URL is invalid or the page cannot be fetched.
        """
        normalized_url = self.normalize_url(url)
        cached = self._cache.get(normalized_url)
        if cached is not None and self.clock() - cached[0] < CACHE_SECONDS:
            return cached[1]
        response = await self._fetch(normalized_url)
        page = response if isinstance(response, CrossHostRedirect) else await _parse_page(response)
        self._cache.pop(normalized_url, None)
        self._cache[normalized_url] = (self.clock(), page)
        while len(self._cache) > MAX_CACHED_PAGES:
            del self._cache[next(iter(self._cache))]
        return page

    def normalize_url(self, url: str) -> str:
        """Validate a URL and return the URL to request.

        Raise ToolError if the URL is invalid or contains a password.
        """
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in ("http", "https") and parts.hostname and len(url) <= MAX_URL_CHARS
        if not is_valid or parts.username or parts.password:
            raise ToolError("Invalid URL", kind="invalid_input")
        if self.upgrade_to_https and parts.scheme == "http":
            parts = parts._replace(scheme="https")
        return urlunsplit(parts)

    async def _fetch(self, url: str) -> FetchedResponse | CrossHostRedirect:
        import httpx2

        seconds = self.limits.timeout
        if self._ssl_context is None:  # loading the certificates is slow
            self._ssl_context = await to_thread.run_sync(httpx2.create_ssl_context)
        # Proxies from the environment would defeat the address pinning. Each step has a shorter timeout than the
        # whole fetch, because cancelling a step from outside leaks its socket.
        http = httpx2.AsyncClient(verify=self._ssl_context, trust_env=False, timeout=seconds * 0.8)
        try:
            with anyio.fail_after(seconds):
                async with http:
                    return await self._follow_redirects(http, url)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ToolError(f"{url} did not answer within {seconds:g} seconds", kind="network") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise ToolError(f"Unable to fetch from {url}: {reason}", kind="network") from error

    async def _follow_redirects(self, http: httpx2.AsyncClient, url: str) -> FetchedResponse | CrossHostRedirect:
        resolved_hosts: dict[str, tuple[str, ...]] = {}  # each host is resolved once
        for _ in range(self.limits.max_redirects + 1):
            response = await self._get(http, url, resolved_hosts)
            location = response.headers.get("location")
            if response.status not in _REDIRECT_STATUSES or location is None:
                return response
            target = urljoin(url, location)
            if not _is_same_site(urlsplit(url), urlsplit(target)):
                return CrossHostRedirect(url, target, response.status)
            url = target
        raise ToolError(f"{url} redirects more than {self.limits.max_redirects} times", kind="network")

    async def _get(
        self, http: httpx2.AsyncClient, url: str, resolved_hosts: dict[str, tuple[str, ...]]
    ) -> FetchedResponse:
        """Request a URL from the first of its host's addresses that accepts a connection."""
        import httpx2

        parts, parsed_url = urlsplit(url), httpx2.URL(url)
        host = parts.hostname or ""
        if host not in resolved_hosts:
            resolved_hosts[host] = await resolve_allowed_addresses(
                host, _url_port(parts), allow_private=self.allow_private, resolver=self.resolver
            )
        error = httpx2.ConnectError("no address of the host accepts a connection")
        for address in resolved_hosts[host]:
            request = http.build_request(
                "GET",
                parsed_url.copy_with(host=address, fragment=None),
                headers={**_REQUEST_HEADERS, "Host": parsed_url.netloc.decode("ascii")},
                extensions={"sni_hostname": parsed_url.raw_host.decode("ascii")},
            )
            try:
                response = await http.send(request, stream=True)
                async with aclosing(response):
                    body = bytearray()
                    async for piece in response.aiter_bytes():
                        body += piece
                        if len(body) > self.limits.max_bytes:
                            megabytes = self.limits.max_bytes >> 20
                            raise ToolError(
                                f"The page is larger than {megabytes} MB, the limit of this tool",
                                kind="too_large",
                            )
                return FetchedResponse(url, response.status_code, dict(response.headers), bytes(body))
            except httpx2.ConnectError as connect_error:
                error = connect_error
        raise error


async def _parse_page(response: FetchedResponse) -> WebPage:
    if response.status >= 400:
        raise ToolError(f"Request failed with status code {response.status}", kind="network")
    header = Message()
    header["Content-Type"] = response.headers.get("content-type", "text/html")
    media_type, charset = header.get_content_type(), header.get_content_charset()
    body, text = response.body, None
    if media_type in _HTML_TYPES:
        text = await to_thread.run_sync(to_markdown, body, charset)
    elif media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(("+json", "+xml")):
        try:
            text = body.decode(charset or "utf-8", "replace")
        except LookupError:  # unknown charset
            text = body.decode("utf-8", "replace")
    return WebPage(response.url, response.status, len(body), media_type, text, b"" if text is not None else body)


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


class SearchProvider(Protocol):
    """A service that searches the web."""

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        """Return the hits, best first. Raise ToolError if the search failed. The model sees the message."""
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
        """Return the hits, best first. Raise ToolError if the service does not respond or rejects the key."""
        import httpx2

        payload: dict[str, object] = {"query": query.text, "max_results": self.max_results}
        if query.allowed_domains:
            payload["include_domains"] = list(query.allowed_domains)
        if query.blocked_domains:
            payload["exclude_domains"] = list(query.blocked_domains)
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            with anyio.fail_after(_SEARCH_TIMEOUT):
                async with httpx2.AsyncClient(timeout=_SEARCH_TIMEOUT * 0.9) as client:
                    response = await client.post(self.endpoint, json=payload, headers=headers)
        except (httpx2.HTTPError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise ToolError(f"Web search failed: {reason}", kind="network") from error
        status = response.status_code
        if status in (401, 403):
            raise ToolError(f"Web search failed: the provider rejected the key in {TAVILY_KEY}", kind="network")
        if status == 429:
            raise ToolError(
                "Web search failed: the provider's rate limit is reached. Try again later.", kind="rate_limit"
            )
        if status >= 400:
            raise ToolError(f"Web search failed with status code {status}", kind="network")
        try:
            return msgspec.json.decode(response.content, type=_TavilyResponse).results
        except msgspec.MsgspecError as error:
            raise ToolError(f"Web search failed: the provider's answer is invalid: {error}", kind="network") from error


# Tools

AnswerFunction = Callable[[str, str], Awaitable[str]]
"""A function that uses a model to answer a prompt about a page. It raises `ToolError` if there is no answer."""

MAX_TEXT_CHARS = 100_000
_REDIRECT_MESSAGE = """\
REDIRECT DETECTED: The URL redirects to a different host.

Original URL: {url}
Redirect URL: {to}
Status: {status} {reason}

The new address was not fetched. To fetch it, call WebFetch again with:
- url: "{to}"
- prompt: "{prompt}\""""


def webfetch_tool(profile: Profile, *, web: WebClient | None = None, answer: AnswerFunction | None = None) -> Tool:
    """Return the WebFetch tool for a client version. `answer` lets a model answer questions about the page."""
    properties = {
        "url": text("The address of the page.", format="uri"),
        "prompt": text("What you want to know about the page."),
    }
    if profile.availability.fetch_has_offset:
        description = f"The position of the first character to return, for a page above {MAX_TEXT_CHARS:,} characters."
        properties["offset"] = {"type": "integer", "minimum": 0, "description": description}
    schema = object_schema(properties, required=["url", "prompt"])
    client = web or WebClient()
    return Tool(
        name="WebFetch",
        description=(
            (
                "Fetch a web page and return its content as Markdown."
                if answer is None
                else "Fetch a web page and return the answer of a model to your prompt about its content."
            )
            + " HTTP addresses are changed to HTTPS. Private and local addresses are refused, and a redirect to another"
            " host is reported instead of followed. For pages that need a login, use another tool."
        ),
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=lambda value, ctx: _fetch_page(value, ctx, client, answer),
        concurrent=True,
        idempotent=True,
        output_limit=None,  # bounded by MAX_TEXT_CHARS
        kind="web",
        subject=ToolSubject("host", "url"),
        slow_after=30.0,
        hints=ToolHints("Fetch a page", read_only=True, open_world=True),
    )


async def _fetch_page(
    value: Mapping[str, object], ctx: ToolContext, web: WebClient, answer: AnswerFunction | None
) -> Output:
    url, prompt, offset = str(value["url"]), str(value["prompt"]), value.get("offset")
    started = time.monotonic()
    host = urlsplit(url).hostname or ""
    if not web.allow_private and "." not in host and ":" not in host:
        raise ToolError(ctx.profile.messages.undotted_host, kind="invalid_input")
    page = await web.fetch_page(url)
    if isinstance(page, CrossHostRedirect):
        content = _REDIRECT_MESSAGE.format(
            url=url, to=page.target, status=page.status, reason=status_reason(page.status), prompt=prompt
        )
        size = len(content.encode())
    else:
        size = page.size
        if page.text is None:
            path = await to_thread.run_sync(_save_page, page, ctx)
            content = f"The page is not text ({page.media_type}, {page.size} bytes). It was saved to {path}"
        else:
            part = _slice_page(page.text, offset if isinstance(offset, int) else 0)
            if answer is not None:
                content = await answer(prompt, part)
            else:
                content = f"Content of {page.url}\nPrompt: {prompt}\n\n{part}"
    record = {
        "bytes": size,
        "code": page.status,
        "codeText": status_reason(page.status),
        "result": content,
        "durationMs": round((time.monotonic() - started) * 1000),
        "url": url,
    }
    return Output(content, record)


def _slice_page(page: str, offset: int) -> str:
    part = page[offset : offset + MAX_TEXT_CHARS]
    rest = len(page) - offset - len(part)
    return part if rest <= 0 else f"{part}\n\n[{rest} more characters. To read on, use offset {offset + len(part)}.]"


def _save_page(page: WebPage, ctx: ToolContext) -> Path:
    folder = ctx.workspace.results_folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{safe_file_name(ctx.call.id)}{mimetypes.guess_extension(page.media_type) or '.bin'}"
    path.write_bytes(page.body)
    return path


_SCHEMA = object_schema(
    {
        "query": text("The search query.", minLength=2),
        "allowed_domains": {**TEXTS, "description": "Return only results from these domains."},
        "blocked_domains": {**TEXTS, "description": "Return no results from these domains."},
    },
    required=["query"],
)


def websearch_tool(profile: Profile, *, provider: SearchProvider | None = None) -> Tool:
    """Return the WebSearch tool for a client version."""
    return Tool(
        name="WebSearch",
        description=(
            "Search the web. Returns the titles and addresses of matching pages, with excerpts if the"
            " provider has them. Use it for facts that are newer than your knowledge, and WebFetch to"
            " read a page."
        ),
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=lambda value, ctx: _search_web(value, ctx, provider),
        validate=_validate_domains,
        concurrent=True,
        idempotent=True,
        kind="web",
        subject=ToolSubject("text", "query"),
        slow_after=30.0,
        hints=ToolHints("Search the web", read_only=True, open_world=True),
    )


async def _validate_domains(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if value.get("allowed_domains") and value.get("blocked_domains"):
        return Refusal(
            "Error: Cannot specify both allowed_domains and blocked_domains in the same request", "invalid_input"
        )
    return None


async def _search_web(value: Mapping[str, object], ctx: ToolContext, provider: SearchProvider | None) -> Output:
    if provider is None:
        key = ctx.workspace.environment.get(TAVILY_KEY)
        if not key:
            raise ToolError(
                f"Web search is not configured: {TAVILY_KEY} is not set, and the session has no search provider.",
                kind="network",
            )
        provider = TavilyProvider(key)
    query = str(value["query"])
    started = time.monotonic()
    hits = await provider.search(
        WebSearchQuery(query, _text_tuple(value.get("allowed_domains")), _text_tuple(value.get("blocked_domains")))
    )
    links = [{"title": hit.title, "url": hit.url} for hit in hits]
    summary = "\n\n".join(f"{hit.title} ({hit.url}):\n{hit.content}" for hit in hits if hit.content)
    results: list[object] = [{"tool_use_id": ctx.call.id, "content": links}]
    record = {
        "query": query,
        "results": [*results, summary] if summary else results,
        "durationSeconds": time.monotonic() - started,
        "searchCount": 1,
    }
    content = f'Web search results for query: "{query}"\n\n'
    content += f"Links: {json.dumps(links, ensure_ascii=False, separators=(',', ':'))}"
    return Output(f"{content}\n\n{summary}" if summary else content, record)


def _text_tuple(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()
