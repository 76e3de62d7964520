"""How much a round may do: a sum of weighted counts, never a time.

So a plan is the same on every machine. Each kind of work weighs what it takes on the machine on
which `benchmarks.round_work` was run last, in nanoseconds. A round has one budget. Half of it is
for placing tasks that wait one by one, which any policy does: no more of them are shown to it.
Searches have parts of their own, and what one of them leaves is not for the other.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from eva_master.model.planning.plan import Plan
from eva_master.model.planning.snapshot import ROUND_WORK, Snapshot

WORK_DONE = "work_us"
"""Name of the figure of a plan that counts its work, in microseconds of weight."""
_NS_PER_US = 1_000
_UNLIMITED = 1 << 62


class WorkKind(IntEnum):
    """Kinds of work; the value of each is its weight, in nanoseconds."""

    LOAD = 4_000
    """A task multiset that the local search meets for the first time in a round."""
    CANDIDATE = 20
    """A place that it considers for a task."""
    MEMBERS = 10
    """Members of one gang and class that it visits at such a place."""
    TAKEN = 400
    """A task that it takes from its place, to put it back there or elsewhere."""
    SET = 250
    """A task set that pricing looks at."""
    CHOICE = 100
    """A multiset of workloads, or a choice of a class for one of its tasks, that pricing does."""
    EXCHANGED = 25
    """A pair of instances that the search compares to send tasks back where they run."""
    RESIZED = 30_000
    """A task of a plan that is compared with others for another size of one elastic gang."""
    PLACED = 1_000_000
    """A waiting task that is placed greedily, by a policy that takes long for it."""


_PLACING_PART, _SEARCHING_PART, _PRICING_PART, _HOMING_PART, _SIZES_PART = 50, 20, 4, 4, 20
"""Parts of a round's budget, in hundredths; the rest is for claims, reasons and the lower bound."""


class WorkBudget:
    """Work that a search may still do in this round.

    Args:
        left: In nanoseconds of weight.

    Attributes:
        left: Work that is left.
        spent: Work that was done.
    """

    __slots__ = ("left", "spent")

    def __init__(self, left: int = _UNLIMITED) -> None:
        self.left = left
        self.spent = 0

    def affords(self, work: WorkKind) -> int:
        """How much more of one kind of work may be done."""
        return self.left // work

    def spend(self, work: WorkKind, count: int = 1) -> None:
        """Count work that was done; no less than none is left."""
        done = min(work * count, self.left)
        self.left -= done
        self.spent += done


def round_budgets(work: int = ROUND_WORK) -> tuple[WorkBudget, WorkBudget]:
    """Budgets of one round: of the local search and of the LP's pricing.

    Args:
        work: The budget of the round, in microseconds.
    """
    hundredth = work * _NS_PER_US // 100
    return WorkBudget(hundredth * _SEARCHING_PART), WorkBudget(hundredth * _PRICING_PART)


def homing_budget(work: int = ROUND_WORK) -> WorkBudget:
    """Budget of one round for sending tasks back where they run, which follows the search.

    Args:
        work: The budget of the round, in microseconds.
    """
    return WorkBudget(work * _NS_PER_US // 100 * _HOMING_PART)


def after(plan: Plan, snapshot: Snapshot) -> Snapshot:
    """The snapshot for the next plan of the same round: its work is what this plan has left.

    Args:
        plan: A plan for the snapshot, or for a part of it.
        snapshot: The cluster.
    """
    done = int(plan.figures.get(WORK_DONE, 0))
    return replace(snapshot, work=max(1, snapshot.work - done)) if done else snapshot


def tasks_shown(work: int) -> int:
    """How many waiting tasks a policy is shown in a round at most.

    Args:
        work: The budget of the round, in microseconds.
    """
    return max(1, work * _NS_PER_US // 100 * _PLACING_PART // WorkKind.PLACED)


def gangs_resized(work: int, tasks: int) -> int:
    """How many elastic gangs a round looks at whether another size is better.

    Args:
        work: The budget of the round, in microseconds.
        tasks: Tasks of the cluster once all elastic gangs have grown: all make up a plan's cost.
    """
    each = WorkKind.RESIZED * max(1, tasks)
    return max(1, work * _NS_PER_US // 100 * _SIZES_PART // each)


def for_placing(snapshot: Snapshot) -> int:
    """The work of a plan for the tasks that wait, in microseconds; the search is not part of it."""
    waiting = sum(run.instance is None for run in snapshot.runs)
    return waiting * WorkKind.PLACED // _NS_PER_US
