"""The address at which other instances reach this one."""

from __future__ import annotations

import asyncio
import socket

import structlog

from eva_worker.process.backoff import Backoff

_log = structlog.get_logger()


def route_to(target: str) -> str:
    """This machine's address on the route to ``HOST:PORT``.

    The call sends nothing, but blocks while the name is resolved.

    Raises:
        OSError: The name cannot be resolved, or there is no route.
    """
    host, _, port = target.rpartition(":")
    addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = addresses[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


async def own_address(stated: str, master: str) -> str:
    """The stated address, or else that of the route to the master, once there is a route."""
    backoff = Backoff()
    while not stated:
        try:
            return await asyncio.to_thread(route_to, master)
        except OSError as error:
            pause = backoff.next_s()
            _log.warning("no way to the master", error=str(error), again_in_s=round(pause, 2))
            await asyncio.sleep(pause)
    return stated
