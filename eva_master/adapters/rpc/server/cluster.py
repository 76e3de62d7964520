"""The Cluster service: the cluster as a whole, and what it costs."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc

from eva_master.adapters.bills import divided_bill
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.notices.receivers import ReceiverStatus
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import explain, learned, pages, reasons, views
from eva_master.adapters.rpc.server.access import caller
from eva_master.adapters.rpc.server.overview import answer
from eva_master.adapters.rpc.server.overview.samples import Samples
from eva_master.adapters.rpc.server.parts import messages as partition_messages
from eva_master.adapters.rpc.server.shown import costs, tenants
from eva_master.adapters.rpc.server.watching.feed import FeedStreams
from eva_master.learning.voices.names import voice_of_owner
from eva_master.model.accounting.splits import CostSplit
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.events import DrainRequested
from eva_master.model.records import Instance
from eva_master.ports import Clock, RoundHistory
from eva_master.ports.instances import InstanceRecord
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
        samples: Figures over time; none are shown if not given.
        receivers: Tells how the receivers of notices fare.
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
        samples: Samples | None = None,
        receivers: Callable[[], tuple[ReceiverStatus, ...]] = tuple,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._about = about
        self._history = history
        self._archive = archive
        self._tenants = tenants
        self._samples = samples or Samples(history)
        self._receivers = receivers
        self._feed = FeedStreams(gateway, archive, clock)

    async def Describe(  # noqa: N802
        self,
        request: pb.DescribeRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ClusterState:
        """Answer with the present state of the cluster."""
        now = self._clock.now()

        def describe(model: ReadModel) -> pb.ClusterState:
            listed, token = list(model.live.values()), ""
            record = None
            if request.instance:
                record = self._instance(model, request.instance, now)
                listed = [record.instance]
            elif request.all:
                limit = pages.size(request.page_size)
                records, token = pages.all_instances(
                    model, self._archive, request.page_token, limit, now
                )
                listed = [record.instance for record in records]
            state = self._state(model, listed, now)
            state.next_page_token = token
            if request.placed and len(listed) <= answer.MOST_PLACED:
                for message in state.instances:
                    message.placed.extend(answer.placed(model, InstanceId(message.id)))
            if record is not None and record.account is not None:
                cost = costs.instance_cost(record.instance, record.account)
                state.instances[0].cost.CopyFrom(cost)
            return state

        return await self._gateway.read(describe)

    def _state(self, model: ReadModel, listed: Iterable[Instance], now: Millis) -> pb.ClusterState:
        about = self._about
        return views.cluster(
            model,
            now,
            listed,
            name=about.cluster,
            policy=about.policy,
            version=about.version,
            pause=self._gateway.pause,
            planning=self._gateway.planning(),
        )

    def _instance(self, model: ReadModel, name: str, now: Millis) -> InstanceRecord:
        """An instance by its id, be it gone or not; takes time."""
        key = InstanceId(name)
        if key in model.instances:
            return model.billed(key, now)
        if (gone := self._archive.records_of_instances([key]).get(key)) is not None:
            return gone
        raise NotFound(f"there is no instance {name!r}", hint="see: eva nodes --all")

    async def Overview(  # noqa: N802
        self,
        request: pb.OverviewRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.OverviewResponse:
        """Answer with prices over time, what needs attention, and the newest events."""
        now, who = self._clock.now(), caller()

        def overview(model: ReadModel) -> pb.OverviewResponse:
            state, pause = self._state(model, (), now), self._gateway.pause
            glance = answer.Glance(self._archive, self._samples, pause, state, self._receivers())
            return answer.overview(model, glance, who, now)

        return await self._gateway.read(overview)

    async def Cost(  # noqa: N802
        self,
        request: pb.CostRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.Bill:
        """Answer with the bill's sums and a page of its items."""
        now = self._clock.now()
        return await self._gateway.read(lambda model: self._bill(model, request, now))

    def _bill(self, model: ReadModel, request: pb.CostRequest, now: Millis) -> pb.Bill:
        bill, limit = costs.bill(model, now), pages.size(request.page_size)
        if request.by:
            bill.by = request.by
            split = CostSplit.of(request.by)
            bill.shares.extend(costs.cost_shares(divided_bill(model, split, now)))
        if not request.without_jobs:
            jobs, bill.next_jobs_page_token = pages.all_jobs(
                model, self._archive, request.jobs_page_token, limit, now
            )
            bill.jobs.extend(map(costs.job_cost, jobs))
        if not request.without_instances:
            instances, bill.next_instances_page_token = pages.all_instances(
                model, self._archive, request.instances_page_token, limit, now
            )
            bill.instances.extend(
                costs.instance_cost(record.instance, record.account)
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
        return await self._gateway.read(lambda model: tenants.response(model, self._tenants, now))

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

    async def Events(  # noqa: N802
        self,
        request: pb.EventsRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.EventsResponse]:
        """Events of the cluster, a job or an instance, and those that follow if it is wanted."""
        async with aclosing(self._feed.of(caller().owner, request)) as messages:
            async for message in messages:
                yield message

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
