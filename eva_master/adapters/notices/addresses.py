"""Where notices may be sent to: HTTPS alone, except on this machine, and to no metadata service."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

_LONGEST_URL = 2_048
_PRINTED = re.compile(r"[!-~]+")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\.?|[0-9a-f:]+", re.IGNORECASE)
_LOCAL_NAME = "localhost"
_METADATA = frozenset({ip_address("fd00:ec2::254"), ip_address("100.100.100.200")})
"""Metadata services of clouds outside the link-local ranges."""
_NAT64 = IPv6Network("64:ff9b::/96")

IpAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that notices are sent to.

    Attributes:
        host: Name or address.
        port: Its port.
        path: Path and query, which may be a secret and are told nobody.
        secure: Whether the connection is encrypted, and the receiver's certificate checked.
    """

    host: str
    port: int
    path: str
    secure: bool

    @property
    def shown(self) -> str:
        """The URL without its path, for people."""
        scheme, usual = ("https", 443) if self.secure else ("http", 80)
        port = "" if self.port == usual else f":{self.port}"
        return f"{scheme}://{self.authority}{port}"

    @property
    def authority(self) -> str:
        """The host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


def target_of(url: str) -> Target:
    """Read a URL.

    Raises:
        ValueError: Notices are not sent there; the text says why, without the URL.
    """
    if len(url) > _LONGEST_URL or not _PRINTED.fullmatch(url):
        raise ValueError(f"it has blanks, or more than {_LONGEST_URL:,} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("it is not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("it has a user in it; what is sent can be signed, see `secret`")
    if parts.fragment or not _HOST.fullmatch(host):
        raise ValueError("it has no host, or a fragment; write https://HOST/PATH")
    if parts.scheme not in ("https", "http"):
        raise ValueError("it begins neither with https:// nor, on this machine, with http://")
    secure = parts.scheme == "https"
    if not secure and not _is_local(host):
        raise ValueError("only to this machine is anything sent unencrypted; write https://")
    query = f"?{parts.query}" if parts.query else ""
    target = Target(host, port or (443 if secure else 80), (parts.path or "/") + query, secure)
    literal = _literal(host)
    if literal is not None and (why := refusal([literal], target)):
        raise ValueError(why)
    return target


def refusal(addresses: Iterable[IpAddress], target: Target) -> str:
    """Why nothing is sent to the addresses of a host; empty if it may be.

    Args:
        addresses: All that its name stands for.
        target: The URL.
    """
    for address in addresses:
        within = _unwrapped(address)
        if not target.secure and not within.is_loopback:
            return f"{target.host} is not this machine, and nothing goes elsewhere unencrypted"
        if within.is_link_local or within in _METADATA:
            return f"{target.host} is {address}, where instances find their credentials"
        if within.is_multicast or within.is_unspecified or within == IPv4Address(2**32 - 1):
            return f"{target.host} is {address}, which is not one machine's"
    return ""


def _unwrapped(address: IpAddress) -> IpAddress:
    """The address of version 4 that one of version 6 stands for, if it stands for one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    within = address.ipv4_mapped or address.sixtofour
    return address if within is None else within


def _literal(host: str) -> IpAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    literal = _literal(host)
    return host == _LOCAL_NAME if literal is None else _unwrapped(literal).is_loopback
