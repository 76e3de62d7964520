"""Places that callers hold, shared fairly between the addresses that they call from."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from urllib.parse import unquote

_NETWORK_BITS = 64
"""An IPv6 network that one owner has, with all of its addresses."""


def address_of(peer: str) -> str:
    """The part of a peer's address that one owner has, of gRPC's name for the peer."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))


class AddressPlaces:
    """A number of places, of which each address holds a part. Only the asyncio thread uses it.

    Where the places run out, the address that holds most of them gives up its oldest.

    Args:
        most: Places in all.
        per_address: Places of one address.
        first_come: Whether an address at its own limit is refused, and keeps its oldest place.
    """

    def __init__(self, most: int, per_address: int, *, first_come: bool) -> None:
        self._most = most
        self._per_address = per_address
        self._first_come = first_come
        self._held: dict[str, dict[object, Callable[[], None]]] = {}
        """By address, the oldest place first: how its holder is told to leave."""
        self._count = 0

    def enter(self, address: str, leave: Callable[[], None]) -> Callable[[], None] | None:
        """Take a place.

        Args:
            address: The caller's, of `address_of`.
            leave: Called once if the place is given to another caller.

        Returns:
            A function that gives the place back; `None` if the address gets no place.
        """
        own = len(self._held.get(address, ()))
        if own >= self._per_address:
            if self._first_come:
                return None
            self._end_oldest(address)
        elif self._count >= self._most:
            address_with_most = max(self._held, key=lambda name: len(self._held[name]))
            if self._first_come and len(self._held[address_with_most]) <= own + 1:
                return None
            self._end_oldest(address_with_most)
        place = object()
        self._held.setdefault(address, {})[place] = leave
        self._count += 1
        return lambda: self._drop(address, place)

    def _end_oldest(self, address: str) -> None:
        place, leave = next(iter(self._held[address].items()))
        self._drop(address, place)
        leave()

    def _drop(self, address: str, place: object) -> None:
        held = self._held.get(address, {})
        if held.pop(place, None) is not None:
            self._count -= 1
        if not held:
            self._held.pop(address, None)
