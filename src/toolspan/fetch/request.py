"""One page over HTTP, from a pinned address and within limits.

In: an address of the web. Out: what came, or where it has moved to when that is another host;
redirects within the same host are followed. A `ToolError` for everything else. Sends no cookies
and no credentials, and does not ask proxies of the environment.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

import anyio

from toolspan.errors import ToolError
from toolspan.fetch.address import Lookup, addresses, lookup

if TYPE_CHECKING:
    import httpx

LONGEST_URL = 2000
_HEADERS = {"Accept": "text/markdown, text/html;q=0.9, */*;q=0.5", "User-Agent": "toolspan"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is waited for and taken in."""

    size: int = 10 << 20
    """Bytes of a page, unpacked."""
    seconds: float = 60.0
    redirects: int = 10


@dataclass(frozen=True, slots=True)
class Moved:
    """The page is on another host now; nobody went there."""

    url: str
    to: str
    status: int


@dataclass(frozen=True, slots=True)
class Came:
    """An answer of a server."""

    url: str
    """After redirects."""
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Way:
    """How pages are fetched; remembers the addresses of hosts for one fetch."""

    trust: ssl.SSLContext
    """Whose certificates are believed."""
    limits: Limits = field(default_factory=Limits)
    private: bool = False
    """Also from addresses that are not of the public internet."""
    lookup: Lookup = lookup
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def addresses(self, parts: SplitResult) -> tuple[str, ...]:
        """The addresses of a host, resolved once."""
        host = parts.hostname or ""
        if host not in self.known:
            self.known[host] = await addresses(
                host, port_of(parts), private=self.private, lookup=self.lookup
            )
        return self.known[host]


def port_of(parts: SplitResult) -> int:
    """The port of an address of the web."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def reason_of(status: int) -> str:
    """A status in words."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


async def fetch(url: str, way: Way) -> Came | Moved:
    """What is at an address.

    Raises:
        ToolError: nothing can be had from there, or not in time, or too much.
    """
    import httpx

    seconds = way.limits.seconds
    # What the environment says of proxies would undo the pinning. Each step has less time than all
    # together: one that is cut off from outside leaves its socket open.
    client = httpx.AsyncClient(verify=way.trust, trust_env=False, timeout=seconds * 0.8)
    try:
        with anyio.fail_after(seconds):
            async with client:
                return await _follow(url, way, client)
    except (TimeoutError, httpx.TimeoutException) as error:
        text = f"{url} did not answer within {seconds:g} seconds"
        raise ToolError(text, kind="network") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        words = str(error) or type(error).__name__
        raise ToolError(f"Unable to fetch from {url}: {words}", kind="network") from error


async def _follow(url: str, way: Way, client: "httpx.AsyncClient") -> Came | Moved:
    for _ in range(way.limits.redirects + 1):
        came = await _get(url, way, client)
        to = came.headers.get("location")
        if came.status not in _REDIRECTS or to is None:
            return came
        there = urljoin(url, to)
        if not _same_place(urlsplit(url), urlsplit(there)):
            return Moved(url, there, came.status)
        url = there
    raise ToolError(f"{url} redirects more than {way.limits.redirects} times", kind="network")


def _same_place(here: SplitResult, there: SplitResult) -> bool:
    """The same host, `www.` or not, and no step back to plain HTTP."""
    if there.scheme not in (here.scheme, "https") or there.username or there.password:
        return False
    if here.scheme == there.scheme and port_of(here) != port_of(there):
        return False
    return _bare(here) == _bare(there)


def _bare(parts: SplitResult) -> str:
    return (parts.hostname or "").removeprefix("www.")


async def _get(url: str, way: Way, client: "httpx.AsyncClient") -> Came:
    import httpx

    parts = urlsplit(url)
    failed: httpx.ConnectError | None = None
    for address in await way.addresses(parts):
        try:
            return await _get_from(address, url, way, client)
        except httpx.ConnectError as error:
            failed = error
    raise failed or httpx.ConnectError("no address answers")


async def _get_from(address: str, url: str, way: Way, client: "httpx.AsyncClient") -> Came:
    import httpx

    whole = httpx.URL(url)
    request = client.build_request(
        "GET",
        whole.copy_with(host=address, fragment=None),
        headers={**_HEADERS, "Host": whole.netloc.decode("ascii")},
        extensions={"sni_hostname": whole.raw_host.decode("ascii")},
    )
    answer = await client.send(request, stream=True)
    try:
        return Came(url, answer.status_code, dict(answer.headers), await _body(answer, way))
    finally:
        await answer.aclose()


async def _body(answer: "httpx.Response", way: Way) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > way.limits.size:
            raise ToolError(
                f"The page is larger than {way.limits.size >> 20} MB, which is the most that is"
                " fetched",
                kind="too_large",
            )
    return bytes(body)
