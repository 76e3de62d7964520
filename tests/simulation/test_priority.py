"""Where what can be bought is limited, a large urgent job gets the room that becomes free first."""

from __future__ import annotations

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import CancelRequested
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Price, RunId, Workload
from eva_wire.values.states import JobState, RunState
from tests.fakes.policies.whole import TRIED

POLICIES = TRIED
QUICK = ("eva", "hadar", "no_packing")
LONG = [it if it in QUICK else pytest.param(it, marks=pytest.mark.long) for it in POLICIES]
"""The others take long to say the same."""
IN_TURNS = {name for name, kind in policies().items() if kind.time_shares}
MINUTE_MS = 60_000
BOOT_MS = 70_000
NEVER_MS = 10**15
SLACK_MS = BOOT_MS + 40_000
"""A boot, rounds, starts and stops."""
DELAYS = EqualDelays(fetch_ms=0, start_ms=1_000, stop_ms=1_000, report_ms=5_000)
C, D = Family("c"), Family("d")


def sold(family: Family, cpus: int, limit: int | None) -> Offering:
    size = Resources(0, cpus * 1000, cpus * 2048)
    kind = InstanceType(f"{family}.{cpus}", family, size, acquisition_ms=10_000, setup_ms=60_000)
    return Offering(kind, Price(cpus * 50_000), limit=limit)


class World(SimulatedCluster):
    """A cluster with a stream of small jobs of no priority.

    Args:
        told: Whether jobs state how long they take.
    """

    def __init__(self, policy: str, *catalog: Offering, told: bool = False) -> None:
        kind = policies()[policy]
        self._minutes: dict[str, float] = {}
        self._told = told
        super().__init__(
            catalog,
            kind.build(kind.config()),
            settings=Settings(),
            delays=DELAYS,
            work_of=lambda run: Work(self._minutes[run.rsplit("-", 1)[0]] * MINUTE_MS),
        )

    def job(
        self,
        name: str,
        cpus: int,
        minutes: float,
        *,
        at_min: float = 0,
        tasks: int = 1,
        priority: int = 0,
        families: tuple[Family, ...] = (C,),
        kind: JobKind = JobKind.GANG,
    ) -> None:
        self._minutes[name] = minutes
        demand = tuple((family, Resources(0, cpus * 1000, 1024)) for family in families)
        task = TaskSpec(Workload("w"), Program("true"), demand)
        spec = JobSpec(
            name,
            "me",
            (task,) * tasks,
            kind=kind,
            priority=priority,
            duration_ms=round(minutes * MINUTE_MS) if self._told else None,
        )
        self.timeline.after(
            round(at_min * MINUTE_MS) - self.timeline.now(), lambda: self.submit(spec)
        )

    def stream(self, *, every_min: float, minutes: float, until_min: float = 42) -> None:
        for number in range(int(until_min / every_min)):
            self.job(f"s{number}", 1, minutes, at_min=number * every_min)

    def play(self, until_min: float) -> None:
        until_ms = round(until_min * MINUTE_MS)
        self.timeline.after(until_ms - self.timeline.now(), lambda: None)
        self.run(lambda: self.timeline.now() >= until_ms)

    def named(self, name: str) -> JobId:
        return next(job.id for job in self.state.jobs.values() if job.spec.name == name)

    def entered(self, name: str) -> bool:
        """Whether all its tasks run, or have."""
        known = {job.spec.name for job in self.state.jobs.values()}
        return name in known and self.started_ms(name) < NEVER_MS

    def started_ms(self, name: str) -> int:
        """When all its tasks first ran."""
        started = [self._entered(run.history) for run in self.state.members(self.named(name))]
        return max(started)

    @staticmethod
    def _entered(history: tuple[tuple[str, int], ...]) -> int:
        return next((at for state, at in history if state == RunState.RUNNING.value), NEVER_MS)

    def residents_end_ms(self) -> list[int]:
        """When each instance would be empty if nobody came any more."""
        ends = []
        for name in self.state.live:
            runs = self.state.places.targeting(name)
            ends.append(
                max(
                    self._entered(run.history)
                    + round(self._minutes[self.state.jobs[run.job].spec.name] * MINUTE_MS)
                    for run in runs
                )
            )
        return sorted(ends)


@pytest.mark.parametrize(
    ("limit", "told", "policy"),
    [
        *((3, False, policy) for policy in QUICK),
        *(
            pytest.param(3, False, policy, marks=pytest.mark.long)
            for policy in POLICIES
            if policy not in QUICK
        ),
        (1, False, "eva"),
        (1, True, "eva"),
        pytest.param(3, True, "eva", marks=pytest.mark.explore),
    ],
)
def test_it_starts_as_soon_as_enough_can_have_been_freed(
    limit: int, told: bool, policy: str
) -> None:
    world = World(policy, sold(C, 4, limit), told=told)
    world.stream(every_min=10 / (5 * limit), minutes=10)
    world.job("large", 4, 10, at_min=30.1, priority=5)
    world.play(30)
    assert len(world.state.live) == limit
    first = world.residents_end_ms()[0]
    assert world.run(lambda: world.entered("large"), limit_ms=60 * MINUTE_MS)
    assert world.started_ms("large") <= first + SLACK_MS
    # Nobody was stopped for it, and the others go on.
    for run in world.state.runs.values() if policy not in IN_TURNS else ():
        assert run.attempt == run.moves + 1 or run.state is RunState.WAITING
    ended = world.state.counters.completions
    assert world.run(lambda: world.state.counters.completions > ended + 5 * limit)


