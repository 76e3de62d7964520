"""Limits that forbid a job for ever: refused at submission, and nothing else is.

Jobs that are accepted begin on an idle cluster under the default policy. Jobs that are refused have
no place by an exhaustive search that shares no code with the check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import NO_LIMIT, Limits, Settings
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits, with_nodes
from eva_master.model.job import ElasticGang, JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_master.packing.elastic.fixed import built
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import Unplaceable
from eva_wire.values.ids import Family, InstanceId, Price, Workload
from eva_wire.values.states import RunState
from tests.drawing import drawn

FAMILY = Family("c")
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class World:
    """A job, and a cluster with limits; `None` for no limit.

    Attributes:
        sold: Size in GPUs, price in cents, and limit of each type.
        owned: Sizes of the owned nodes.
        needs: GPUs of each task.
        least: Of an elastic gang.
        quota: GPUs of the tenant.
    """

    sold: tuple[tuple[int, int, int | None], ...]
    owned: tuple[int, ...]
    needs: tuple[int, ...]
    gang: bool
    least: int | None
    per_job: int | None
    per_user: int | None
    cluster: int | None
    partition: int | None
    cents_per_hour: int | None
    quota: int | None

    @property
    def units(self) -> list[tuple[int, ...]]:
        """The tasks that have to run together, each group by itself."""
        if self.gang:
            return [self.needs[: self.least]]
        return [(need,) for need in self.needs]

    def slots(self) -> Iterator[tuple[int, int, bool]]:
        """Size, price and whether it is launched, of every instance that might be used."""
        yield from ((size, 0, False) for size in self.owned)
        for size, price, limit in self.sold:
            most = len(self.needs) if limit is None else min(limit, len(self.needs))
            yield from [(size, price, True)] * most

    def fits(self, needs: tuple[int, ...]) -> bool:
        """Whether tasks fit together into the empty cluster, by trying everything."""
        slots = list(self.slots())
        places = product(range(len(slots)), repeat=len(needs))
        return any(self._allows([(slots[at], at) for at in where], needs) for where in places)

    def _allows(
        self, where: list[tuple[tuple[int, int, bool], int]], needs: tuple[int, ...]
    ) -> bool:
        taken = Counter[int]()
        for (_, at), need in zip(where, needs, strict=True):
            taken[at] += need
        used = {at: slot for slot, at in where}
        if any(taken[at] > size for at, (size, _, _) in used.items()):
            return False
        if self.quota is not None and sum(needs) > self.quota:
            return False
        new = [price for _, price, launched in used.values() if launched]
        if not new:
            return True
        nodes = len(self.owned)
        counts = (
            (self.per_job, len(used)),
            (self.per_user, len(used)),
            (self.cluster, nodes + len(new)),
            (self.partition, nodes + len(new)),
            (self.cents_per_hour, sum(new)),
        )
        return all(most is None or there <= most for most, there in counts)


def _worlds() -> st.SearchStrategy[World]:
    size, few = st.sampled_from([1, 2, 4]), st.none() | st.integers(1, 3)

    @st.composite
    def world(draw: st.DrawFn) -> World:
        sizes = draw(st.lists(size, min_size=1, max_size=2, unique=True))
        sold = tuple(
            (it, it * 10 - draw(st.integers(0, 4)), draw(st.none() | st.integers(1, 2)))
            for it in sizes
        )
        owned = tuple(draw(st.lists(size, max_size=2)))
        largest = max((*sizes, *owned))
        needs = draw(st.lists(st.integers(1, min(2, largest)), min_size=1, max_size=4))
        gang = draw(st.booleans())
        elastic = gang and len(needs) > 1 and draw(st.booleans())
        needs = [needs[0]] * len(needs) if elastic else needs
        return World(
            sold=sold,
            owned=owned,
            needs=tuple(needs),
            gang=gang,
            least=draw(st.integers(1, len(needs))) if elastic else None,
            per_job=draw(few),
            per_user=draw(few),
            cluster=draw(few),
            partition=draw(few),
            cents_per_hour=draw(st.none() | st.integers(10, 80)),
            quota=draw(st.none() | st.integers(1, 8)),
        )

    return world()


def _machine(name: str, gpus: int) -> InstanceType:
    size = Resources(gpus, 8_000, 65_536)
    return InstanceType(name, FAMILY, size, acquisition_ms=5_000, setup_ms=5_000)


def _cluster(world: World) -> SimulatedCluster:
    catalog: Catalog = tuple(
        Offering(_machine(f"c.{size}", size), Price(cents * 10_000), limit=limit)
        for size, cents, limit in world.sold
    )
    nodes = [
        OwnedNode(
            InstanceId(f"n{number}"),
            Offering(_machine(f"own.{size}", size), Price(0), NODE_ZONE, Purchase.OWNED),
            60_000,
        )
        for number, size in enumerate(world.owned)
    ]
    budget = None if world.cents_per_hour is None else world.cents_per_hour * 10_000
    part = Partition(
        "p",
        default=True,
        limits=PartitionLimits(instances=world.partition),
        budget=Budget(per_hour=budget),
    )
    limits = Limits(
        instances_per_job=world.per_job or NO_LIMIT,
        instances_per_user=world.per_user or NO_LIMIT,
        instances=world.cluster or NO_LIMIT,
    )
    quotas = {} if world.quota is None else {"t": quota_of({"c": world.quota})}
    kind = policies()["eva"]
    return SimulatedCluster(
        catalog,
        built(kind, kind.config()),
        settings=Settings(
            nodes={node.name: node for node in nodes},
            limits=limits,
            partitions=with_nodes((part,), {node.name: node.offering.id for node in nodes}),
            tenancy=Tenancy(quotas=quotas),
            price_limit_ppm=None,
        ),
        delays=EqualDelays(report_ms=5_000),
        work_of=lambda _run: Work(60_000),
    )


@drawn(60)
@given(_worlds())
def test_what_is_accepted_ends_and_what_is_refused_has_no_place(world: World) -> None:
    cluster = _cluster(world)
    cluster.timeline.after(5_000, lambda: None)
    assert cluster.run(lambda: cluster.timeline.now() >= 5_000)
    tasks = tuple(
        TaskSpec(Workload("w"), Program("true"), ((FAMILY, Resources(gpus, 1_000, 1_024)),))
        for gpus in world.needs
    )
    kind = JobKind.GANG if world.gang else JobKind.ARRAY
    spec = JobSpec("j", "me", tasks, kind=kind, elastic=ElasticGang(least=world.least), tenant="t")
    command = cluster.submit(spec)
    assert cluster.run(lambda: command in cluster.answers.replies, limit_ms=60_000)
    reply = cluster.answers.replies[command]
    if not all(map(world.fits, world.units)):
        assert isinstance(reply.error, Unplaceable)
        return
    assert reply.error is None, reply.error
    job = reply.job
    assert job is not None
    ended = lambda: cluster.state.jobs[job].state.value == "succeeded"  # noqa: E731
    assert cluster.run(ended, limit_ms=2 * HOUR_MS), [
        (run.id, run.state.value, run.waiting_for) for run in cluster.state.members(job)
    ]
    assert all(run.state is RunState.SUCCEEDED for run in cluster.state.members(job)) or world.least
