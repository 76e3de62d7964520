"""Among equals a job that would be late behind the others gets room first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog
from eva_master.model.events import ResumeRequested, SuspendRequested
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import Deadline, JobSpec
from eva_master.model.planning.suspension import Preemption
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_JOB, JobState
from tests.fakes.jobs import job, offering

MINUTE = 60_000
ONE = (replace(offering(2, 100_000), limit=1),)
ORDERED = ("eva", "no_packing")


def world(policy: str, catalog: Catalog = ONE, **settings: object) -> SimulatedCluster:
    kind = policies()[policy]
    return SimulatedCluster(
        catalog,
        kind.build(kind.config()),
        settings=replace(Settings(), **settings),  # type: ignore[arg-type]
        delays=EqualDelays(fetch_ms=0, start_ms=1_000, stop_ms=1_000, report_ms=5_000),
    )


def plain(name: str, minutes: float, cpus: int = 2, **more: object) -> JobSpec:
    spec = job(name, cpus, minutes=minutes, launch_ms=1_000, checkpoint_ms=1_000)
    return with_values(spec, more)


def due(name: str, minutes: float, within: float, *, cpus: int = 2, fails: bool = False) -> JobSpec:
    deadline = Deadline(within_ms=round(within * MINUTE), fails=fails)
    return plain(name, minutes, cpus, deadline=deadline)


def begun(cluster: SimulatedCluster) -> list[str]:
    """Names of the jobs that ran, in the order in which they began."""
    started = [(it.started_ms, it.spec.name) for it in cluster.state.jobs.values() if it.started_ms]
    return [name for _, name in sorted(started)]


def finish(cluster: SimulatedCluster, count: int) -> dict[str, int]:
    """Run to the end; when each job ended, in minutes after its submission."""
    jobs = cluster.state.jobs
    assert cluster.run(
        lambda: len(jobs) == count and all(it.state in TERMINAL_JOB for it in jobs.values())
    )
    return {it.spec.name: (it.finished_ms or 0) - it.submitted_ms for it in jobs.values()}


@pytest.mark.parametrize("policy", ORDERED)
def test_of_two_deadlines_the_near_one_goes_first_and_both_are_kept(policy: str) -> None:
    cluster = world(policy)
    cluster.submit(due("far", 15, 120))
    cluster.submit(due("near", 15, 22))
    took = finish(cluster, 2)
    assert begun(cluster) == ["near", "far"]
    assert took["near"] <= 22 * MINUTE
    assert took["far"] <= 120 * MINUTE


@pytest.mark.parametrize("policy", ORDERED)
def test_a_job_that_fails_when_it_is_late_goes_before_three_without_a_deadline(policy: str) -> None:
    cluster = world(policy)
    for name in "abc":
        cluster.submit(plain(name, 20))
    cluster.submit(due("d", 10, 20, fails=True))
    finish(cluster, 4)
    assert begun(cluster)[0] == "d"
    assert cluster.state.jobs[JobId("d-4")].state is JobState.SUCCEEDED


@pytest.mark.parametrize("policy", ORDERED)
def test_it_passes_those_that_came_before_and_still_wait(policy: str) -> None:
    cluster = world(policy)
    for name in "abc":
        cluster.submit(plain(name, 20))
    cluster.submit(due("d", 10, 40, fails=True), at=Millis(2 * MINUTE))
    finish(cluster, 4)
    assert begun(cluster)[1] == "d"
    assert cluster.state.jobs[JobId("d-4")].state is JobState.SUCCEEDED


@pytest.mark.parametrize("policy", ORDERED)
def test_tasks_of_other_sizes_and_kinds_are_passed_too(policy: str) -> None:
    cluster = world(policy, (replace(offering(4, 190_000), limit=1),))
    for number in range(6):
        cluster.submit(plain(f"s{number}", 20, cpus=1))
    cluster.submit(due("d", 10, 35, cpus=4, fails=True), at=Millis(2 * MINUTE))
    finish(cluster, 7)
    assert cluster.state.jobs[JobId("d-7")].state is JobState.SUCCEEDED


@pytest.mark.parametrize("policy", ORDERED)
def test_a_job_with_time_to_lose_keeps_its_place(policy: str) -> None:
    cluster = world(policy)
    for name in "ab":
        cluster.submit(plain(name, 20))
    cluster.submit(due("d", 10, 300))
    took = finish(cluster, 3)
    assert begun(cluster) == ["a", "b", "d"]
    assert took["d"] <= 300 * MINUTE


@pytest.mark.parametrize("policy", ORDERED)
def test_a_higher_priority_goes_before_any_deadline(policy: str) -> None:
    cluster = world(policy)
    cluster.submit(due("d", 10, 15))
    cluster.submit(plain("high", 20, priority=1))
    finish(cluster, 2)
    assert begun(cluster) == ["high", "d"]


@pytest.mark.parametrize("policy", ORDERED)
def test_a_job_that_is_late_loses_its_place(policy: str) -> None:
    cluster = world(policy)
    cluster.submit(plain("first", 30, priority=1))
    cluster.submit(plain("a", 10))
    cluster.submit(due("late", 10, 12))
    finish(cluster, 3)
    assert begun(cluster) == ["first", "a", "late"]


@pytest.mark.parametrize("policy", ORDERED)
def test_near_deadlines_for_everything_do_not_starve_the_others(policy: str) -> None:
    cluster = world(policy)
    cluster.submit(due("d", 30, 80))
    cluster.submit(plain("patient", 60), at=Millis(MINUTE))
    for number in range(1, 30):
        cluster.submit(due(f"d{number}", 30, 80), at=Millis(number * 25 * MINUTE))
    took = finish(cluster, 31)
    assert 6 * 60 * MINUTE < took["patient"] < 7.7 * 60 * MINUTE


def test_policies_that_order_jobs_themselves_keep_their_order() -> None:
    cluster = world("fifo", partitions=Partitions(whole=Partition(default=True, own_order=True)))
    for name in "abc":
        cluster.submit(plain(name, 20))
    cluster.submit(due("d", 10, 20))
    finish(cluster, 4)
    assert begun(cluster) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("policy", ORDERED)
def test_a_place_that_nothing_has_begun_on_is_given_up_for_a_near_deadline(policy: str) -> None:
    cluster = world(policy)
    cluster.submit(due("far", 15, 120))
    cluster.submit(due("near", 15, 22), at=Millis(10_000))
    took = finish(cluster, 2)
    assert begun(cluster) == ["near", "far"]
    assert took["near"] <= 22 * MINUTE
    assert len(cluster.state.instances) <= 2


@pytest.mark.parametrize("policy", ORDERED)
def test_of_several_that_would_be_late_those_go_first_that_have_least_time(policy: str) -> None:
    cluster = world(policy, (replace(offering(4, 190_000), limit=1),))
    cluster.submit(plain("first", 10, cpus=4, priority=1))
    cluster.submit(due("third", 10, 53, cpus=1))
    cluster.submit(due("second", 10, 40, cpus=4))
    cluster.submit(due("one", 10, 28, cpus=3))
    took = finish(cluster, 4)
    assert begun(cluster)[:2] == ["first", "one"]
    assert took["one"] <= 28 * MINUTE
    assert took["second"] <= 40 * MINUTE
    assert took["third"] <= 53 * MINUTE


def preempted(first: JobSpec, urgent: JobSpec) -> SimulatedCluster:
    """One instance, on which a job runs when an urgent one comes."""
    cluster = world("eva", preemption=Preemption.SUSPEND)
    cluster.submit(first)
    cluster.submit(urgent, at=Millis(5 * MINUTE))
    finish(cluster, 2)
    return cluster


def suspended(cluster: SimulatedCluster, name: str) -> bool:
    """Whether a job's task began more than once."""
    (run,) = cluster.state.members(JobId(name))
    return run.attempt > 1


