"""What a plan would be about if a job were submitted now."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.lending import worths
from eva_master.control.measure import remaining, sizes
from eva_master.control.planning.snapshot_builder import checkpoint_ms, launch_ms, snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.job_tasks import SHOWN_AT_ONCE
from eva_master.control.state.records import PlanningRecords
from eva_master.model.accounting.worth import Worth
from eva_master.model.ids import Millis, run_id
from eva_master.model.job import JobKind, JobSpec
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.snapshot import PREVIEW, JobView, RunView, Snapshot


def hypothetical(
    state: PlanningRecords, spec: JobSpec, now: Millis, settings: Settings
) -> Snapshot:
    """Snapshot the cluster as if a job had just been submitted; nothing changes.

    Args:
        state: The cluster.
        spec: The job that might be submitted; its id in the snapshot is `PREVIEW`. Of an array a
            plan is about its first tasks, as it would be.
        now: The time of the snapshot.
        settings: Assumed delays where nothing was measured and a job gave no hint.
    """
    real, whole = snapshot(state, now, settings), spec
    if spec.kind is JobKind.ARRAY:
        shown = min(SHOWN_AT_ONCE, spec.concurrency or SHOWN_AT_ONCE)
        spec = replace(spec, tasks=spec.tasks[:shown])
    members = len(spec.tasks) if spec.least is None else spec.least
    ids = tuple(run_id(PREVIEW, index) for index in range(members))
    told = remaining.of_spec(state, spec, now)
    views = tuple(
        RunView(id_, PREVIEW, task, None, pinned=False, running=False, remaining=told.works[id_])
        for id_, task in zip(ids, spec.tasks[:members], strict=True)
    )
    job = JobView(
        id=PREVIEW,
        kind=spec.kind,
        runs=ids,
        submitted_ms=now,
        priority=spec.priority,
        checkpoint_ms=checkpoint_ms(state, spec, spec.tasks, settings),
        launch_ms=launch_ms(state, spec, spec.tasks, settings),
        owner=spec.owner,
        tenant=spec.tenant,
        estimate=told.estimate,
        elastic=sizes.elastic(
            state, spec, settings.limits, settings.partitions.home(spec.partition)
        ),
        partition=spec.partition,
        worth=_worth(state, whole, told.estimate, settings),
        split_batch=spec.split_batch,
        training=spec.training,
        ps=spec.ps,
    )
    return replace(
        real,
        jobs=tuple(sorted((*real.jobs, job), key=lambda view: view.id)),
        runs=tuple(sorted((*real.runs, *views), key=lambda view: view.id)),
        arrivals=real.arrivals + 1,
    )


def _worth(
    state: PlanningRecords, spec: JobSpec, estimate: Estimate | None, settings: Settings
) -> Worth | None:
    """What the job would be worth; stated alone where there are no quotas, as in snapshots."""
    if not settings.tenancy.quotas:
        return spec.worth
    return worths.of_spec(state, spec, None if estimate is None else estimate.mean_ms)
