"""The master's listening port: everything about the server's transport, and nothing else."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from eva_master.adapters.rpc._proto import api_pb2, worker_pb2
from eva_master.adapters.rpc._proto.api_pb2_grpc import (
    ClusterServicer,
    JobsServicer,
    add_ClusterServicer_to_server,
    add_JobsServicer_to_server,
)
from eva_master.adapters.rpc._proto.worker_pb2_grpc import (
    WorkersServicer,
    add_WorkersServicer_to_server,
)
from eva_master.adapters.rpc.channels import server_options
from eva_master.adapters.rpc.errors import ErrorInterceptor
from eva_master.model.errors import InvalidConfig

_SERVICES = (
    api_pb2.DESCRIPTOR.services_by_name["Jobs"].full_name,
    api_pb2.DESCRIPTOR.services_by_name["Cluster"].full_name,
    worker_pb2.DESCRIPTOR.services_by_name["Workers"].full_name,
)

_KEEPALIVE = (
    ("grpc.keepalive_permit_without_calls", 1),
    # gRPC gives up on a keep-alive ping after this time, by default a minute, whatever
    # grpc.keepalive_timeout_ms says (seen with 1.85).
    ("grpc.http2.ping_timeout_ms", 5_000),
)


class MasterServer:
    """Serves users and workers on one port, with gRPC's health checking and reflection.

    To be made, started and stopped in the asyncio thread.

    Args:
        jobs: Serves users.
        cluster: Serves users.
        workers: Serves agents.
    """

    def __init__(
        self, *, jobs: JobsServicer, cluster: ClusterServicer, workers: WorkersServicer
    ) -> None:
        options = [*server_options(), *_KEEPALIVE]
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=options)
        self._health = health.aio.HealthServicer()
        add_JobsServicer_to_server(jobs, self._server)
        add_ClusterServicer_to_server(cluster, self._server)
        add_WorkersServicer_to_server(workers, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    async def start(self, address: str) -> int:
        """Listen.

        Args:
            address: ``HOST:PORT``; port 0 takes any that is free.

        Returns:
            The port.

        Raises:
            InvalidConfig: Nobody can listen there.
        """
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise InvalidConfig(
                f"cannot listen on {address}", hint="another process may have this port"
            ) from error
        for service in _SERVICES:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and end those that are left when the grace is over."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    async def wait(self) -> None:
        """Until the server has stopped."""
        await self._server.wait_for_termination()
