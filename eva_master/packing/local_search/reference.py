"""The local search in plain Python: the specification of `kernel.c`, and what stands in for it.

A few instances are taken apart and their tasks are put back one by one, each where it adds least:
on an instance that stays, on one of those that were taken apart, or on a new one. If the whole
comes cheaper the change is kept, else it is undone. See `cost_model` for what is minimised.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from eva_master.packing.local_search.cost_model import gang_loss
from eva_master.packing.local_search.load_cache import NEVER, Load, LoadCache
from eva_master.packing.local_search.search_start import (
    NEW,
    NOWHERE,
    SearchResult,
    SearchStart,
    may_launch,
)
from eva_master.packing.round_work import WorkKind
from eva_wire.values.ids import MILLION

_SHARE_BY_INSTANCES = (0.1, 0.2, 0.5, 0.8)
"""Share of trials in which at most one, two, ... instances are taken apart; the rest: five."""
MOST_DISMANTLED = len(_SHARE_BY_INSTANCES) + 1
_SHARE_ALONE = 0.5
"""Share of trials in which the next instance is taken apart alone, until each was once."""
_SHARE_BUYING = 0.5
"""Share of trials in which a new instance is bought beforehand and filled up."""
_CHEAPEST_BOUGHT, _DEAREST_BOUGHT = 0.25, 1.25
"""Between which parts of what was taken apart such an instance costs."""
_SHARE_PAID = 0.3
"""Share of the instances taken apart that are treated as paid."""
_STALLED = 100
"""A search is over once so many trials per instance in a row have improved nothing."""
_ORDER_NOISE = 0.8
"""How far from order of size tasks are put back."""
CHOICE_DRAWS, ORDER_DRAWS = 16, 24
"""Random numbers of a trial: for its choices, and for the order of tasks, used again if short."""


Members = Counter[tuple[int, int]]
"""How many members of gangs are in one place, by the numbers of the gang and of their class."""


class Slot:
    """An instance, live or new."""

    def __init__(self, offering: int, price: int, load: Load, staying: Load, empty: Load) -> None:
        self.offering, self.price, self.empty = offering, price, empty
        self.load, self.staying = load, staying
        self.kept: Load | None = None  # its load when a change was last kept, while it is in use
        self.movable: list[int] = []
        self.members = Members()
        self.paid = 0  # the part of its cost that counts as paid, whatever is put on it

    @property
    def cost(self) -> int:
        """Its own cost if any task is on it, launch included."""
        return self.load.new_cost if self.offering == NEW else self.price


SlotBefore = tuple[Load, list[int], Members]
"""An instance before a trial touched it: its load, its movable task runs, and members of gangs."""


def search(start: SearchStart, cache: LoadCache, draws: Sequence[Sequence[float]]) -> SearchResult:
    """Improve a configuration until the trials are made, or nothing better is to be expected.

    When the loads of the round are used up, the trial that is being made is undone.

    Args:
        start: The configuration.
        cache: Prices loads, and has the budget.
        draws: For each trial, `CHOICE_DRAWS + ORDER_DRAWS` random numbers from 0 to 1.
    """
    searching = Searching(start, cache)
    ranked, improved, tried, kept = searching.by_excess(), 0, 0, 0
    alone = list(reversed(ranked))
    for trial, row in enumerate(draws):
        if trial - improved >= _STALLED * len(ranked) or not cache.budget.left:
            break
        choices, bought, dismantled = iter(row[:CHOICE_DRAWS]), NEW, list[Slot]()
        if alone and next(choices) < _SHARE_ALONE:
            dismantled = [alone.pop()]
        else:
            dismantled = _chosen(ranked, choices)
            if next(choices) < _SHARE_BUYING:
                bought = searching.offering_for(dismantled, next(choices))
            for slot in dismantled:
                if next(choices) < _SHARE_PAID:
                    slot.paid = slot.cost
        tried += 1
        if searching.attempt(dismantled, bought, row[CHOICE_DRAWS:]):
            kept, improved, ranked = kept + 1, trial, searching.by_excess()
    return searching.result(tried, kept)


def _chosen(ranked: Sequence[Slot], choices: Iterator[float]) -> list[Slot]:
    """Some instances; the first is mostly one that costs much more than what it holds."""
    draw = next(choices)
    size = 1 + sum(draw >= share for share in _SHARE_BY_INSTANCES)
    chosen: list[Slot] = []
    for number in range(min(size, len(ranked))):
        draw = next(choices)
        index = int(len(ranked) * (draw if number else draw * draw))
        while ranked[index] in chosen:
            index = (index + 1) % len(ranked)
        chosen.append(ranked[index])
    return chosen


class Searching:
    """A configuration that is changed task run by task run, with its cost kept up to date."""

    def __init__(self, start: SearchStart, cache: LoadCache) -> None:
        self._start, self._cache, self._budget = start, cache, cache.budget
        self._costs = [cost for cost, _ in cache.buyable]
        parts = zip(start.offerings, start.prices, start.loads, start.staying, strict=True)
        self.slots = [
            Slot(offering, price, load, staying, cache.empty_of(load))
            for offering, price, load, staying in parts
        ]
        self._first = list(self.slots)
        self._fresh = [Slot(NEW, 0, load, load, load) for load in cache.empty.values()]
        self._place: list[Slot | None] = [self.slots[slot] for slot in start.places]
        self._home = [None if slot == NOWHERE else self.slots[slot] for slot in start.homes]
        self.away = Counter[int]()  # members of each group that are not at home
        self._progress = [Counter[int]() for _ in start.charges]  # of each gang's members
        self._gang_loss = [0] * len(start.charges)
        self._kept: list[Slot] = []
        self.total = 0
        self._vacancies: dict[int, tuple[int, list[tuple[int, int, Slot, Load, Load]]]] = {}
        for run, (group, slot) in enumerate(zip(start.groups, self._place, strict=True)):
            assert slot is not None
            self.away[group] += self._home[run] not in (None, slot)
            if start.movable[run]:
                slot.movable.append(run)
            if start.charges[group]:
                self._progress[group][MILLION] += 1
        for run, (group, slot) in enumerate(zip(start.groups, self._place, strict=True)):
            if start.charges[group] and slot is not None:
                cache.lost(slot.load)
                self._join(slot, Members([(group, start.classes[run])]))
        self.total = start.total
        self._keep(self.slots)

    # -- gangs -----------------------------------------------------------------------------------

    def _join(self, slot: Slot, members: Members, sign: int = 1) -> None:
        """Count members of gangs as on an instance, or as on none."""
        for (gang, number), count in members.items():
            self._change(gang, slot.load.progress[number], sign * count)
            self._change(gang, MILLION, -sign * count)
            self._update(gang)
        slot.members.update({key: sign * count for key, count in members.items()})
        slot.members = +slot.members

    def _change(self, gang: int, progress: int, members: int) -> None:
        counts = self._progress[gang]
        counts[progress] += members
        if not counts[progress]:
            del counts[progress]

    def _update(self, gang: int) -> None:
        loss = gang_loss(self._start.charges[gang], min(self._progress[gang], default=MILLION))
        self.total += loss - self._gang_loss[gang]
        self._gang_loss[gang] = loss

    def _gangs_lose(self, run: int, slot: Slot, load: Load) -> int:
        """How much more gangs lose if a task run without a place is put on an instance."""
        self._budget.spend(WorkKind.MEMBERS, len(slot.members) + 1)
        group, number = self._start.groups[run], self._start.classes[run]
        here: dict[int, Counter[int]] = {}
        then: dict[int, list[int]] = {}
        if self._start.charges[group]:
            here[group], then[group] = Counter({MILLION: 1}), [load.progress[number]]
        for (gang, of), count in slot.members.items():
            here.setdefault(gang, Counter())[slot.load.progress[of]] += count
            then.setdefault(gang, []).append(load.progress[of])
        more = 0
        for gang, members in here.items():
            others = [ppm for ppm, n in self._progress[gang].items() if n != members[ppm]]
            slowest = min(others + then[gang])
            more += gang_loss(self._start.charges[gang], slowest) - self._gang_loss[gang]
        return more

    # -- one task run ----------------------------------------------------------------------------

    def _hold(self, slot: Slot, load: Load) -> None:
        """Have an instance hold a load from now on."""
        before, after_lost = slot.load, self._cache.lost(load)
        if slot.offering == NEW:
            more = max(load.new_cost, slot.paid) - max(before.new_cost, slot.paid)
        else:
            more = (load is not slot.empty) - (before is not slot.empty)
            more *= slot.price - slot.paid
        self.total += more + after_lost - before.lost
        slot.load = load
        for (gang, number), count in slot.members.items():
            self._change(gang, before.progress[number], -count)
            self._change(gang, load.progress[number], count)
            self._update(gang)

    def put(self, run: int, slot: Slot) -> None:
        """Put a task run without a place on an instance that holds it."""
        number, group, home = self._start.classes[run], self._start.groups[run], self._home[run]
        self._place[run] = slot
        slot.movable.append(run)
        self._hold(slot, self._cache.more(slot.load, number))
        if self._start.charges[group]:
            self._join(slot, Members([(group, number)]))
        if home not in (None, slot):
            self.total += 0 if self.away[group] else self._start.move_costs[group]
            self.away[group] += 1

    def take_apart(self, slot: Slot) -> None:
        """Take all task runs that may leave from an instance."""
        self._budget.spend(WorkKind.TAKEN, len(slot.movable))
        for run in slot.movable:
            group = self._start.groups[run]
            self._place[run] = None
            if self._start.charges[group]:
                self._join(slot, Members([(group, self._start.classes[run])]), -1)
            if self._home[run] not in (None, slot):
                self.away[group] -= 1
                self.total -= 0 if self.away[group] else self._start.move_costs[group]
        if slot.movable:
            self._hold(slot, slot.staying)
        slot.movable = []

    def _added(self, slot: Slot, load: Load, after: Load, paid: int) -> int:
        """Cost that a task run adds to an instance and by its tasks' losses."""
        cost = self._cache.lost(after) - load.lost
        if slot.offering == NEW:
            cost += max(after.new_cost, paid) - max(load.new_cost, paid)
        elif load is slot.empty:
            cost += slot.price - paid
        return cost

    def _fits(self, slot: Slot, load: Load) -> bool:
        return bool(load.fits if slot.offering == NEW else load.fits >> slot.offering & 1)

    def cheapest(self, run: int, options: Sequence[Slot], touched: Container[Slot]) -> Slot | None:
        """The instance on which a task run adds least; of equals the first.

        Neighbours are taken never to speed a gang up: if they do, that place may be missed.
        """
        number, group = self._start.classes[run], self._start.groups[run]
        home = None if self.away[group] else self._home[run]
        moving = self._start.move_costs[group] if home is not None else 0
        if moving and home is not None and home not in touched:
            options = (home, *options)
        best, least, seen = None, NEVER, 0
        for slot in options:
            seen += 1
            after = self._cache.meet(slot.load, number)
            if after is None:
                break
            if not self._fits(slot, after):
                continue
            cost = self._added(slot, slot.load, after, slot.paid) + moving * (slot is not home)
            if after.progress:
                cost += self._gangs_lose(run, slot, after)
            if cost < least:
                best, least = slot, cost
        self._budget.spend(WorkKind.CANDIDATE, seen)
        seen = 0
        for cost, _, slot, load, after in self._vacancies_for(number):
            seen += 1
            if cost + moving >= least:
                break
            if load is not slot.kept or slot in touched:
                continue
            whole = cost + moving
            whole += self._gangs_lose(run, slot, after) if after.progress else 0
            if whole < least:
                best, least = slot, whole
        self._budget.spend(WorkKind.CANDIDATE, seen)
        return best

    def _vacancies_for(self, number: int) -> list[tuple[int, int, Slot, Load, Load]]:
        """Kept instances with room for a run of a class, cheapest first; some are outdated."""
        examined, vacancies = self._vacancies.get(number, (0, []))
        for rank in range(examined, len(self._kept)):
            slot = self._kept[rank]
            if slot.kept is None:
                continue
            after = self._cache.meet(slot.kept, number)
            if after is None:
                break
            if self._fits(slot, after):
                cost = self._added(slot, slot.kept, after, 0)
                vacancies.append((cost, rank, slot, slot.kept, after))
        vacancies.sort()  # no two have one rank
        self._vacancies[number] = len(self._kept), vacancies
        return vacancies

    def _keep(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            slot.kept = None if slot.offering == NEW and slot.load is slot.empty else slot.load
            self._kept.append(slot)

    # -- a trial ---------------------------------------------------------------------------------

    def offering_for(self, dismantled: Sequence[Slot], draw: float) -> int:
        """An offering that costs about as much as what is taken apart, or less."""
        cost = sum(slot.cost for slot in dismantled)
        first = bisect_right(self._costs, int(cost * _CHEAPEST_BOUGHT))
        last = bisect_right(self._costs, int(cost * _DEAREST_BOUGHT))
        if first == last:
            return NEW
        return self._cache.buyable[first + int((last - first) * draw)][1]

    def attempt(self, dismantled: list[Slot], offering: int, noise: Sequence[float]) -> bool:
        """Take instances apart and put their task runs back; whether that is kept."""
        before = self.total
        runs = [(run, slot) for slot in dismantled for run in slot.movable]
        away, touched = self.away.copy(), dict[Slot, SlotBefore]()
        for slot in dismantled:
            touched[slot] = slot.load, slot.movable, slot.members.copy()
            self.take_apart(slot)
        opened: list[Slot] = []
        if offering != NEW:
            empty = self._cache.empty[self._cache.offerings[offering].type.family]
            opened = [Slot(NEW, 0, empty, empty, empty)]
            opened[0].paid = self._cache.new_costs[offering]
            self.total += opened[0].paid
        paid, pool = [*opened, *dismantled], [run for run, _ in runs]
        done = self._refill(pool, dismantled, opened, touched, noise=noise, limit=before)
        for slot in paid:
            if slot.paid and slot.offering == NEW:
                self.total += slot.load.new_cost - max(slot.load.new_cost, slot.paid)
            elif slot.load is slot.empty:
                self.total -= slot.paid
            slot.paid = 0
        if done and self.total < before and self._may_launch([*self.slots, *opened]):
            self._keep(touched)
            self.slots = [
                slot
                for slot in (*self.slots, *opened)
                if slot.offering != NEW or slot.load is not slot.empty
            ]
            return True
        self.restore(touched, runs, away, before)
        return False

    def restore(
        self,
        slots: Mapping[Slot, SlotBefore],
        places: Iterable[tuple[int, Slot | None]],
        away: Counter[int],
        total: int,
    ) -> None:
        """Undo all changes since a state: loads, places, members away from home, and the cost."""
        for slot in slots:
            self._join(slot, slot.members.copy(), -1)
        for slot, (load, movable, members) in slots.items():
            slot.load, slot.movable = load, movable
            self._join(slot, members)
        for run, place in places:
            self._place[run] = place
        self.away, self.total = away, total

    def _refill(
        self,
        pool: Sequence[int],
        dismantled: Sequence[Slot],
        opened: list[Slot],
        touched: dict[Slot, SlotBefore],
        *,
        noise: Sequence[float],
        limit: int,
    ) -> bool:
        """Put task runs back, roughly the largest first, while the cost may stay below a limit."""
        # A cost treated as paid is saved after all if the instance stays empty or a cheaper one
        # will do.
        paid = [*opened, *dismantled]
        order = sorted(
            (
                self._start.shares[run]
                * (_ORDER_NOISE / 2 - 1 - _ORDER_NOISE * noise[rank % ORDER_DRAWS]),
                rank,
            )
            for rank, run in enumerate(pool)
        )
        used: list[Slot] = []
        options = [*opened, *dismantled, *self.candidates()]
        for _, rank in order:
            slot = self.cheapest(pool[rank], options, touched)
            if slot is None or not self._budget.left:
                return False
            touched.setdefault(slot, (slot.load, slot.movable.copy(), slot.members.copy()))
            self.put(pool[rank], slot)
            if slot in self._fresh:
                opened.append(slot)
                options = [*opened, *dismantled, *used, *self.candidates()]
            elif slot not in options:
                used.append(slot)
                options.append(slot)
            spare = sum(s.paid for s in paid if s.offering == NEW or s.load is s.empty)
            if self.total - spare >= limit:
                return False
        return True

    # -- instances -------------------------------------------------------------------------------

    def candidates(self) -> list[Slot]:
        """An empty new instance of each family."""
        self._fresh = [
            slot if slot.load is slot.empty else Slot(NEW, 0, slot.empty, slot.empty, slot.empty)
            for slot in self._fresh
        ]
        return self._fresh

    def by_excess(self) -> list[Slot]:
        """Instances that can be taken apart, in descending order of cost above contents' worth."""
        excesses = [
            (sum(self._start.shares[run] for run in slot.movable) - slot.cost - slot.load.lost, n)
            for n, slot in enumerate(self.slots)
            if slot.movable
        ]
        return [self.slots[n] for _, n in sorted(excesses)]

    def _may_launch(self, slots: Iterable[Slot]) -> bool:
        new = (slot for slot in slots if slot.offering == NEW and slot.load is not slot.empty)
        return may_launch(self._cache, self._start, ((slot.load, slot.movable) for slot in new))

    def result(self, tried: int, kept: int) -> SearchResult:
        """Places and loads as they are now."""
        numbers = {slot: number for number, slot in enumerate(self._first)}
        for slot in self.slots:
            numbers.setdefault(slot, len(numbers))
        places = [numbers[slot] for slot in self._place if slot is not None]
        loads = {numbers[slot]: slot.load for slot in self.slots}
        return SearchResult(self.total, places, loads, tried, kept)
