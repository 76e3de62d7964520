"""A small cluster whose launches are counted."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import Offering
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Hold, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import InstanceState, JobState
from tests.fakes.jobs import CATALOG, Script

MINUTE_MS = 60_000
BOOT_MS = 70_000
"""Of each type of `CATALOG`."""
FIRST = InstanceId("i00001")
DELAYS = EqualDelays(fetch_ms=2_000, start_ms=1_000, stop_ms=10_000, report_ms=5_000)
SETTINGS = Settings(round_gap_ms=5_000)
"""With the least time between two rounds that a master has by default."""


class World(SimulatedCluster):
    """A cluster of a policy, with commands of users."""

    def __init__(
        self,
        *catalog: Offering,
        policy: str = "eva",
        settings: Settings = SETTINGS,
        delays: EqualDelays = DELAYS,
        **more: object,
    ) -> None:
        kind = policies()[policy]
        super().__init__(
            catalog or CATALOG,
            kind.build(kind.config()),
            settings=settings,
            delays=delays,
            **more,  # type: ignore[arg-type]
        )
        self._told = 0

    def post(self, kind: type, *about: object, at_min: float = 0) -> None:
        """Have a command come at a time."""
        self._told += 1
        event = kind(f"command-{self._told}", *about)
        wait = round(at_min * MINUTE_MS) - self.timeline.now()
        self.timeline.after(max(0, wait), lambda: self.inbox.post(event))

    def come(self, spec: JobSpec, at_min: float = 0) -> None:
        """Have a job come at a time."""
        self.submit(spec, at=Millis(round(at_min * MINUTE_MS)))

    def play(self, until_min: float) -> None:
        """Let time pass until a moment."""
        until = round(until_min * MINUTE_MS)
        self.timeline.after(max(0, until - self.timeline.now()), lambda: None)
        self.run(lambda: self.timeline.now() >= until)

    def finish(self) -> None:
        """Let time pass until all jobs have ended and all instances are gone."""
        assert self.run(self.quiet, limit_ms=2 * 86_400_000)

    @property
    def launches(self) -> int:
        """How many instances there ever were."""
        return len(self.state.instances)

    def billed(self) -> int:
        """How many instances the cloud ever billed."""
        return len(self.cloud.bill())

    def billed_long(self, least_ms: int) -> list[str]:
        """The instances that the cloud billed for so long at least."""
        bill = self.cloud.bill()
        return [
            name for name, it in bill.items() if (it.gone_ms or 0) - (it.up_ms or 0) >= least_ms
        ]

    def ended(self, state: JobState = JobState.SUCCEEDED) -> int:
        """How many jobs have ended in a state."""
        return sum(job.state is state for job in self.state.jobs.values())

    def live(self) -> list[str]:
        """The instances that are there or on their way, and do not go."""
        there = (self.state.instances[name] for name in self.state.live)
        return [it.id for it in there if it.state.value != "terminating"]


def after(spec: JobSpec, *others: str, **more: object) -> JobSpec:
    """A job that runs after others."""
    return with_values(spec, {"depends_on": tuple(map(JobId, others)), **more})


def entered(world: World, state: InstanceState, name: InstanceId = FIRST) -> int:
    """When an instance entered a state, -1 if it has not."""
    history = world.state.instances[name].history
    return next((at for known, at in history if known == state.value), -1)


def ended_ms(world: World, run: str) -> int:
    """When a task run ended."""
    return world.state.runs[RunId(run)].history[-1][1]


class Idle(Script):
    """A policy that gives each job an instance of its own, but for those that it holds."""

    def __init__(self, *held: str) -> None:
        super().__init__({}, {})
        self.held = held
        self.veto = lambda run: run.startswith(self.held)

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        plan, memory = super().plan(snapshot, memory)
        holds = tuple(
            Hold(it.id, "held by the test") for it in snapshot.runs if it.id.startswith(self.held)
        )
        return replace(plan, entries=(*plan.entries, *holds)), memory


class Scripted(World):
    """A world of a policy of the test's own."""

    def __init__(self, policy: Script, *catalog: Offering, **more: object) -> None:
        self._script = policy
        super().__init__(*catalog, **more)  # type: ignore[arg-type]
        self._planner._policy = policy
