"""Jobs that ended before a trace begins: what a simulated master knows from them at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.run import Setup, Simulation
from eva_lab.simulator.scenario.fixed_cluster import FixedCluster
from eva_master.app.policy_registry import policies
from eva_master.model.planning.estimate import Estimate, Estimates, Source
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import SLOT, EarlierJob, Trace, TraceJob, TraceTask
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Workload

SECOND = 1_000
MINUTE = 60 * SECOND
PAST = tuple(
    EarlierJob("ana", f"etl-{number}", Workload("spark"), SLOT, seconds * SECOND)
    for number, seconds in enumerate((100, 98, 102, 100))
)


class FirstSight:
    """Notes the first estimate of each job, and has another policy decide."""

    name = "fifo"

    def __init__(self) -> None:
        kind = policies()["fifo"]
        self._inner = kind.build(kind.config())
        self.estimates: list[Estimate | None] = []
        self._seen: set[str] = set()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        for job in snapshot.jobs:
            if job.id not in self._seen:
                self._seen.add(job.id)
                self.estimates.append(job.progress.estimate)
        return self._inner.plan(snapshot, memory)


def job(**fields: object) -> TraceJob:
    plain = TraceJob(
        "etl-9",
        Workload("spark"),
        arrival_ms=0,
        duration_ms=MINUTE,
        tasks=(TraceTask(SLOT, duration_ms=MINUTE),) * 3,
        owner="ana",
        kind=JobKind.ARRAY,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def first_sight(*jobs: TraceJob, past: tuple[EarlierJob, ...] = PAST, **options: object) -> object:
    policy = FirstSight()
    cluster = FixedCluster(servers=4, short=0)
    trace = Trace("t", jobs, past)
    setup = Setup(trace, (), policy, nodes=cluster.nodes, durations=False, **options)  # type: ignore[arg-type]
    Simulation(setup).run()
    return policy.estimates


def only(found: object) -> Estimate:
    assert isinstance(found, list)
    (estimate,) = found
    assert isinstance(estimate, Estimate)
    return estimate


def test_a_job_is_estimated_from_them_before_any_of_its_tasks_has_ended() -> None:
    found = only(first_sight(job()))
    assert (found.source, found.tasks) == (Source.HISTORY, 0)
    # Four jobs say a little less than one may doubt.
    assert found.mean_ms == pytest.approx(100 * SECOND, rel=0.1)


def test_the_last_ones_count_most() -> None:
    longer = [replace(one, mean_ms=1_000 * SECOND) for one in PAST]
    rising, falling = (*PAST * 9, *longer * 9), (*longer * 9, *PAST * 9)
    up, down = (only(first_sight(job(), past=past)) for past in (rising, falling))
    assert up.mean_ms > 3 * down.mean_ms


def test_they_teach_of_their_owner_alone() -> None:
    assert first_sight(job(owner="bob")) == [None]
    nobody = tuple(replace(one, owner="") for one in PAST)
    assert only(first_sight(job(owner=""), past=nobody)).source is Source.HISTORY


def test_the_hour_of_their_submission_is_not_known() -> None:
    """Else all of them were of the trace's first hour, and would say most of its first jobs."""
    longer = [replace(one, workload=Workload("web"), mean_ms=50 * MINUTE) for one in PAST]
    found = [
        only(first_sight(job(arrival_ms=hour * 60 * MINUTE), past=(*PAST, *longer))).mean_ms
        for hour in (0, 5)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", [Estimates.OFF, Estimates.PILOTS])
def test_who_does_not_look_at_them_knows_nothing(mode: Estimates) -> None:
    assert first_sight(job(), estimates=mode) == [None]


def test_with_estimates_off_nothing_is_learned() -> None:
    kind = policies()["fifo"]
    nodes = FixedCluster(servers=4, short=0).nodes
    for mode in (Estimates.OFF, Estimates.POSTERIOR):
        setup = Setup(
            Trace("t", (job(),), PAST), (), kind.build(kind.config()), nodes=nodes, estimates=mode
        )
        known = Simulation(setup).cluster.state.learned.run_times.owners
        assert bool(known) == (mode is not Estimates.OFF)
