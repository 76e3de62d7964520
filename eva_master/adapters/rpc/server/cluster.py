"""The Cluster service: the cluster as a whole, and what it costs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.adapters.rpc._proto.api_pb2_grpc import ClusterServicer
from eva_master.adapters.rpc.server import explain, learned, views
from eva_master.adapters.rpc.server.access import caller
from eva_master.ports import Clock, RoundHistory

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while a master runs.

    Attributes:
        cluster: Its name.
        policy: Name of the policy in force.
        version: The master's release.
        settings: The settings in force, as JSON, without secrets.
    """

    cluster: str
    policy: str
    version: str
    settings: str


class ClusterService(ClusterServicer):
    """Questions about the cluster.

    Args:
        gateway: The way to the control loop.
        clock: For what is owed now.
        about: What does not change.
        history: Why rounds were planned as they were.
    """

    def __init__(
        self, *, gateway: LoopGateway, clock: Clock, about: About, history: RoundHistory
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._about = about
        self._history = history

    async def Describe(  # noqa: N802
        self,
        request: pb.DescribeRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ClusterState:
        """The cluster as it is."""
        now, about = self._clock.now(), self._about
        return await self._gateway.read(
            lambda state: views.cluster(
                state,
                now,
                name=about.cluster,
                policy=about.policy,
                version=about.version,
                gone=request.all,
            )
        )

    async def Cost(  # noqa: N802
        self,
        request: pb.CostRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.Bill:
        """The bill."""
        now = self._clock.now()
        return await self._gateway.read(lambda state: views.bill(state, now))

    async def Interference(  # noqa: N802
        self,
        request: pb.InterferenceRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.Learned:
        """What was learned of workloads and instance types."""
        now = self._clock.now()
        return await self._gateway.read(lambda state: learned.view(state, now))

    async def Explain(  # noqa: N802
        self,
        request: pb.ExplainRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.Explanation:
        """Why a job, an instance or a round is as it is."""
        owner, now = caller().owner, self._clock.now()
        subject = await self._gateway.read(
            lambda state: explain.find(state, owner, request.subject, now)
        )
        return await asyncio.to_thread(explain.explain, self._history, subject, now)

    async def Config(  # noqa: N802
        self,
        request: pb.ConfigRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ConfigResponse:
        """The settings in force."""
        return pb.ConfigResponse(json=self._about.settings)
