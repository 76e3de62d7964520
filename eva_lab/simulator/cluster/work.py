"""The work of simulated tasks, and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from eva_lab.simulator.cluster.clock import Timer
from eva_master.model.actions import TaskOrder
from eva_master.model.events import Phase, RunReport
from eva_master.model.forks.merging import PartFate
from eva_master.model.progress import NO_PROGRESS, Progress
from eva_wire.values.ids import InstanceId, JobId, RunId

_ROUNDING = 1e-6
"""Tolerance for sums of floats, in steps and milliseconds."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint of a task.

    Attributes:
        done_ms: The work that it contains.
        attempt: The attempt that published it.
    """

    done_ms: float
    attempt: int


@dataclass(slots=True)
class Work:
    """The work of a task, in milliseconds of running alone at speed 1.

    Attributes:
        total_ms: The whole work of the task.
        stored: The checkpoint generations in the object store.
        publishes: Whether it ever writes a checkpoint; in most gangs rank 0 does alone.
        failures: Exit codes of the next attempts that fail, first one next.
        steps_per_s: Iterations, running alone; the finer, the more exact are measurements.
        saves_every_ms: From one checkpoint that its program writes by itself to the next, 0 for
            none.
        tells_total: Whether its program says how many iterations it has in all.
        tells_steps: Whether it says how many it has done.
        gives_parts: Whether it gives its parts if it is forked.
    """

    total_ms: float
    stored: dict[int, Checkpoint] = field(default_factory=dict)
    publishes: bool = True
    failures: list[int] = field(default_factory=list)
    steps_per_s: float = 1.0
    saves_every_ms: int = 0
    tells_total: bool = True
    tells_steps: bool = True
    gives_parts: bool = True

    def give_up_after(self, generation: int) -> None:
        """Remove all generations after a given one."""
        self.stored = {number: held for number, held in self.stored.items() if number <= generation}

    def progress(self, done_ms: float) -> Progress:
        """The report of a program that has done so much."""
        if not self.tells_steps:
            return NO_PROGRESS
        total_steps = self.steps(self.total_ms) if self.tells_total else 0
        return Progress(self.steps(done_ms), total_steps)

    def steps(self, done_ms: float) -> int:
        """The finished iterations in so much work."""
        return int(done_ms * self.steps_per_s / 1000 + _ROUNDING)


@dataclass(slots=True)
class ForkProgram:
    """Received messages and progress of one fork's program.

    Attributes:
        gives: Whether it gives its parts, as programs do that use the library.
        epoch: The epoch in which it trains or trained last, 0 for none.
        base_ms: The work that it had done by itself when that began.
        alone: Whether it goes on without the others for good.
        last: Whether its share is all that is left, so that it ends with it.
        weights: Names the merge that it trains from; empty for none.
        given: Steps of the part that it gave in this epoch; `None` if it gave none.
        merging: Whether it is merging the parts of this epoch.
        done: The merge of this epoch, once it has made it.
        made: Its name, which says what is in it.
    """

    gives: bool = True
    epoch: int = 0
    base_ms: float = 0.0
    alone: bool = False
    last: bool = False
    weights: str = ""
    given: int | None = None
    merging: bool = False
    done: tuple[PartFate, ...] | None = None
    made: str = ""


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """An attempt on a simulated worker.

    Attributes:
        instance: Where it runs.
        work: The work of its task.
        since_ms: When it was ordered.
        family_speed: How fast it runs alone on the family of its instance.
        done_ms: Work done at `at_ms`; it grows at `speed` from then on.
        generation: The newest checkpoint that it resumed from or published.
        end: Timer of the end of its work at this speed; `None` if it makes no progress.
        watch: Number of changes that restart a measurement, so that an outdated one is recognised.
        cold: Whether it has not been measured yet since its start.
        together_ms: When the last of its crew had started, `None` before.
        halted_ms: When it was told to stop or ended, `None` before.
        moving_ms: How long it has made progress, up to `at_ms`.
        saved_ms: The work in the last checkpoint that its program wrote by itself, up to `at_ms`.
        seen_ms: The true work done when it last reported. told_ms: The work that it then reported,
            since reports may be noisy.
        paused: Whether its program does nothing for now.
        fork: Program's part as a fork; `None` in a job without forks.
        until_ms: Work at which a fork's present share is done.
        image_ms: How long it waited for its image; `None` without one.
    """

    order: TaskOrder
    instance: InstanceId
    work: Work
    since_ms: int
    family_speed: float = 1.0
    phase: Phase = Phase.STARTING
    done_ms: float = 0.0
    generation: int = 0
    at_ms: int = 0
    speed: float = 0.0
    end: Timer | None = None
    watch: int = 0
    cold: bool = True
    together_ms: int | None = None
    halted_ms: int | None = None
    moving_ms: int = 0
    saved_ms: float = 0.0
    seen_ms: float = 0.0
    told_ms: float = 0.0
    stopping: bool = False
    report: RunReport | None = None
    paused: bool = False
    fork: ForkProgram | None = None
    until_ms: float | None = None
    image_ms: int | None = None

    @property
    def crew(self) -> tuple[JobId | RunId, int]:
        """Key of the attempts that it progresses with: the gang's attempt, or itself."""
        order = self.order
        return (order.run if order.gang is None else order.job), order.attempt

    def done(self, now: int) -> float:
        """The work done at a given time."""
        return self.done_ms + (now - self.at_ms) * self.speed

    def context(self, now: int, speed: float) -> None:
        """Continue at another speed from now on."""
        if self.speed > 0:
            self.moving_ms += now - self.at_ms
        self.saved_ms = self.saved(now)
        self.done_ms = self.done(now)
        self.at_ms = now
        self.speed = speed

    def saved(self, now: int) -> float:
        """The work in the last checkpoint that its program has written by itself.

        All members of a gang write theirs at the same time, hence of the same work.
        """
        every = self.work.saves_every_ms
        if not every or self.together_ms is None or self.speed <= 0:
            return self.saved_ms
        last = now - (now - self.together_ms) % every
        return self.done(last) if last >= self.at_ms else self.saved_ms

    def left_ms(self, done_ms: float, now: int) -> int:
        """Time from now until so much work is done; it must make progress."""
        return ceil((done_ms - self.done(now)) / self.speed - _ROUNDING)
