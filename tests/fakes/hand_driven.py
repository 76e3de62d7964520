"""A master whose cloud, workers and planner are the test: events go in, one at a time."""

from __future__ import annotations

from eva_master.adapters.resolving.parse import parse_job
from eva_master.control.machine import Machine
from eva_master.control.measure import remaining
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, RequestPlan
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import (
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    ProgressSampled,
    RunReport,
    WorkerFetched,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.planning.snapshot import RemainingWork
from eva_master.model.progress import Progress
from eva_master.model.resources import Resources
from eva_master.ports.reading import Outlook
from eva_wire.values.ids import Family, InstanceId, Millis, Price, RunId

SIZE = Resources(0, 4_000, 8 * 1024)
FAST = Offering(InstanceType("fast.1", Family("fast"), SIZE), Price(3_060_000))
SLOW = Offering(InstanceType("slow.1", Family("slow"), SIZE), Price(357_000))
CATALOG = (FAST, SLOW)
SETTINGS = Settings(round_gap_ms=0, profile=False, price_limit_ppm=None)
WINDOW_MS = SETTINGS.window_ms
JOB = "run: train\nresources: {cpus: 1, memory: 1GiB}\n"
PACED = JOB + "throughput: {fast: 300, slow: 10}\ntotal_steps: 300000\n"
"""A thousand seconds on the fast family, which is the one that an iteration is cheapest on."""


class Cluster:
    """A master whose cloud, workers and planner are the test."""

    def __init__(self, state: State | None = None, settings: Settings = SETTINGS) -> None:
        self.machine = Machine(state or State(CATALOG), settings)
        self.now = 0
        self.sessions = 0
        self.rounds = 0
        self.request: RequestPlan | None = None

    @property
    def state(self) -> State:
        return self.machine.state

    def handle(self, *events: object, at: int) -> list[Action]:
        self.now = at
        actions = self.machine.handle(list(events), Millis(at))  # type: ignore[arg-type]
        for action in actions:
            if isinstance(action, RequestPlan):
                self.rounds, self.request = self.rounds + 1, action
        return actions

    def submit(self, text: str, *, name: str, at: int = 0, owner: str = "me") -> list[Action]:
        """Submit a job the way users do: as a file."""
        spec = parse_job(
            text, file_name="j", owner=owner, catalog=self.state.catalog, workdir=None, name=name
        )
        return self.handle(JobSubmitted(f"command-{name}", spec), at=at)

    def start(
        self,
        text: str,
        *,
        on: Offering = FAST,
        name: str = "job",
        at: int = 0,
        owner: str = "me",
        beside: RunId | None = None,
    ) -> None:
        """Have a job's tasks run from `at` on, each on an instance of its own or beside another."""
        before = set(self.state.instances)
        self.submit(text, name=name, at=at, owner=owner)
        if beside is not None:
            self._join(beside, at=at)
        while self.request is not None:
            request, self.request = self.request, None
            waiting = [run.id for run in request.snapshot.runs if run.instance is None]
            launches = tuple(NewInstance(key, on) for key in range(len(waiting)))
            places = tuple(Assign(run, key) for key, run in enumerate(waiting))
            self.handle(PlanReady(request.round, Plan(launches, places), None), at=at)
        for instance in sorted(set(self.state.instances) - before):
            self.register(instance, at=at)
            for run in self.state.occupants(instance):
                self.say(run.id, Phase.RUNNING, at=at)

    def _join(self, beside: RunId, *, at: int) -> None:
        instance = self.state.runs[beside].instance
        request, self.request = self.request, None
        assert instance is not None
        assert request is not None
        waiting = [run.id for run in request.snapshot.runs if run.instance is None]
        places = tuple(Assign(run, instance) for run in waiting)
        session = self.state.sessions[instance]
        fetched = [WorkerFetched(instance, session, run) for run in waiting]
        self.handle(PlanReady(request.round, Plan((), places), None), *fetched, at=at)
        for run in waiting:
            self.say(run, Phase.RUNNING, at=at)

    def register(self, instance: InstanceId, *reports: RunReport, at: int) -> None:
        self.sessions += 1
        up = InstanceUp(instance, Millis(at))
        self.handle(up, WorkerRegistered(instance, self.sessions, SIZE, reports), at=at)

    def say(self, run: RunId, phase: Phase, *, at: int, **more: int) -> list[Action]:
        record = self.state.runs[run]
        assert record.instance is not None
        session = self.state.sessions[record.instance]
        report = RunReport(run, record.attempt, phase, **more)  # type: ignore[arg-type]
        return self.handle(WorkerReported(record.instance, session, (report,)), at=at)

    def progress(
        self, steps: int, *, at: int, total: int = 0, run: str = "job-1/0"
    ) -> list[Action]:
        record = self.state.runs[RunId(run)]
        assert record.instance is not None
        sample = (record.id, record.attempt, Progress(steps, total))
        session = self.state.sessions[record.instance]
        return self.handle(ProgressSampled(record.instance, session, (sample,)), at=at)

    def steady(self, per_s: float, *, until: int, first: int = 0) -> None:
        """Report steps every other second from now on, at a steady rate."""
        begin = self.now
        for at in range(begin + 2_000, until + 1, 2_000):
            self.progress(first + round((at - begin) * per_s / 1_000), at=at)

    def view(self, run: str = "job-1/0") -> RemainingWork | None:
        seen = snapshot(self.state, Millis(self.now), SETTINGS)
        return next(view.remaining for view in seen.runs if view.id == run)

    def job_view(self, job: str) -> JobView:
        """The view of a job that a policy would see now."""
        seen = snapshot(self.state, Millis(self.now), SETTINGS)
        return next(view for view in seen.jobs if view.id == job)

    def left(self, run: str = "job-1/0") -> int:
        """The remaining time that a policy would see now."""
        view = self.view(run)
        assert view is not None
        return view.standalone_ms(Millis(self.now))

    def outlook(self, run: str = "job-1/0") -> Outlook:
        """The outlook that a user would see now."""
        job = self.state.jobs[self.state.runs[RunId(run)].job]
        runs = list(self.state.members(job.id))
        _, told = remaining.outlooks(self.state, job, runs, runs, Millis(self.now))
        return told[self.state.runs[RunId(run)].index]

    def eta(self, run: str = "job-1/0") -> int | None:
        """Its ETA alone."""
        return self.outlook(run).eta_ms
