"""Memory of parties with a limit of a month, and when each of them comes to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eva_master.control.alarms import Alarm, SpendingWatch, Wake
from eva_master.control.features.budgets.spending import (
    ALL_PERCENT,
    MonthSpending,
    Scope,
    limits_of_months,
    spendings,
)
from eva_master.control.state.parts.months import MonthLevels
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.accounting.months import MonthLevel
from eva_master.model.arithmetic.calendar import DAY_MS, date_of, month_of
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.planning.suspension import Suspender
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import Millis

_PAUSE_MS = 5_000
"""Least time between two looks at what is spent."""


class BudgetMemory(Feature):
    """Watches spending of a month: each change of a place or a price has it worked out anew.

    Attributes:
        stopped: Owners who have come to `limits.max_cost`, each with a sentence.
    """

    wakes = frozenset({Wake.BUDGET})

    def __init__(self) -> None:
        self.stopped: dict[str, str] = {}
        self._changed = False
        self._watch = SpendingWatch(Alarm(Wake.BUDGET))

    def started(self, turn: Turn) -> None:
        """Have spending looked at before a job starts or goes on."""
        if limits_of_months(turn.settings) or any(
            _rests(turn.state.jobs[job]) for job in turn.state.active
        ):
            self._watch.look(turn.alarms, turn.now)

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Note that a task run comes to an instance or leaves it."""
        if (None if old is None else old.instance) != run.instance:
            self._changed = True

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Note that an instance is billed from now on, no more, or at another price."""
        before = None if old is None else (old.up_ms, old.gone_ms, old.offering.price)
        if before != (instance.up_ms, instance.gone_ms, instance.offering.price):
            self._changed = True

    def end(self, turn: Turn) -> None:
        """Have spending looked at in the next turn, or as soon as it may be looked at again."""
        if not self._changed:
            return
        self._changed = False
        if limits_of_months(turn.settings):
            self._watch.look(turn.alarms, turn.now)

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Look at what is spent: tell of it, stop owners, and let them go on."""
        if not self._watch.rings(turn.now):
            return
        month, following = month_of(turn.now)
        until = date_of(following // DAY_MS)
        spent = spendings(turn.state, turn.settings, turn.now)
        levels = self._levels(turn, spent, month, until)
        stopped = {
            of.name: of.words(until, stops=True)
            for of in spent
            if of.scope is Scope.OWNER and levels[of.key].percent == ALL_PERCENT
        }
        changed = self.stopped.keys() != stopped.keys()
        self.stopped = stopped
        if changed:
            self._touch(turn)
        if limits_of_months(turn.settings):
            self._watch.free_ms = Millis(turn.now + _PAUSE_MS)
            times = [Millis(turn.now + of.in_ms) for of in spent if of.in_ms is not None]
            next_ms = max(min(times, default=following), self._watch.free_ms)
            self._watch.foresee(turn.alarms, turn.now, min(next_ms, following))

    def _levels(
        self, turn: Turn, spent: Iterable[MonthSpending], month: Millis, until: str
    ) -> Mapping[str, MonthLevel]:
        """The level of each party; one that has grown is told, and it falls with the month alone.

        So an owner who stands at the limit stays there though nothing runs any more, and nothing
        is kept back for a stop.
        """
        levels: dict[str, MonthLevel] = {}
        for of in spent:
            before = turn.state.month_levels.by_party.get(of.key)
            if before is None or (before.month_ms, before.most) != (month, of.most):
                before = MonthLevel(month, of.most, 0)
            levels[of.key] = before
            if of.level > before.percent:
                levels[of.key] = MonthLevel(month, of.most, of.level)
                owner = of.name if of.scope is Scope.OWNER else ""
                text = of.words(until, stops=of.level == ALL_PERCENT)
                turn.news.append(FeedEvent(0, turn.now, FeedKind.BUDGET, owner=owner, text=text))
        used_up = {key: level for key, level in levels.items() if level.percent}
        if used_up != turn.state.month_levels.by_party:
            turn.state.remember(MonthLevels(used_up))
        return levels

    def _touch(self, turn: Turn) -> None:
        """Have jobs converged that are to be suspended now, or to go on."""
        for name in turn.state.active:
            job = turn.state.jobs[name]
            if _rests(job) != (job.spec.owner in self.stopped):
                turn.touch_job(job.id)


def _rests(job: Job) -> bool:
    """Whether a job is suspended since its owner has come to a limit."""
    return job.suspension is not None and job.suspension.by is Suspender.MONTH
