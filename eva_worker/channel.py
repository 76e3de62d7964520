"""The one place where channels to the master are made."""

from __future__ import annotations

import grpc

# A dead peer is noticed within 5 + 5 seconds.
_KEEPALIVE_MS = 5_000
_OPTIONS = (
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Each channel connects for itself: the pauses between tries are the session's, not gRPC's.
    ("grpc.use_local_subchannel_pool", 1),
)


def dial(target: str) -> grpc.aio.Channel:
    """Make a channel; it connects when it is used.

    Args:
        target: ``HOST:PORT`` of the master.
    """
    return grpc.aio.insecure_channel(target, options=_OPTIONS)
