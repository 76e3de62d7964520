"""The Cluster service: the cluster as a whole, and what it costs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import grpc

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import explain, learned, pages, reasons, views
from eva_master.adapters.rpc.server.access import caller
from eva_master.adapters.rpc.server.parts import messages as partition_messages
from eva_master.learning.voices.names import voice_of_owner
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.events import DrainRequested
from eva_master.ports import Clock, RoundHistory
from eva_master.ports.reading import Archive, ReadModel
from eva_wire._proto.api_pb2_grpc import ClusterServicer
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.users import Role

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class About:
    """Facts that do not change while a master runs.

    Attributes:
        cluster: Its name.
        policy: Name of the policy.
        version: The master's release.
        settings: The settings as JSON, without secrets.
    """

    cluster: str
    policy: str
    version: str
    settings: str


class ClusterService(ClusterServicer):
    """Answers questions about the cluster.

    Args:
        gateway: Has the newest model of the cluster.
        clock: The time up to which costs are counted.
        about: Facts that do not change.
        history: The reasons of planning rounds.
        archive: Has ended jobs and gone instances.
        tenants: Tenants of owners.
    """

    def __init__(
        self,
        *,
        gateway: LoopGateway,
        clock: Clock,
        about: About,
        history: RoundHistory,
        archive: Archive,
        tenants: TenantRules,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._about = about
        self._history = history
        self._archive = archive
        self._tenants = tenants

    async def Describe(  # noqa: N802
        self,
        request: pb.DescribeRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ClusterState:
        """Answer with the present state of the cluster."""
        now, about = self._clock.now(), self._about

        def describe(model: ReadModel) -> pb.ClusterState:
            listed, token = list(model.live.values()), ""
            if request.all:
                limit = pages.size(request.page_size)
                records, token = pages.all_instances(
                    model, self._archive, request.page_token, limit, now
                )
                listed = [record.instance for record in records]
            state = views.cluster(
                model,
                now,
                listed,
                name=about.cluster,
                policy=about.policy,
                version=about.version,
                pause=self._gateway.pause,
                planning=self._gateway.planning(),
            )
            state.next_page_token = token
            return state

        return await self._gateway.read(describe)

    async def Cost(  # noqa: N802
        self,
        request: pb.CostRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.Bill:
        """Answer with the bill's sums and a page of its items."""
        now = self._clock.now()
        return await self._gateway.read(lambda model: self._bill(model, request, now))

    def _bill(self, model: ReadModel, request: pb.CostRequest, now: Millis) -> pb.Bill:
        bill, limit = views.bill(model, now), pages.size(request.page_size)
        if request.by:
            bill.by = request.by
            bill.shares.extend(views.cost_shares(model, request.by, now))
        if not request.without_jobs:
            jobs, bill.next_jobs_page_token = pages.all_jobs(
                model, self._archive, request.jobs_page_token, limit, now
            )
            bill.jobs.extend(map(views.job_cost, jobs))
        if not request.without_instances:
            instances, bill.next_instances_page_token = pages.all_instances(
                model, self._archive, request.instances_page_token, limit, now
            )
            bill.instances.extend(
                views.instance_cost(record.instance, record.account)
                for record in instances
                if record.account is not None
            )
        return bill

    async def Tenants(  # noqa: N802
        self,
        request: pb.TenantsRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.TenantsResponse:
        """Answer with the jobs and costs of each tenant."""
        now = self._clock.now()
        return await self._gateway.read(lambda model: views.tenants(model, self._tenants, now))

    async def Partitions(  # noqa: N802
        self,
        request: pb.PartitionsRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.PartitionsResponse:
        """Answer with what each partition has and costs."""
        now, who = self._clock.now(), caller()
        return await self._gateway.read(lambda model: partition_messages.response(model, who, now))

    async def Interference(  # noqa: N802
        self,
        request: pb.InterferenceRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.Learned:
        """Answer with what was learned about workloads and instance types."""
        now, who = self._clock.now(), caller()
        voice = None
        if who.role is not Role.OPERATOR:
            voice = voice_of_owner(who.owner, self._tenants.of(who.owner))
        return await self._gateway.read(lambda model: learned.view(model, voice, now))

    async def Estimates(  # noqa: N802
        self,
        request: pb.EstimatesRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.LearnedTimes:
        """Answer with what was learned about run times."""
        now = self._clock.now()
        return await self._gateway.read(lambda model: learned.times(model, request.owner, now))

    async def Explain(  # noqa: N802
        self,
        request: pb.ExplainRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.Explanation:
        """Explain the placement of a job or an instance, or a round."""
        owner, now = caller().owner, self._clock.now()

        def explained(model: ReadModel) -> pb.Explanation:
            subject = explain.find(model, self._archive, owner, request.subject, now)
            message = explain.explain(self._history, subject, now, reasons.machines(model))
            for hosting in message.hostings:
                instance = model.instances.get(InstanceId(hosting.instance))
                price = reasons.billed(None if instance is None else instance.offering)
                if price is not None:
                    hosting.billed_micro_usd_per_hour = price
            if subject is None or message.kind == explain.POOLS:
                message.pools.extend(explain.standing(model))
            return message

        return await self._gateway.read(explained)

    async def Drain(  # noqa: N802
        self,
        request: pb.DrainRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DrainResponse:
        """Have an instance take no new task and go once it is empty."""
        command = request.command_id or uuid.uuid4().hex
        name = InstanceId(request.instance)
        await self._gateway.command(DrainRequested(command, name, request.move, caller().owner))
        model = await self._gateway.model()
        if (instance := model.instances.get(name)) is None:
            raise NotFound(f"instance {name} is gone already", hint="see: eva nodes")
        return pb.DrainResponse(instance=views.instance(model, instance))

    async def Config(  # noqa: N802
        self,
        request: pb.ConfigRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ConfigResponse:
        """Answer with the settings of this master."""
        return pb.ConfigResponse(json=self._about.settings)
