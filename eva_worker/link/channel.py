"""Creates the channels to the master."""

from __future__ import annotations

from datetime import UTC, datetime

import grpc

_MASTER_NAME = "master.eva.internal"
"""Name in the certificate of every master, whatever its address."""

_KEEPALIVE_MS = 5_000
_UNREAD_BYTES = 256 * 1024
_HINT_KEY = "eva-hint-bin"


_WRONG_TIME = ("not yet valid", "has expired", "CERTIFICATE_EXPIRED")
"""OpenSSL's messages when a certificate is not valid now, here or at the master."""


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Why a call failed, in words; names the clocks if a certificate is not valid now."""
    reason = f"{error.code().name}: {error.details()}"
    if any(words in reason for words in _WRONG_TIME):
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        reason += f"; the clock of this machine ({now}) or that of the master is probably wrong"
    return reason


def hint_of(error: grpc.aio.AioRpcError) -> str:
    """The master's advice, in its own words, to be put after the reason."""
    for name, value in error.trailing_metadata() or ():
        if name == _HINT_KEY and isinstance(value, bytes) and value:
            return "; " + "".join(c for c in value.decode(errors="replace") if c.isprintable())
    return ""


def dial(
    target: str,
    *,
    authorities: bytes,
    key: bytes | None = None,
    certificate: bytes | None = None,
    keepalive_ms: int = _KEEPALIVE_MS,
) -> grpc.aio.Channel:
    """Create a channel, which connects when it is used.

    Args:
        target: ``HOST:PORT`` of the master.
        authorities: PEM certificates that the master is verified with; no others are trusted.
        key: The agent's private key, in PEM; `None` if it has no certificate yet.
        certificate: The agent's certificate, in PEM.
        keepalive_ms: Time between pings, and for the answer to a ping. A dead or unreachable peer
            is noticed within twice this time.
    """
    options = (
        ("grpc.ssl_target_name_override", _MASTER_NAME),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # gRPC limits the time for the answer to a ping separately, by default to a minute.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Of each command beside a task that does not read its input, so much waits in this process.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        # Channels share no connection: the session decides the pauses between tries.
        ("grpc.use_local_subchannel_pool", 1),
    )
    credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
    return grpc.aio.secure_channel(target, credentials, options=options)
