"""Reads worlds of tenants: servers, who brought them, and elastic gangs, as JSON.

Times are in hours, or in slots of an hour; values in dollars. Parameter servers and their costs are
there for policies that plan with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eva_lab.traces.rows import read_json, refusal
from eva_master.model.accounting.worth import Decay, Worth
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.job import ParameterServers
from eva_master.model.resources import Resources
from eva_master.model.trace import GPU_SLOT, Network, Trace, TraceJob, TraceTask, TraceTenant
from eva_wire.text.yamlfile import dotted, wording
from eva_wire.values.errors import Problem
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Family, InstanceId, Price, Workload

FAMILY = Family("gpu")
"""Of all GPUs of a world."""
_PRICE = Price(MILLION)
"""Price of a server: a dollar per hour, on which nothing depends."""
_FENCE_MS = 600_000
_MICROS_PER_HOUR = 3_600_000_000
_BITS_PER_MEGABYTE = 8_000_000
_MOST_WORK_H = 1e7

_Many = Annotated[int, Field(ge=1, le=100_000, strict=True)]
_Members = Annotated[int, Field(ge=1, le=1_000, strict=True)]
_None = Annotated[int, Field(ge=0, le=100_000, strict=True)]
_Amount = Annotated[float, Field(ge=0, le=1e8, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, le=1e8, allow_inf_nan=False)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorldServer(_Entry):
    """A machine: how many GPUs it has, and how many parameter servers find room there."""

    workers: Annotated[int, Field(ge=1, le=1_024, strict=True)]
    ps: _None


class WorldTenant(_Entry):
    """A tenant: which servers it brought, by their numbers, and what these have together."""

    servers: Annotated[list[_None], Field(max_length=10_000)]
    workers: _None
    ps: _None


class WorldJob(_Entry):
    """A job of a world.

    Attributes:
        tenant: Number of its tenant.
        arrival_slot: When it arrives.
        epochs: How often it goes through its data.
        chunks: Parts of the data, of which workers train one each at a time: no more workers work.
        minibatches: Mini-batches of a chunk.
        minibatch_h: Hours that a mini-batch takes. update_h: That an update after it takes.
        gradient_mb: Megabytes that a worker sends, and receives, for each mini-batch.
        k: Dollars by which its value changes per hour. g: Its value on arrival.
        e: Its convex value is (e / t) ** kappa after t hours. kappa: That exponent.
        requested_gpus: Demand of the recorded job; not used.
    """

    tenant: _None
    arrival_slot: Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
    epochs: _Many
    chunks: _Members
    minibatches: _Many
    minibatch_h: _Amount
    update_h: _Amount
    gradient_mb: _Amount
    k: Annotated[float, Field(le=0, ge=-1e8, allow_inf_nan=False)]
    g: _Amount
    e: _Positive
    kappa: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
    requested_gpus: _None = 0

    @property
    def each_h(self) -> float:
        """Hours of a worker for a mini-batch, if all workers are on one server."""
        return self.minibatch_h + self.update_h

    @property
    def work_h(self) -> float:
        """Hours of one worker for all of it, likewise."""
        return self.epochs * self.chunks * self.minibatches * self.each_h

    def apart_ppm(self, worker_mbps: float) -> int:
        """How fast a worker is whose gradients go to another server, in millionths."""
        moved_h = 2 * self.gradient_mb * _BITS_PER_MEGABYTE / (worker_mbps * MILLION) / 3600
        return max(1, round(self.each_h / (self.each_h + moved_h) * MILLION))


class World(_Entry):
    """A cluster that tenants brought together, and the jobs that arrive there.

    Attributes:
        worker_mbps: Bandwidth of a worker. ps_mbps: That of a parameter server; Mbit/s.
    """

    servers: Annotated[list[WorldServer], Field(min_length=1, max_length=10_000)]
    worker_mbps: _Positive
    ps_mbps: _Positive
    tenants: Annotated[list[WorldTenant], Field(min_length=1, max_length=1_000)]
    jobs: Annotated[list[WorldJob], Field(min_length=1, max_length=100_000)]


@dataclass(frozen=True, slots=True)
class Options:
    """Options for the trace made of a world.

    Attributes:
        jobs: Only so many of its jobs, the first ones; `None` for all.
        convex: Whether values fall with a power of the time, and not by as much every hour.
        spread: Whether members on several servers are slower.
        move_ms: From each start of a job to its first progress.
    """

    jobs: int | None = None
    convex: bool = False
    spread: bool = True
    move_ms: int = 0


def read_world(path: Path) -> World:
    """Read a world.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names the entry of each problem.
    """
    try:
        world = World.model_validate(read_json(path))
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [Problem(wording(detail), dotted(tuple(detail["loc"]))) for detail in details]
        raise refusal(path, problems) from error
    if problems := [*_of_tenants(world), *_of_jobs(world)]:
        raise refusal(path, problems)
    return world


def trace_of(world: World, name: str, options: Options) -> Trace:
    """The jobs of a world in the order of their arrival, with its servers as owned nodes."""
    jobs = [
        _job(number, job, world, options) for number, job in enumerate(world.jobs[: options.jobs])
    ]
    nodes = tuple(_node(number, server) for number, server in enumerate(world.servers))
    tenants = tuple(
        TraceTenant(
            tenant_name(number),
            ((FAMILY, tenant.workers),),
            tuple(nodes[server].name for server in sorted(tenant.servers)),
        )
        for number, tenant in enumerate(world.tenants)
    )
    network = Network(
        max(1, round(world.worker_mbps * 1000)),
        max(1, round(world.ps_mbps * 1000)),
        tuple((node.name, server.ps) for node, server in zip(nodes, world.servers, strict=True)),
    )
    order = sorted(jobs, key=lambda job: (job.arrival_ms, job.id))
    return Trace(name, tuple(order), nodes=nodes, tenants=tenants, network=network)


def tenant_name(number: int) -> str:
    """The name of a world's tenant."""
    return f"tenant-{number:03d}"


