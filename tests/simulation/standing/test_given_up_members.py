"""Pools on limited offerings give empty members up for tasks that wait for what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import Offering, Purchase, spot_family
from eva_master.model.events import DrainRequested
from eva_master.model.fleet.partitions import (
    Budget,
    Partition,
    PartitionLimits,
    Partitions,
    Rule,
    ShortJobs,
)
from eva_master.model.job import JobSpec, Latency
from eva_master.model.records import Instance
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_policies.cloudcoaster.config import Config
from eva_wire.values.ids import JobId, Millis, OfferingId, Price, RunId
from eva_wire.values.states import JobState
from tests.fakes.jobs import LARGE, MEDIUM, SMALL, job

MINUTE_MS = 60_000
SHORT = ShortJobs(90_000)
BOOT_MS = 70_000
ROUND_MS = 5_000
HELD = "the pool short.steady holds it"


def front(back: str = "eva", **options: object) -> Policy:
    """A short pool in front of a policy."""
    kinds = policies()
    config = Config(**{"slots": 4, "hold_s": 20, **options})  # type: ignore[arg-type]
    policy = kinds["cloudcoaster"].build(config)
    behind = kinds[back].build(kinds[back].config())
    return Splitter.of_short(policy, behind, SHORT.below_ms, shares=True)


class World:
    """A cluster with a pool, and programs that run for as long as their jobs state."""

    def __init__(
        self,
        catalog: tuple[object, ...] = (replace(MEDIUM, limit=1),),
        policy: Policy | Mapping[str, Policy] | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings(
            partitions=Partitions(whole=Partition(default=True, short=SHORT))
        )
        self.policy = policy or front()
        self.cluster = SimulatedCluster(
            catalog,  # type: ignore[arg-type]
            self.policy,
            settings=replace(settings, round_gap_ms=ROUND_MS),
            work_of=self._work,
        )
        self.jobs: dict[str, JobId] = {}

    def _work(self, run: RunId) -> Work:
        state = self.cluster.state
        return Work(state.jobs[state.runs[run].job].spec.duration_ms or 0)

    def submit(self, spec: JobSpec) -> JobId:
        """Submit a job and go on until it is there."""
        known = set(self.cluster.state.jobs)
        self.cluster.submit(spec)
        assert self.cluster.run(lambda: set(self.cluster.state.jobs) > known)
        (name,) = set(self.cluster.state.jobs) - known
        return name

    def until(self, job_id: JobId, state: JobState, minutes: float = 60) -> None:
        """Go on until a job is in a state."""
        assert self.cluster.run(
            lambda: self.cluster.state.jobs[job_id].state is state,
            limit_ms=round(minutes * MINUTE_MS),
        ), self.why(job_id)

    def why(self, job_id: JobId) -> str:
        """Why its first task waits."""
        return self.cluster.state.runs[RunId(f"{job_id}/0")].waiting_for

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        end = self.cluster.timeline.now() + seconds * 1000
        assert self.cluster.run(lambda: self.cluster.timeline.now() >= end)

    @property
    def members(self) -> list[Instance]:
        """The members of pools."""
        state = self.cluster.state
        return [state.instances[name] for name in state.membership.standing]

    @property
    def now(self) -> int:
        """The time."""
        return self.cluster.timeline.now()

    @property
    def launches(self) -> int:
        """How many instances were ever launched."""
        return len(self.cluster.state.instances)


def short(name: str, *, seconds: int = 5, cpus: int = 1, **more: object) -> JobSpec:
    """A short job of one task."""
    return job(name, cpus, minutes=seconds / 60, **more)


def long(name: str, *cpus: int, minutes: float = 10, **more: object) -> JobSpec:
    """A long job."""
    return job(name, *(cpus or (4,)), minutes=minutes, latency=Latency.LONG, **more)


@pytest.mark.parametrize("priority", [0, 9])
def test_a_long_job_gets_the_only_instance_from_the_pool(priority: int) -> None:
    world = World()
    first = world.submit(short("s"))
    world.until(first, JobState.SUCCEEDED)
    assert [it.pool for it in world.members] == ["short.steady"]
    at = world.now
    waits = world.submit(long("long", priority=priority))
    world.until(waits, JobState.RUNNING, 5)
    assert world.now - at <= 2 * ROUND_MS + 5_000
    assert world.launches == 1, "it took the instance over"
    assert not world.members
    after = world.submit(short("t"))
    world.until(waits, JobState.SUCCEEDED)
    world.until(after, JobState.SUCCEEDED, 5)


def test_the_holder_is_named_while_it_is_busy() -> None:
    world = World()
    first = world.submit(short("s", seconds=80))
    world.until(first, JobState.RUNNING)
    waits = world.submit(long("long"))
    world.wait(10)
    assert world.why(waits) == f"limit of c.4@local/on-demand reached; {HELD}"
    world.until(first, JobState.SUCCEEDED)
    at = world.now
    world.until(waits, JobState.RUNNING, 5)
    assert world.now - at <= 2 * ROUND_MS + 5_000
    assert world.launches == 1


def test_tasks_of_the_pool_that_are_more_urgent_keep_it() -> None:
    world = World()
    first = world.submit(short("s", cpus=4, seconds=60))
    world.until(first, JobState.RUNNING)
    urgent = world.submit(short("t", cpus=4, seconds=60, priority=5))
    waits = world.submit(long("long", priority=1))
    world.until(first, JobState.SUCCEEDED)
    world.until(urgent, JobState.RUNNING, 1)
    assert HELD in world.why(waits)
    world.until(urgent, JobState.SUCCEEDED, 5)
    world.until(waits, JobState.RUNNING, 1)
    assert world.launches == 1


def test_a_member_that_boots_for_tasks_which_came_first_is_theirs() -> None:
    world = World()
    first = world.submit(short("s"))
    assert world.cluster.run(lambda: world.launches == 1)
    waits = world.submit(long("long"))
    world.until(first, JobState.SUCCEEDED, 3)
    assert world.cluster.state.jobs[waits].state is JobState.PENDING
    world.until(waits, JobState.RUNNING, 1)
    assert world.launches == 1


def test_a_more_urgent_task_gets_a_member_that_boots() -> None:
    world = World()
    world.submit(short("s"))
    assert world.cluster.run(lambda: world.launches == 1)
    waits = world.submit(long("long", priority=1))
    world.until(waits, JobState.RUNNING, 2)
    assert world.launches == 1


def limited(**part: object) -> Settings:
    """Settings of one partition that has limits."""
    partition = Partition("main", default=True, short=SHORT, **part)  # type: ignore[arg-type]
    return Settings(partitions=Partitions((partition,)))


@pytest.mark.parametrize(
    "settings",
    [
        limited(limits=PartitionLimits(instances=1)),
        limited(budget=Budget(per_hour=MEDIUM.price)),
        Settings(
            partitions=Partitions(whole=Partition(default=True, short=SHORT)),
            limits=Limits(instances=1),
        ),
    ],
)
@pytest.mark.parametrize("cpus", [4, 2])
def test_every_limit_counts_alike(settings: Settings, cpus: int) -> None:
    world = World((MEDIUM,), settings=settings)
    first = world.submit(short("s"))
    world.until(first, JobState.SUCCEEDED)
    waits = world.submit(long("long", cpus))
    world.until(waits, JobState.RUNNING, 5)
    assert world.launches == 1


@pytest.mark.parametrize(
    "settings",
    [
        limited(limits=PartitionLimits(instances=1)),
        limited(budget=Budget(per_hour=LARGE.price)),
        Settings(
            partitions=Partitions(whole=Partition(default=True, short=SHORT)),
            limits=Limits(instances=1),
        ),
    ],
)
@pytest.mark.parametrize("options", [{}, {"slot_milli_cpus": 1000, "slot_memory_mib": 1024}])
def test_another_type_takes_the_place_of_a_member_once(
    settings: Settings, options: dict[str, int]
) -> None:
    world = World((MEDIUM, LARGE), front(**options), settings)
    world.until(world.submit(short("s")), JobState.SUCCEEDED)
    waits = world.submit(long("long", 8, minutes=5))
    world.until(waits, JobState.RUNNING, 5)
    types = [it.offering.type.name for it in world.cluster.state.instances.values()]
    assert types == ["c.4", "c.8"], "the member is not bought again meanwhile"
    world.until(waits, JobState.SUCCEEDED)
    world.until(world.submit(short("t")), JobState.SUCCEEDED, 5)
    assert [it.pool for it in world.members]


def test_a_gang_gets_several_members() -> None:
    world = World((replace(MEDIUM, limit=2),), front(transient_share_ppm=0, slots=8))
    first = world.submit(short("s", cpus=4, seconds=30))
    second = world.submit(short("t", cpus=4, seconds=60))
    world.until(first, JobState.RUNNING)
    world.until(second, JobState.RUNNING)
    gang = world.submit(long("gang", 4, 4))
    world.wait(10)
    assert HELD in world.why(gang)
    world.until(second, JobState.SUCCEEDED)
    world.until(gang, JobState.RUNNING, 2)
    assert world.launches == 2


def divided(**shared: object) -> Settings:
    """Two partitions, of which the first has a pool."""
    parts = (
        Partition("quick", rule=Rule(below_ms=SHORT.below_ms), short=SHORT),
        Partition("slow", default=True),
    )
    return Settings(partitions=Partitions(parts), **shared)  # type: ignore[arg-type]


def eva() -> Policy:
    """The policy without a pool."""
    kind = policies()["eva"]
    return kind.build(kind.config())


@pytest.mark.parametrize("options", [{}, {"slot_milli_cpus": 1000, "slot_memory_mib": 1024}])
@pytest.mark.parametrize(
    ("catalog", "settings"),
    [
        ((replace(MEDIUM, limit=1),), divided()),
        ((MEDIUM,), divided(limits=Limits(instances=1))),
    ],
)
def test_the_pool_of_another_partition_gives_its_member_up_once(
    catalog: tuple[object, ...], settings: Settings, options: dict[str, int]
) -> None:
    world = World(catalog, {"quick": front(**options), "slow": eva()}, settings)
    first = world.submit(short("s", partition="quick"))
    world.until(first, JobState.SUCCEEDED)
    waits = world.submit(long("long", partition="slow", minutes=5))
    world.until(waits, JobState.RUNNING, 5)
    assert world.launches == 2
    world.until(waits, JobState.SUCCEEDED)
    assert world.launches == 2, "its pool waits until there is room again"
    world.until(world.submit(short("t", partition="quick")), JobState.SUCCEEDED, 5)


def test_the_pool_of_another_partition_is_named() -> None:
    world = World(policy={"quick": front(), "slow": eva()}, settings=divided())
    first = world.submit(short("s", partition="quick", seconds=80))
    world.until(first, JobState.RUNNING)
    waits = world.submit(long("long", partition="slow"))
    world.wait(10)
    assert world.why(waits).endswith("; the pool quick/short.steady holds it")


def test_a_restart_of_the_master_loses_nothing() -> None:
    world = World()
    first = world.submit(short("s", seconds=60))
    world.until(first, JobState.RUNNING)
    waits = world.submit(long("long"))
    world.cluster.restart()
    world.until(waits, JobState.RUNNING, 3)
    assert world.launches == 1


def test_pools_keep_their_members_where_nothing_is_limited() -> None:
    world = World((MEDIUM,))
    world.until(world.submit(short("s")), JobState.SUCCEEDED)
    world.until(world.submit(long("long")), JobState.RUNNING, 5)
    assert [it.pool for it in world.members] == ["short.steady"]
    assert world.launches == 2


def on_spot(spec: JobSpec) -> JobSpec:
    """A job that may run on spot instances, too."""
    (task,) = spec.tasks
    ((family, need),) = task.demand
    return replace(
        spec, tasks=(replace(task, demand=((family, need), (spot_family(family), need))),)
    )


def test_spot_members_are_given_up_like_those_on_demand() -> None:
    kind = replace(MEDIUM.type, family=spot_family(MEDIUM.type.family))
    spot = Offering(kind, Price(MEDIUM.price // 3), purchase=Purchase.SPOT, limit=1)
    world = World((replace(MEDIUM, limit=1), spot), front(slots=8, largest_share_ppm=1_000_000))
    shorts = [world.submit(on_spot(short(f"s{n}", cpus=4, seconds=60))) for n in range(3)]
    assert world.cluster.run(lambda: len(world.members) == 2, limit_ms=5 * MINUTE_MS)
    assert {it.pool for it in world.members} == {"short.steady", "short.transient"}
    waits = [world.submit(on_spot(long(f"long{n}"))) for n in range(2)]
    world.wait(10)
    assert world.why(waits[0]).endswith("holds it")
    for each in shorts:
        world.until(each, JobState.SUCCEEDED, 10)
    for each in waits:
        world.until(each, JobState.RUNNING, 1)
    assert world.launches == 2


def test_a_member_that_an_operator_drains_goes() -> None:
    world = World()
    first = world.submit(short("s", seconds=60))
    world.until(first, JobState.RUNNING)
    (member,) = world.members
    waits = world.submit(long("long"))
    world.cluster.inbox.post(DrainRequested("drain", member.id, owner="root"))
    world.wait(10)
    assert HELD in world.why(waits)
    world.until(waits, JobState.RUNNING, 5)
    assert world.launches == 2


def test_a_preview_says_that_the_member_is_taken_over() -> None:
    world = World()
    world.until(world.submit(short("s")), JobState.SUCCEEDED)
    (member,) = world.members
    preview = world.cluster.machine.published().preview(long("long"), Millis(world.now))
    assert preview.question is not None
    assert not isinstance(world.policy, Mapping)
    plan, _ = world.policy.plan(preview.question, preview.memory)
    places = preview.foreseen(plan).places
    assert list(places.values()) == [member.id]


def test_a_limit_of_the_user_is_none_of_the_pools() -> None:
    settings = Settings(
        partitions=Partitions(whole=Partition(default=True, short=SHORT)),
        limits=Limits(instances_per_user=1),
    )
    world = World((replace(MEDIUM, limit=2),), front(transient_share_ppm=0, slots=8), settings)
    others = replace(short("u", cpus=4, seconds=80), owner="ben")
    shorts = [world.submit(short("s", cpus=4, seconds=80)), world.submit(others)]
    for each in shorts:
        world.until(each, JobState.RUNNING)
    assert len(world.members) == 2
    waits = world.submit(long("long"))
    world.until(shorts[1], JobState.SUCCEEDED)
    world.until(shorts[0], JobState.SUCCEEDED)
    at = world.now
    world.until(waits, JobState.RUNNING, 5)
    assert world.now - at <= 2 * ROUND_MS + 5_000
    assert world.launches == 2


class Quota:
    """A quota of the cloud: so many CPUs of all types together."""

    def __init__(self, world: World, cpus: int) -> None:
        self._world = world
        self._cpus = cpus
        world.cluster.cloud.sold_out = self.sold_out

    def sold_out(self, offering: OfferingId) -> bool:
        """Whether one more instance of an offering is beyond it."""
        live = [it for it in self._world.cluster.cloud.bill().values() if it.gone_ms is None]
        sizes = {MEDIUM.id: 4, LARGE.id: 8}
        return sum(sizes[it.offering.id] for it in live) + sizes[offering] > self._cpus


def test_a_member_is_handed_over_where_the_cloud_sells_no_more() -> None:
    world = World((MEDIUM,))
    Quota(world, 4)
    world.until(world.submit(short("s")), JobState.SUCCEEDED)
    busy = world.submit(short("t", cpus=4, seconds=80))
    world.until(busy, JobState.RUNNING)
    waits = world.submit(long("long"))
    world.wait(20)
    assert "out of stock" in world.why(waits)
    assert HELD in world.why(waits)
    world.until(busy, JobState.SUCCEEDED)
    at = world.now
    world.until(waits, JobState.RUNNING, 5)
    assert world.now - at <= 2 * ROUND_MS + 5_000


def test_a_member_goes_for_what_the_cloud_refuses_elsewhere() -> None:
    world = World((MEDIUM,), {"quick": front(), "slow": eva()}, divided())
    Quota(world, 4)
    world.until(world.submit(short("s", partition="quick")), JobState.SUCCEEDED)
    waits = world.submit(long("long", partition="slow"))
    world.until(waits, JobState.RUNNING, 10)
    assert not world.members


def test_a_member_is_taken_over_though_a_cheaper_type_would_do() -> None:
    """The policy buys the cheaper one, which a limit cuts: it does not look at limits."""
    settings = Settings(
        partitions=Partitions(whole=Partition(default=True, short=SHORT)),
        limits=Limits(instances=1),
    )
    world = World((SMALL, MEDIUM), settings=settings)
    world.until(world.submit(short("s", cpus=4)), JobState.SUCCEEDED)
    at = world.now
    waits = world.submit(long("long", 2))
    world.until(waits, JobState.RUNNING, 5)
    assert world.now - at <= 2 * ROUND_MS + 5_000
    assert world.launches == 1
