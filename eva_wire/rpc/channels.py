"""Channels and server options of gRPC connections."""

from __future__ import annotations

import json
from typing import Any

import grpc

from eva_wire.rpc.methods import METHODS, RetryRule
from eva_wire.rpc.names import MASTER_NAME

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest message in bytes; every job list is smaller."""
MAX_REQUEST_BYTES = 2 * 1024 * 1024
"""Largest request of a user; every job file, set of digests and chunk of an upload is smaller."""

_UNREAD_BYTES = 256 * 1024
"""Bytes of a call that may wait unread. gRPC otherwise lets that grow with the speed of the line,
to megabytes of each call whose other end does not read. A message may be larger all the same."""

# A connection that died silently (a laptop that slept, a NAT that forgot) is noticed within ten
# seconds. The server's options must allow pings as frequent as the client's.
_PING_EVERY_MS = 5_000
_PING_TIMEOUT_MS = 5_000

_CONNECTED_MS = 10_000
"""Longest time for a connection and its handshakes, a few times back and forth."""

_RETRY_POLICIES = {
    # maxAttempts, initialBackoff, maxBackoff. gRPC repeats the same request bytes.
    RetryRule.COMMAND: (5, 0.3, 2.0),
    RetryRule.READ: (3, 0.2, 0.5),
}


def service_config() -> dict[str, Any]:
    """Configure gRPC's repeated calls, from the table of methods."""
    return {
        "methodConfig": [
            {
                "name": [_named(path) for path, row in METHODS.items() if row.retry is retry],
                "retryPolicy": {
                    "maxAttempts": attempts,
                    "initialBackoff": f"{initial_s}s",
                    "maxBackoff": f"{most_s}s",
                    "backoffMultiplier": 2,
                    # The second is for callers who are in a hurry; the master says when.
                    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
                },
            }
            for retry, (attempts, initial_s, most_s) in _RETRY_POLICIES.items()
        ]
    }


def _named(path: str) -> dict[str, str]:
    service, _, method = path.removeprefix("/").partition("/")
    return {"service": service, "method": method}


def open_channel(address: str, *, authorities: bytes, token: str) -> grpc.Channel:
    """Create a channel to a master, which connects when used and reconnects when needed.

    Args:
        address: ``HOST:PORT``.
        authorities: PEM certificates that the master is verified with; no others are trusted.
        token: Token sent with every call; empty for none.
    """
    options = [
        # Addresses change; the name in the master's certificate is always the same.
        ("grpc.ssl_target_name_override", MASTER_NAME),
        ("grpc.service_config", json.dumps(service_config())),
        ("grpc.enable_retries", 1),
        ("grpc.initial_reconnect_backoff_ms", 200),
        # Despite its name, so long a connection may take to come about: far masters take a second.
        ("grpc.min_reconnect_backoff_ms", _CONNECTED_MS),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        *_keepalive(),
    ]
    credentials = grpc.ssl_channel_credentials(authorities)
    if token:
        bearer = grpc.access_token_call_credentials(token)
        credentials = grpc.composite_channel_credentials(credentials, bearer)
    return grpc.secure_channel(address, credentials, options=options)


def server_options(most_bytes: int = MAX_MESSAGE_BYTES) -> list[tuple[str, int]]:
    """Options of every server that these channels connect to.

    Args:
        most_bytes: Size of the largest request that it reads.
    """
    return [
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_EVERY_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        # Otherwise two masters on one port would each get a part of the calls.
        ("grpc.so_reuseport", 0),
        *_keepalive(),
    ]


def _keepalive() -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", _PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        # Without it, this version of gRPC waits a minute for the answer, despite the line above.
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
    ]
