"""Resolve hosts, and distinguish public addresses from those of this machine and the local network."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable

import anyio

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
HostResolver = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""A function that resolves a host and port to addresses. It raises OSError or UnicodeError if there are none."""
_NON_PUBLIC_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        # Special-purpose networks that some versions of `ipaddress` treat as public. 192.0.0.192 serves cloud
        # metadata, as 168.63.129.16 does; 64:ff9b:1::/48 translates to private IPv4 networks.
        ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "100::/64", "2001::/23", "3fff::/20",
         "5f00::/16", "fec0::/10"),
    )
)  # fmt: skip
_SUFFIX_EMBEDDINGS = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Networks whose last 32 bits are an IPv4 address: IPv4-compatible, mapped, translated and NAT64 addresses."""
_ISATAP_IDS = frozenset({0x00005EFE, 0x02005EFE})
"""Upper halves of the interface ids of ISATAP addresses, whose last 32 bits are an IPv4 address."""


async def resolve_host(host: str, port: int) -> tuple[str, ...]:
    """Return all addresses of a host, in order of preference.

    Raises:
        OSError: the host has no address, or the name server does not answer.
        UnicodeError: `host` is not a valid host name.
    """
    infos = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))


def is_public_address(text: str) -> bool:
    """Return whether an address is on the public internet: not loopback, private, link-local or reserved.

    An IPv6 address that embeds an IPv4 address is public only if the IPv4 address is, because a gateway may connect
    to it. Teredo addresses are never public.
    """
    try:
        address = parse_address(text)
    except ValueError:
        return False
    if any(address in network for network in _NON_PUBLIC_NETWORKS):
        return False
    return address.is_global and not address.is_multicast


def parse_address(text: str) -> IPAddress:
    """Return the address without its zone, or the IPv4 address to which a gateway may translate it.

    Raises:
        ValueError: `text` is not an address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    return _embedded_ipv4(address) or address


def _embedded_ipv4(address: IPAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which a gateway may translate an IPv6 address, if any."""
    if isinstance(address, ipaddress.IPv4Address) or int(address) <= 1:  # `::` and `::1` embed nothing
        return None
    if address.sixtofour is not None:
        return address.sixtofour
    is_isatap = (int(address) >> 32) & 0xFFFFFFFF in _ISATAP_IDS
    if is_isatap or any(address in network for network in _SUFFIX_EMBEDDINGS):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
