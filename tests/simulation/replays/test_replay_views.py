"""Policies see the jobs of a replayed journal as the live loop showed them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eva_lab.history import read_history
from eva_lab.runs import Chosen, named_policy, prepared
from eva_lab.simulator.run import Simulation
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.store import SqlJournal
from eva_master.model.job import JobSpec, Latency
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.testing.job_views import changed
from eva_wire.values.ids import JobId, Millis, RunId
from tests.fakes.jobs import CATALOG, CPU, job

BEGIN = Millis(1_795_000_000_000)


class Watched:
    """A policy that remembers the first view of each job and task run."""

    def __init__(self) -> None:
        self._inner, _ = named_policy("no_packing")
        self.name = self._inner.name
        self.jobs: dict[JobId, tuple[Millis, JobView]] = {}
        self.runs: dict[RunId, RunView] = {}

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        for job_view in snapshot.jobs:
            self.jobs.setdefault(job_view.id, (snapshot.now_ms, job_view))
        for run in snapshot.runs:
            self.runs.setdefault(run.id, run)
        return self._inner.plan(snapshot, memory)


def _stated(spec: JobSpec, rate_ppm: int) -> JobSpec:
    tasks = tuple(replace(it, throughput=((CPU, rate_ppm),)) for it in spec.tasks)
    return replace(spec, tasks=tasks)


SPECS = (
    job("urgent", 2, priority=3),
    job("array", 2, 2, 2, array=True, concurrency=2, pilots=1, latency=Latency.SHORT),
    job("gang", 2, 2, tenant="t", split_batch=True),
    job("after", 2, minutes=7, depends_on=(JobId("urgent-1"),)),
    job("elastic", 2, 2, 2, 2, least=2),
    job("hinted", 2, checkpoint_ms=3_000, launch_ms=9_000),
    job("stage", 2, dag="x"),
    _stated(job("steps", 2, total_steps=6_000), 10_000_000),
)


OF_STEPS: dict[str, object] = {"steps_left": None, "total_steps": None}
"""Values that differ in a replay: a simulated program counts milliseconds of work."""


def test_a_replay_shows_jobs_as_they_were_shown(tmp_path: Path) -> None:
    live, again = Watched(), Watched()
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        cluster = SimulatedCluster(CATALOG, live, journal=journal, start=BEGIN)
        for number, spec in enumerate(SPECS):
            cluster.submit(spec, at=Millis(BEGIN + number * 20_000))
        assert cluster.run(cluster.quiet)
    history = read_history(tmp_path, CATALOG)
    setup = prepared(Chosen("no_packing", {}), history.setup)
    Simulation(replace(setup, policy=again)).run()
    assert live.jobs.keys() == again.jobs.keys()
    replayed = {name: changed(view, **OF_STEPS) for name, (_, view) in again.jobs.items()}
    shown = {name: changed(view, **OF_STEPS) for name, (_, view) in live.jobs.items()}
    assert replayed == shown
    assert [at for at, _ in live.jobs.values()] == [at for at, _ in again.jobs.values()]
    # A simulated program counts milliseconds of work, and a stated rate is in these.
    stated = RunId("steps-8/0")
    for name, run in live.runs.items():
        assert (name == stated) == bool(again.runs[name].task.throughput)
        assert replace(again.runs[name], task=run.task) == run
    _, steps = again.jobs[JobId("steps-8")]
    assert steps.progress.steps_left is not None
    assert abs(steps.progress.steps_left - 600_000) <= 60_000, (
        "what it did of them, in milliseconds"
    )