def test_no_job_is_suspended_that_would_be_late_by_it() -> None:
    urgent = plain("urgent", 15, priority=9)
    for within in (24.0, 30.0, 36.0):
        cluster = preempted(due("d", 20, within), urgent)
        job = cluster.state.jobs[JobId("d-1")]
        assert job.finished_ms is not None
        assert job.finished_ms <= within * MINUTE
        assert not suspended(cluster, "d-1")


def test_a_job_with_time_for_it_is_suspended_and_in_time() -> None:
    cluster = preempted(due("d", 20, 60), plain("urgent", 15, priority=9))
    job = cluster.state.jobs[JobId("d-1")]
    assert suspended(cluster, "d-1")
    assert job.finished_ms is not None
    assert job.finished_ms <= 60 * MINUTE


def test_a_job_that_is_late_anyhow_is_suspended_like_any_other() -> None:
    long = plain("d", 60, deadline=Deadline(within_ms=65 * MINUTE))
    cluster = world("eva", preemption=Preemption.SUSPEND)
    cluster.submit(plain("before", 20, priority=5))
    cluster.submit(long)
    cluster.submit(plain("urgent", 15, priority=9), at=Millis(40 * MINUTE))
    finish(cluster, 3)
    assert suspended(cluster, "d-2")


def test_no_plan_moves_a_job_that_a_change_would_make_late() -> None:
    # Once the others are done it is alone on a large instance, and a small one is cheaper.
    small, large = offering(2, 100_000), offering(8, 240_000)

    def moves(within: float | None) -> int:
        cluster = world("eva", (small, large))
        for number in range(7):
            cluster.submit(plain(f"s{number}", 20, cpus=1))
        last = plain("last", 300, cpus=1)
        if within is not None:
            last = replace(last, deadline=Deadline(within_ms=round(within * MINUTE)))
        cluster.submit(last)
        finish(cluster, 8)
        (run,) = cluster.state.members(JobId("last-8"))
        return run.attempt - 1

    assert moves(None) > 0
    assert moves(400) > 0
    assert moves(303) == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_suspended_job_is_late_like_any_other(*, fails: bool) -> None:
    cluster = world("eva")
    cluster.submit(due("d", 10, 20, fails=fails))
    name = JobId("d-1")
    assert cluster.run(lambda: cluster.timeline.now() > 3 * MINUTE)
    cluster.inbox.post(SuspendRequested("suspend", name))
    resumed = ResumeRequested("resume", name)
    cluster.timeline.after(30 * MINUTE, lambda: cluster.inbox.post(resumed))
    took = finish(cluster, 1)
    state = cluster.state.jobs[name].state
    assert state is (JobState.FAILED if fails else JobState.SUCCEEDED)
    assert (took["d"] <= 20.1 * MINUTE) is fails
