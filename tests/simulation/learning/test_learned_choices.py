"""What was measured decides: learned delays in M, and all of it after a restart of the master."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.delays import OF_TYPES, Delay
from eva_master.model.catalog import Offering
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.policies.eva_published import POLICY
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, Workload
from tests.fakes.jobs import CPU, LARGE, MEDIUM, SMALL, job
from tests.fakes.learned.lessons import lessons_of, owner_of, teach

SETTINGS = Settings(checkpoint_ms=8_000, launch_ms=47_000)
NOW = Millis(1_000_000)


def wasteful(*catalog: Offering, **hints: int) -> State:
    """A job for two vCPUs that runs on eight: $0.37 an hour where $0.10 would do."""
    state = State(catalog)
    place = InstanceId("big")
    state.put_instance(Instance(place, LARGE, (("ready", 0),), Millis(0), up_ms=Millis(0)))
    name, spec = JobId("a-1"), job("a", 2, **hints)
    state.put_job(Job(name, spec, Millis(0), (("running", 0),)))
    state.put_run(TaskRun(RunId("a-1/0"), name, 0, (("running", 0),), 1, place, place))
    return state


def decided(state: State) -> Plan:
    policy = POLICY.build(POLICY.config(optimizer="auto"))
    return policy.plan(snapshot(state, NOW, SETTINGS), None)[0]


def measured(state: State, kind: Delay, name: str, delay_ms: int, times: int = 1) -> None:
    for at in range(times):
        if kind in OF_TYPES:
            delays = state.learned.delays.observe(kind, name, delay_ms, Millis(at))
            state.set_learned(replace(state.learned, delays=delays))
            continue
        lessons = lessons_of(state)
        delays = lessons.delays.observe(kind, name, delay_ms, Millis(at))
        teach(state, replace(lessons, delays=delays), owner_of(state))


def moves(plan: Plan) -> bool:
    return any(isinstance(entry, Assign) for entry in plan.entries)


# While it moves a job idles $0.37 and $0.10 an hour; the new instance takes 70 s. In the half hour
# that counts, $0.135 is saved.


def test_with_the_assumed_delays_the_move_pays() -> None:
    plan = decided(wasteful(SMALL, LARGE))
    assert plan.figures["migration_cost_partial_usd"] == pytest.approx(
        (0.47 * 55 + 0.10 * 70) / 3600, rel=1e-3
    )
    assert moves(plan)


@pytest.mark.parametrize("kind", [Delay.CHECKPOINT, Delay.START])
def test_what_a_stop_and_a_start_were_measured_to_take_is_reckoned_with(kind: Delay) -> None:
    state = wasteful(SMALL, LARGE)
    measured(state, kind, "a", 1_200_000)
    plan = decided(state)
    rest = 47 if kind is Delay.CHECKPOINT else 8
    assert plan.figures["migration_cost_partial_usd"] == pytest.approx(
        (0.47 * (1_200 + rest) + 0.10 * 70) / 3600, rel=1e-3
    )
    assert not moves(plan), "20 minutes of two instances idle are dearer than what is saved"


def test_what_other_workloads_take_is_not() -> None:
    state = wasteful(SMALL, LARGE)
    measured(state, Delay.START, "b", 1_200_000)
    assert moves(decided(state))


def test_a_job_s_own_hint_goes_before_one_measurement_and_after_three() -> None:
    for times, pays in ((0, True), (2, True), (3, False)):
        state = wasteful(SMALL, LARGE, launch_ms=2_000)
        measured(state, Delay.START, "a", 1_200_000, times)
        assert moves(decided(state)) is pays


@pytest.mark.parametrize("kind", [Delay.SETUP, Delay.ACQUISITION])
def test_what_a_type_was_measured_to_take_is_reckoned_with(kind: Delay) -> None:
    state = wasteful(SMALL, LARGE)
    measured(state, kind, "c.2", 7_200_000)
    plan = decided(state)
    rest = 10 if kind is Delay.SETUP else 60
    assert plan.figures["migration_cost_partial_usd"] == pytest.approx(
        (0.47 * 55 + 0.10 * (7_200 + rest)) / 3600, rel=1e-3
    )
    assert not moves(plan)


def test_of_two_types_the_one_that_is_there_soon_is_taken_if_the_other_costs_little_less() -> None:
    state = wasteful(SMALL, MEDIUM, LARGE)
    assert [launch.offering.type.name for launch in decided(state).launches] == ["c.2"]
    measured(state, Delay.SETUP, "c.2", 7_200_000)
    assert "c.2" not in [launch.offering.type.name for launch in decided(state).launches]


def test_a_master_that_starts_again_knows_what_it_knew() -> None:
    pair = replace(MEDIUM, price=type(MEDIUM.price)(130_000))
    slow = {"a": 0.9, "b": 0.8}
    world = SimulatedCluster(
        (SMALL, pair),
        POLICY.build(POLICY.config(optimizer="auto")),
        settings=Settings(window_ms=30_000, round_period_ms=60_000),
        delays=EqualDelays(fetch_ms=1_000, start_ms=2_000, stop_ms=3_000, report_ms=5_000),
        truth=lambda workload, others: slow.get(workload, 1.0) if others else 1.0,
        work_of=lambda _: Work(total_ms=3_600_000, steps_per_s=10.0),
    )
    for name in "ab":
        rate = ((CPU, 10_000_000),)
        spec = job(name, 2, minutes=60)
        world.submit(replace(spec, tasks=(replace(spec.tasks[0], throughput=rate),)))
    lessons = partial(lessons_of, world.state)
    assert world.run(lambda: len(lessons().throughput.observed) == 2, limit_ms=3_600_000)
    spec = job("c", 2, minutes=2)
    world.submit(replace(spec, tasks=(replace(spec.tasks[0], workload=Workload("c")),)))
    assert world.run(lambda: JobId("c-3") in world.state.jobs, limit_ms=60_000)
    # Two rounds more, so that all of it was written down.
    rounds = world.state.counters.rounds
    assert world.run(lambda: world.state.counters.rounds >= rounds + 2, limit_ms=3_600_000)
    written = world.journal.load().values
    before, memory = world.state.learned, world.state.memories.get("")
    taught = lessons_of(world.state)
    assert memory is not None
    assert memory.data["rates"]["events"] > 2  # type: ignore[index, call-overload, operator]

    world.restart()

    after = world.state.learned
    assert after.to_json() == written["learned"], "but for what the next round would have written"
    assert after.voices.keys() == before.voices.keys()
    assert lessons_of(world.state).throughput == taught.throughput
    assert after.delays.known.keys() == before.delays.known.keys()
    known = lessons_of(world.state).delays.known
    assert known.keys() == taught.delays.known.keys() >= {(Delay.START, "a")}
    observed = dict(lessons_of(world.state).throughput.observed)
    assert observed[Workload("b"), (Workload("a"),)] == pytest.approx(800_000, rel=0.05)
    assert world.state.memories.get("") == memory
    assert json.dumps(world.state.memories[""].data) == json.dumps(memory.data)
    targets = {run.id: run.target for run in world.state.runs.values()}
    requested = world.state.counters.rounds
    assert world.run(lambda: world.state.counters.rounds > requested + 1, limit_ms=3_600_000)
    left = {run.id: run.target for run in world.state.runs.values() if run.target}
    assert left == {name: targets[name] for name in left}, "and moves nothing for it"
