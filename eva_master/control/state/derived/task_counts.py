"""What readers are told of all tasks of a job together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.control.state.derived.kinds import Kinds
from eva_master.control.state.finished import Kind
from eva_master.learning.run_times.posterior import Finished
from eva_master.model.job import TaskSpec
from eva_master.model.states import TERMINAL_RUN, RunState


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """What the tasks of a job did by one moment; as large for a million tasks as for ten.

    Attributes:
        kinds: Its tasks by kind.
        states: How many are in each state; a state of none is left out.
        in_hand: How many of their runs have an instance or a target.
        suspended: How many plans have suspended, of those that are not over and do not run.
        reasons: Why tasks wait to which nothing has happened, see `Kinds.place`.
        ended: Indices of some that ended last, the last one first.
        telling: What finished ones of an array that has not ended took, by kind, that tell how long
            the others take.
        finished: What all finished ones took, by kind.
        pilots_left: How many of its pilots have not succeeded; `None` if it has none.
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
        """Why a task waits to which nothing has happened."""
        return self.kinds.why(self.reasons, task)

    @property
    def left(self) -> int:
        """How many are not over."""
        return sum(count for state, count in self.states.items() if state not in TERMINAL_RUN)
