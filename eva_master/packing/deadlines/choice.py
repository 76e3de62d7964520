"""Where a job with a deadline runs next: on a spot instance, on demand, or nowhere for a while."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from eva_master.learning.market.survival import AGES_MS
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.packing.deadlines.table import CLASSES, Choices, MarketChoice, SpotForecast, table

_FINEST_MS = 60_000
_STEPS = 160
"""Work and time to lose are divided into so many steps at most."""
_TABLES = 64
"""So many are remembered, of 0.6 MB each."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a job is.

    Attributes:
        left_ms: The work that is left, as the time that it takes.
        slack_ms: The time that it may lose, beyond what a change to an instance on demand takes.
        change_ms: How long a change takes.
        place: Where it runs now.
        there: Whether spot instances are to be had, or it runs on one.
        age_ms: For how long they have been, or have not.
        ahead_ms: How much more work is done than if it were done evenly until the deadline.
    """

    left_ms: int
    slack_ms: int
    change_ms: int
    place: MarketChoice
    there: bool
    age_ms: int
    ahead_ms: int = 0


class Chooser:
    """Chooses by rules; it remembers tables, which take long to make."""

    def __init__(self) -> None:
        self._tables: dict[tuple[SpotForecast, int, int], tuple[Choices, ...]] = {}

    def choose(self, rule: SpotChoice, outlook: SpotForecast, now: Situation) -> MarketChoice:
        """The next step of a job: to run on spot, to run on demand, or to wait.

        A job without time to lose runs on demand. A move to a spot instance needs enough slack for
        a change, since the time kept for a change is for the change back.
        """
        if now.slack_ms <= 0 or rule is SpotChoice.ON_DEMAND:
            return MarketChoice.ON_DEMAND
        match rule:
            case SpotChoice.UNTIL_SAFETY_NET:
                chosen = _until_safety_net(now)
            case SpotChoice.UNIFORM_PROGRESS:
                chosen = _uniform(now)
            case SpotChoice.LEARNED:
                chosen = self._cheapest(outlook, now)
        comes = chosen is MarketChoice.SPOT and now.place is not MarketChoice.SPOT
        return MarketChoice.ON_DEMAND if comes and now.slack_ms < now.change_ms else chosen

    def _cheapest(self, outlook: SpotForecast, now: Situation) -> MarketChoice:
        step_ms = _step_ms(now.left_ms + now.slack_ms)
        work, slack = max(1, round(now.left_ms / step_ms)), now.slack_ms // step_ms
        if slack == 0:
            # A running job may use the rest of a step; no job may wait for longer.
            return MarketChoice.ON_DEMAND if now.place is MarketChoice.WAIT else now.place
        change = _of_few(now.change_ms / step_ms)
        choices = self._table(outlook, step_ms, change)
        age = bisect_right(AGES_MS, now.age_ms)
        pools = age if now.there else CLASSES + age
        return MarketChoice(int(choices[work + slack][work, pools, now.place]))

    def _table(self, outlook: SpotForecast, step_ms: int, change: int) -> tuple[Choices, ...]:
        wanted = outlook, step_ms, change
        choices = self._tables.pop(wanted, None)
        if choices is None:
            # One step more than the number that either is rounded up to.
            made = table(outlook, step_ms, change, _STEPS + 1)
            choices = tuple(choices for _, choices in made)
            while len(self._tables) >= _TABLES:
                del self._tables[next(iter(self._tables))]  # The least recently used table.
        self._tables[wanted] = choices
        return choices


def _until_safety_net(now: Situation) -> MarketChoice:
    if now.place is MarketChoice.ON_DEMAND:
        return MarketChoice.ON_DEMAND
    return MarketChoice.SPOT if now.there else MarketChoice.WAIT


def _uniform(now: Situation) -> MarketChoice:
    """Catch up on demand when behind, and stay there until two changes ahead."""
    if now.place is MarketChoice.SPOT:
        return MarketChoice.SPOT
    if now.place is MarketChoice.ON_DEMAND and now.ahead_ms < 2 * now.change_ms:
        return MarketChoice.ON_DEMAND
    if now.there:
        return MarketChoice.SPOT
    return MarketChoice.WAIT if now.ahead_ms >= 0 else MarketChoice.ON_DEMAND


def _of_few(steps: float) -> int:
    """The nearest of few lengths of a change: 1, 2, 3, 4, 6, 8, 12 and so on.

    Users state this length; a table for each of their values would keep the loop busy.
    """
    length = before = 1
    while length < min(steps, _STEPS):
        before = length
        length = length * 4 // 3 if length % 3 == 0 else max(length + 1, length * 3 // 2)
    return before if steps - before < length - steps else length


def _step_ms(whole_ms: int) -> int:
    """The length of a step: of few lengths, so that few tables are made."""
    step_ms = _FINEST_MS
    while step_ms * _STEPS < whole_ms:
        step_ms = step_ms * 4 // 3 if step_ms % 9 == 0 else step_ms * 3 // 2
    return step_ms
