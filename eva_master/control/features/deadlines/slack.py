"""How much time a job may lose and still arrive by its deadline."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from eva_master.control.measure import remaining
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords, crew
from eva_master.model.catalog import Purchase, is_spot
from eva_master.model.fleet.partitions import Offers
from eva_master.model.job import TaskSpec
from eva_master.model.planning.estimate import LONGEST_MS
from eva_master.model.records import Job, TaskRun
from eva_master.packing.valuation import delays
from eva_wire.values.ids import Family, Millis
from eva_wire.values.states import TERMINAL_RUN

_SURE = 3, 2
"""Factor on the expected duration of a change that is at least kept in reserve."""


@dataclass(frozen=True, slots=True)
class Slack:
    """Standing of a job against its deadline.

    Attributes:
        left_ms: Remaining time, beside its present neighbours.
        slack_ms: Time that it may lose beyond the reserve.
        reserve_ms: Time kept for one change to on-demand instances, by a measure that few changes
            exceed, and for work that may be lost with a spot instance.
        change_ms: Expected duration of such a change.
    """

    left_ms: int
    slack_ms: int
    reserve_ms: int
    change_ms: int


def has_a_choice(state: PlanningRecords, job: Job, settings: Settings) -> bool:
    """Whether all of its tasks may run on both markets, as far as its partition has them."""
    kinds = [_families(kind) for kind in state.tasks.kinds(job.id)]
    if not all(_on_both_markets(families) for families in kinds):
        return False
    home = settings.partitions.home(job.partition)
    if home.offers == Offers():
        return True
    sold = {offering.type.family for offering in state.catalog if home.sells(offering)}
    return all(_on_both_markets(sold.intersection(families)) for families in kinds)


def _on_both_markets(families: Collection[Family]) -> bool:
    spot = sum(map(is_spot, families))
    return 0 < spot < len(families)


def slack(state: PlanningRecords, job: Job, now: Millis, settings: Settings) -> Slack | None:
    """Standing of a job against its deadline; `None` if its run time is unknown."""
    assert job.spec.deadline is not None
    left_ms = _left_ms(state, job, now)
    if left_ms is None:
        return None
    change_ms = _change_ms(state, job, settings)
    most, of = _SURE
    reserve_ms = max(change_ms * most // of, _change_ms(state, job, settings, slowest=True))
    reserve_ms += max(settings.round_gap_ms, settings.round_grid_ms)
    reserve_ms += (
        job.spec.restarts.checkpoint_interval_ms
    )  # The work that a loss without notice destroys.
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
    """Time from the order to stop until the tasks run on demand."""
    kinds, learned = tuple(state.tasks.kinds(job.id)), state.learned
    families = {family for task in kinds for family in _families(task)}
    boots = (
        delays.booting(learned.delays, offering.type, slowest=slowest).boot_ms
        for offering in state.catalog
        if offering.purchase is not Purchase.SPOT and offering.type.family in families
    )
    change = delays.of_job(learned, job.spec, kinds, settings.assumed_delays, slowest=slowest)
    return max(boots, default=0) + change.change_ms


def _left_ms(state: PlanningRecords, job: Job, now: Millis, *, alone: bool = False) -> int | None:
    """Remaining time of a job; an array runs as many tasks at once as it asks for."""
    rests = [remaining.left_ms(state, run, now, alone=alone) for run in in_work(state, job)]
    waiting = 0
    if not job.is_gang:
        over = state.tasks.succeeded(job.id) + state.tasks.failed(job.id)
        waiting = job.spec.size - over - len(rests)
    longest_ms = remaining.longest_ms(state, job) if waiting > 0 else 0
    known_rests = [rest for rest in rests if rest is not None]
    if longest_ms is None or len(known_rests) < len(rests):
        return None
    left_ms = max(known_rests, default=0)
    if (at_once := job.spec.array.concurrency) is None:
        left_ms = max(left_ms, longest_ms)
    else:
        left_ms += longest_ms * -(-max(0, waiting) // at_once)
    # The remaining time of an overdue job is unknown.
    return left_ms if 0 < left_ms < LONGEST_MS else None


def in_work(state: PlanningRecords, job: Job) -> list[TaskRun]:
    """The task runs of a gang, or those of an array that have or are to have a place."""
    runs = crew(state, job.id) if job.is_gang else state.in_hand(job.id)
    return [run for run in runs if run.state not in TERMINAL_RUN]


def _families(task: TaskSpec) -> list[Family]:
    return [family for family, _ in task.demand]