@pytest.mark.parametrize("policy", LONG)
def test_an_urgent_gang_gets_all_that_it_needs(policy: str) -> None:
    world = World(policy, sold(C, 4, 3))
    world.stream(every_min=10 / 15, minutes=10)
    world.job("large", 4, 10, at_min=30.1, tasks=2, priority=5)
    world.play(30)
    second = world.residents_end_ms()[1]
    assert world.run(lambda: world.entered("large"), limit_ms=60 * MINUTE_MS)
    assert world.started_ms("large") <= second + SLACK_MS


@pytest.mark.parametrize("policy", POLICIES)
def test_who_cannot_use_what_is_reserved_is_not_held_up(policy: str) -> None:
    world = World(policy, sold(C, 4, 1), sold(D, 2, None))
    world.job("long", 1, 60)
    world.job("large", 4, 10, at_min=5, priority=5)
    for number in range(5):
        world.job(f"d{number}", 1, 1, at_min=6 + number, families=(D,))
        world.job(f"both{number}", 1, 1, at_min=6 + number, families=(C, D))
        world.job(f"c{number}", 1, 1, at_min=6 + number)
    world.play(30)
    for number in range(5):
        for name in ("d", "both"):
            assert world.state.jobs[world.named(f"{name}{number}")].state is JobState.SUCCEEDED
        waits = next(world.state.members(world.named(f"c{number}")))
        assert waits.state is RunState.WAITING
        assert "large-2" in waits.waiting_for
        assert "priority" in waits.waiting_for
    told = next(world.state.members(world.named("large"))).waiting_for
    assert "limit of c.4" in told
    assert "kept for it" in told
    world.play(200)
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)
    assert world.started_ms("large") < world.started_ms("c0")


def test_of_several_instances_that_first_is_kept_which_is_free_first() -> None:
    """If it is known when tasks end; the stream goes on everywhere else."""
    world = World("eva", sold(C, 4, 4), told=True)
    for number, minutes in enumerate((60, 20, 50, 55)):
        world.job(f"base{number}", 3, minutes)
    world.play(2)
    world.job("large", 4, 10, at_min=3, priority=5)
    for number in range(10):
        world.job(f"s{number}", 1, 3, at_min=4 + number)
    world.play(19)
    small = [world.state.jobs[world.named(f"s{number}")].state for number in range(10)]
    assert small[:9] == [JobState.SUCCEEDED] * 9, "three instances have room for one each"
    world.play(30)
    assert world.started_ms("large") <= 22 * MINUTE_MS + SLACK_MS


@pytest.mark.parametrize("policy", POLICIES)
def test_two_urgent_ones_and_one_that_is_less_so_come_in_order(policy: str) -> None:
    world = World(policy, sold(C, 4, 1))
    world.job("now", 1, 10)
    world.job("low", 4, 5, at_min=1, priority=1)
    world.job("high", 4, 5, at_min=2, priority=9)
    world.job("none", 3, 5, at_min=3)
    world.job("middle", 3, 5, at_min=4, priority=5)
    assert world.run(lambda: world.timeline.now() > 5 * MINUTE_MS and world.quiet())
    order = sorted(("low", "high", "none", "middle"), key=world.started_ms)
    assert order == ["high", "middle", "low", "none"]


@pytest.mark.parametrize("policy", POLICIES)
def test_where_nothing_is_limited_nobody_waits(policy: str) -> None:
    world = World(policy, sold(C, 4, None))
    world.stream(every_min=1, minutes=5, until_min=20)
    world.job("large", 4, 10, at_min=10, priority=5)
    assert world.run(lambda: world.timeline.now() > 11 * MINUTE_MS)
    world.play(40)
    for job in world.state.jobs.values():
        for run in world.state.members(job.id):
            assert world.started_ms(job.spec.name) - job.submitted_ms <= SLACK_MS, run


def test_a_cancelled_urgent_job_keeps_nothing() -> None:
    world = World("eva", sold(C, 4, 1))
    world.job("long", 1, 60)
    world.job("large", 4, 10, at_min=5, priority=5)
    world.job("small", 1, 1, at_min=6)
    world.play(8)
    assert world.state.runs[RunId("small-3/0")].state is RunState.WAITING
    world.inbox.post(CancelRequested("c", world.named("large")))
    world.play(10)
    assert world.state.jobs[world.named("small")].state is JobState.SUCCEEDED
