"""Has a simulated cloud sell and take back spot instances as a market's capacity and prices say."""

from __future__ import annotations

from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.cloud import SimulatedCloud, SimulatedInstance
from eva_lab.simulator.cluster.workers import SimulatedWorkers
from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.events import Quoted
from eva_master.model.fleet.market import Market, Span
from eva_master.ports import Inbox
from eva_wire.values.ids import InstanceId, Millis, OfferingId

NOTICE_MS = 120_000
"""From the notice of an interruption to the end, as on EC2."""


class SimulatedSpotMarket:
    """Refuses launches, takes instances back with notice, and quotes prices.

    Other sources of refusals and watchers of machines are kept.

    Args:
        market: Capacity and prices over time.
        catalog: Offerings on sale.
        timeline: The virtual time; the market begins now.
        cloud: Sells the instances.
        workers: Get notices.
        inbox: Gets new prices.

    Attributes:
        refused: How many launches were.
        interrupted: How many instances were taken back.
    """

    def __init__(
        self,
        market: Market,
        catalog: Catalog,
        *,
        timeline: Timeline,
        cloud: SimulatedCloud,
        workers: SimulatedWorkers,
        inbox: Inbox,
    ) -> None:
        self._market = market
        self._catalog = catalog
        self._timeline = timeline
        self._cloud = cloud
        self._workers = workers
        self._inbox = inbox
        self._began = timeline.now()
        self._pools: dict[OfferingId, tuple[Span, ...]] = {}
        for offering in catalog:
            spans = market.spans(offering.type.name, offering.zone)
            if offering.purchase is Purchase.SPOT and spans is not None:
                self._pools[offering.id] = spans
        self._there: dict[OfferingId, list[InstanceId]] = {}
        """Requested and running instances of each pool, the oldest first."""
        self._watched: set[OfferingId] = set()
        self._leaving: set[InstanceId] = set()
        self.refused = 0
        self.interrupted = 0
        self._sold_out, self._watch = cloud.sold_out, cloud.watch
        cloud.sold_out = self._refuses
        cloud.watch = self._sold
        if self._pools and market.changes_prices:
            self._quote()

    def _now(self) -> int:
        return self._timeline.now() - self._began

    def _capacity(self, pool: OfferingId) -> int:
        return self._market.at(self._pools[pool], self._now()).capacity

    def _refuses(self, offering: OfferingId) -> bool:
        if self._sold_out(offering):
            return True
        if offering not in self._pools:
            return False
        # Sold instances count before they are up; instances with notice still take their room.
        if self._cloud.sold(offering) >= self._capacity(offering):
            self.refused += 1
            return True
        return False

    def _sold(self, machine: SimulatedInstance) -> None:
        self._watch(machine)
        pool = machine.offering.id
        if pool in self._pools:
            self._there.setdefault(pool, []).append(machine.instance)
            self._take_back(pool)
            if pool not in self._watched:
                self._watched.add(pool)
                self._look_again(pool)

    def _take_back(self, pool: OfferingId) -> None:
        """Take back what is too many, the youngest first."""
        live = [instance for instance in self._there[pool] if self._cloud.is_there(instance)]
        self._there[pool] = live
        staying = [instance for instance in live if instance not in self._leaving]
        for instance in staying[self._capacity(pool) :]:
            self._interrupt(instance)

    def _look(self, pool: OfferingId) -> None:
        self._take_back(pool)
        if self._there[pool]:
            self._look_again(pool)
        else:
            self._watched.discard(pool)

    def _look_again(self, pool: OfferingId) -> None:
        """Look at a pool when it changes next."""
        wait = self._market.next_ms(self._pools[pool], self._now()) - self._now()
        self._timeline.after(wait, lambda: self._look(pool))

    def _interrupt(self, instance: InstanceId) -> None:
        self._leaving.add(instance)
        self.interrupted += 1
        self._workers.interrupt(instance, Millis(self._timeline.now() + NOTICE_MS))

        def end() -> None:
            self._leaving.discard(instance)
            self._cloud.fail(instance, "its spot capacity was taken back", reclaimed=True)

        self._timeline.after(NOTICE_MS, end)

    def _quote(self) -> None:
        now = self._now()
        prices = self._market.prices(self._catalog, now)
        self._cloud.reprice(dict(prices))
        self._inbox.post(Quoted(prices))
        after = min(self._market.next_ms(spans, now) for spans in self._pools.values())
        self._timeline.after(after - now, self._quote)
