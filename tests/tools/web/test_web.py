"""Fetching pages: pinned addresses, limits, redirects, and Markdown."""

from __future__ import annotations

import gzip

import anyio
import pytest

from tests.limits import PATIENCE
from tests.tools.web.site import html, site, to
from toolspan.errors import ToolError
from toolspan.runtime.addresses import is_public_address
from toolspan.testing.model_server import HttpResponse
from toolspan.tools.web import (
    CACHE_SECONDS,
    CrossHostRedirect,
    FetchLimits,
    WebClient,
    WebPage,
    resolve_allowed_addresses,
    to_markdown,
)

pytestmark = pytest.mark.anyio


def local(limits: FetchLimits | None = None) -> WebClient:
    return WebClient(allow_private=True, upgrade_to_https=False, limits=limits or FetchLimits())


async def page(web: WebClient, url: str) -> WebPage:
    result = await web.fetch_page(url)
    assert isinstance(result, WebPage)
    return result


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("168.63.129.16", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("192.0.0.192", False),
        ("192.0.0.8", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:192.0.0.192", False),
        ("::ffff:0:10.0.0.1", False),
        ("::10.0.0.1", False),
        ("::169.254.169.254", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::192.0.0.192", False),
        ("64:ff9b::93.184.216.34", True),
        ("64:ff9b:1::93.184.216.34", False),
        ("2002:a00:1::1", False),
        ("2002:c000:c0::", False),
        ("2002:5db8:d822::1", True),
        ("2001:0:5db8:d822:0:0:f5ff:fffe", False),
        ("2001:0:5db8:d822:0:0:a247:27dd", False),
        ("2a01:4f8::5efe:10.0.0.1", False),
        ("2a01:4f8::200:5efe:10.0.0.1", False),
        ("fec0::1", False),
        ("no address", False),
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, *, public: bool) -> None:
    assert is_public_address(address) is public


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://localhost:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::1]:{port}/",
    ],
)
async def test_this_machine_is_refused_in_every_spelling(url: str) -> None:
    async with site({"/": html("secret")}) as server:
        with pytest.raises(ToolError, match=r"is not a public address|cannot be"):
            await WebClient(upgrade_to_https=False).fetch_page(url.format(port=server.port))

    assert server.requests == []


@pytest.mark.parametrize(
    "host",
    [
        "192.0.0.192",
        "[::ffff:10.0.0.1]",
        "[::10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "[2001:0:5db8:d822:0:0:f5ff:fffe]",
    ],
)
async def test_addresses_that_lead_into_private_networks_are_refused_before_any_connection(host: str) -> None:
    with pytest.raises(ToolError, match=r"is not a public address"):
        await WebClient().fetch_page(f"https://{host}/latest/meta-data/")


async def test_one_private_address_among_public_ones_is_refused() -> None:
    async def lookup(_host: str, _port: int) -> tuple[str, ...]:
        return ("93.184.216.34", "127.0.0.1")

    with pytest.raises(ToolError, match=r"safe to fetch"):
        await WebClient(resolver=lookup).fetch_page("https://pages.test/")
    assert await resolve_allowed_addresses("127.0.0.1", 80, allow_private=True) == ("127.0.0.1",)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com",
        "https://",
        "https://me:secret@example.com/",
        "https://example.com/" + "a" * 2000,
    ],
)
async def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(ToolError, match=r"^Invalid URL$"):
        await WebClient().fetch_page(url)


async def test_pages_are_requested_by_https() -> None:
    assert WebClient().normalize_url("http://example.com:8080/a?b#c") == "https://example.com:8080/a?b#c"
    async with site({"/": html("plain")}) as server:
        with pytest.raises(ToolError, match=r"Unable to fetch from https://127"):  # the site has no TLS
            await WebClient(allow_private=True, limits=FetchLimits(timeout=PATIENCE)).fetch_page(f"{server.url}/")

    assert server.requests == []


async def test_the_host_is_resolved_once_and_requested_by_name() -> None:
    answers = [("127.0.0.1",)]

    async def lookup(host: str, _port: int) -> tuple[str, ...]:
        assert host == "pages.test"
        return answers.pop()  # a second question is an error

    async with site({"/a": to("/b"), "/b": html("<p>there</p>")}) as server:
        web = WebClient(allow_private=True, upgrade_to_https=False, resolver=lookup)
        result = await page(web, f"http://pages.test:{server.port}/a")

    assert result.text == "there"
    assert [request.headers["host"] for request in server.requests] == [f"pages.test:{server.port}"] * 2


