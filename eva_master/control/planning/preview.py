"""What a plan would be about if a job were submitted now."""

from __future__ import annotations

from eva_master.control.measure import remaining
from eva_master.control.planning.snapshot_builder import checkpoint_ms, launch_ms, snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.model.ids import Millis, run_id
from eva_master.model.job import JobSpec
from eva_master.model.planning.snapshot import PREVIEW, JobView, RunView, Snapshot


def hypothetical(
    state: PlanningRecords, spec: JobSpec, now: Millis, settings: Settings
) -> Snapshot:
    """Snapshot the cluster as if a job had just been submitted; nothing changes.

    Args:
        state: The cluster.
        spec: The job that might be submitted; its id in the snapshot is `PREVIEW`.
        now: The time of the snapshot.
        settings: Assumed delays where nothing was measured and a job gave no hint.
    """
    real = snapshot(state, now, settings)
    ids = tuple(run_id(PREVIEW, index) for index in range(len(spec.tasks)))
    views = tuple(
        RunView(id_, PREVIEW, task, None, pinned=False, running=False, remaining=work)
        for id_, task, work in zip(ids, spec.tasks, remaining.of_spec(state, spec), strict=True)
    )
    job = JobView(
        id=PREVIEW,
        kind=spec.kind,
        runs=ids,
        submitted_ms=now,
        priority=spec.priority,
        checkpoint_ms=checkpoint_ms(state, spec, settings),
        launch_ms=launch_ms(state, spec, settings),
    )
    return Snapshot(
        now_ms=now,
        catalog=real.catalog,
        jobs=tuple(sorted((*real.jobs, job), key=lambda view: view.id)),
        runs=tuple(sorted((*real.runs, *views), key=lambda view: view.id)),
        instances=real.instances,
        arrivals=real.arrivals + 1,
        completions=real.completions,
        throughput=real.throughput,
        standalone=real.standalone,
        profile=real.profile,
    )
