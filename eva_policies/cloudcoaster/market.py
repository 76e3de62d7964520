"""Choice of purchases for the pools: by price per slot, within the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.job import TaskSpec
from eva_master.model.resources import Resources
from eva_master.packing.toolkit import Speeds
from eva_policies.cloudcoaster.config import Config
from eva_wire.values.ids import MILLION, OfferingId, Price

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


class KindPurchases:
    """Purchases for tasks of one kind; the budget is that of all members.

    Args:
        config: The settings.
        task: A task of that kind.
        members: The offerings of all members of the pools, including members about to leave or to
            be bought.
        on_sale: Offerings of which one more instance may be taken.
        speeds: Speed of such a task on each family.
        listed: The catalog, whose on-demand prices determine the budget even where no instance can
            be had; by default the offerings on sale.
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
            Fraction(candidate.price, slots)
            for candidate in (self._on_sale if listed is None else listed)
            if candidate.purchase is Purchase.ON_DEMAND and (slots := self._count(candidate))
        )
        self._price = min(prices, default=Fraction(0))
        """Price of a slot on demand."""
        self._steady = 0
        self._spent: Counter[tuple[str, str]] = Counter()
        for offering in members:
            if is_spot(offering):
                self._spent[_market_of(offering)] += offering.price
            else:
                self._steady += max(1, self._count(offering))

    @property
    def spent(self) -> int:
        """Price of the spot members, in micro-dollars per hour."""
        return self._spent.total()

    @property
    def budget(self) -> int:
        """Budget of spot members, in micro-dollars per hour.

        The budget is stated, or N p times the price of a slot on demand; less on-demand slots
        beyond their own share.
        """
        whole = self._config.budget
        if whole is None:
            share = self._config.slots * self._config.transient_share_ppm
            whole = Price(int(self._price * share / MILLION))
        beyond = max(0, self._steady - self._config.steady_slots)
        return max(0, whole - int(self._price * beyond))

    @property
    def most_spot_slots(self) -> int:
        """K: number of slots on spot instances that the budget buys at the least price of one."""
        prices = (
            Fraction(candidate.price, slots)
            for candidate in self._on_sale
            if is_spot(candidate) and (slots := self._count(candidate))
        )
        price = min(prices, default=None)
        return 0 if price is None else int(self.budget / price) if price else _MANY

    def choose_spot(self, wanted: int) -> Offering | None:
        """The offering of one more spot instance, chosen as in `choose`."""
        candidates = [
            candidate
            for candidate in self._on_sale
            if self._count(candidate) and self._affordable(candidate)
        ]
        return min(candidates, key=lambda it: self._rank(it, wanted), default=None)

    def choose_steady(self, wanted: int) -> Offering | None:
        """The offering of one more on-demand instance that stays, chosen as in `choose`."""
        fits = self._on_demand(self._config.steady_slots - self._steady)
        candidates = [
            candidate for candidate in self._on_sale if self._count(candidate) and fits(candidate)
        ]
        return min(candidates, key=lambda it: self._rank(it, wanted), default=None)

    def choose(self, wanted: int, *, forced: bool) -> Offering | None:
        """The offering of one more member.

        On-demand offerings come first, up to their share; then spot; and on-demand again if no spot
        instance is to be had.

        Args:
            wanted: Number of slots needed.
            forced: Whether a member is needed at any price, since no member holds the task. The
                choice then is on demand, unless the task runs on spot instances alone and has none.

        Returns:
            The offering of the least price per unit of a slot's work; of equals the closest to the
            number needed. `None` if the budget is used up, or nothing is on sale.
        """
        steady = self._config.steady_slots - self._steady
        spent = -(-self.spent // self._price) if self._price else 0
        all_of_it = self._config.slots - self._steady - spent
        for fits in (self._on_demand(steady), self._affordable, self._on_demand(all_of_it)):
            if candidates := [
                candidate
                for candidate in self._on_sale
                if self._count(candidate) and fits(candidate)
            ]:
                return min(candidates, key=lambda it: self._rank(it, wanted))
        hosts = (
            [candidate for candidate in self._on_sale if self._count(candidate)] if forced else []
        )
        steadily = [candidate for candidate in hosts if not is_spot(candidate)]
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