async def test_a_redirect_is_followed_only_within_the_host() -> None:
    pages = {"/a": to("/b"), "/b": to("b/c", 308), "/b/c": html("<p>c</p>")}
    async with site({**pages, "/x": to("https://other.test/y", 301)}) as server:
        web = local()
        followed = await page(web, f"{server.url}/a")
        moved = await web.fetch_page(f"{server.url}/x")

    assert (followed.url, followed.text) == (f"{server.url}/b/c", "c")
    assert moved == CrossHostRedirect(f"{server.url}/x", "https://other.test/y", 301)


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/", "http://me@127.0.0.1/", "http://127.0.0.2/", "ftp://x/"])
async def test_another_port_login_host_or_scheme_is_another_site(location: str) -> None:
    async with site({"/": to(location)}) as server:
        assert isinstance(await local().fetch_page(f"{server.url}/"), CrossHostRedirect)


async def test_a_redirect_loop_ends() -> None:
    async with site({"/": to("/")}) as server:
        with pytest.raises(ToolError, match=r"redirects more than 10 times"):
            await local().fetch_page(f"{server.url}/")

    assert len(server.requests) == 11


async def test_a_page_over_the_size_limit_is_not_read() -> None:
    def packed(size: int) -> HttpResponse:
        body = gzip.compress(bytes(size))
        return HttpResponse(status=200, body=body, headers={"content-encoding": "gzip"})

    endless = HttpResponse(status=200, body=(b"x" * 4096 for _ in iter(int, 1)))
    async with site({"/bomb": packed(4 << 20), "/endless": endless}) as server:
        for path in ("/bomb", "/endless"):
            with pytest.raises(ToolError, match=r"larger than 1 MB"):
                await local(FetchLimits(max_bytes=1 << 20)).fetch_page(server.url + path)


async def test_a_server_that_does_not_answer_times_out() -> None:
    async def silent(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, silent)
        with pytest.raises(ToolError, match=r"did not answer within 0\.2 seconds"):
            await local(FetchLimits(timeout=0.2)).fetch_page(f"http://127.0.0.1:{port}/")
        group.cancel_scope.cancel()


async def test_errors_are_reported() -> None:
    async with site({"/gone": HttpResponse(status=410, body=b"")}) as server:
        with pytest.raises(ToolError, match=r"^Request failed with status code 410$"):
            await local().fetch_page(f"{server.url}/gone")
        closed = f"http://127.0.0.1:{server.port}/"
    with pytest.raises(ToolError, match=r"Unable to fetch from"):
        await local().fetch_page(closed)
    with pytest.raises(ToolError, match=r"cannot be resolved"):
        await local().fetch_page("http://nowhere.invalid/")


async def test_a_page_is_kept_for_a_quarter_of_an_hour() -> None:
    now = [0.0]
    async with site({"/": html("<p>hi</p>")}) as server:
        web = WebClient(allow_private=True, upgrade_to_https=False, clock=lambda: now[0])
        for at in (0.0, CACHE_SECONDS - 1, CACHE_SECONDS + 1):
            now[0] = at
            assert (await page(web, f"{server.url}/")).text == "hi"

    assert len(server.requests) == 2


async def test_only_the_latest_pages_are_kept() -> None:
    async with site({f"/{n}": html(str(n)) for n in range(33)}) as server:
        web = local()
        for number in range(33):
            await web.fetch_page(f"{server.url}/{number}")
        await web.fetch_page(f"{server.url}/32")
        await web.fetch_page(f"{server.url}/0")

    assert len(server.requests) == 34


async def test_each_kind_of_content_is_returned_in_its_own_form() -> None:
    def as_kind(kind: str, body: bytes) -> HttpResponse:
        return HttpResponse(status=200, body=body, content_type=kind)

    pages = {
        "/json": as_kind("application/json", b'{"a": 1}'),
        "/latin": as_kind("text/plain; charset=latin-1", b"caf\xe9"),
        "/odd": as_kind("text/plain; charset=nonsense", b"a\xff"),
        "/png": as_kind("image/png", b"\x89PNG"),
    }
    async with site(pages) as server:
        result = {path: await page(local(), server.url + path) for path in pages}

    assert [result.text for result in result.values()] == ['{"a": 1}', "café", "a\ufffd", None]
    assert result["/png"].body == b"\x89PNG"


def test_html_becomes_markdown_without_scripts_and_styles() -> None:
    source = """<html><head><title>The  title</title><style>p {}</style></head><body>
    <script>alert(1)</script><h2>Part</h2><p>See <a href="/x">this</a>.</p>
    <ul><li>one</li><li>two</li></ul><svg><text>no</text></svg></body></html>"""

    text = to_markdown(source.encode(), "utf-8")

    assert text.startswith("# The title\n\n## Part\n\nSee [this](/x).")
    assert "* one\n* two" in text
    assert "alert" not in text
    assert "no" not in text.split()


def test_deeply_nested_html_is_still_read() -> None:
    assert "deep" in to_markdown(b"<div>" * 3000 + b"deep", None)
