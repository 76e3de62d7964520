"""Jobs that would rest at their owner's limit of a month as soon as they are submitted."""

from __future__ import annotations

from eva_master.control.features.budgets.spending import (
    ALL_PERCENT,
    Scope,
    limits_of_months,
    spendings,
)
from eva_master.control.settings import Settings
from eva_master.control.state.records import Records
from eva_master.model.arithmetic.calendar import DAY_MS, date_of, month_of
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_wire.values.ids import Millis


def rest(state: Records, settings: Settings, owner: str, now: Millis) -> str:
    """The reason for which a new job of an owner would rest; empty if it would not.

    Args:
        state: The records.
        settings: Limits, and assumed delays of stops.
        owner: The owner.
        now: The time.
    """
    if not limits_of_months(settings):
        return ""
    for name in state.active:
        job = state.jobs[name]
        if job.spec.owner != owner or job.suspension is None:
            continue
        if job.suspension.by is Suspender.MONTH:
            return job.suspension.words
    until = date_of(month_of(now)[1] // DAY_MS)
    for spent in spendings(state, settings, now):
        if (spent.scope, spent.name, spent.level) == (Scope.OWNER, owner, ALL_PERCENT):
            return Suspension(Suspender.MONTH, now, reason=spent.words(until, stops=True)).words
    return ""
