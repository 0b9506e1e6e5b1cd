"""Rules for the hosts that sandboxed commands may reach: domains with wildcards, addresses, networks and ports.

`normalize_host` reduces every spelling of a host to one, so that a rule cannot be evaded by writing the host
differently. `DomainRules.decide` checks a host, `DomainRules.permits_address` each address it resolves to.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from toolspan.runtime.addresses import IPAddress, is_public_address, parse_address

HostDecision = Literal["allow", "deny", "unknown"]
DEFAULT_PORTS = frozenset({80, 443})
"""The ports of a rule that does not specify any."""
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_PORT = re.compile(r"(?P<host>.*):(?P<port>[0-9]{1,5}|\*)", re.DOTALL)
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def normalize_host(text: str) -> str:
    """Return the canonical spelling of a host: a lower-case ASCII name without a final dot, or a plain address.

    IPv4 addresses are recognized in every form that a C library accepts: decimal, octal, hexadecimal and shortened.
    An IPv4-mapped IPv6 address becomes the IPv4 address.

    Raises:
        ValueError: `text` is not a host, or an address with a zone.
    """
    if text.startswith("[") and text.endswith("]"):
        return _normalize_address(text[1:-1])
    if ":" in text:
        return _normalize_address(text)
    try:
        # perf: most hosts are ASCII, and the codec of the standard library is slow to load.
        name = text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"{text!r} is not a host name") from error
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        try:
            if not all(map(_NUMERIC_LABEL.fullmatch, labels)):
                raise ValueError(name)
            return str(ipaddress.IPv4Address(socket.inet_aton(name)))
        except (OSError, ValueError) as error:
            raise ValueError(f"{text!r} is not an address") from error
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{text!r} is not a host name")
    return name


def _normalize_address(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    address = ipaddress.IPv6Address(text)
    return str(address.ipv4_mapped or address)


@dataclass(frozen=True, slots=True)
class DomainRule:
    """A domain, all subdomains of a domain, an address or a network, and the ports it applies to."""

    name: str
    """A normalized host; empty for every host."""
    subdomains: bool
    """True if the rule applies to the subdomains of `name` and not to `name` itself."""
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    """The networks to which the rule applies; empty for a domain."""
    ports: frozenset[int] | None
    """None for every port."""

    @classmethod
    def parse(cls, text: str, *, default_ports: frozenset[int] | None) -> DomainRule:
        """Return the rule for `example.org`, `*.example.org`, `example.org:8443`, `10.0.0.0/8`, `[::1]:*` or `*`.

        Raises:
            ValueError: `text` is not a rule.
        """
        host, ports = text.strip(), default_ports
        is_bare_ipv6 = host.count(":") > 1 and not host.startswith("[")
        if not is_bare_ipv6 and (match := _PORT.fullmatch(host)):
            host = match["host"]
            ports = None if match["port"] == "*" else frozenset({int(match["port"])})
            if ports is not None and not 0 < max(ports) < 65536:
                raise ValueError(f"{text!r} has no valid port")
        if host == "*":
            return cls("", subdomains=True, networks=(), ports=ports)
        if "/" in host:
            try:
                network = ipaddress.ip_network(host.strip("[]"), strict=False)
            except ValueError as error:
                raise ValueError(f"{text!r} is not a domain or a network; write it without scheme and path") from error
            return cls("", subdomains=False, networks=(network,), ports=ports)
        subdomains = host.startswith("*.")
        name = normalize_host(host.removeprefix("*."))
        networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
        if name == "localhost":
            networks = _LOOPBACK
        elif _is_address(name):
            if subdomains:
                raise ValueError(f"{text!r}: an address has no subdomains")
            networks = (ipaddress.ip_network(name),)
        return cls(name, subdomains=subdomains, networks=networks, ports=ports)

    def matches_host(self, host: str, port: int) -> bool:
        """Return whether the rule applies to a normalized host."""
        if self.ports is not None and port not in self.ports:
            return False
        if self.subdomains:
            # `*` alone has an empty name. It includes public addresses, but names none.
            return not self.name or host.endswith("." + self.name)
        if self.name == host:
            return True
        return _is_address(host) and self.names_address(parse_address(host), port)

    def names_address(self, address: IPAddress, port: int) -> bool:
        """Return whether the rule names this address, itself or by its network."""
        if self.ports is not None and port not in self.ports:
            return False
        return any(address in network for network in self.networks)


@dataclass(frozen=True)
class DomainRules:
    """Rules for allowed and denied hosts. Deny rules take precedence.

    A rule without a port allows ports 80 and 443, and denies every port.

    Raises:
        ValueError: a rule is not a domain, an address or a network.
    """

    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allow_local_addresses: bool = False
    """True to permit addresses that are not public."""

    def __post_init__(self) -> None:
        _ = self._allowed, self._denied  # reports invalid rules immediately

    @cached_property
    def _allowed(self) -> tuple[DomainRule, ...]:
        return tuple(DomainRule.parse(text, default_ports=DEFAULT_PORTS) for text in self.allowed)

    @cached_property
    def _denied(self) -> tuple[DomainRule, ...]:
        return tuple(DomainRule.parse(text, default_ports=None) for text in self.denied)

    def decide(self, host: str, port: int = 443) -> HostDecision:
        """Return whether a normalized host is allowed, denied or not mentioned."""
        if any(rule.matches_host(host, port) for rule in self._denied):
            return "deny"
        return "allow" if any(rule.matches_host(host, port) for rule in self._allowed) else "unknown"

    def permits_address(self, address: str, port: int) -> bool:
        """Return whether a connection to an address is permitted, regardless of its host name.

        An address that is not public is permitted only if a rule names it or its network, because the owner of an
        allowed domain decides what the domain resolves to.
        """
        try:
            parsed = parse_address(address)
        except ValueError:
            return False
        if any(rule.names_address(parsed, port) for rule in self._denied):
            return False
        if self.allow_local_addresses or is_public_address(address):
            return True
        return any(rule.names_address(parsed, port) for rule in self._allowed)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
