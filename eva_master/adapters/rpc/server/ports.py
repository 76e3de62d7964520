"""The master's listening ports and their transport."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Mapping
from typing import NamedTuple

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from eva_master.adapters.pki.server import ServerIdentity
from eva_master.adapters.rpc.handlers import ErrorInterceptor
from eva_master.adapters.rpc.server.access import AccessInterceptor
from eva_master.adapters.rpc.server.admission.connections import CertifiedInterceptor, Doorkeeper
from eva_wire._proto import api_pb2, worker_pb2
from eva_wire._proto.api_pb2_grpc import (
    ClusterServicer,
    FilesServicer,
    IdentitiesServicer,
    JobsServicer,
    NodesServicer,
    NoticesServicer,
    SecretsServicer,
    TokensServicer,
    add_ClusterServicer_to_server,
    add_FilesServicer_to_server,
    add_IdentitiesServicer_to_server,
    add_JobsServicer_to_server,
    add_NodesServicer_to_server,
    add_NoticesServicer_to_server,
    add_SecretsServicer_to_server,
    add_TokensServicer_to_server,
)
from eva_wire._proto.worker_pb2_grpc import (
    EnrolmentServicer,
    WorkersServicer,
    add_EnrolmentServicer_to_server,
    add_WorkersServicer_to_server,
)
from eva_wire.rpc.channels import MAX_REQUEST_BYTES, server_options
from eva_wire.values.errors import InvalidConfig

_SERVICES = (
    api_pb2.DESCRIPTOR.services_by_name["Jobs"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Files"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Cluster"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Secrets"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Tokens"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Identities"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Nodes"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Notices"].full_name,
    worker_pb2.DESCRIPTOR.services_by_name["Enrolment"].full_name,
)

_KEEPALIVE = (
    ("grpc.keepalive_permit_without_calls", 1),
    # gRPC gives up on a keep-alive ping after this time, by default a minute, whatever
    # grpc.keepalive_timeout_ms says (seen with 1.85).
    ("grpc.http2.ping_timeout_ms", 5_000),
)

_MOST_CONNECTIONS = 8_000
"""Connections of one port: 44 kB of memory each."""
_PART_OF_FILES = 4
"""Each port may have this part of the files that the process may have open."""
_HANDSHAKE_MS = 30_000
"""Connections without a finished handshake by then are cut."""
_MOST_PENDING = 10_000
"""Calls of one port that wait until asyncio takes them, whoever makes them: beyond that gRPC
cancels some of any caller, and beyond twice as many all. A call takes up to 26 kB."""
_LONGEST_PENDING_S = 600
"""Calls that have waited for so long are cancelled; most callers have given up by then."""
_IDLE_MS = 10 * 60_000
"""A user's connection without a call is ended after this time; their next call makes another."""


class Ports(NamedTuple):
    """The ports that a master listens on."""

    users: int
    workers: int


class MasterServer:
    """Serves users on one port and agents on another, both over TLS.

    gRPC can require client certificates or not ask for them, but not ask for them in passing;
    hence the second port, where nobody gets in without one. On the users' port there are health
    checking, reflection, and the way for instances to get their first certificate.

    The server is made, started and stopped in the asyncio thread.

    Args:
        jobs: Serves users.
        files: Serves users.
        cluster: Serves users.
        secrets: Serves users.
        tokens: Serves users.
        identities: Serves users without a token.
        nodes: Serves users.
        notices: Serves operators.
        enrolment: Serves instances without a certificate.
        workers: Serves agents.
        access: Decides who may call which method on the users' port.
        identity: The certificates that both ports present.

    Attributes:
        services: Handlers for users, by name, for calls that the master makes itself.
    """

    def __init__(
        self,
        *,
        jobs: JobsServicer,
        files: FilesServicer,
        cluster: ClusterServicer,
        secrets: SecretsServicer,
        tokens: TokensServicer,
        identities: IdentitiesServicer,
        nodes: NodesServicer,
        notices: NoticesServicer,
        enrolment: EnrolmentServicer,
        workers: WorkersServicer,
        access: AccessInterceptor,
        identity: ServerIdentity,
    ) -> None:
        options = [*server_options(), *_KEEPALIVE, *_connections()]
        users = [
            *(*server_options(MAX_REQUEST_BYTES), *_KEEPALIVE, *_connections()),
            # Of agents no call is a stranger's.
            ("grpc.max_connection_idle_ms", _IDLE_MS),
        ]
        self._identity = identity
        self.services: Mapping[str, object] = {"Jobs": jobs, "Files": files, "Cluster": cluster}
        self._users = grpc.aio.server(interceptors=[ErrorInterceptor(), access], options=users)
        certified = CertifiedInterceptor(access.callers)
        self._workers = grpc.aio.server(
            interceptors=[ErrorInterceptor(), certified], options=options
        )
        self._doorkeeper = Doorkeeper(access.callers, _most_connections())
        self._health = health.aio.HealthServicer()
        add_JobsServicer_to_server(jobs, self._users)
        add_FilesServicer_to_server(files, self._users)
        add_ClusterServicer_to_server(cluster, self._users)
        add_SecretsServicer_to_server(secrets, self._users)
        add_TokensServicer_to_server(tokens, self._users)
        add_IdentitiesServicer_to_server(identities, self._users)
        add_NodesServicer_to_server(nodes, self._users)
        add_NoticesServicer_to_server(notices, self._users)
        add_EnrolmentServicer_to_server(enrolment, self._users)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._users)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._users
        )
        add_WorkersServicer_to_server(workers, self._workers)

    async def start(self, users: str, workers: str) -> Ports:
        """Begin to listen on both ports.

        Args:
            users: ``HOST:PORT``; port 0 takes any that is free.
            workers: Address of the workers' port.

        Returns:
            The ports.

        Raises:
            InvalidConfig: An address cannot be bound.
        """
        ports = Ports(
            _open_port(self._users, users, server_credentials(self._identity, agents_only=False)),
            _open_port(
                self._workers, workers, server_credentials(self._identity, agents_only=True)
            ),
        )
        for service in _SERVICES:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._users.start()
        await self._workers.start()
        self._doorkeeper.start(*ports)
        return ports

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, and end those that are left after the grace period."""
        self._doorkeeper.stop()
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(self._users.stop(grace_s), self._workers.stop(grace_s))


def allow_most_files() -> None:
    """Have this process open as many files as it may; connections are files, too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # No limit at all is more than kernels allow.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _most_connections() -> int:
    """Connections of a port that leave files for the rest of the master, whoever makes them."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    some = _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else files // _PART_OF_FILES
    return min(_MOST_CONNECTIONS, some)


def _connections() -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", _most_connections()),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.server.max_pending_requests", _MOST_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_PENDING),
        ("grpc.server_max_unrequested_time_in_server", _LONGEST_PENDING_S),
    ]


def _open_port(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials) -> int:
    try:
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise InvalidConfig(
            f"cannot listen on {address}", hint="another process may have this port"
        ) from error


def server_credentials(identity: ServerIdentity, *, agents_only: bool) -> grpc.ServerCredentials:
    """The identity that a port shows, and whether it requires a certificate of this cluster."""
    shown = identity.current()

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(shown.key, shown.certificate)], root_certificates=identity.authorities
        )

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Asked before each handshake, by threads of gRPC's own."""
        nonlocal shown
        current = identity.current()
        if current is shown:
            return None
        shown = current
        return configuration()

    return grpc.dynamic_ssl_server_credentials(
        configuration(),
        renewed,  # type: ignore[arg-type]  # None is for "the same as before"
        require_client_authentication=agents_only,
    )
