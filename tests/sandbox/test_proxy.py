"""The proxy of the sandbox: the hosts it lets through, and what it does with requests."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from tests.tools.web.site import Site, html, site, to
from toolspan.runtime.sandbox import Sandbox
from toolspan.runtime.sandbox.domains import DomainRules, normalize_host
from toolspan.runtime.sandbox.proxy import AskDomain, NetworkProxy, ProxyLimits, RefusedAddress
from toolspan.testing.model_server import HttpRequest, HttpResponse

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"


@dataclass
class Names:
    """A name server whose answers a test sets; each lookup takes the next answer, and the last one stays."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        self.lookups.append(host)
        answers = self.answers.get(host)
        if not answers:
            raise OSError(f"no address for {host}")
        return tuple(answers.pop(0) if len(answers) > 1 else answers[0])


@dataclass
class Running:
    """A proxy that serves, and what it refused."""

    proxy: NetworkProxy
    names: Names
    refused: list[RefusedAddress]

    @property
    def url(self) -> str:
        return self.proxy.environment(user="call_1")["HTTP_PROXY"]

    @property
    def authorization(self) -> str:
        credentials = self.url.removeprefix("http://").partition("@")[0]
        return "Proxy-Authorization: Basic " + base64.b64encode(credentials.encode()).decode()

    async def send(self, text: str, *, authorized: bool = True) -> str:
        """Send these lines as they are; return everything that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        if authorized:
            head, _, rest = text.partition("\r\n")
            text = f"{head}\r\n{self.authorization}\r\n{rest}"
        writer.write(text.encode())
        answer = b""
        try:
            while data := await reader.read(65_536):
                answer += data
        finally:
            writer.close()
        return answer.decode("latin-1")

    async def status(self, host: str, port: int = 443) -> int:
        """Return the status of a CONNECT request; 502 means that the host is allowed and not reached."""
        authority = f"{host}:{port}"
        answer = await self.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
        return int(answer.split()[1])


@asynccontextmanager
async def running(
    *,
    allowed: Sequence[str] = (),
    denied: Sequence[str] = (),
    local: bool = False,
    names: dict[str, list[Sequence[str]]] | None = None,
    ask: AskDomain | None = None,
    limits: ProxyLimits | None = None,
    upstream: int | None = None,
) -> AsyncIterator[Running]:
    sandbox = Sandbox(
        allowed_domains=allowed, denied_domains=denied, allow_local_addresses=local, http_proxy_port=upstream
    )
    refused: list[RefusedAddress] = []
    server = Names(names or {})
    proxy = NetworkProxy(sandbox, ask=ask, on_refused=refused.append, resolver=server.resolve, limits=limits)
    await proxy.start()
    try:
        yield Running(proxy, server, refused)
    finally:
        await proxy.aclose()


@pytest.mark.parametrize(
    ("rule", "host", "port", "decision"),
    [
        ("example.org", "example.org", 443, "allow"),
        ("example.org", "EXAMPLE.org.", 80, "allow"),
        ("Example.ORG.", "example.org", 443, "allow"),
        ("example.org", "www.example.org", 443, "unknown"),
        ("example.org", "example.org.evil.net", 443, "unknown"),
        ("example.org", "notexample.org", 443, "unknown"),
        ("*.example.org", "a.b.example.org", 443, "allow"),
        ("*.example.org", "example.org", 443, "unknown"),
        ("*.example.org", "evilexample.org", 443, "unknown"),
        ("bücher.example", "xn--bcher-kva.example", 443, "allow"),
        ("xn--bcher-kva.example", "BÜCHER。example", 443, "allow"),
        ("example.org", "example.org", 22, "unknown"),
        ("example.org:22", "example.org", 22, "allow"),
        ("example.org:22", "example.org", 443, "unknown"),
        ("example.org:*", "example.org", 6667, "allow"),
        ("*", "example.org", 443, "allow"),
        ("*", "example.org", 25, "unknown"),
        ("10.0.0.0/8", "10.1.2.3", 443, "allow"),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]", 443, "allow"),
        ("10.0.0.0/8", "11.0.0.1", 443, "unknown"),
        ("[2001:db8::1]:8080", "[2001:db8:0::1]", 8080, "allow"),
        ("2001:db8::1", "[2001:db8::1]", 443, "allow"),
        ("127.0.0.1:*", "0x7f.1", 9, "allow"),
        ("localhost:5432", "127.0.0.1", 5432, "allow"),
    ],
)
def test_a_rule_matches_every_spelling_of_its_hosts_and_no_other_host(
    rule: str, host: str, port: int, decision: str
) -> None:
    assert DomainRules(allowed=(rule,)).decide(normalize_host(host), port) == decision


def test_a_denied_domain_cannot_be_allowed_on_any_port() -> None:
    rules = DomainRules(allowed=("*.example.org:*",), denied=("evil.example.org", "203.0.113.0/24"))
    assert [rules.decide("evil.example.org", port) for port in (80, 22)] == ["deny", "deny"]
    assert rules.decide("good.example.org", 22) == "allow"
    assert not rules.permits_address("::ffff:203.0.113.9", 443)


@pytest.mark.parametrize("rule", ["https://example.org", "example.org/path", "a..b", "", "*.1.2.3.4", "x:99999", "a b"])
def test_a_rule_that_is_not_a_host_is_refused_at_once(rule: str) -> None:
    with pytest.raises(ValueError, match=r"is not|no valid port|no subdomains"):
        NetworkProxy(Sandbox(allowed_domains=[rule]))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "2130706433", "017700000001", "0177.0.0.1", "0x7f000001", "0x7f.0.0.1", "127.1", "0", "0.0.0.0",
        "10.0.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "2852039166", "0xA9FEA9FE",
        "0251.0376.0251.0376", "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255",
        "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:5db8:d822:0:0:80ff:fffe]", "[fe80::1]",
        "[fd00:ec2::254]", "[ff02::1]", "[::ffff:0:169.254.169.254]", "[2a01:4f8::5efe:10.0.0.1]",
    ],
)  # fmt: skip
async def test_an_address_that_is_not_public_is_refused_in_every_spelling(host: str) -> None:
    async with running(allowed=["*:*"]) as on:
        assert await on.status(host) == 403
        assert [(refused.reason, refused.user) for refused in on.refused] == [("private address", "call_1")]
        assert on.names.lookups == []


@pytest.mark.parametrize(
    "host", ["[fe80::1%25eth0]", "[fe80::1%eth0]", "127.0.0.1.5", "1.2.3.256", "08.1.1.1", "a_b-.c", "x%00.org"]
)
async def test_a_host_that_programs_would_read_differently_is_refused(host: str) -> None:
    async with running(allowed=["*:*"]) as on:
        assert await on.status(host) == 403
        assert [refused.reason for refused in on.refused] == ["not a valid host"]


async def test_a_host_is_resolved_once_and_all_its_addresses_must_be_public() -> None:
    names: dict[str, list[Sequence[str]]] = {
        "mixed.example": [[PUBLIC, "::ffff:10.0.0.1"]],
        "inside.example": [["192.168.1.1"]],
    }
    async with running(allowed=["*.example"], names=names) as on:
        for host in ("mixed.example", "inside.example"):
            assert await on.status(host) == 403
        assert [(refused.host, refused.address) for refused in on.refused] == [
            ("mixed.example", "::ffff:10.0.0.1"),
            ("inside.example", "192.168.1.1"),
        ]
        assert "inside.example:443 (192.168.1.1)" in on.refused[1].message
        assert on.names.lookups == ["mixed.example", "inside.example"]


async def test_the_proxy_connects_to_the_address_that_it_checked() -> None:
    async with site({"/": html("first")}) as server:
        names: dict[str, list[Sequence[str]]] = {"app.example": [["127.0.0.1"], ["127.0.0.2"]]}
        rules = [f"app.example:{server.port}", f"127.0.0.1:{server.port}"]
        async with running(allowed=rules, names=names) as on, httpx2.AsyncClient(verify=False, proxy=on.url) as client:
            url = f"http://app.example:{server.port}/"
            first = await client.get(url)
            second = await client.get(url)
        assert (first.status_code, first.text, second.status_code) == (200, "first", 403)
        assert on.names.lookups == ["app.example"] * 2


async def test_a_host_that_is_not_allowed_is_never_looked_up() -> None:
    async with running(allowed=["example.org"], denied=["evil.net"]) as on:
        for host in ("c2VjcmV0.attacker.net", "evil.net"):
            assert await on.status(host) == 403
        assert await on.status("example.org", 25) == 403
        assert on.names.lookups == []
        assert [refused.reason for refused in on.refused] == ["not allowed", "denied by a rule", "not allowed"]


async def test_an_unknown_domain_is_asked_about_once_per_session() -> None:
    questions: list[tuple[str, int]] = []
    both_asked = asyncio.Barrier(2)  # passes only when two questions wait in it

    async def ask(host: str, port: int) -> bool:
        questions.append((host, port))
        await both_asked.wait()
        return host == "new.example"

    async with running(ask=ask, names={}) as on:
        requests = [asyncio.ensure_future(on.status(host)) for host in ("new.example", "NEW.example.", "other.example")]
        assert [await request for request in requests] == [502, 502, 403]
        assert [await on.status("new.example", 80), await on.status("other.example")] == [502, 403]
        assert sorted(questions) == [("new.example", 443), ("other.example", 443)]
        assert await on.status("10.0.0.1") == 403
        assert len(questions) == 2, "a private address is not asked about"


async def test_a_sandbox_with_a_fixed_list_asks_about_nothing() -> None:
    async def ask(host: str, port: int) -> bool:
        raise AssertionError("a question was asked")

    proxy = NetworkProxy(Sandbox(ask_for_domains=False), ask=ask)
    await proxy.start()
    try:
        assert await Running(proxy, Names(), []).status("example.org") == 403
    finally:
        await proxy.aclose()


@pytest.mark.parametrize(
    "header",
    [
        "X-Other: 1",
        "Proxy-Authorization: Basic dG9vbHNwYW46d3Jvbmc=",
        "Proxy-Authorization: Bearer x",
        "Proxy-Authorization: Basic ???",
        "Authorization: {secret}",
        "Proxy-Authorization: {secret}\r\nProxy-Authorization: {secret}",
    ],
)
async def test_a_request_without_the_secret_is_refused(header: str) -> None:
    async with site({"/": html("inside")}) as server, running(local=True, allowed=["127.0.0.1:*"]) as on:
        header = header.replace("{secret}", on.authorization.partition(": ")[2])
        for line in (f"GET {server.url}/", f"CONNECT 127.0.0.1:{server.port}"):
            answer = await on.send(f"{line} HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n", authorized=False)
            assert answer.startswith("HTTP/1.1 407 ")
            assert "Proxy-Authenticate: Basic" in answer
        assert server.requests == []


@asynccontextmanager
async def open_site(
    pages: dict[str, HttpResponse | Callable[[HttpRequest], HttpResponse]],
) -> AsyncIterator[tuple[Site, Running, httpx2.AsyncClient]]:
    """A site whose address and whose name `app.example` are allowed, and a client of the proxy."""
    async with site(pages) as server:
        rules = [f"app.example:{server.port}", f"127.0.0.1:{server.port}"]
        async with (
            running(allowed=rules, names={"app.example": [["127.0.0.1"]]}) as on,
            httpx2.AsyncClient(verify=False, proxy=on.url, timeout=None, follow_redirects=True) as client,
        ):
            yield server, on, client


async def test_a_plain_request_is_forwarded_with_its_body_and_without_the_credentials() -> None:
    def echo(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=201, body=[request.body, b"!"], content_type="text/plain", headers={"x-app": "1"})

    body = b"x" * 300_000
    async with open_site({"/echo": echo}) as (server, _, client):
        for content in (body, _chunks(body)):
            response = await client.post(
                f"http://app.example:{server.port}/echo?q=1#part",
                content=content,
                headers={"Expect": "100-continue", "Connection": "x-private", "X-Private": "1"},
            )
            assert (response.status_code, response.content, response.headers["x-app"]) == (201, body + b"!", "1")
        for request in server.requests:
            assert request.headers["host"] == f"app.example:{server.port}"
            assert not {"proxy-authorization", "x-private", "expect"} & request.headers.keys()


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 70_000):
        yield body[start : start + 70_000]


async def test_a_redirect_to_another_host_is_checked_again() -> None:
    pages = {"/": to("http://169.254.169.254/latest/meta-data/"), "/local": to("http://localhost:1/")}
    async with open_site({**pages}) as (server, on, client):
        for path in ("/", "/local"):
            assert (await client.get(f"http://app.example:{server.port}{path}")).status_code == 403
        assert [refused.host for refused in on.refused] == ["169.254.169.254", "localhost"]


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
        ("GET https://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
        ("GET ftp://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
        ("GET http://allowed@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
        ("GET http://{host}:http/ HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
        ("CONNECT app.example HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT app.example:0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("POST http://{host}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST http://{host}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        ("GET http://{host}/ HTTP/1.1\r\nHost: a\r\nX: 1\r\n Y: folded\x00\r\n\r\n", 400),
        ("GET http://{host}/ HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", 400),
        ("GET http://{host}/ HTTP/1.1\r\nHost: a\r\nX: " + "y" * 200_000 + "\r\n\r\n", 431),
        ("nonsense\r\n\r\n", 400),
    ],
)  # fmt: skip
async def test_a_request_of_another_form_reaches_no_server(request_text: str, status: int) -> None:
    async with open_site({"/": html("page")}) as (server, on, _):
        answer = await on.send(request_text.replace("{host}", f"app.example:{server.port}"))
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert server.requests == []


async def test_each_request_of_a_connection_is_checked() -> None:
    async with open_site({"/": html("page")}) as (server, on, _):
        allowed = f"GET http://app.example:{server.port}/ HTTP/1.1\r\nHost: evil.net\r\n"
        answer = await on.send(
            f"{allowed}\r\nGET http://evil.net/ HTTP/1.1\r\nHost: app.example\r\n{on.authorization}\r\n\r\n"
        )
        assert answer.count("HTTP/1.1 200") == 1
        assert answer.count("HTTP/1.1 403") == 1
        assert [request.headers["host"] for request in server.requests] == [f"app.example:{server.port}"]


async def test_a_tunnel_carries_bytes_both_ways_and_half_closes() -> None:
    async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])
        writer.close()

    server = await asyncio.start_server(reverse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(allowed=[f"127.0.0.1:{port}"]) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.proxy.port)
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n{on.authorization}\r\n\r\nearly ".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"bytes" * 100_000)
        writer.write_eof()
        assert await reader.read() == (b"early " + b"bytes" * 100_000)[::-1]
        writer.close()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", 502),
        (b"nonsense\r\n\r\n", 502),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 502),
        (b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
    ],
)
async def test_a_server_that_fails_or_answers_early_gets_its_client_a_status(answer: bytes, status: int) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if status < 500:
            await reader.read()  # closing with unread data would reset the connection
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(allowed=[f"127.0.0.1:{port}"]) as on:
        body = "x" * 500_000
        headers = f"Host: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        received = await on.send(f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{headers}{body}")
        assert received.startswith(f"HTTP/1.1 {status} ")
        assert not ("content-length" in received.lower() and "transfer-encoding" in received.lower())


async def test_idle_and_surplus_connections_are_closed() -> None:
    limits = ProxyLimits(idle_timeout=0.05, max_connections=1)
    async with running(limits=limits) as on:
        first, writer = await asyncio.open_connection("127.0.0.1", on.proxy.port)
        second, other_writer = await asyncio.open_connection("127.0.0.1", on.proxy.port)
        assert (await second.read()).startswith(b"HTTP/1.1 503 ")
        assert await first.read() == b""
        writer.close()
        other_writer.close()


async def test_another_proxy_of_the_user_receives_the_bytes_as_they_are() -> None:
    async with site({"/x": html("theirs")}) as server, running(upstream=server.port) as on:
        assert on.url == f"http://127.0.0.1:{on.proxy.port}"
        answer = await on.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", authorized=False)
        assert answer.endswith("theirs")


@pytest.mark.usefixtures("curl")
async def test_curl_uses_the_proxy_from_its_environment() -> None:
    async with open_site({"/": html("page")}) as (server, on, _):
        command = ["curl", "-sS", f"http://app.example:{server.port}/", "http://evil.net/"]
        process = await asyncio.create_subprocess_exec(
            *command, env=on.proxy.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert output.decode() == "pageThe sandbox refused a connection to evil.net:80: not allowed.\n"
