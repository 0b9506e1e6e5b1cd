"""Attempts to reach servers from inside the sandbox. Each reaches its server when it runs without the sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import network_attempts
from tests.tools.web.site import Answer, html, site, to
from toolspan.runtime.sandbox import Sandbox
from toolspan.runtime.sandbox.backend import FileAccess, NetworkAccess
from toolspan.runtime.sandbox.bubblewrap import create_private_folder, detect_bubblewrap
from toolspan.runtime.sandbox.files import find_own_folders
from toolspan.runtime.sandbox.network import NetworkNamespace
from toolspan.runtime.sandbox.proxy import NetworkProxy
from toolspan.testing.model_server import HttpRequest, HttpResponse

BUBBLEWRAP = detect_bubblewrap(Sandbox())
pytestmark = pytest.mark.skipif(BUBBLEWRAP.backend is None, reason=f"{BUBBLEWRAP.problem}")
DEPENDS_ON_THE_MACHINE = {
    "icmp_echo_that_carries_data", "names_of_the_interfaces", "tcp_to_the_address_of_the_machine", "tcp_with_ipv6",
    "tcp_with_curl_and_no_proxy", "udp_to_the_address_of_the_machine", "udp_with_ipv6",
}  # fmt: skip
"""Attempts that need IPv6, curl, an interface besides the loopback, or the right to send echo requests."""


class Names:
    """A name server that gives the addresses of a host in turn."""

    def __init__(self) -> None:
        local, allowed = ("127.0.0.1",), ("127.0.0.2",)
        self.answers: dict[str, list[tuple[str, ...]]] = {
            "app.example": [local],
            "inside.allowed.example": [local],
            "mixed.allowed.example": [allowed + local],
            "rebinding.allowed.example": [allowed, local],
            "notapp.example": [local],
            "localhost": [local],
            "mapped.allowed.example": [("::ffff:127.0.0.1",)],
            "unspecified.allowed.example": [("0.0.0.0",)],
        }
        self.lookups: list[str] = []

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        self.lookups.append(host)
        answers = self.answers[host]
        return answers[self.lookups.count(host) % len(answers) - 1]


@dataclass(frozen=True)
class Outcomes:
    """The results of all attempts without and with the sandbox, and the names that the proxy looked up."""

    outside: dict[str, bool | str]
    inside: dict[str, bool | str]
    lookups: list[str]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    if BUBBLEWRAP.backend is None:
        pytest.skip(f"{BUBBLEWRAP.problem}")
    yield asyncio.run(_run_attempts(tmp_path_factory.mktemp("network")))


async def _run_attempts(folder: Path) -> Outcomes:
    project, temporary = folder / "project", folder / "temporary"
    for path in (project, temporary):
        path.mkdir()
    create_private_folder(temporary)
    async with AsyncExitStack() as stack:
        places = await _start_servers(stack, project)
        ports = [places[name] for name in ("allowed_site", "hidden_site")]
        rules = [f"app.example:{ports[0]}", f"127.0.0.1:{ports[0]}", "*.allowed.example:*", "127.0.0.2:*"]
        namespace = stack.enter_context(closing(await NetworkNamespace.open()))
        names = Names()
        proxy = NetworkProxy(Sandbox(allowed_domains=rules), resolver=names.resolve)
        await proxy.start(namespace.listener)
        stack.push_async_callback(proxy.aclose)

        script = str(shutil.copy(network_attempts.__file__, project))
        command = [sys.executable, "-I", "-S", script, json.dumps(places)]
        assert BUBBLEWRAP.backend is not None
        files = FileAccess(writable=(project,), read_only=find_own_folders(), temporary=temporary)
        network = NetworkAccess(proxy_port=proxy.port, namespace_pid=namespace.pid)
        wrapped = BUBBLEWRAP.backend.wrap(command, project, files, network)
        assert wrapped.gate is not None
        results = []
        for argv, env, pass_fds in (
            (command, {}, ()),
            (wrapped.argv, {**proxy.environment(), **wrapped.env}, (*wrapped.pass_fds, *wrapped.gate.pass_fds)),
        ):
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=project,
                env={"PATH": os.environ["PATH"], **env},
                pass_fds=pass_fds,
                stdout=asyncio.subprocess.PIPE,
            )
            if argv is not command:
                await wrapped.gate.release()
            output, _ = await process.communicate()
            results.append(json.loads(output))
        for descriptor in wrapped.pass_fds:
            os.close(descriptor)
        return Outcomes(results[0], results[1], names.lookups)


async def _start_servers(stack: AsyncExitStack, folder: Path) -> dict[str, object]:
    """Start the stand-ins, all on this machine, and return their places."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.readuntil(b"\n")
            writer.write(b"secret\n")
            await writer.drain()
        writer.close()

    class Datagrams(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: object) -> None:
            self.transport.sendto(b"secret", addr)

    def page(request: HttpRequest) -> HttpResponse:
        return html("secret" if request.headers["host"].startswith("internal.example") else "public")

    places: dict[str, object] = {"abstract": f"toolspan-{os.getpid()}", "abstract_datagram": f"toolspan-d{os.getpid()}"}
    for name, host in (("tcp", "127.0.0.1"), ("tcp_everywhere", "0.0.0.0"), ("tcp6", "::1")):
        places[name] = 0
        with suppress(OSError):  # there is no IPv6
            server = await stack.enter_async_context(await asyncio.start_server(answer, host, 0))
            places[name] = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    for name, host in (("udp", "127.0.0.1"), ("udp_everywhere", "0.0.0.0"), ("udp6", "::1")):
        places[name] = 0
        with suppress(OSError):
            transport, _ = await loop.create_datagram_endpoint(Datagrams, (host, 0))
            stack.callback(transport.close)
            places[name] = transport.get_extra_info("sockname")[1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        places["machine"] = "127.0.0.1"
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # sends nothing; the kernel selects the interface
            places["machine"] = probe.getsockname()[0]
    for name in ("docker", "bus", "agent"):
        places[name] = str(folder / f"{name}.sock")
        await stack.enter_async_context(await asyncio.start_unix_server(answer, str(places[name])))
    await stack.enter_async_context(await asyncio.start_unix_server(answer, f"\0{places['abstract']}"))
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(f"\0{places['abstract_datagram']}")
    transport, _ = await loop.create_datagram_endpoint(Datagrams, sock=datagrams)
    stack.callback(transport.close)
    hidden = await stack.enter_async_context(site({"/": html("secret")}))
    pages: dict[str, Answer] = {
        "/": page,
        "/allowed": html("secret"),
        "/redirect": to(f"http://127.0.0.1:{hidden.port}/"),
    }
    allowed = await stack.enter_async_context(site(pages))
    places |= {"hidden_site": hidden.port, "allowed_site": allowed.port}
    hosts = [*Names().answers, "app.example.attacker.example", "c2vjcmv0.attacker.example", "127.0.0.1",
             "admin.localhost", "\u0430pp.example"]  # fmt: skip
    places["names"] = dict.fromkeys(hosts, "127.0.0.1")
    return places


@pytest.mark.parametrize("name", sorted(network_attempts.ATTEMPTS.keys() - {"allowed_request"}))
def test_a_server_is_reached_without_the_sandbox_and_not_inside(outcomes: Outcomes, name: str) -> None:
    assert outcomes.inside[name] is not True
    if outcomes.outside[name] is not True and name in DEPENDS_ON_THE_MACHINE:
        pytest.skip(f"not possible on this machine: {outcomes.outside[name]}")
    assert outcomes.outside[name] is True


def test_an_allowed_server_is_reached_inside(outcomes: Outcomes) -> None:
    assert outcomes.inside["allowed_request"] is True


def test_names_that_are_not_allowed_reach_no_name_server(outcomes: Outcomes) -> None:
    assert set(outcomes.lookups) == {
        "app.example",
        "inside.allowed.example",
        "mixed.allowed.example",
        "rebinding.allowed.example",
        "mapped.allowed.example",
        "unspecified.allowed.example",
    }