def _job(number: int, job: WorldJob, world: World, options: Options) -> TraceJob:
    name = tenant_name(job.tenant)
    if options.convex:
        worth = Worth(
            MILLION,
            Decay.POWER,
            span_ms=round(job.e * MILLIS_PER_HOUR),
            exponent_ppm=round(job.kappa * MILLION),
        )
    else:
        worth = Worth(round(job.g * MILLION), loses_per_hour=round(-job.k * MILLION))
    return TraceJob(
        id=f"job-{number:05d}",
        workload=Workload(f"job-{number:05d}"),
        arrival_ms=job.arrival_slot * MILLIS_PER_HOUR,
        duration_ms=max(1, round(job.work_h * MILLIS_PER_HOUR)),
        tasks=(TraceTask(None, ((FAMILY, GPU_SLOT),)),) * job.chunks,
        init_ms=options.move_ms,
        owner=name,
        tenant=name,
        least=1,
        apart_ppm=job.apart_ppm(world.worker_mbps) if options.spread else MILLION,
        worth=worth,
        ps=ParameterServers(
            round(job.minibatch_h * _MICROS_PER_HOUR),
            round(job.update_h * _MICROS_PER_HOUR),
            round(job.gradient_mb * MILLION),
        ),
    )


def _node(number: int, server: WorldServer) -> OwnedNode:
    gpus = server.workers
    room = Resources(gpus, GPU_SLOT.milli_cpus * gpus, GPU_SLOT.memory_mib * gpus)
    machine = InstanceType(f"{FAMILY}.{gpus}", FAMILY, room)
    offering = Offering(machine, _PRICE, NODE_ZONE, Purchase.OWNED)
    return OwnedNode(InstanceId(f"server-{number:05d}"), offering, _FENCE_MS)


def _of_tenants(world: World) -> Iterator[Problem]:
    """Contradictions between servers and tenants: each server is one tenant's."""
    owners: dict[int, int] = {}
    for number, tenant in enumerate(world.tenants):
        key = f"tenants[{number}]"
        for place, server in enumerate(tenant.servers):
            where = f"{key}.servers[{place}]"
            if server >= len(world.servers):
                message = f"there is no server {server}: the last one is {len(world.servers) - 1}"
                yield Problem(message, where)
            elif server in owners:
                message = f"the server {server} is that of tenant {owners[server]} already"
                yield Problem(message, where)
            owners.setdefault(server, number)
        own = [world.servers[index] for index in tenant.servers if index < len(world.servers)]
        for name, stated in (("workers", tenant.workers), ("ps", tenant.ps)):
            held = sum(getattr(server, name) for server in own)
            if held != stated:
                yield Problem(f"is {stated}, and its servers have {held}", f"{key}.{name}")
    for name in ("workers", "ps"):
        held = sum(getattr(server, name) for server in world.servers)
        brought = sum(getattr(tenant, name) for tenant in world.tenants)
        if held != brought:
            message = f"all tenants have {brought} {name}, and all servers {held}"
            yield Problem(message, "tenants", hint="each server is one tenant's")


def _of_jobs(world: World) -> Iterator[Problem]:
    for number, job in enumerate(world.jobs):
        key = f"jobs[{number}]"
        if job.tenant >= len(world.tenants):
            message = f"there is no tenant {job.tenant}: the last one is {len(world.tenants) - 1}"
            yield Problem(message, f"{key}.tenant")
        if job.each_h <= 0:
            yield Problem("a mini-batch with its update takes no time", f"{key}.minibatch_h")
        elif job.work_h > _MOST_WORK_H:
            message = f"{job.work_h:g} worker-hours of work are more than {_MOST_WORK_H:g}"
            yield Problem(message, f"{key}.epochs")
