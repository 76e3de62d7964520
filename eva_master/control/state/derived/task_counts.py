"""Counts of all tasks of a job, for readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.control.state.derived.kinds import Kinds
from eva_master.control.state.finished import Kind
from eva_master.learning.run_times.posterior import Finished
from eva_master.model.job import TaskSpec
from eva_wire.values.states import TERMINAL_RUN, RunState


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Counts of a job's tasks at one moment; as small for a million tasks as for ten.

    Attributes:
        kinds: Its tasks by kind.
        states: Number of tasks in each state; a state without tasks is left out.
        in_hand: Number of task runs that have an instance or a target.
        suspended: Number of tasks suspended by plans that are not over and do not run.
        reasons: Reasons for which tasks without a record wait, see `Kinds.place`.
        ended: Indices of some tasks that ended last, the latest first.
        telling: Run times of the finished tasks, by kind, on which estimates for the other tasks of
            an array rest.
        finished: Run times of all finished tasks, by kind.
        pilots_left: Number of pilots that have not succeeded; `None` without pilots.
    """

    kinds: Kinds
    states: Mapping[RunState, int]
    in_hand: int
    suspended: int
    reasons: Mapping[int, str]
    ended: tuple[int, ...]
    telling: Mapping[Kind, Finished]
    finished: Mapping[Kind, Finished] = field(default_factory=dict)
    pilots_left: int | None = None

    def why(self, task: TaskSpec) -> str:
        """The reason for which a task without a record waits."""
        return self.kinds.why(self.reasons, task)

    @property
    def left(self) -> int:
        """Number of tasks that are not over."""
        return sum(count for state, count in self.states.items() if state not in TERMINAL_RUN)
