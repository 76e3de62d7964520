"""Delays that a job makes itself, and outcomes of jobs, as policies are told of them."""

from __future__ import annotations

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.state.store import State
from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.events import CancelRequested, Phase
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan
from eva_wire.values.ids import JobId, Millis
from tests.unit.tenants.test_exact_payments import MACHINE, RUN, SETTINGS, Tenants

SECOND = 1_000
JOB = JobId("job-1")


def view(cluster: Tenants) -> JobView:
    """The job as policies see it."""
    seen = snapshot(cluster.state, Millis(cluster.now), SETTINGS)
    return next(it for it in seen.jobs if it.id == JOB)


def ended(cluster: Tenants) -> tuple[EndedJob, ...]:
    """Jobs of tenant `a` of whose end policies are told."""
    seen = snapshot(cluster.state, Millis(cluster.now), SETTINGS)
    return next(it.ended for it in seen.tenants if it.name == "a")


def test_a_failed_attempt_counts_with_its_start_and_the_wait_after_it() -> None:
    cluster = Tenants()
    assert (view(cluster).tenancy.held_ms, view(cluster).tenancy.spoiled_ms) == (0, 0)
    cluster.say(RUN, Phase.EXITED, at=41 * SECOND, exit_code=1)
    # The job was started at 1 s, ran for 40 s, and is tried again after the first wait.
    assert view(cluster).tenancy.spoiled_ms == 40 * SECOND
    assert view(cluster).tenancy.held_ms == SETTINGS.backoff_ms


def test_policies_are_told_of_the_end_until_a_plan_that_knows_of_it_is_in_force() -> None:
    cluster = Tenants()
    cluster.succeed(at=61 * SECOND)
    # Two GPUs for a minute.
    told = EndedJob(JOB, "a", "", 61 * SECOND, succeeded=True, gpu_ms=120 * SECOND)
    assert ended(cluster) == (told,)
    cluster.ask(at=70 * SECOND)
    assert ended(cluster) == (told,)
    cluster.adopt(Plan(), at=71 * SECOND)
    assert ended(cluster) == ()


def test_an_end_that_no_plan_was_told_of_survives_a_restart() -> None:
    cluster, journal = Tenants(), MemoryJournal()
    cluster.handle(CancelRequested("stop", JOB, "me"), at=31 * SECOND)
    cluster.say(RUN, Phase.EXITED, at=41 * SECOND, exit_code=143)
    told = EndedJob(JOB, "a", "", 41 * SECOND, succeeded=False, gpu_ms=60 * SECOND)
    journal.commit(cluster.state.take_changes())
    again = State.restored((MACHINE,), journal.load())
    seen = snapshot(again, Millis(50 * SECOND), SETTINGS)
    assert [it.ended for it in seen.tenants] == [(told,), (), ()]
