"""Jobs that are suspended and go on, by users, by turns and for jobs of higher priority."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.measure import ledger
from eva_master.control.measure.remaining import outlooks
from eva_master.control.settings import Settings
from eva_master.model.actions import FetchFiles
from eva_master.model.arithmetic.fixed_point import exp_of_ppm
from eva_master.model.events import CancelRequested, ResumeRequested, SuspendRequested
from eva_master.model.job import JobSpec
from eva_master.model.planning.suspension import Preemption, Suspender
from eva_master.model.records import StopReason, TaskRun
from eva_master.ports import Policy
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import HOLDING, JobState, RunState
from tests.drawing import NEW
from tests.fakes.jobs import LARGE, MEDIUM, SMALL, job
from tests.fakes.policies.turns import Config, Turns
from tests.fakes.policies.whole import FEW

MINUTE_MS = 60_000
DELAYS = EqualDelays(fetch_ms=5_000, start_ms=1_000, stop_ms=10_000, report_ms=5_000)
EVA = policies()["eva"]


class World(SimulatedCluster):
    """A cluster of a policy, with commands of users."""

    def __init__(
        self,
        *catalog: object,
        policy: Policy | None = None,
        settings: Settings | None = None,
        delays: EqualDelays = DELAYS,
    ) -> None:
        super().__init__(
            catalog or (SMALL, MEDIUM, LARGE),  # type: ignore[arg-type]
            policy or EVA.build(EVA.config()),
            settings=settings or Settings(),
            delays=delays,
        )
        self.told = 0

    def post(self, kind: type, name: str) -> None:
        self.told += 1
        self.inbox.post(kind(f"command-{self.told}", JobId(name), "ann"))

    def play(self, minutes: float) -> None:
        until = self.timeline.now() + round(minutes * MINUTE_MS)
        self.timeline.after(round(minutes * MINUTE_MS), lambda: None)
        self.run(lambda: self.timeline.now() >= until)

    def job(self, name: str) -> object:
        return self.state.jobs[JobId(name)]

    def runs(self, name: str) -> list[TaskRun]:
        return list(self.state.members(JobId(name)))

    def states(self, name: str) -> set[str]:
        return {run.state.value for run in self.runs(name)}

    def charged(self, name: str) -> int:
        return ledger.bill(self.state, self.timeline.now()).jobs[JobId(name)].charged

    def left_ms(self, name: str) -> int:
        """What users are told that a job still needs."""
        runs, now = self.runs(name), self.timeline.now()
        whole, _ = outlooks(self.state, self.state.jobs[JobId(name)], runs, runs, now)
        assert whole.left_ms is not None
        return whole.left_ms

    def busy_ms(self, name: str) -> int:
        return self.state.job_accounts[JobId(name)].busy_ms


def begun(*specs: JobSpec, **more: object) -> World:
    """A world in which some jobs have run for a while."""
    world = World(**more)  # type: ignore[arg-type]
    for spec in specs:
        world.submit(spec)
    world.play(5)
    for spec in specs:
        assert world.states(f"{spec.name}-{specs.index(spec) + 1}") == {"running"}
    return world


@pytest.mark.parametrize("spec", [job("a", 2), job("a", 2, 2), job("a", 2, 2, array=True)])
def test_a_job_waits_for_free_and_goes_on_from_its_checkpoint(spec: JobSpec) -> None:
    world = begun(spec)
    world.post(SuspendRequested, "a-1")
    world.play(1)
    assert world.states("a-1") == {"waiting"}
    assert {run.generation for run in world.runs("a-1")} != {0}
    world.play(2)
    assert not world.state.live, "its instances are given back"
    cost, rounds = world.charged("a-1"), world.state.counters.rounds
    world.play(600)
    assert world.charged("a-1") == cost
    assert world.state.counters.rounds == rounds, "no plan is about it"
    assert world.states("a-1") == {"waiting"}
    world.post(ResumeRequested, "a-1")
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)
    assert world.state.jobs[JobId("a-1")].state is JobState.SUCCEEDED
    assert world.state.jobs[JobId("a-1")].failures == 0
    for run in world.runs("a-1"):
        assert run.attempt == 2
        # What was done before was not done again.
        busy = 10 * MINUTE_MS + DELAYS.start_ms + DELAYS.stop_ms + DELAYS.report_ms
        assert world.busy_ms("a-1") <= len(world.runs("a-1")) * (busy + 30_000)
        assert run.moves == 0


def test_time_at_rest_is_no_part_of_the_longest_duration() -> None:
    spec = job("a", 2, minutes=20, max_duration_ms=25 * MINUTE_MS)
    world = begun(spec)
    for _ in range(3):
        world.post(SuspendRequested, "a-1")
        world.play(30)
        world.post(ResumeRequested, "a-1")
        world.play(4)
    assert world.run(world.quiet, limit_ms=120 * MINUTE_MS)
    assert world.state.jobs[JobId("a-1")].state is JobState.SUCCEEDED
    # And one that runs for too long in all is ended.
    world = begun(replace(spec, failing=replace(spec.failing, max_duration_ms=12 * MINUTE_MS)))
    world.post(SuspendRequested, "a-1")
    world.play(30)
    world.post(ResumeRequested, "a-1")
    assert world.run(world.quiet, limit_ms=120 * MINUTE_MS)
    ended = world.state.jobs[JobId("a-1")]
    assert (ended.state, ended.exit_code) == (JobState.FAILED, 124)


def test_a_command_may_be_repeated_and_says_what_there_is_not() -> None:
    world = begun(job("a", 2))
    for kind in (ResumeRequested, SuspendRequested, SuspendRequested):
        world.post(kind, "a-1")
        world.post(kind, "b-1")
    world.play(1)
    replies = [world.answers.replies[f"command-{n}"] for n in range(1, 7)]
    assert [reply.job for reply in replies] == ["a-1", None] * 3
    assert all("no job b-1" in reply.error.message for reply in replies[1::2])
    assert {reply.owner for reply in replies} == {"ann"}
    told = world.state.jobs[JobId("a-1")].suspension
    assert told is not None
    assert (told.by, told.words) == (Suspender.USER, "suspended by ann")
    world.post(CancelRequested, "a-1")
    world.play(1)
    assert world.state.jobs[JobId("a-1")].state is JobState.CANCELLED
    for kind in (SuspendRequested, ResumeRequested):
        world.post(kind, "a-1")
    world.play(1)
    assert world.state.jobs[JobId("a-1")].state is JobState.CANCELLED
    assert world.quiet()


def test_one_that_has_not_started_never_does_and_a_starting_one_is_stopped_at_once() -> None:
    world = World()
    world.submit(job("a", 2))
    world.play(0.2)
    assert world.state.live
    world.post(SuspendRequested, "a-1")
    world.play(5)
    assert not world.state.live
    assert world.runs("a-1")[0].attempt == 0
    world.post(ResumeRequested, "a-1")
    world.run(lambda: world.states("a-1") == {"starting"})
    world.post(SuspendRequested, "a-1")
    world.run(lambda: world.state.jobs[JobId("a-1")].suspension is not None)
    assert world.runs("a-1")[0].stop is StopReason.SUSPEND
    world.post(ResumeRequested, "a-1")
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)


def test_a_master_that_dies_remembers_and_others_wait_meanwhile() -> None:
    world = begun(job("a", 2))
    world.submit(job("b", 2, depends_on=(JobId("a-1"),)))
    world.post(SuspendRequested, "a-1")
    world.play(0.01)
    world.restart()
    world.play(20)
    assert world.states("a-1") == world.states("b-2") == {"waiting"}
    assert not world.state.live
    resting = world.state.jobs[JobId("a-1")].resting_ms
    world.restart()
    assert world.state.jobs[JobId("a-1")].resting_ms == resting
    world.post(ResumeRequested, "a-1")
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)
    assert world.state.jobs[JobId("b-2")].state is JobState.SUCCEEDED


def test_a_job_that_waits_for_others_can_be_suspended() -> None:
    world = begun(job("a", 2))
    world.submit(job("b", 2, depends_on=(JobId("a-1"),)))
    world.play(0.1)
    world.post(SuspendRequested, "b-2")
    world.play(30)
    assert world.state.jobs[JobId("a-1")].state is JobState.SUCCEEDED
    assert world.runs("b-2")[0].attempt == 0
    world.post(ResumeRequested, "b-2")
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)


# -- turns ---------------------------------------------------------------------------------------


def test_two_take_turns_on_one_instance_and_files_are_there_in_time() -> None:
    fetched: list[tuple[str, RunState]] = []
    world = World(
        replace(SMALL, limit=1),
        policy=Turns(Config(lease_s=300)),
        settings=Settings(round_period_ms=MINUTE_MS),
    )
    execute = world.workers.execute

    def executed(action: object) -> None:
        if isinstance(action, FetchFiles):
            run = world.state.runs[action.order.run]
            fetched.append((run.id, run.state))
        execute(action)  # type: ignore[arg-type]

    world.workers.execute = executed  # type: ignore[assignment, method-assign]
    world.submit(job("a", 2, minutes=20))
    world.submit(job("b", 2, minutes=20))
    world.play(4)
    assert (world.states("a-1"), world.states("b-2")) == ({"running"}, {"waiting"})
    assert world.run(lambda: world.states("b-2") == {"running"}, limit_ms=10 * MINUTE_MS)
    assert world.states("a-1") == {"waiting"}
    told = world.runs("a-1")[0].suspension
    assert told is not None
    assert told.by is Suspender.POLICY
    assert "another one's turn" in told.words
    assert ("b-2/0", RunState.WAITING) in fetched
    assert world.run(world.quiet, limit_ms=120 * MINUTE_MS)
    for name in ("a-1", "b-2"):
        assert world.state.jobs[JobId(name)].state is JobState.SUCCEEDED
        assert world.runs(name)[0].attempt > 2
    # The instance changed hands; it went with the first that ended.
    places = [place for name in ("a-1", "b-2") for _, place in world.runs(name)[0].places[:2]]
    assert places == ["i00001"] * 4


# -- priorities ----------------------------------------------------------------------------------


def crowded(*, preemption: Preemption = Preemption.SUSPEND, **priorities: int) -> World:
    """Two boxes, full of jobs that run; those named ``u`` come later and want a box each."""
    world = World(replace(MEDIUM, limit=2), settings=Settings(preemption=preemption))
    early = {name: it for name, it in priorities.items() if not name.startswith("u")}
    for name, priority in early.items():
        world.submit(job(name, 2, minutes=60, priority=priority))
    world.play(5)
    for name, priority in priorities.items():
        if name not in early:
            world.submit(job(name, 4, priority=priority))
    return world


def where(world: World) -> dict[str, str]:
    return {
        job.spec.name: next(world.state.members(job.id)).state.value
        for job in world.state.jobs.values()
    }


def test_the_least_urgent_make_room_and_go_on_later() -> None:
    world = crowded(a=1, b=3, c=1, d=0, u=2)
    before = {run.id: run.instance for run in world.state.runs.values()}
    world.play(3)
    states = where(world)
    mates = {name for name in "abcd" if states[name] == "waiting"}
    assert states["u"] == "running"
    # Whoever is beside the most urgent stays.
    assert len(mates) == 2
    assert "b" not in mates
    assert len({before[f"{name}-{'abcd'.index(name) + 1}/0"] for name in mates}) == 1
    for name in mates:
        told = next(world.state.members(JobId(f"{name}-{'abcd'.index(name) + 1}"))).suspension
        assert told is not None
        assert told.words == "suspended for u-5, which has a higher priority"
    assert world.run(world.quiet, limit_ms=300 * MINUTE_MS)
    assert all(it.state is JobState.SUCCEEDED for it in world.state.jobs.values())
    assert all(it.failures == 0 for it in world.state.jobs.values())


@pytest.mark.parametrize(
    ("preemption", "priorities"),
    [
        (Preemption.NEVER, {"a": 0, "b": 0, "c": 0, "d": 0, "u": 5}),
        (Preemption.SUSPEND, {"a": 5, "b": 5, "c": 5, "d": 5, "u": 5, "v": 0}),
        (Preemption.SUSPEND, {"a": 6, "b": 5, "c": 6, "d": 5, "u": 5}),
    ],
)
def test_nobody_is_suspended_for_equals_or_where_it_is_not_allowed(
    preemption: Preemption, priorities: dict[str, int]
) -> None:
    world = crowded(preemption=preemption, **priorities)
    world.play(20)
    assert where(world)["u"] == "waiting"
    assert all(run.attempt <= 1 for run in world.state.runs.values())


def test_nobody_is_suspended_who_need_not() -> None:
    """A gang that fits beside others; and one that fits nowhere whoever is suspended."""
    world = crowded(a=0, b=0, c=0, u=1)
    world.play(3)
    assert sorted(where(world).values()).count("waiting") <= 1
    world = crowded(a=0, b=0, c=0, d=0)
    world.submit(job("u", 4, 4, 4, priority=9))
    world.play(10)
    assert {where(world)[name] for name in "abcd"} == {"running"}


@pytest.mark.parametrize("policy", sorted(policies()) if NEW else FEW)
@pytest.mark.parametrize("seed", range(2) if NEW else range(1))
def test_any_cluster_comes_to_rest(policy: str, seed: int) -> None:
    """Jobs that never end: after a while nobody is suspended or started any more."""
    rng = random.Random(seed)
    kind = policies()[policy]
    world = World(
        replace(SMALL, limit=rng.randint(0, 2)),
        replace(MEDIUM, limit=rng.randint(0, 2)),
        replace(LARGE, limit=rng.randint(1, 2)),
        policy=kind.build(kind.config()),
        settings=Settings(preemption=Preemption.SUSPEND),
        delays=replace(DELAYS, report_ms=10 * MINUTE_MS),
    )
    for number in range(12):
        demands = [rng.choice([1, 2, 4])] * rng.randint(1, 3)
        spec = job(f"j{number}", *demands, minutes=10**6, priority=rng.randint(0, 3))
        world.submit(spec, Millis(number * 2 * MINUTE_MS))
    world.play(24 + 60)
    before = {run.id: (run.attempt, run.instance) for run in world.state.runs.values()}
    world.play((6 if NEW else 3) * 60)
    assert {run.id: (run.attempt, run.instance) for run in world.state.runs.values()} == before
    for run in world.state.runs.values():
        assert run.state in HOLDING or run.target is None
    if policy == "eva":  # others have reasons of their own not to place somebody
        _check_order(world)


def _check_order(world: World) -> None:
    """None of the most urgent who wait could have the room of those who are less urgent."""
    state = world.state
    waiting = [
        it
        for it in map(state.jobs.__getitem__, state.active)
        if all(run.state is RunState.WAITING for run in state.members(it.id))
    ]
    most = max((it.spec.priority for it in waiting), default=0)
    for urgent in waiting:
        if urgent.spec.priority < most or len(urgent.spec.tasks) > 1:
            continue
        need = urgent.spec.tasks[0].demand[0][1].milli_cpus
        for instance in state.live:
            size = state.instances[instance].offering.type.capacity.milli_cpus
            there = [
                (state.task(run).demand[0][1].milli_cpus, state.jobs[run.job].spec.priority)
                for run in state.occupants(instance)
            ]
            stay = sum(cpus for cpus, priority in there if priority >= most)
            less = any(priority < most for _, priority in there)
            assert not (less and size - stay >= need), (urgent.id, instance)


@pytest.mark.parametrize("array", [False, True])
def test_time_at_rest_is_no_run_time(array: bool) -> None:
    """Neither of the task, nor in what is learned from it, nor in what is left of it."""
    spec = job("a", 2, *([2] if array else []), minutes=20, array=array)
    plain, rested = begun(spec), begun(spec)
    rested.post(SuspendRequested, "a-1")
    rested.play(1)
    left = rested.left_ms("a-1")
    assert 14 * MINUTE_MS < left < 17 * MINUTE_MS
    rested.play(600)
    assert rested.left_ms("a-1") == left
    rested.post(ResumeRequested, "a-1")
    for world in (plain, rested):
        assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)
    took = [[run.took_ms for run in world.runs("a-1")] for world in (plain, rested)]
    assert all(it > 0 for of in took for it in of)
    assert max(took[1]) - min(took[0]) < 2 * MINUTE_MS
    learned = [world.state.learned.run_times for world in (plain, rested)]
    means = [
        {key: exp_of_ppm(it.log) for key, it in of.owners["me"].spreads.items()} for of in learned
    ]
    assert means[0].keys() == means[1].keys()
    assert all(abs(means[1][key] - means[0][key]) < 2 * MINUTE_MS for key in means[0])
