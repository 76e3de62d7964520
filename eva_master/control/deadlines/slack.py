"""How much time a job may lose and still arrive by its deadline."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from eva_master.control.measure import remaining
from eva_master.control.planning.snapshot_builder import checkpoint_ms, launch_ms
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords, crew
from eva_master.learning.delays import Delay
from eva_master.model.catalog import Purchase, is_spot
from eva_master.model.fleet.partitions import Offers
from eva_master.model.ids import Family, Millis
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.estimate import LONGEST_MS
from eva_master.model.records import Job, TaskRun
from eva_master.model.states import TERMINAL_RUN

_SURE = 3, 2
"""What a change is expected to take, times this, is kept for it at least."""


@dataclass(frozen=True, slots=True)
class Slack:
    """How a job with a deadline stands.

    Attributes:
        left_ms: The work that is left, in its present company.
        slack_ms: How long it may do nothing, beyond the reserve.
        reserve_ms: What is kept at all times for one change to instances on demand, which few
            exceed, and for work that may be lost with a spot instance.
        change_ms: How long such a change is expected to take.
    """

    left_ms: int
    slack_ms: int
    reserve_ms: int
    change_ms: int


def has_a_choice(state: PlanningRecords, job: Job, settings: Settings) -> bool:
    """Whether all of its tasks may run on spot instances and on others that its partition has."""
    kinds = [_families(it) for it in state.kinds(job.id)]
    if not all(_on_both_markets(it) for it in kinds):
        return False
    home = settings.partitions.home(job.partition)
    if home.offers == Offers():
        return True
    sold = {it.type.family for it in state.catalog if home.sells(it)}
    return all(_on_both_markets(sold.intersection(it)) for it in kinds)


def _on_both_markets(families: Collection[Family]) -> bool:
    spot = sum(map(is_spot, families))
    return 0 < spot < len(families)


def slack(state: PlanningRecords, job: Job, now: Millis, settings: Settings) -> Slack | None:
    """How a job with a deadline stands; `None` if nobody knows how long it takes."""
    assert job.spec.deadline is not None
    left_ms = _left_ms(state, job, now)
    if left_ms is None:
        return None
    change_ms = _change_ms(state, job, settings)
    most, of = _SURE
    reserve_ms = max(change_ms * most // of, _change_ms(state, job, settings, slowest=True))
    reserve_ms += max(settings.round_gap_ms, settings.round_grid_ms)
    reserve_ms += job.spec.checkpoint_interval_ms  # What a loss without notice takes along.
    due_ms = job.spec.deadline.due_ms(job.submitted_ms, state.wall)
    slack_ms = due_ms - now - left_ms - reserve_ms
    return Slack(left_ms, slack_ms, reserve_ms, change_ms)


def slack_alone_ms(state: PlanningRecords, job: Job, now: Millis, stands: Slack) -> int:
    """How long a job may do nothing beyond the reserve if it is alone from then on."""
    left_ms = _left_ms(state, job, now, alone=True)
    return stands.slack_ms + (0 if left_ms is None else max(0, stands.left_ms - left_ms))


def _change_ms(
    state: PlanningRecords, job: Job, settings: Settings, *, slowest: bool = False
) -> int:
    """From the order to stop until it runs on demand."""
    kinds = state.kinds(job.id)
    stops_ms = checkpoint_ms(state, job.spec, kinds, settings, slowest=slowest)
    return stops_ms + _start_ms(state, job.spec, kinds, settings, slowest=slowest)


def _left_ms(state: PlanningRecords, job: Job, now: Millis, *, alone: bool = False) -> int | None:
    """How long a job goes on; of an array as many tasks run at once as it asks for."""
    left = [remaining.left_ms(state, it, now, alone=alone) for it in in_work(state, job)]
    waiting = 0
    if not job.is_gang:
        over = state.succeeded(job.id) + state.failed(job.id)
        waiting = job.spec.size - over - len(left)
    longest_ms = remaining.longest_ms(state, job) if waiting > 0 else 0
    known = [it for it in left if it is not None]
    if longest_ms is None or len(known) < len(left):
        return None
    left_ms = max(known, default=0)
    if (at_once := job.spec.concurrency) is None:
        left_ms = max(left_ms, longest_ms)
    else:
        left_ms += longest_ms * -(-max(0, waiting) // at_once)
    # What should be over and is not takes nobody knows how long.
    return left_ms if 0 < left_ms < LONGEST_MS else None


def in_work(state: PlanningRecords, job: Job) -> list[TaskRun]:
    """The task runs of a gang, or those of an array that have or are to have a place."""
    runs = crew(state, job.id) if job.is_gang else state.in_hand(job.id)
    return [it for it in runs if it.state not in TERMINAL_RUN]


def _families(task: TaskSpec) -> list[Family]:
    return [family for family, _ in task.demand]


def _start_ms(
    state: PlanningRecords,
    spec: JobSpec,
    kinds: Iterable[TaskSpec],
    settings: Settings,
    *,
    slowest: bool = False,
) -> int:
    """From an order on demand until the tasks run there."""
    kinds = tuple(kinds)
    families = {family for task in kinds for family in _families(task)}
    delays = state.learned.delays
    lookup = delays.slowest if slowest else delays.lookup
    boots = (
        lookup(Delay.ACQUISITION, it.type.name, hint=None, default=it.type.acquisition_ms)
        + lookup(Delay.SETUP, it.type.name, hint=None, default=it.type.setup_ms)
        for it in state.catalog
        if it.purchase is not Purchase.SPOT and it.type.family in families
    )
    return max(boots, default=0) + launch_ms(state, spec, kinds, settings, slowest=slowest)
