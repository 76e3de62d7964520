"""Events since the last round, and the extent of the plan that they allow."""

from __future__ import annotations

from eva_master.model.catalog import Purchase
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.bins.replan_trigger import happened
from eva_master.packing.configuration.build import Configuration
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory
from eva_master.packing.reconfiguration.state_digest import StateDigest
from eva_wire.values.ids import OfferingId

_MOST_ANSWERS = 3
"""So many answers are given while nothing changes but by them. One may make room for a better one,
and a search may miss what the next one finds; but everything comes to rest."""


class ReplanTrigger:
    """Compares a snapshot with the last one that was answered.

    An event that leads back to the aim of the last answer asks the same question again. The
    question is answered until the answer is to change nothing, and a few times at most.

    Args:
        memory: Memory of the last round.
        snapshot: The cluster now.
        cache: Source of the digest of learned values.
        options: Options of the policy, since others may answer the same question differently.
        markets: Whether a spot offering that comes on sale, or whose price has changed, counts as
            an event.

    Attributes:
        events: Jobs that arrived or ended since the last answer.
        total: Jobs that arrived or ended since the cluster began.
        full: Whether everything may be reconsidered: there were events, task runs that could not be
            moved at the last one now can, or a market has something new to offer.
        partial: Whether a part may be reconsidered: `full`, or something was learned.
        waiting: Whether a task run is without a place.
    """

    def __init__(
        self,
        memory: ReconfigurationMemory,
        snapshot: Snapshot,
        cache: PlannerCache,
        options: object = None,
        *,
        markets: bool = False,
    ) -> None:
        placed, live = cache.placed(snapshot), cache.sold_as(snapshot)
        since = happened(snapshot, memory.events, memory.pinned_instances)
        nowhere = (run for run, host in placed.instances.items() if host not in live)
        self.waiting = any(run not in placed.pinned for run in nowhere)
        self._pinned, self.total, self.events = since.pinned, since.total, since.events
        self._learned = cache.digest(snapshot.throughput, snapshot.standalone)
        self._spot = _on_sale(snapshot) if markets else ()
        offered = not set(memory.spot).issuperset(self._spot)
        self._asked = since.due or offered
        inputs = f"{self._learned} {options}"
        self._digest = StateDigest(snapshot, inputs, cache) if self._asked else None
        self._state = "" if self._digest is None else self._digest.of()
        self._answers = memory.answers if self._asked and self._state == memory.aimed_at else 0
        self.full = self._asked and self._answers < _MOST_ANSWERS
        self.partial = self.full or self._learned != memory.learned

    def remember(self, memory: ReconfigurationMemory) -> ReconfigurationMemory:
        """Memory of this round for the next one."""
        pinned = self._pinned if self._asked else memory.pinned_instances
        return replace(
            memory,
            events=self.total,
            pinned_instances=pinned,
            learned=self._learned,
            spot=self._spot,
        )

    def answered(
        self, memory: ReconfigurationMemory, configuration: Configuration
    ) -> ReconfigurationMemory:
        """Memory of the answer for the next round.

        Args:
            memory: The result of `remember`.
            configuration: The one that was chosen.
        """
        if not self.full or self._digest is None:
            return memory
        aimed_at = self._digest.of(configuration)
        answers = _MOST_ANSWERS if aimed_at == self._state else self._answers + 1
        return replace(memory, aimed_at=aimed_at, answers=answers)


def _on_sale(snapshot: Snapshot) -> tuple[tuple[OfferingId, int], ...]:
    """The spot offerings that may be bought now, with their prices."""
    now = snapshot.now_ms
    return tuple(
        sorted(
            (offering.id, int(offering.price))
            for offering in snapshot.catalog
            if offering.purchase is Purchase.SPOT
            and offering.limit != 0
            and offering.available(now)
        )
    )
