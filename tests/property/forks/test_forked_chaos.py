"""Forked jobs while forks, leaders, nodes and the master die, and messages get lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_master.app.policy_registry import policies
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.forks.merging import MergeRule, Merging
from eva_master.model.job import ForkRules, JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Price, RunId, Workload
from eva_wire.values.states import JobState, RunState
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld

CHAOS_MS = 1_200_000
MERGE_MS = 3_000
SPEEDS = {"a": 5.0, "b": 1.0}
DELAYS = EqualDelays(fetch_ms=1_000, start_ms=1_000, stop_ms=2_000, report_ms=10_000)


@dataclass(frozen=True, slots=True)
class Story:
    """What is submitted, and what goes wrong."""

    seed: int
    jobs: list[tuple[int, int, int]]
    """When each job comes, how many forks it may have and how many steps it does."""
    policy: str
    trouble: float
    fuses: list[int]
    cuts: list[tuple[int, int, int]]
    outages: list[tuple[int, int, int]]
    stalls: list[tuple[int, int]]
    """When merges begin to take long, and how long they take until the next of these."""


times = st.integers(0, CHAOS_MS // 1000).map(lambda it: it * 1000)
stories = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    jobs=st.lists(
        st.tuples(times, st.sampled_from([1, 2, 4, 6]), st.integers(1, 4_000)),
        min_size=1,
        max_size=4,
    ),
    policy=st.sampled_from(["fifo", "capricious"]),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(10, 300), max_size=6),
    cuts=st.lists(st.tuples(times, st.integers(0, 9), st.integers(0, 300_000)), max_size=4),
    outages=st.lists(st.tuples(times, st.integers(0, 9), st.integers(0, 300_000)), max_size=4),
    stalls=st.lists(st.tuples(times, st.sampled_from([1_000, 60_000, 940_000])), max_size=3),
)


def _node(number: int) -> OwnedNode:
    family = "ab"[number % 2]
    kind = InstanceType(f"{family}.2", Family(family), Resources(0, 2_000, 4_096))
    sold = Offering(kind, Price(100_000), zone="nodes", purchase=Purchase.OWNED)
    return OwnedNode(InstanceId(f"n-{number}"), sold, 180_000)


def _spec(number: int, forks: int, steps: int) -> JobSpec:
    need = Resources(0, 1_000, 1_024)
    rates = tuple((Family(it), int(rate * 1_000_000)) for it, rate in sorted(SPEEDS.items()))
    demand = tuple((Family(it), need) for it in sorted(SPEEDS))
    task = TaskSpec(Workload(f"w{number}"), Program("true"), demand, rates)
    kind = JobKind.ARRAY if forks > 1 else JobKind.GANG
    rule = MergeRule(every_ms=30_000)
    return JobSpec(
        f"job{number}",
        "me",
        (task,),
        kind,
        total_steps=steps,
        duration_ms=steps * 200,
        forking=ForkRules(forks=forks, merge=rule),
    )


def _world(story: Story) -> ChaoticWorld:
    nodes = {it.name: it for it in map(_node, range(4))}
    fifo = policies()["fifo"]
    world = ChaoticWorld(
        (),
        fifo.build(fifo.config())
        if story.policy == "fifo"
        else CapriciousPolicy(story.seed, CHAOS_MS),
        seed=story.seed,
        trouble=story.trouble,
        fuses=story.fuses,
        settings=Settings(nodes=nodes),
        delays=DELAYS,
        work_of=lambda run: Work(_total_ms(world, run), steps_per_s=1.0),
        speed_of=lambda _run, family: SPEEDS[family],
        merge_ms=MERGE_MS,
    )
    for number, (at, forks, steps) in enumerate(story.jobs):
        world.submit(_spec(number, forks, steps), at)  # type: ignore[arg-type]
    for at, index, back in story.cuts:
        world.timeline.after(at, lambda i=index, b=back: _hit(world, i, b, "cut"))
    for at, index, back in story.outages:
        world.timeline.after(at, lambda i=index, b=back: _hit(world, i, b, "outage"))
    for at, long in story.stalls:
        world.timeline.after(at, lambda ms=long: setattr(world.workers, "merge_ms", ms))
    return world


def _total_ms(world: ChaoticWorld, run: RunId) -> float:
    spec = world.state.jobs[JobId(run.rpartition("/")[0])].spec
    return (spec.total_steps or 0) * 1000.0


def _hit(world: ChaoticWorld, index: int, back: int, what: str) -> None:
    victim = InstanceId(f"n-{index % 4}")
    getattr(world.workers, what)(victim, back)


@dataclass
class Store:
    """The merges that the master took, by job and epoch, as their digests tell of them."""

    merges: dict[tuple[JobId, int], str] = field(default_factory=dict)
    counted: dict[JobId, int] = field(default_factory=dict)
    """The steps of each job once its last merge was taken."""

    def look(self, job: JobId, now: Merging) -> None:
        if now.merged and (job, now.merged) not in self.merges:
            self.merges[job, now.merged] = now.digest
            self.counted[job] = now.steps
        assert not now.merged or self.merges[job, now.merged] == now.digest

    def steps(self, job: JobId) -> int:
        """The steps in the merges of a job, each of whose parts was trained from the one before."""
        base, total = "", 0
        for epoch in range(1, 1 + sum(it == job for it, _ in self.merges)):
            name, _, what = self.merges[job, epoch].partition(":")
            assert name.startswith(f"{epoch}.")
            parts = [it.partition("@") for it in what.split("+")]
            assert [it for *_, it in parts] == [base] * len(parts)
            forks = [it.split(".")[0] for it, *_ in parts]
            assert len(forks) == len(set(forks))
            total += sum(int(it.split(".")[2]) for it, *_ in parts)
            base = name
        return total


def _look(world: ChaoticWorld, seen: Counter[str], store: Store) -> None:
    places: defaultdict[JobId, list[str]] = defaultdict(list)
    for name, where in world.workers.running().items():
        assert len(where) == 1, f"{name} runs on {where}"
        run = world.state.runs[name]
        places[run.job] += [] if run.target is None else [run.target]  # else it leaves
    for job_name, where in places.items():
        assert len(where) == len(set(where)), f"{job_name} has two runs in one place"
    for active in world.state.active:
        job = world.state.jobs[active]
        merging = job.merging
        if merging is None:
            continue
        store.look(active, merging)
        promised = sum(it.steps for it in merging.shares) + sum(it.steps for it in merging.parts)
        assert merging.steps + promised <= (job.spec.total_steps or 0)
        seen["epochs"] = max(seen["epochs"], merging.merged)
        seen["several"] += len(merging.shares) > 1
        for _, attempt in world.workers.attempts_of(active):
            fork = attempt.fork
            assert fork is None or fork.epoch <= merging.epoch
            share = merging.share_of(world.state.runs[attempt.order.run].replica)
            if fork is None or attempt.paused or share is None:
                continue
            # It trains on what was merged last, or has not heard of it yet.
            if share.attempt == attempt.order.attempt and fork.epoch == merging.epoch:
                assert fork.weights == merging.digest.partition(":")[0]


def _lived(story: Story) -> tuple[Store, ChaoticWorld]:
    seen: Counter[str] = Counter()
    store = Store()
    world = _world(story)
    while world.timeline.now() < CHAOS_MS:
        world.step()
        _look(world, seen, store)
    world.calm_down()
    world.workers.merge_ms = MERGE_MS
    for _ in range(200_000):
        if len(world.answers.replies) == len(story.jobs) and not world.state.active:
            break
        world.step()
        _look(world, seen, store)
    return store, world


@drawn(15)
@given(stories)
def test_forked_jobs_end_with_every_step_done_once(story: Story) -> None:
    store, world = _lived(story)
    known = {it.spec.name: it for it in world.state.jobs.values()}
    for number, (_, forks, steps) in enumerate(story.jobs):
        job = known.get(f"job{number}")
        if job is None:
            continue  # its submission died with the master
        assert job.state is JobState.SUCCEEDED, (job.state, job.reason)
        if forks > 1 and not (job.merging is not None and job.merging.unforked):
            assert job.merging is not None
            assert job.merging.steps == steps
        if job.merging is not None:
            # What the last fork did alone, and ended with, is in no merge.
            store.look(job.id, job.merging)
            assert store.steps(job.id) == store.counted.get(job.id, 0) <= steps
        runs = list(world.state.members(job.id))
        assert sum(it.state is RunState.SUCCEEDED for it in runs) == 1
    for name, account in ledger.bill(world.state, world.timeline.now()).jobs.items():
        assert 0 <= account.replicas <= account.charged, name
