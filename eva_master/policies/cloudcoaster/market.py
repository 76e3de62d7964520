"""What may be bought for the pools: by price per slot, within the money that there is for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.ids import MILLION, OfferingId, Price
from eva_master.model.job import TaskSpec
from eva_master.model.resources import Resources
from eva_master.packing.toolkit import Speeds
from eva_master.policies.cloudcoaster.config import Config

_MANY = 1_000_000
"""Slots of an instance for tasks that need nothing."""


def slots_of(offering: Offering, task: TaskSpec) -> int:
    """How many tasks of a kind an empty instance holds."""
    return slots_in(offering.type.capacity, task.demand_on(offering.type.family))


def slots_in(whole: Resources, need: Resources | None) -> int:
    """How many tasks fit into what is free, by what one needs; none if it can not be there."""
    if need is None or not need.fits(whole):
        return 0
    times = need.times_in(whole)
    return _MANY if times is None else times


def is_spot(offering: Offering) -> bool:
    """Whether the cloud may take it back."""
    return offering.purchase is Purchase.SPOT


class Market:
    """What is bought for tasks of one kind; the money is that of all members.

    Args:
        config: The settings.
        task: A task of that kind.
        members: The offerings of all members of the pools, those that are about to leave and those
            that are about to be bought included.
        on_sale: What one more instance may be taken of.
        speeds: How fast such a task runs on each family.
        listed: The catalog, whose prices on demand say how much money there is, though no more may
            be had at some of them; by default what is on sale.
    """

    def __init__(
        self,
        config: Config,
        task: TaskSpec,
        members: Iterable[Offering],
        on_sale: Iterable[Offering],
        speeds: Speeds = (),
        *,
        listed: Iterable[Offering] | None = None,
    ) -> None:
        self._speeds = dict(speeds)
        self._config = config
        self._slots: dict[OfferingId, int] = {}
        self._task = task
        self._on_sale = tuple(on_sale)
        prices = (
            Fraction(it.price, slots)
            for it in (self._on_sale if listed is None else listed)
            if it.purchase is Purchase.ON_DEMAND and (slots := self._count(it))
        )
        self._price = min(prices, default=Fraction(0))
        """Of a slot on demand."""
        self._steady = 0
        self._spent: Counter[tuple[str, str]] = Counter()
        for offering in members:
            if is_spot(offering):
                self._spent[_market_of(offering)] += offering.price
            else:
                self._steady += max(1, self._count(offering))

    @property
    def spent(self) -> int:
        """What the spot members cost, in micro-dollars per hour."""
        return self._spent.total()

    @property
    def budget(self) -> int:
        """What spot members may cost, in micro-dollars per hour.

        That is what the settings say, or N p times the price of a slot on demand; less those slots
        on demand that are beyond their own share.
        """
        whole = self._config.budget
        if whole is None:
            share = self._config.slots * self._config.transient_share_ppm
            whole = Price(int(self._price * share / MILLION))
        beyond = max(0, self._steady - self._config.steady_slots)
        return max(0, whole - int(self._price * beyond))

    @property
    def most_spot_slots(self) -> int:
        """K: how many slots on spot instances the money buys at the least price of one."""
        prices = (
            Fraction(it.price, slots)
            for it in self._on_sale
            if is_spot(it) and (slots := self._count(it))
        )
        price = min(prices, default=None)
        return 0 if price is None else int(self.budget / price) if price else _MANY

    def choose_spot(self, wanted: int) -> Offering | None:
        """The offering of one more spot instance, as `choose` has it."""
        found = [it for it in self._on_sale if self._count(it) and self._affordable(it)]
        return min(found, key=lambda it: self._rank(it, wanted), default=None)

    def choose_steady(self, wanted: int) -> Offering | None:
        """The offering of one more instance on demand of those that stay, as `choose` has it."""
        fits = self._on_demand(self._config.steady_slots - self._steady)
        found = [it for it in self._on_sale if self._count(it) and fits(it)]
        return min(found, key=lambda it: self._rank(it, wanted), default=None)

    def choose(self, wanted: int, *, forced: bool) -> Offering | None:
        """The offering of one more member.

        What is on demand comes first, up to its share; then spot; and what no spot instance can
        be had for is on demand, too.

        Args:
            wanted: So many slots are needed.
            forced: Whether there has to be one whatever it costs, since no member holds the task.
                It is on demand, unless the task runs on spot instances alone and there is none.

        Returns:
            The one with the least price for what a slot does; of equals the one that comes closest
            to what is needed. `None` if there is no money, or nothing is on sale.
        """
        steady = self._config.steady_slots - self._steady
        spent = -(-self.spent // self._price) if self._price else 0
        all_of_it = self._config.slots - self._steady - spent
        for fits in (self._on_demand(steady), self._affordable, self._on_demand(all_of_it)):
            if found := [it for it in self._on_sale if self._count(it) and fits(it)]:
                return min(found, key=lambda it: self._rank(it, wanted))
        hosts = [it for it in self._on_sale if self._count(it)] if forced else []
        steadily = [it for it in hosts if not is_spot(it)]
        if not steadily and self.spent:
            return None
        return min(steadily or hosts, key=lambda it: (it.price, it.id), default=None)

    def _on_demand(self, left: int) -> Callable[[Offering], bool]:
        return lambda it: not is_spot(it) and self._count(it) <= left

    def _affordable(self, offering: Offering) -> bool:
        if not is_spot(offering):
            return False
        budget = self.budget
        of_this = self._spent[_market_of(offering)]
        at_most = budget * self._config.largest_share_ppm // MILLION
        return self.spent + offering.price <= budget and (
            not of_this or of_this + offering.price <= at_most
        )

    def _rank(self, offering: Offering, wanted: int) -> tuple[Fraction, int, str]:
        slots = self._count(offering)
        speed = self._speeds.get(offering.type.family, 1)
        return Fraction(offering.price, slots * speed), abs(wanted - slots), offering.id

    def _count(self, offering: Offering) -> int:
        slots = self._slots.get(offering.id)
        if slots is None:
            slots = self._slots[offering.id] = slots_of(offering, self._task)
        return slots


def _market_of(offering: Offering) -> tuple[str, str]:
    return offering.type.name, offering.zone
