"""The one place where channels to the master are made."""

from __future__ import annotations

import grpc

_KEEPALIVE_MS = 5_000


def dial(target: str, *, keepalive_ms: int = _KEEPALIVE_MS) -> grpc.aio.Channel:
    """Make a channel; it connects when it is used.

    Args:
        target: ``HOST:PORT`` of the master.
        keepalive_ms: Time between pings, and for the answer to one: a peer that is dead or cut
            off is noticed within twice this time.
    """
    options = (
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # The answer to a ping has a limit of its own, a minute by default.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Each channel connects for itself: the pauses between tries are the session's.
        ("grpc.use_local_subchannel_pool", 1),
    )
    return grpc.aio.insecure_channel(target, options=options)
