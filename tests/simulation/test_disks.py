"""Disk is sized at launch by the first tasks; later tasks take what is left of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.planning.validate_plan import NOTHING_DECIDED
from eva_master.control.rounds.launched_disks import disks_of_launches
from eva_master.control.settings import Settings
from eva_master.model.catalog import Attached, InstanceType, Offering, with_attached
from eva_master.model.job import ArrayRules, ElasticGang, ForkRules, JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import NewInstance
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.resources import Resources, total
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Price, Workload
from eva_wire.values.states import JobState
from tests.drawing import NEW
from tests.fakes.policies.whole import TRIED, WHOLE
from tests.fakes.snapshots import previewed

GIB = 1_024
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
C = Family("c")
MOST = 1_000 * GIB
FREE = Attached()
DELAYS = EqualDelays(fetch_ms=0, start_ms=1_000, stop_ms=1_000, report_ms=5_000)
SEEDS = range(20) if NEW else range(2)


def sold(cpus: int, limit: int | None = None, attached: Attached = FREE) -> Offering:
    """An offering whose instances get the disk that their first tasks need."""
    size = Resources(0, cpus * 1_000, cpus * 4 * GIB, MOST)
    kind = InstanceType(f"c.{cpus}", C, size, 10_000, 60_000, sized_disk=True)
    offering = Offering(kind, Price(cpus * 50_000), limit=limit)
    return with_attached(offering, attached)


def policy_of(name: str) -> Policy:
    """A policy; of `FRONT/BEHIND` the first has the short jobs."""
    *fronts, behind = (policies()[each] for each in name.split("/"))
    built = behind.build(behind.config())
    for front in fronts:
        built = Splitter.of_short(
            front.build(front.config()), built, 10 * MINUTE_MS, shares=bool(front.shares)
        )
    return built


class World(SimulatedCluster):
    """A cluster, in which no instance ever has tasks that need more disk than it has."""

    def __init__(self, policy: str, *catalog: Offering) -> None:
        super().__init__(
            catalog,
            policy_of(policy),
            settings=Settings(),
            delays=DELAYS,
            work_of=lambda run: Work(self._ms[run.rsplit("-", 1)[0]]),
        )
        self._ms: dict[str, int] = {}
        self.sizes: dict[InstanceId, int] = {}

    def job(
        self, name: str, disk: int, minutes: float, *, cpus: int = 1, **more: object
    ) -> JobSpec:
        tasks = int(str(more.pop("tasks", 1)))
        self._ms[name] = round(minutes * MINUTE_MS)
        need = Resources(0, cpus * 1_000, GIB, disk * GIB)
        task = TaskSpec(Workload(name), Program("true"), ((C, need),))
        spec = JobSpec(name, "me", (task,) * tasks, duration_ms=self._ms[name])
        return replace(spec, **more)  # type: ignore[arg-type]

    def add(self, name: str, disk: int, minutes: float, at_min: float = 0, **more: object) -> None:
        spec = self.job(name, disk, minutes, **more)
        self.timeline.after(
            round(at_min * MINUTE_MS) - self.timeline.now(), lambda: self.submit(spec)
        )

    def named(self, name: str) -> JobId:
        return next(job.id for job in self.state.jobs.values() if job.spec.name == name)

    def look(self) -> None:
        """Check that what tasks need is there, and that no disk changes its size."""
        for name in self.state.live:
            instance = self.state.instances[name]
            has = instance.offering.type.capacity.disk_mib
            assert self.sizes.setdefault(name, has) == has
            runs = {run.id: run for run in self.state.occupants(name)}
            runs |= {run.id: run for run in self.state.places.targeting(name) if not runs}
            taken = total(self.state.task(run).demand_on(C) for run in runs.values())
            assert taken.disk_mib <= has, (name, sorted(runs))

    def play(self, hours: float = 12) -> bool:
        def over() -> bool:
            self.look()
            return self.over()

        return self.run(over, limit_ms=round(hours * HOUR_MS))

    def over(self) -> bool:
        """Whether all jobs have come and have ended."""
        return len(self.state.jobs) == len(self._ms) and self.quiet()

    def succeeded(self) -> list[str]:
        done = (job for job in self.state.jobs.values() if job.state is JobState.SUCCEEDED)
        return sorted(job.spec.name for job in done)


@pytest.mark.parametrize("policy", TRIED)
def test_an_instance_is_launched_with_what_its_tasks_need(policy: str) -> None:
    world = World(policy, sold(4))
    world.add("large", 200, 30)
    world.add("plain", 0, 30, at_min=1)
    assert world.play()
    assert world.succeeded() == ["large", "plain"]
    (run,) = world.state.members(world.named("large"))
    assert run.history
    assert max(world.sizes.values()) == 200 * GIB


@pytest.mark.parametrize("policy", TRIED)
def test_what_disks_cost_is_charged_and_is_no_reason_to_move(policy: str) -> None:
    """A disk that costs ten times its instance: a new place would need as much of it."""
    dear = Attached(gib_month=8_000_000)
    world = World(policy, sold(2, attached=dear), sold(4, attached=dear))
    world.add("large", 200, 300)
    world.add("others", 0, 40, at_min=20, tasks=3)
    assert world.play()
    assert world.state.totals.migrations == 0
    (run,) = world.state.members(world.named("large"))
    place = world.state.instances[InstanceId(str(run.places[-1][1]))]
    # 200 GiB for $8 a month each.
    machine = place.offering.type.capacity.milli_cpus * 50
    assert place.offering.price == machine + 2_191_781
    assert place.up_ms is not None
    assert place.gone_ms is not None
    charged = world.state.instance_accounts[place.id].charged
    assert charged == place.offering.price * (place.gone_ms - place.up_ms)


def test_a_preview_shows_the_price_with_the_disk() -> None:
    world = World("eva", sold(2, attached=Attached(30, gib_month=80_000, address=5_000)))
    preview = previewed(world.state, world.job("large", 70, 10), world.timeline.now(), Settings())
    assert preview.question is not None
    plan, _ = policy_of("eva").plan(preview.question, preview.memory)
    (offering,) = preview.foreseen(plan).offerings.values()
    assert offering.price == 100_000 + 10_959 + 5_000
    assert offering.type.capacity.disk_mib == 70 * GIB


@pytest.mark.parametrize("policy", TRIED)
def test_a_later_task_goes_where_enough_disk_is_left(policy: str) -> None:
    world = World(policy, sold(8))
    world.add("first", 100, 60)
    world.add("small", 10, 5, at_min=3)
    world.add("larger", 150, 5, at_min=10)
    assert world.play()
    assert world.succeeded() == ["first", "larger", "small"]
    # 100 GiB hold neither of the others beside the first job.
    assert len(world.sizes) >= 2
    assert max(world.sizes.values()) >= 150 * GIB


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("policy", TRIED)
def test_limits_of_offerings_count_instances_of_every_disk(policy: str, limit: int | None) -> None:
    world = World(policy, sold(2, limit))
    most = 0
    for number in range(6):
        world.add(f"j{number}", 40 * (number % 3), 10, at_min=number, cpus=2)

    def over() -> bool:
        nonlocal most
        world.look()
        most = max(most, sum(map(world.state.can_place, world.state.live)))
        return world.over()

    assert world.run(over, limit_ms=12 * HOUR_MS)
    assert len(world.succeeded()) == 6
    assert limit is None or most <= limit


def draw(world: World, seed: int) -> list[str]:
    """Jobs of all kinds, with and without disk."""
    rng = random.Random(seed)
    names = []
    for number in range(12):
        name, at = f"j{number}", rng.uniform(0, 60)
        disk, minutes = rng.choice((0, 0, 20, 50, 120)), rng.uniform(2, 25)
        kind = rng.choice(("one", "gang", "array", "elastic", "forks"))
        more: dict[str, object] = {"cpus": rng.choice((1, 2, 3)), "priority": rng.choice((0, 0, 3))}
        match kind:
            case "gang":
                more |= {"tasks": 2, "kind": JobKind.GANG}
            case "array":
                more |= {"tasks": 5, "kind": JobKind.ARRAY, "array": ArrayRules(concurrency=3)}
            case "elastic":
                more |= {"tasks": 3, "kind": JobKind.GANG, "elastic": ElasticGang(least=1)}
            case "forks":
                more |= {"forking": ForkRules(1)}
        world.add(name, disk, minutes, at, **more)
        names.append(name)
    return names


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", WHOLE if NEW else TRIED)
def test_jobs_of_all_kinds_have_their_disk(policy: str, seed: int) -> None:
    world = World(policy, sold(4), sold(8))
    names = draw(world, seed)
    assert world.play(48)
    assert world.succeeded() == sorted(names)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["cloudcoaster/eva", "slearn/eva", "cloudcoaster/stratus"])
def test_members_of_pools_have_the_disk_of_their_lines(policy: str, seed: int) -> None:
    world = World(policy, sold(4), sold(8))
    rng = random.Random(seed)
    for number in range(10):
        disk, minutes = rng.choice((0, 20, 50)), rng.choice((1, 3, 30))
        kind = rng.choice((JobKind.ARRAY, JobKind.GANG))
        tasks = rng.choice((1, 4)) if kind is JobKind.ARRAY else 1
        world.add(f"j{number}", disk, minutes, rng.uniform(0, 40), kind=kind, tasks=tasks)

    def done() -> bool:
        world.look()
        return len(world.succeeded()) == 10  # pools stay

    assert world.run(done, limit_ms=24 * HOUR_MS)


@pytest.mark.parametrize("policy", TRIED)
def test_a_restarted_master_knows_the_disks(policy: str) -> None:
    world = World(policy, sold(8))
    world.add("first", 100, 60)
    world.add("second", 80, 10, at_min=20)
    world.add("third", 20, 10, at_min=40)
    for at_min in (0.05, 0.5, 10, 20.05, 30):
        world.timeline.after(round(at_min * MINUTE_MS) - world.timeline.now(), world.restart)
    assert world.play()
    assert world.succeeded() == ["first", "second", "third"]
    assert world.sizes[InstanceId("i00001")] == 100 * GIB


@pytest.mark.parametrize("policy", TRIED)
def test_an_emptied_instance_is_no_replacement_for_one_with_more_disk(policy: str) -> None:
    world = World(policy, sold(4))
    for number in range(6):
        world.add(f"j{number}", (0, 60, 30)[number % 3], 4, at_min=4.2 * number, cpus=4)
    assert world.play()
    assert len(world.succeeded()) == 6


def test_a_job_that_fits_no_volume_waits_with_words() -> None:
    """A limit that was lowered after the job was accepted; a new job would be refused."""
    world = World("eva", sold(4))
    world.add("vast", MOST // GIB + 1, 5)
    assert not world.play(1)
    (run,) = world.state.members(world.named("vast"))
    assert "1001 GiB of disk" in run.waiting_for


@pytest.mark.parametrize(
    ("cpus", "disk", "expected"), [(2, 50, 200), (8, 50, 50), (1, 300, 1_000), (2, 0, 0)]
)
def test_a_member_of_a_pool_has_the_disk_of_as_many_tasks_as_it_has_room_for(
    cpus: int, disk: int, expected: int
) -> None:
    """As many as it has vCPUs for, and no more than a volume may have."""
    world = World("eva", sold(8))
    world.submit(world.job("short", disk, 1, cpus=cpus, kind=JobKind.ARRAY, tasks=20))
    world.run(lambda: bool(world.state.jobs), limit_ms=1_000)
    (job,) = world.state.jobs
    decision = replace(
        NOTHING_DECIDED,
        launches=(NewInstance(0, sold(8)),),
        pools=(Pool("short", (0,), "short jobs"),),
        lines=(Line(("short",), (job,)),),
    )
    assert disks_of_launches(world.state, decision)[0] == expected * GIB


@pytest.mark.parametrize("policy", TRIED)
def test_a_task_that_lacks_disk_alone_says_where(policy: str) -> None:
    world = World(policy, sold(8, limit=1))
    world.add("first", 100, 60)
    world.add("second", 80, 10, at_min=10)
    world.timeline.after(20 * MINUTE_MS, lambda: None)
    assert world.run(lambda: world.timeline.now() >= 20 * MINUTE_MS, limit_ms=HOUR_MS)
    (run,) = world.state.members(world.named("second"))
    (instance,) = world.state.live
    assert "limit of c.8" in run.waiting_for
    words = f"on {instance} it would fit but for the disk, of which 0 GiB are left"
    assert words in run.waiting_for


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("policy", ["cloudcoaster/eva", "slearn/eva", "cloudcoaster/stratus"])
def test_a_task_with_more_disk_than_the_members_of_a_pool_gets_a_place(
    policy: str, limit: int | None
) -> None:
    world = World(policy, sold(4, limit))
    for number in range(40):
        array = {"kind": JobKind.ARRAY, "tasks": 4}
        world.add(f"small{number}", 5, 1, at_min=number, **array)
    world.add("large", 300, 2, at_min=10.5)
    world.add("late", 300, 2, at_min=90)

    def done() -> bool:
        world.look()
        return len(world.succeeded()) == 42  # pools stay

    assert world.run(done, limit_ms=24 * HOUR_MS)
    ended = {job.spec.name: job.finished_ms or 0 for job in world.state.jobs.values()}
    assert ended["large"] < ended["late"]
