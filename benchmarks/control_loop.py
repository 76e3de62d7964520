"""How fast the control loop handles a simulated cluster.

Run as `python -m benchmarks.control_loop [--jobs N] [--many-jobs N] [--profile N] [--json]`. The
production loop runs on virtual time between simulated adapters, with interference among tasks and
one job arriving every 40 virtual seconds, until every job has ended and the cloud is empty. Each
policy gets the same jobs. The policy's own time is shown separately, since it runs in another
process in production. All times are processor time, so that a busy machine changes them little.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Figures, options, publish, surroundings
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.catalog import load_catalog
from eva_master.app.sections.building import build_policy
from eva_master.control.settings import Settings
from eva_master.model.events import Event
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLIS_PER_HOUR, Family, Millis, Workload

POLICIES = ("no_packing", "eva")
_ARRIVAL_MS = 40_000
_MIB_PER_GIB = 1024
_SEED = 20
_NOT_THE_POLICY = r"eva_master/(control|simulation|model|learning)|dataclasses|enum|built-in"


class TimedPolicy:
    """Wraps a policy and sums its planning time.

    Attributes:
        name: The policy's name.
        seconds: Processor time spent planning.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name
        self.seconds = 0.0

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        start = time.thread_time()
        try:
            return self._policy.plan(snapshot, memory)
        finally:
            self.seconds += time.thread_time() - start


@dataclass
class Tally:
    """Counts the events that the loop handles."""

    events: int = 0


def measure(policy: str, jobs: int) -> Figures:
    """Run a cluster's whole life.

    Args:
        policy: The policy.
        jobs: Number of jobs, at least one.
    """
    planning = TimedPolicy(build_policy(policy, {}))
    world, tally = _world(planning, jobs)
    start = time.thread_time()
    finished = world.run(lambda: _over(world, jobs), limit_ms=365 * 24 * MILLIS_PER_HOUR)
    elapsed = time.thread_time() - start
    assert finished, "the jobs never ended"
    loop_s = elapsed - planning.seconds
    hours = world.timeline.now() / MILLIS_PER_HOUR
    return {
        "jobs": jobs,
        "events": tally.events,
        "commits": world.journal.commits,
        "rounds": len(world.journal.rounds),
        "instances": len(world.state.instances),
        "virtual_hours": round(hours, 1),
        "loop_s": round(loop_s, 2),
        "policy_s": round(planning.seconds, 2),
        "events_per_s": round(tally.events / loop_s),
        "virtual_hours_per_s": round(hours / elapsed, 2),
    }


def _over(world: SimulatedCluster, jobs: int) -> bool:
    return world.state.counters.completions == jobs and world.quiet()


def _world(policy: TimedPolicy, jobs: int) -> tuple[SimulatedCluster, Tally]:
    catalog = load_catalog()
    families = sorted({offering.type.family for offering in catalog})
    world = SimulatedCluster(catalog, policy, settings=Settings(), truth=_truth)
    tally = Tally()
    post = world.inbox.post

    def counted(event: Event) -> None:
        tally.events += 1
        post(event)

    world.inbox.post = counted  # type: ignore[method-assign]
    choose = random.Random(_SEED)
    for number in range(jobs):
        world.submit(_job(choose, number, families), at=Millis(number * _ARRIVAL_MS))
    return world, tally


def _truth(_workload: Workload, others: tuple[Workload, ...]) -> float:
    """Each neighbour takes three per cent."""
    return float(0.97 ** len(others))


def _job(choose: random.Random, number: int, families: Sequence[Family]) -> JobSpec:
    """A gang of one or two tasks that runs alone for half an hour to two hours."""
    gpus = choose.choice((0, 0, 1, 4))
    cpus, gib = choose.choice((1, 2, 4, 8)), choose.choice((2, 4, 8, 16, 24))
    need = Resources(gpus, cpus * 1000, gib * _MIB_PER_GIB)
    task = TaskSpec(
        Workload(f"workload-{choose.randrange(8)}"),
        Program("true"),
        tuple((family, need) for family in families),
    )
    return JobSpec(
        name=f"job-{number}",
        owner="bench",
        tasks=(task,) * choose.choice((1, 1, 1, 2)),
        kind=JobKind.GANG,
        duration_ms=choose.randrange(1_800_000, 7_200_000),
    )


def _profile(jobs: int) -> None:
    """Print where the time of the loop goes, by function."""
    profile = cProfile.Profile()
    profile.runcall(measure, POLICIES[-1], jobs)
    pstats.Stats(profile).sort_stats("tottime").print_stats(_NOT_THE_POLICY, 40)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; there is no goal to miss."""
    chosen = options(__doc__, arguments, jobs=200, many_jobs=2000, profile=0)
    if chosen.profile:
        _profile(chosen.profile)
        return 0
    figures: Figures = {"surroundings": surroundings()}
    for jobs in (chosen.jobs, chosen.many_jobs):
        for policy in POLICIES:
            figures[f"{policy}/{jobs}"] = measure(policy, jobs)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
