"""Random small clusters of partitions that share a limit: fair turns, and nothing stands still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import example, given
from hypothesis import strategies as st

from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Limits, Settings
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import Millis
from tests.drawing import drawn
from tests.fakes.jobs import LARGE, job

MINUTE_MS = 60_000
ROUND_MS = 5_000
BOOT_MS = 80_000
"""From the order of an instance to the start of a task there, with its end of the last one."""
GATHERED_MS = 30 * MINUTE_MS
"""A gang that has waited for longer lets others pass for a while."""


@dataclass(frozen=True, slots=True)
class Come:
    """A job that comes: `tasks` whole instances, together or one by one."""

    at_s: int
    partition: int
    tasks: int
    gang: bool
    priority: int
    minutes: int


@dataclass(frozen=True, slots=True)
class World:
    """A cluster of some partitions, which share one limit."""

    kind: str
    most: int
    policies: tuple[str, ...]
    coming: tuple[Come, ...]
    grid_s: int = 0
    restart_s: int | None = None


comings = st.builds(
    Come,
    at_s=st.integers(0, 600),
    partition=st.integers(0, 2),
    tasks=st.integers(1, 3),
    gang=st.booleans(),
    priority=st.sampled_from([0, 0, 0, 5, 9]),
    minutes=st.integers(1, 8),
)
worlds = st.builds(
    World,
    kind=st.sampled_from(["offering", "instances", "user", "cloud"]),
    most=st.integers(1, 3),
    policies=st.lists(st.sampled_from(["eva", "no_packing", "fifo"]), min_size=2, max_size=3).map(
        tuple
    ),
    coming=st.lists(comings, min_size=3, max_size=9).map(tuple),
    grid_s=st.sampled_from([0, 0, 60]),
    restart_s=st.none() | st.integers(60, 1_200),
)


def cluster(world: World) -> SimulatedCluster:
    names = [f"p{number}" for number in range(len(world.policies))]
    parts = [
        Partition(name, default=not number, round_grid_ms=1_000 * world.grid_s * (number == 1))
        for number, name in enumerate(names)
    ]
    limits = {
        "instances": Limits(instances=world.most),
        "user": Limits(instances_per_user=world.most),
    }
    catalog = (replace(LARGE, limit=world.most if world.kind == "offering" else None),)
    lasting: dict[str, int] = {}
    simulated = SimulatedCluster(
        catalog,
        {name: named_policy(it)[0] for name, it in zip(names, world.policies, strict=True)},
        settings=Settings(
            partitions=Partitions(tuple(parts)),
            limits=limits.get(world.kind, Limits()),
            round_gap_ms=ROUND_MS,
        ),
        work_of=lambda run: Work(lasting[run.partition("-")[0]] * MINUTE_MS),
    )
    if world.kind == "cloud":
        simulated.cloud.sold_out = lambda _: len(simulated.cloud.existing()) >= world.most
    for number, coming in enumerate(world.coming):
        tasks = min(coming.tasks, world.most) if coming.gang else coming.tasks
        lasting[f"j{number}"] = coming.minutes
        spec = job(
            f"j{number}",
            *[8] * tasks,
            array=not coming.gang,
            minutes=coming.minutes,
            priority=coming.priority,
            partition=names[coming.partition % len(names)],
        )
        simulated.submit(spec, at=Millis(1_000 * coming.at_s))
    return simulated


def longest_ms(world: World) -> int:
    """The time of running every task one after the other, each with a boot and some rounds.

    A launch that the cloud refuses is tried again after minutes. A gang may gather for a while.
    """
    tries = 10 * MINUTE_MS if world.kind == "cloud" else 0
    each = BOOT_MS + 3 * max(ROUND_MS, 1_000 * world.grid_s) + tries
    tasks = sum(it.tasks * (it.minutes * MINUTE_MS + each) for it in world.coming)
    return 1_000 * max(it.at_s for it in world.coming) + tasks + GATHERED_MS


TRIED_BEFORE = World(
    "cloud",
    1,
    ("eva", "fifo", "eva"),
    (
        Come(59, 0, 1, gang=False, priority=5, minutes=5),
        Come(125, 2, 1, gang=False, priority=0, minutes=6),
        Come(22, 2, 1, gang=False, priority=9, minutes=3),
        Come(1, 0, 1, gang=False, priority=5, minutes=8),
        Come(266, 2, 1, gang=False, priority=0, minutes=8),
        Come(493, 1, 1, gang=False, priority=0, minutes=8),
        Come(200, 0, 2, gang=False, priority=0, minutes=1),
    ),
)
"""An instance empties when the cloud has just refused one for the task that is next."""
BETWEEN_TRIES = World(
    "cloud",
    3,
    ("no_packing", "eva"),
    (
        Come(312, 2, 2, gang=True, priority=9, minutes=6),
        Come(322, 0, 2, gang=True, priority=9, minutes=8),
        Come(349, 1, 2, gang=False, priority=0, minutes=7),
        Come(520, 0, 1, gang=False, priority=0, minutes=6),
        Come(541, 1, 3, gang=False, priority=0, minutes=7),
    ),
)
"""Two instances empty while nothing may be tried: one is for a gang, the other for the next."""


@example(TRIED_BEFORE)
@example(BETWEEN_TRIES)
@drawn(30)
@given(worlds)
def test_nobody_waits_behind_younger_equals_of_another_partition(world: World) -> None:
    simulated = cluster(world)
    limit_ms = longest_ms(world)
    if world.restart_s is not None:
        until = 1_000 * world.restart_s
        simulated.run(lambda: simulated.timeline.now() >= until, limit_ms=until)
        simulated.restart()
    assert simulated.run(simulated.quiet, limit_ms=limit_ms), "nothing stands still"
    # A restart forgets what the cloud refused.
    forgetful = world.kind == "cloud" and world.restart_s is not None
    assert forgetful or not list(overtakings(simulated, world))


def overtakings(simulated: SimulatedCluster, world: World) -> Iterator[str]:
    """Tasks that began long before an older equal, or a more urgent one, of another partition."""
    state = simulated.state
    slack = BOOT_MS + 2 * max(ROUND_MS, 1_000 * world.grid_s)
    if world.kind == "cloud":
        slack += 5 * MINUTE_MS
    began = [(state.jobs[run.job], began_ms(run)) for run in state.runs.values()]
    refused = [
        (it.partition, it.requested_ms) for it in state.instances.values() if it.up_ms is None
    ]
    for waiting, at in began:
        gang = waiting.is_gang and len(waiting.spec.tasks) > 1
        if gang and at - waiting.submitted_ms > GATHERED_MS:
            continue
        passing = [
            (other, earlier)
            for other, earlier in began
            if earlier + slack < at and comes_first(waiting, other, earlier - slack)
        ]
        if any(other.partition == waiting.partition for other, _ in passing):
            continue  # Its own policy prefers others to it.
        for other, earlier in passing:
            if raced(refused, waiting.partition, earlier):
                continue
            yield f"{waiting.id} began at {at}, and {other.id} at {earlier}: {world}"


def raced(refused: list[tuple[str, Millis]], partition: str, began: int) -> bool:
    """Whether the cloud refused a partition an instance as it let another have one.

    After a success it is asked for two at a time, and may let the second have the last one.
    """
    return any(
        name == partition and abs(began - BOOT_MS - at) <= 3 * ROUND_MS for name, at in refused
    )


def comes_first(waiting: Job, other: Job, ordered_ms: int) -> bool:
    """Whether a job was there when an instance for another was ordered that comes after it."""
    if waiting.submitted_ms > ordered_ms or waiting.spec.priority < other.spec.priority:
        return False
    return waiting.spec.priority > other.spec.priority or waiting.submitted_ms < other.submitted_ms


def began_ms(run: TaskRun) -> int:
    return next((at for state, at in run.history if state == "starting"), 0)
