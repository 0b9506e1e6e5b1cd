"""Which address a host has, and whether it may be talked to.

In: a host's name. Out: its addresses, resolved once, so that a second answer of the name server
cannot lead elsewhere; or a `ToolError` when one of them is not of the public internet. Talks to
the name server, to nobody else.
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable

import anyio

from toolspan.errors import ToolError

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Lookup = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""From a host and a port to addresses; raises OSError or UnicodeError when there are none."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


async def lookup(host: str, port: int) -> tuple[str, ...]:
    """All addresses of a host, best first.

    Raises:
        OSError: it has none, or nobody can say.
        UnicodeError: it is no name of a host.
    """
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


async def addresses(
    host: str, port: int, *, private: bool, lookup: Lookup = lookup
) -> tuple[str, ...]:
    """The addresses of a host that may be talked to; with `private`, also hidden ones.

    Raises:
        ToolError: it has none, or one that is not public.
    """
    try:
        found = await lookup(host, port)
    except (OSError, UnicodeError) as error:
        raise ToolError(
            f"The address of {host} cannot be found: {error}", kind="network"
        ) from error
    hidden = [text for text in found if not is_public(text)]
    if hidden and not private:
        raise ToolError(
            f"Unable to verify if domain {host} is safe to fetch. {hidden[0]} is not an address of"
            " the public internet.",
            kind="network",
        )
    return found


def is_public(text: str) -> bool:
    """Whether an address is one of the internet: not loopback, private, link-local or reserved."""
    try:
        address = _inner(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return False
    return address.is_global and not address.is_multicast


def _inner(address: IpAddress) -> IpAddress:
    """The IPv4 address that some IPv6 addresses stand for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
