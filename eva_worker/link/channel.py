"""The one place where channels to the master are made."""

from __future__ import annotations

import grpc

_MASTER_NAME = "master.eva.internal"
"""In the certificate of every master, at whatever address it is."""

_KEEPALIVE_MS = 5_000


def dial(
    target: str,
    *,
    authorities: bytes,
    key: bytes | None = None,
    certificate: bytes | None = None,
    keepalive_ms: int = _KEEPALIVE_MS,
) -> grpc.aio.Channel:
    """Make a channel; it connects when it is used.

    Args:
        target: ``HOST:PORT`` of the master.
        authorities: PEM certificates of those who may vouch for the master, and of nobody else.
        key: The agent's, in PEM; `None` where it has no certificate yet.
        certificate: The agent's, in PEM.
        keepalive_ms: Time between pings, and for the answer to one: a peer that is dead or cut
            off is noticed within twice this time.
    """
    options = (
        ("grpc.ssl_target_name_override", _MASTER_NAME),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # The answer to a ping has a limit of its own, a minute by default.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Each channel connects for itself: the pauses between tries are the session's.
        ("grpc.use_local_subchannel_pool", 1),
    )
    credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
    return grpc.aio.secure_channel(target, credentials, options=options)
