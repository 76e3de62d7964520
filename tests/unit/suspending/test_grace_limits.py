"""How long tasks have to stop: never longer than operators allow, whoever waits for their room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, StartTask, StopTask
from eva_master.model.events import (
    CancelRequested,
    ClosingDown,
    JobSubmitted,
    PlanReady,
    SuspendRequested,
)
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.planning.plan import Plan, Suspend
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import JobId, Millis, RunId
from eva_wire.values.states import JobState, RunState
from tests.fakes.hand_driven import CATALOG, JOB, SETTINGS, Cluster

MINUTE_MS = 60_000
DAY_MS = 86_400_000
LIMITS = Limits(
    grace_period_ms=10 * MINUTE_MS, recall_grace_ms=MINUTE_MS, shutdown_grace_ms=2 * MINUTE_MS
)
RUN = RunId("job-1/0")
JOB_ID = JobId("job-1")


class Patient(Cluster):
    """A cluster whose jobs want much time to stop, as those of older journals may."""

    grace_ms = DAY_MS

    def handle(self, *events: object, at: int) -> list[Action]:
        """Take in events; what is submitted has this cluster's grace period."""
        asked = [
            replace(it, spec=with_values(it.spec, {"grace_period_ms": self.grace_ms}))
            if isinstance(it, JobSubmitted)
            else it
            for it in events
        ]
        actions = super().handle(*asked, at=at)
        self.told_ms.extend(it.order.grace_period_ms for it in actions if isinstance(it, StartTask))
        return actions

    def __init__(self, state: State | None = None, settings: Settings = SETTINGS) -> None:
        self.told_ms: list[int] = []
        super().__init__(state, replace(settings, limits=LIMITS))


def _cluster(settings: Settings = SETTINGS, *, grace_ms: int = DAY_MS) -> Patient:
    """A cluster with a running job."""
    cluster = Patient(settings=settings)
    cluster.grace_ms = grace_ms
    cluster.start(JOB)
    return cluster


def _stops(actions: Iterable[Action]) -> list[int]:
    return [it.grace_ms for it in actions if isinstance(it, StopTask)]


def test_a_task_of_an_older_journal_goes_on_and_stops_within_the_limit() -> None:
    cluster = _cluster()
    assert cluster.state.runs[RUN].state is RunState.RUNNING
    actions = cluster.handle(CancelRequested("c", JOB_ID, "me"), at=1_000)
    assert _stops(actions) == [10 * MINUTE_MS]


def test_a_task_is_told_the_time_that_it_will_have() -> None:
    assert set(_cluster().told_ms) == {10 * MINUTE_MS}


@pytest.mark.parametrize(
    ("owner", "now", "expected"),
    [
        ("me", False, 10 * MINUTE_MS),
        ("me", True, 0),
        ("olga", False, MINUTE_MS),
        ("olga", True, 0),
    ],
)
def test_a_canceller_waits_no_longer_than_it_must(owner: str, now: bool, expected: int) -> None:
    cluster = _cluster()
    actions = cluster.handle(CancelRequested("c", JOB_ID, owner, now=now), at=1_000)
    assert _stops(actions) == [expected]
    job = cluster.state.jobs[JOB_ID]
    assert job.reason == "cancelled by " + ("its owner" if owner == "me" else "the operator olga")


def test_a_shorter_grace_period_stays() -> None:
    cluster = _cluster(grace_ms=5_000)
    assert _stops(cluster.handle(CancelRequested("c", JOB_ID, "olga"), at=1_000)) == [5_000]


def test_a_job_that_is_ending_can_be_hurried_at_once_and_after_a_restart() -> None:
    cluster = _cluster()
    cluster.handle(CancelRequested("c", JOB_ID, "me"), at=1_000)
    # Said again at once, not when the first stop is repeated.
    assert _stops(cluster.handle(CancelRequested("d", JOB_ID, "me", now=True), at=1_001)) == [0]
    assert _stops(cluster.handle(CancelRequested("e", JOB_ID, "me", now=True), at=1_002)) == []
    assert _stops(cluster.handle(CancelRequested("f", JOB_ID, "me"), at=1_003)) == []
    restored = State.restored(CATALOG, cluster.machine.take_changes())
    again = Patient(restored)
    instance = restored.runs[RUN].instance
    assert instance is not None
    again.register(instance, at=2_000)
    job = again.state.jobs[JOB_ID]
    assert (job.state, job.stop_within_ms) == (JobState.ENDING, 0)


def test_a_task_that_is_being_suspended_can_be_hurried_by_a_cancel() -> None:
    cluster = _cluster()
    assert _stops(cluster.handle(SuspendRequested("s", JOB_ID, "me"), at=1_000)) == [10 * MINUTE_MS]
    assert _stops(cluster.handle(CancelRequested("c", JOB_ID, "me", now=True), at=1_001)) == [0]


def test_a_stop_of_a_cluster_that_ends_is_told_again_with_less_time() -> None:
    cluster = _cluster()
    cluster.handle(CancelRequested("c", JOB_ID, "me"), at=1_000)
    assert _stops(cluster.handle(ClosingDown(), at=1_001)) == [2 * MINUTE_MS]


def _recall(cluster: Cluster) -> list[Action]:
    """Answer the present round with the suspension of the running task."""
    if cluster.request is None:
        cluster.submit(JOB, name="lender", at=1_000)
    request = cluster.request
    assert request is not None
    plan = Plan((), (Suspend(RUN, reason="ana has its quota back"),))
    return cluster.handle(PlanReady(request.round, plan, None), at=1_000)


@pytest.mark.parametrize(("lends", "expected"), [(True, MINUTE_MS), (False, 10 * MINUTE_MS)])
def test_a_policy_that_lends_has_room_back_soon(lends: bool, expected: int) -> None:
    cluster = _cluster(replace(SETTINGS, partitions=_whole(lends=lends)))
    assert _stops(_recall(cluster)) == [expected]


def test_a_job_with_a_long_grace_period_is_lent_nothing() -> None:
    lending = replace(SETTINGS, partitions=_whole(lends=True))
    assert _unlent(_cluster(lending)) == (
        "its grace period of 1d 0h is longer than the 1m 0s within which lenders have their room "
        "back (limits.recall_grace)"
    )
    assert _unlent(_cluster(lending, grace_ms=MINUTE_MS)) == ""
    assert _unlent(_cluster()) == "", "where no policy lends"


def _whole(*, lends: bool) -> Partitions:
    return Partitions(whole=Partition(default=True, lends=lends))


def _unlent(cluster: Cluster) -> str:
    """Why a policy would lend the job nothing."""
    seen = snapshot(cluster.state, Millis(cluster.now), cluster.machine.settings)
    return next(it.tenancy.unlent for it in seen.jobs if it.id == JOB_ID)
