"""HadarE's corollary: no node is idle after a plan as long as there is work."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.building import build_policy
from eva_master.app.sections.policies import forking_by
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.fleet.forking import Forking
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.forks.merging import NOT_BEGUN
from eva_master.model.job import ForkRules, JobSpec, Program, Restarts, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, Price, RunId, Workload
from eva_wire.values.states import TERMINAL_RUN, JobState
from tests.drawing import drawn

ROUND_MS = 60_000
TYPES = ("v", "p", "k")
DELAYS = EqualDelays(fetch_ms=0, start_ms=2_000, stop_ms=1_000, report_ms=10_000)


@dataclass(frozen=True, slots=True)
class Mix:
    """A fleet, and jobs that are all there at the beginning.

    Attributes:
        nodes: The type of each node, and how many GPUs it has.
        jobs: Speeds on the types in steps per second, and for how many seconds each trains on the
            fastest of them.
        merge_ms: What a merge takes.
    """

    nodes: list[tuple[str, int]]
    jobs: list[tuple[tuple[int, ...], int]]
    merge_ms: int


mixes = st.builds(
    Mix,
    nodes=st.lists(
        st.tuples(st.sampled_from(TYPES), st.sampled_from([1, 1, 2])), min_size=1, max_size=6
    ),
    jobs=st.lists(
        st.tuples(st.tuples(*[st.integers(1, 20)] * len(TYPES)), st.integers(10, 600)),
        min_size=1,
        max_size=7,
    ),
    merge_ms=st.sampled_from([0, 1_000, 20_000]),
)


def _nodes(mix: Mix) -> dict[InstanceId, OwnedNode]:
    found = {}
    for number, (family, gpus) in enumerate(mix.nodes):
        room = Resources(gpus, 1_000 * gpus, 1_024 * gpus)
        kind = InstanceType(f"{family}.{gpus}", Family(family), room)
        sold = Offering(kind, Price(100_000), zone="nodes", purchase=Purchase.OWNED)
        name = InstanceId(f"n-{number}")
        found[name] = OwnedNode(name, sold, 180_000)
    return found


def _spec(number: int, speeds: tuple[int, ...], seconds: int) -> JobSpec:
    need = Resources(1, 1_000, 1_024)
    task = TaskSpec(
        Workload(f"w{number}"),
        Program("true"),
        tuple((Family(it), need) for it in TYPES),
        tuple((Family(it), speed * 1_000_000) for it, speed in zip(TYPES, speeds, strict=True)),
    )
    steps = seconds * max(speeds)
    return JobSpec(
        f"job{number}",
        "me",
        (task,),
        kind=JobKind.ARRAY,
        total_steps=steps,
        duration_ms=1_000 * seconds,
        restarts=Restarts(checkpoint_ms=0, launch_ms=2_000),
        forking=ForkRules(forks=2),
    )


def _cluster(mix: Mix) -> SimulatedCluster:
    section = OnePolicySection(
        name="hadar_published:hadare", options={"round_gap_s": ROUND_MS // 1000}
    )
    forking = forking_by(section)
    assert forking == Forking(ROUND_MS)

    def speed(run: RunId, family: Family) -> float:
        number = int(run.removeprefix("job").partition("-")[0])
        return float(mix.jobs[number][0][TYPES.index(family)])

    options = {"round_gap_s": ROUND_MS // 1000, "lease_s": ROUND_MS // 1000}
    return SimulatedCluster(
        (),
        build_policy("hadar_published:hadare", options),
        settings=Settings(
            nodes=_nodes(mix),
            round_gap_ms=ROUND_MS,
            partitions=Partitions(whole=Partition(default=True, forking=forking)),
        ),
        delays=DELAYS,
        # A fork is told when to stop.
        work_of=lambda _: Work(10**12, steps_per_s=1.0, tells_total=False),
        speed_of=speed,
        latency_ms=0,
        merge_ms=mix.merge_ms,
    )


def _idle(cluster: SimulatedCluster) -> set[str]:
    runs = cluster.state.runs
    places = {runs[it].target for it in runs if runs[it].state not in TERMINAL_RUN}
    return {name for name in cluster.state.live if name not in places}


def _left(cluster: SimulatedCluster) -> bool:
    """Whether any step is still to be done."""
    jobs = (cluster.state.jobs[it] for it in cluster.state.active)
    return any((it.merging or NOT_BEGUN).steps < (it.spec.total_steps or 0) for it in jobs)


@given(mix=mixes)
@drawn(30)
def test_no_node_is_without_a_copy_of_some_job_after_a_plan(mix: Mix) -> None:
    cluster = _cluster(mix)
    cluster.run(lambda: cluster.timeline.now() > 2 * ROUND_MS)
    for number, (speeds, seconds) in enumerate(mix.jobs):
        cluster.submit(_spec(number, speeds, seconds))
    cluster.run(lambda: len(cluster.state.active) == len(mix.jobs))
    seen = len(cluster.journal.rounds)

    def over() -> bool:
        nonlocal seen
        rounds = len(cluster.journal.rounds)
        if rounds > seen:
            seen = rounds
            assert not _idle(cluster) or not _left(cluster)
        return cluster.quiet()

    assert cluster.run(over, limit_ms=86_400_000)
    for job in cluster.state.jobs.values():
        assert job.state is JobState.SUCCEEDED
        if len(mix.nodes) > 1:
            assert job.spec.forking.forks == len(mix.nodes)
            assert job.merging is not None
            assert job.merging.steps == job.spec.total_steps
