"""Tasks of unknown standalone throughput run alone first, on virtual time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import Offering
from eva_master.model.job import JobSpec
from eva_master.policies.eva import POLICY
from eva_wire.values.ids import InstanceId, JobId, Price, RunId, Workload
from tests.fakes.jobs import CPU, MEDIUM, SMALL, job
from tests.fakes.learned.lessons import lessons_of, owner_of

WINDOW_MS = 60_000
PAIR = replace(MEDIUM, price=Price(130_000))
"""Holds two tasks, and costs little more than what holds one."""
DELAYS = EqualDelays(fetch_ms=0, start_ms=5_000, stop_ms=3_000, report_ms=10_000)


def world(
    *catalog: Offering, profile: bool = True, steps: bool = True, period_ms: int = 3_600_000
) -> SimulatedCluster:
    return SimulatedCluster(
        catalog or (SMALL, PAIR),
        POLICY.build(POLICY.config()),
        settings=Settings(profile=profile, window_ms=WINDOW_MS, round_period_ms=period_ms),
        delays=DELAYS,
        work_of=lambda _run: Work(total_ms=3_600_000, steps_per_s=10.0 if steps else 1e-9),
    )


def of(workload: str, name: str) -> JobSpec:
    """A job of one task for two vCPUs."""
    spec = job(name, 2, minutes=60)
    return replace(spec, tasks=(replace(spec.tasks[0], workload=Workload(workload)),))


def shared(state: SimulatedCluster) -> bool:
    """Whether an instance has been given more than one task."""
    targets = [run.target for run in state.state.runs.values() if run.target is not None]
    return max(Counter(targets).values(), default=0) > 1


def running(state: SimulatedCluster, *names: str) -> bool:
    return all(
        (run := state.state.runs.get(RunId(name))) is not None and run.state == "running"
        for name in names
    )


def profiled(world: SimulatedCluster) -> bool:
    return world.state.figures.resolved.profiled(owner_of(world.state), Workload("a"))


def test_tasks_of_unknown_throughput_are_packed_once_it_is_known() -> None:
    it = world()
    it.submit(of("a", "one"))
    it.submit(of("b", "two"))
    assert it.run(lambda: running(it, "one-1/0", "two-2/0"), limit_ms=600_000)
    assert not shared(it)
    assert it.run(
        lambda: len(lessons_of(it.state).standalone.rates) == 2 or shared(it), limit_ms=600_000
    )
    assert not shared(it), "not before the figures of both are known"
    rates = lessons_of(it.state).standalone
    assert rates.lookup(Workload("a"), CPU) is not None
    assert rates.lookup(Workload("b"), CPU) is not None
    it.submit(of("a", "three"))
    assert it.run(lambda: shared(it), limit_ms=600_000)


def test_without_profiling_they_are_packed_at_once() -> None:
    it = world(profile=False)
    it.submit(of("a", "one"))
    it.submit(of("b", "two"))
    assert it.run(lambda: running(it, "one-1/0", "two-2/0"), limit_ms=600_000)
    assert shared(it)


def test_a_program_that_reports_no_steps_is_packed_after_three_windows() -> None:
    it = world(steps=False)
    it.submit(of("a", "one"))
    assert it.run(lambda: running(it, "one-1/0"), limit_ms=600_000)
    began = it.timeline.now()
    assert it.run(lambda: profiled(it), limit_ms=600_000)
    assert it.timeline.now() - began == 3 * WINDOW_MS
    assert lessons_of(it.state).standalone.lookup(Workload("a"), CPU) is None
    it.submit(of("a", "two"))
    it.submit(of("a", "three"))
    assert it.run(lambda: shared(it), limit_ms=600_000)


def test_the_wait_for_a_first_step_goes_on_after_a_restart() -> None:
    it = world(steps=False)
    it.submit(of("a", "one"))
    assert it.run(lambda: running(it, "one-1/0"), limit_ms=600_000)
    it.restart()
    assert it.run(lambda: profiled(it), limit_ms=600_000)


def test_where_there_is_one_instance_only_they_share_it_at_once() -> None:
    only = replace(PAIR, limit=1)
    it = world(only)
    it.submit(of("a", "one"))
    it.submit(of("b", "two"))
    assert it.run(lambda: running(it, "one-1/0", "two-2/0"), limit_ms=600_000)
    assert shared(it)
    assert it.state.jobs[JobId("one-1")].state == "running"
    assert set(it.state.live) == {InstanceId("i00001")}
