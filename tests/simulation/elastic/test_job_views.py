"""What policies see of how far a job has come and what it has had."""

from __future__ import annotations

from itertools import pairwise

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import RunState
from tests.fakes.jobs import Script

GPU = Family("g")
BOX = Offering(InstanceType("g.2", GPU, Resources(2, 8_000, 32_768), 1_000, 5_000), Price(10**6))
JOB = JobId("train-1")
HOUR_MS = 3_600_000


class Stage:
    """A world with one job of two tasks with two GPUs each, on instances of their own."""

    def __init__(self, kind: JobKind = JobKind.GANG) -> None:
        script = Script({}, {})
        self.world = SimulatedCluster(
            (BOX,),
            script,
            delays=EqualDelays(fetch_ms=1_000, start_ms=1_000, stop_ms=1_000, report_ms=10_000),
            work_of=lambda _run: Work(HOUR_MS),
        )
        script.offerings.update({f"train-1/{index}": BOX for index in (0, 1)})
        task = TaskSpec(Workload("w"), Program("true"), ((GPU, Resources(2, 1_000, 1_024)),))
        self.world.submit(JobSpec("train", "ana", (task,) * 2, kind=kind, total_steps=3_600))
        self.until_run(1)

    def until_run(self, attempt: int) -> None:
        def there() -> bool:
            runs = [self.world.state.runs.get(RunId(f"train-1/{index}")) for index in (0, 1)]
            return all(
                run is not None and (run.state, run.attempt) == (RunState.RUNNING, attempt)
                for run in runs
            )

        assert self.world.run(there, limit_ms=HOUR_MS)

    def until(self, at: int) -> None:
        assert self.world.run(lambda: self.world.timeline.now() >= at, limit_ms=HOUR_MS)

    def view(self) -> JobView:
        self.world.state.view_cache.job_changed(JOB)
        seen = snapshot(self.world.state, Millis(self.world.timeline.now()), Settings())
        return next(job for job in seen.jobs if job.id == JOB)

    def began(self) -> list[int]:
        return [run.history[-1][1] for run in self.world.state.members(JOB)]


def test_time_on_gpus_grows_by_itself_and_is_kept_over_a_restart_of_the_gang() -> None:
    stage = Stage()
    first = stage.began()
    at = max(first) + 60_000
    assert stage.view().progress.attained.at_ms(Millis(at)) == sum(2 * (at - it) for it in first)
    stage.until(at)
    place = stage.world.state.runs[RunId("train-1/1")].instance
    assert place is not None
    stage.world.cloud.fail(place)
    stage.until_run(2)
    members = list(stage.world.state.members(JOB))
    had = 0
    for run in members:
        times = [*run.history, ("now", stage.world.timeline.now())]
        had += sum(2 * (end - at) for (name, at), (_, end) in pairwise(times) if name == "running")
    assert stage.view().progress.attained.at_ms(Millis(stage.world.timeline.now())) == had
    stage.world.restart()
    assert stage.view().progress.attained.at_ms(Millis(stage.world.timeline.now())) >= had


def test_its_lease_begins_when_the_last_member_runs() -> None:
    stage = Stage()
    assert stage.view().progress.lease_ms == max(stage.began())
    array = Stage(JobKind.ARRAY)
    assert array.view().progress.lease_ms == min(array.began())


def test_the_steps_that_are_left_are_told_to_a_hundredth() -> None:
    stage = Stage()
    assert stage.view().progress.steps_left == 3_600
    stage.until(max(stage.began()) + HOUR_MS // 2)
    left = stage.view().progress.steps_left
    assert left is not None
    assert left % 36 == 0
    assert abs(left - 1_800) <= 3 * 36
    assert Stage(JobKind.ARRAY).view().progress.steps_left is None


def test_that_a_job_gets_on_changes_no_snapshot() -> None:
    stage = Stage()
    stage.until(max(stage.began()) + 600_000)  # its rate is known by then
    seen, before = stage.view(), stage.world.state.view_cache.revision
    stage.until(max(stage.began()) + 1_200_000)
    assert stage.view().progress.steps_left != seen.progress.steps_left
    assert stage.world.state.view_cache.revision == before
