"""A configuration that is changed task run by task run, with its cost kept up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from eva_master.model.planning.plan import NewInstance
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.local_search.cost_model import MoveCosts, gang_loss
from eva_master.packing.local_search.gang_progress import GangProgress
from eva_master.packing.local_search.load_cache import NEVER, Load, LoadCache
from eva_master.packing.problem import Problem
from eva_master.packing.room import more_of
from eva_master.packing.round_work import WorkKind
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, InstanceId, Millis, RunId

GangMembers = dict[tuple[int, int], int]
"""How many members of gangs are in one place, by the number of the gang and that of their class."""


class InstanceSlot:
    """An instance, live or to be launched.

    A new instance is of the cheapest offering for its load.

    Attributes:
        instance: The live instance, `None` for a new one.
        bit: Bit of its offering, see `Load.fits`; all bits for a new instance.
        price: Price of a live instance, in millionths of micro-dollars per hour.
        empty_load: The load of an empty instance of its family.
        load: Its present tasks.
        movable: Numbers of the task runs on it that may leave: none that is pinned, nor in an
            incomplete gang.
        gang_members: How many members of gangs are on it, by the gang and their class.
        paid: Part of its cost that counts as paid, whatever is put on it.
        excess: Excess computed for a load that it held, see `WorkingConfiguration.by_excess`.
        kept_load: Its load when a change was last kept; `None` while it is not in use.
    """

    __slots__ = (
        *("bit", "empty_load", "excess", "gang_members", "instance", "kept_load", "load"),
        *("movable", "paid", "price"),
    )

    def __init__(self, instance: InstanceId | None, bit: int, price: int, empty_load: Load) -> None:
        self.instance = instance
        self.bit = bit
        self.price = price
        self.empty_load = empty_load
        self.load = empty_load
        self.movable: list[int] = []
        self.gang_members: GangMembers = {}
        self.paid = 0
        self.excess: tuple[Load | None, int] = None, 0
        self.kept_load: Load | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is on it."""
        return self.load is self.empty_load

    @property
    def cost(self) -> int:
        """Its own cost if any task is on it, launch included."""
        return self.load.new_cost if self.instance is None else self.price


class _Vacancy(NamedTuple):
    """An instance that has room for a task run of some class.

    Attributes:
        cost: Cost added by the task run, without its move and losses of gangs.
        rank: A unique number.
        slot: The instance.
        load: The load at that time; if it has changed the vacancy is no longer valid.
        gangs_after: The load afterwards, if gangs lose by it.
    """

    cost: int
    rank: int
    slot: InstanceSlot
    load: Load
    gangs_after: Load | None


SlotBefore = tuple[Load, list[int], GangMembers]
"""An instance before a trial touched it: its load, its movable task runs, and members of gangs. A
plain tuple, since a search makes a million of them.
"""


class SavedInstances(NamedTuple):
    """A working configuration before a trial, without the instances.

    Attributes:
        total: Its cost.
        places: Former places of the task runs that were taken away.
        away: Numbers of members of their groups that were not at home, see
            `WorkingConfiguration.moves_of`.
    """

    total: int
    places: Mapping[int, InstanceSlot]
    away: Sequence[tuple[int, int]]


class WorkingConfiguration:
    """The place of every task run, and the cost.

    Task runs are numbered. Task runs that move together, a whole gang or a single one, are a group.
    The attribute `total` equals `configuration_cost.evaluate` of the configuration, with two
    exceptions: an instance may be treated as paid for a while, and where limits keep a new instance
    of the start from being the cheapest that would do, `total` is less, see `within_limits`.

    Args:
        problem: The packing problem of the snapshot.
        cache: Source of loads' prices.
        start: The configuration to begin with.
        latest: Time of each task run's last move.
        lasting: For task runs that end soon: time in milliseconds from now by which a new instance
            must be up, so that they still run there.

    Attributes:
        slots: Every live instance, and the new ones that hold a task.
        home: The live instance that each task run is on now.
        minimum_shares: Least cost of each task run if others fill the rest of its instance.
        launch_costs: See `LoadCache`.
        total: The cost.
    """

    def __init__(
        self,
        problem: Problem,
        cache: LoadCache,
        start: Configuration,
        latest: Mapping[RunId, Millis] | None = None,
        lasting: Mapping[RunId, int] | None = None,
    ) -> None:
        self._problem = problem
        self._cache = cache
        self._ids: list[RunId] = list(start.places)
        classes = [problem.classes[problem.class_of[run]] for run in self._ids]
        numbers = {task_class: cache.number(task_class) for task_class in set(classes)}
        self._class = [numbers[task_class] for task_class in classes]
        self.minimum_shares = [cache.minimum_shares[number] for number in self._class]
        self.launch_costs = cache.launch_costs
        self._candidates = {load: _new_slot(load) for load in cache.empty.values()}
        self._limits = _limits(problem, cache)
        lasting = lasting or {}
        self._lasting = {run: lasting[id_] for run, id_ in enumerate(self._ids) if id_ in lasting}
        self.slots: list[InstanceSlot] = []
        self._kept: list[InstanceSlot] = []
        self._vacancies: dict[int, tuple[int, list[_Vacancy]]] = {}
        self.total = 0
        moves = MoveCosts(problem, cache.terms, latest)
        self._number_groups(moves)
        self._fill(start, self._open(start), moves)
        self.keep(self.slots)

    def _number_groups(self, moves: MoveCosts) -> None:
        """Number what moves together: gangs, and task runs that are in none."""
        names: dict[str, int] = {}
        self._group: list[int] = []
        self._move_cost: list[int] = []
        self._gang_charge: list[int] = []
        sizes: list[int] = []
        for id_ in self._ids:
            name = moves.gang_of.get(id_, id_)
            group = names.setdefault(name, len(names))
            if group == len(self._move_cost):
                task_class = self._problem.classes[self._problem.class_of[id_]]
                gang = task_class.charge > task_class.price
                self._move_cost.append(moves.cost.get(name, 0))
                self._gang_charge.append(task_class.charge if gang else 0)
                sizes.append(0)
            self._group.append(group)
            sizes[group] += 1
        self._away = [0] * len(self._move_cost)
        self._progress = [
            GangProgress(size) if charge else None
            for size, charge in zip(sizes, self._gang_charge, strict=True)
        ]
        self._gang_loss = [0] * len(self._move_cost)

    def _open(self, start: Configuration) -> dict[Host, InstanceSlot]:
        """Set up all live instances and the new ones of the configuration, empty."""
        cache, opened = self._cache, dict[Host, InstanceSlot]()
        for instance in self._problem.snapshot.instances:
            offering = self._problem.offering_of(instance.id)
            empty = cache.empty[offering.type.family]
            bit = 1 << cache.number_of[offering.id]
            price = offering.price * MILLION
            opened[instance.id] = InstanceSlot(instance.id, bit, price, empty)
        for launch in start.launches:
            opened[launch.key] = _new_slot(cache.empty[launch.offering.type.family])
        self.slots.extend(opened.values())
        return opened

    def _fill(
        self, start: Configuration, opened: dict[Host, InstanceSlot], moves: MoveCosts
    ) -> None:
        """Put every task run where the configuration has it."""
        self._place: list[InstanceSlot | None] = [opened[start.places[run]] for run in self._ids]
        self.home: list[InstanceSlot | None] = [None] * len(self._ids)
        classes: dict[InstanceSlot, list[int]] = {}
        members: dict[InstanceSlot, GangMembers] = {}
        bound = self._bound()
        for run, id_ in enumerate(self._ids):
            slot, home = self._place[run], moves.home.get(id_)
            assert slot is not None
            if home is not None:
                self.home[run] = opened[home]
                self._away[self._group[run]] += slot is not opened[home]
            classes.setdefault(slot, []).append(self._class[run])
            if not self._problem.runs[id_].pinned and run not in bound:
                slot.movable.append(run)
            if self._gang_charge[self._group[run]]:
                counts = members.setdefault(slot, {})
                key = self._group[run], self._class[run]
                counts[key] = counts.get(key, 0) + 1
        for slot, numbers in classes.items():
            self._hold(slot, self._cache.load(slot.empty_load, numbers))
            self._join(slot, members.get(slot, {}))
        moved = zip(self._move_cost, self._away, strict=True)
        self.total += sum(cost for cost, away in moved if away)

    def _bound(self) -> set[int]:
        """Members of gangs of which another one has no place: they move together or not at all."""
        placed = set(self._ids)
        jobs = [self._problem.runs[id_].job for id_ in self._ids]
        parted = {
            name
            for name in set(jobs)
            if (job := self._problem.jobs[name]).spec.kind is JobKind.GANG
            and not placed.issuperset(job.runs)
        }
        return {run for run, job in enumerate(jobs) if job in parted}

    # -- one task run
    # --------------------------------------------------------------------------------

    def put(self, run: int, slot: InstanceSlot) -> None:
        """Put a task run without a place on an instance that holds it."""
        number, group = self._class[run], self._group[run]
        load = slot.load.after.get(number) or self._cache.more(slot.load, number)
        self._place[run] = slot
        slot.movable.append(run)
        self._hold(slot, load)
        if self._gang_charge[group]:
            self._join(slot, {(group, number): 1})
        home = self.home[run]
        if home is not None and slot is not home:
            if not self._away[group]:
                self.total += self._move_cost[group]
            self._away[group] += 1

    def take_apart(self, slot: InstanceSlot) -> None:
        """Take all task runs that may leave from an instance."""
        runs, slot.movable = slot.movable, []
        self._cache.budget.spend(WorkKind.TAKEN, len(runs))
        members: GangMembers = {}
        staying = list(slot.load.classes) if len(runs) < len(slot.load.classes) else []
        for run in runs:
            group, home = self._group[run], self.home[run]
            self._place[run] = None
            if staying:
                staying.remove(self._class[run])
            if self._gang_charge[group]:
                key = group, self._class[run]
                members[key] = members.get(key, 0) + 1
            if home is not None and slot is not home:
                self._away[group] -= 1
                if not self._away[group]:
                    self.total -= self._move_cost[group]
        if members:
            self._leave(slot, members)
        if runs:
            empty = slot.empty_load
            self._hold(slot, self._cache.load(empty, staying) if staying else empty)

    def _hold(self, slot: InstanceSlot, load: Load) -> None:
        """Have an instance hold a load from now on."""
        before, paid, empty = slot.load, slot.paid, slot.empty_load
        if load.lost < 0:
            self._cache.lost(load)
        if slot.instance is None:
            more = max(load.new_cost, paid) - max(before.new_cost, paid)
        else:
            more = (load is not empty) - (before is not empty)
            more = more * (slot.price - paid)
        self.total += more + load.lost - before.lost
        slot.load = load
        if slot.gang_members:
            old, new = before.progress, load.progress
            for (gang, number), count in slot.gang_members.items():
                self._progress_of(gang).change(old[number], new[number], count)
            self._update_gangs({gang for gang, _ in slot.gang_members})

    def _join(self, slot: InstanceSlot, members: GangMembers) -> None:
        """Count members of gangs as on an instance that holds them already."""
        members_there, progress = slot.gang_members, slot.load.progress
        for (gang, number), count in members.items():
            members_there[gang, number] = members_there.get((gang, number), 0) + count
            self._progress_of(gang).change(MILLION, progress[number], count)
        self._update_gangs({gang for gang, _ in members})

    def _leave(self, slot: InstanceSlot, members: GangMembers) -> None:
        """Remove members of gangs on an instance from the counts."""
        members_there, progress = slot.gang_members, slot.load.progress
        for (gang, number), count in members.items():
            rest = members_there[gang, number] - count
            if rest:
                members_there[gang, number] = rest
            else:
                del members_there[gang, number]
            self._progress_of(gang).change(progress[number], MILLION, count)
        self._update_gangs({gang for gang, _ in members})

    def _progress_of(self, gang: int) -> GangProgress:
        progress = self._progress[gang]
        assert progress is not None, "gangs alone have members that are counted"
        return progress

    def _update_gangs(self, gangs: Iterable[int]) -> None:
        for gang in gangs:
            cost = gang_loss(self._gang_charge[gang], self._progress_of(gang).slowest)
            self.total += cost - self._gang_loss[gang]
            self._gang_loss[gang] = cost

    def _gangs_lose(self, run: int, slot: InstanceSlot, load: Load) -> int:
        """How much more gangs lose if a task run without a place is put on an instance."""
        before, after, group = slot.load.progress, load.progress, self._group[run]
        joining = self._gang_charge[group] > 0
        here: dict[int, dict[int, int]] = {group: {MILLION: 1}} if joining else {}
        slowest_here = {group: after[self._class[run]]} if joining else {}
        for (gang, number), count in slot.gang_members.items():
            figures, figure = here.setdefault(gang, {}), before[number]
            figures[figure] = figures.get(figure, 0) + count
            slowest_here[gang] = min(slowest_here.get(gang, after[number]), after[number])
        self._cache.budget.spend(WorkKind.MEMBERS, len(slot.gang_members) + 1)
        more = 0
        for gang, figures in here.items():
            slowest = self._progress_of(gang).slowest_with(slowest_here[gang], figures)
            more += gang_loss(self._gang_charge[gang], slowest) - self._gang_loss[gang]
        return more

    def cheapest(
        self, run: int, options: Iterable[InstanceSlot], touched: Container[InstanceSlot] = ()
    ) -> InstanceSlot | None:
        """The instance on which a task run adds the least cost.

        The search assumes that neighbours never speed a gang up. If they do, it may miss that
        placement.

        Args:
            run: The task run, which has no place now.
            options: Instances that are not in `slots`, and those that are `touched`.
            touched: Instances that have changed since a change was last kept.
        """
        group, home, moving = self._group[run], None, 0
        if not self._away[group]:
            home = self.home[run]
            moving = self._move_cost[group] if home is not None else 0
        if moving and home is not None and home not in touched:
            options = (home, *options)
        best, least = self._cheapest_of(run, options, home, moving)
        seen = 0
        for cost, _, slot, load, gangs_after in self._vacancies_for(self._class[run]):
            seen += 1
            if cost + moving >= least:
                break
            if load is not slot.kept_load or slot in touched:
                continue
            whole = cost + moving
            whole += self._gangs_lose(run, slot, gangs_after) if gangs_after is not None else 0
            if whole < least:
                best, least = slot, whole
        self._cache.budget.spend(WorkKind.CANDIDATE, seen)
        return best

    def _cheapest_of(
        self, run: int, slots: Iterable[InstanceSlot], home: InstanceSlot | None, moving: int
    ) -> tuple[InstanceSlot | None, int]:
        """The instance among some on which a task run adds least, and that; of equals the first."""
        number, cache = self._class[run], self._cache
        best, least, now, seen = None, NEVER, cache.round, 0
        for slot in slots:
            seen += 1
            load = slot.load
            after = load.after.get(number)
            if (after is None or after.round != now) and (
                after := cache.meet(load, number)
            ) is None:
                break
            if not after.fits & slot.bit:
                continue
            cost = (after.lost if after.lost >= 0 else cache.lost(after)) - load.lost
            if slot.instance is None:
                cost += after.new_cost - load.new_cost
                if paid := slot.paid:
                    cost += max(paid - after.new_cost, 0) - max(paid - load.new_cost, 0)
            elif load is slot.empty_load:
                cost += slot.price - slot.paid
            if slot is not home:
                cost += moving
            if after.progress:
                cost += self._gangs_lose(run, slot, after)
            if cost < least:
                best, least = slot, cost
        cache.budget.spend(WorkKind.CANDIDATE, seen)
        return best, least

    def _vacancies_for(self, number: int) -> list[_Vacancy]:
        """Kept instances with room for a run of a class, cheapest first; some are outdated."""
        examined, vacancies = self._vacancies.get(number, (0, []))
        if examined == len(self._kept):
            return vacancies
        for rank, slot in enumerate(self._kept[examined:], examined):
            load = slot.kept_load
            if load is None:
                continue
            after = self._cache.meet(load, number)
            if after is None:
                # This search is over: see `Search.run`.
                break
            if not after.fits & slot.bit:
                continue
            cost = (after.lost if after.lost >= 0 else self._cache.lost(after)) - load.lost
            if slot.instance is None:
                cost += after.new_cost - load.new_cost
            elif load is slot.empty_load:
                cost += slot.price
            vacancies.append(_Vacancy(cost, rank, slot, load, after if after.progress else None))
        vacancies.sort()
        self._vacancies[number] = len(self._kept), vacancies
        return vacancies

    def keep(self, slots: Iterable[InstanceSlot]) -> None:
        """Keep what is on some instances: it is what `cheapest` goes by."""
        for slot in slots:
            slot.kept_load = None if slot.instance is None and slot.empty else slot.load
            self._kept.append(slot)

    # -- a trial ---------------------------------------------------------------------------------

    def moves_of(self, runs: Iterable[int]) -> list[tuple[int, int]]:
        """The group of each task run, and how many of its members are not at home."""
        return [(self._group[run], self._away[self._group[run]]) for run in runs]

    def restore(self, before: SavedInstances, slots: Mapping[InstanceSlot, SlotBefore]) -> None:
        """Undo all changes since a state.

        Args:
            before: The state.
            slots: State of the instances that have changed since.
        """
        for slot in slots:
            self._leave(slot, slot.gang_members.copy())
        for slot, (load, movable, members) in slots.items():
            slot.load, slot.movable, slot.paid = load, movable, 0
            self._join(slot, members)
        for group, away in before.away:
            self._away[group] = away
        for run, place in before.places.items():
            self._place[run] = place
        self.total = before.total

    # -- instances -------------------------------------------------------------------------------

    def by_excess(self) -> list[InstanceSlot]:
        """Instances that can be taken apart, in descending order of cost above contents' worth."""
        excesses = []
        for number, slot in enumerate(self.slots):
            if slot.movable:
                excesses.append((self._excess(slot), number))
        excesses.sort()
        return [self.slots[number] for _, number in excesses]

    def _excess(self, slot: InstanceSlot) -> int:
        """Worth of an instance's movable contents less its cost, negative."""
        load, excess = slot.excess
        if load is not slot.load:
            held = sum(self.minimum_shares[run] for run in slot.movable)
            excess = held - slot.cost - slot.load.lost
            slot.excess = slot.load, excess
        return excess

    def candidates(self) -> list[InstanceSlot]:
        """An empty new instance of each family, to put task runs on."""
        for empty, slot in self._candidates.items():
            if not slot.empty:
                self._candidates[empty] = _new_slot(empty)
        return list(self._candidates.values())

    def candidate(self, offering: int) -> InstanceSlot:
        """A new instance that is treated as paid, to be filled.

        Args:
            offering: The number of its offering in the cache.
        """
        slot = _new_slot(self._cache.empty[self._cache.offerings[offering].type.family])
        slot.paid = self._cache.new_costs[offering]
        self.total += slot.paid
        return slot

    def treat_as_paid(self, slot: InstanceSlot) -> None:
        """Count the cost of an instance as paid, until `count_in_full`."""
        slot.paid = slot.cost

    def count_in_full(self, slot: InstanceSlot) -> None:
        """Count what an instance really costs."""
        if slot.paid:
            if slot.instance is None:
                self.total += slot.load.new_cost - max(slot.load.new_cost, slot.paid)
            elif slot.empty:
                self.total -= slot.paid
            slot.paid = 0

    def drop_empty(self) -> None:
        """Leave out new instances that hold nothing."""
        self.slots = [slot for slot in self.slots if slot.instance is not None or not slot.empty]

    def within_limits(self) -> bool:
        """Whether no offering is beyond its limit, and no launch too late for all of its tasks."""
        if self._lasting and any(map(self._is_late, self.slots)):
            return False
        remaining = dict(self._limits)
        for slot in self.slots:
            offering = slot.load.cheapest
            if slot.instance is None and offering in remaining and not slot.empty:
                remaining[offering] -= 1
                if remaining[offering] < 0:
                    return False
        return True

    def _is_late(self, slot: InstanceSlot) -> bool:
        """Whether an instance would be launched though all of its tasks have ended by then."""
        if slot.instance is not None or slot.empty or len(slot.movable) < len(slot.load.classes):
            return False
        boot_ms = self._cache.offerings[slot.load.cheapest].type.boot_ms
        return all(self._lasting.get(run, boot_ms) < boot_ms for run in slot.movable)

    def strays(self) -> set[InstanceSlot | None]:
        """Present places of all task runs that are not at home, and their homes."""
        strays: set[InstanceSlot | None] = set()
        for run, home in enumerate(self.home):
            if home is not None and home is not self._place[run]:
                strays.update((home, self._place[run]))
        return strays

    def move_cost(self, run: int) -> int:
        """Cost of moving a task run, with its whole gang."""
        return self._move_cost[self._group[run]]

    def configuration(self, start: Configuration) -> Configuration:
        """The configuration in its usual form.

        Args:
            start: The configuration at the start, with the task runs without a place.
        """
        launches: list[NewInstance] = []
        hosts: dict[InstanceSlot, Host] = {}
        places: dict[RunId, Host] = {}
        contents: dict[Host, dict[int, int]] = {}
        for run, id_ in enumerate(self._ids):
            slot = self._place[run]
            assert slot is not None
            host = hosts.get(slot)
            if host is None:
                host = slot.instance if slot.instance is not None else len(launches)
                hosts[slot] = host
                if isinstance(host, int):
                    offering = self._cache.offerings[slot.load.cheapest]
                    launches.append(NewInstance(host, offering))
            places[id_] = host
            row = contents.setdefault(host, {})
            number = self._problem.class_of[id_]
            row[number] = row.get(number, 0) + 1
        return Configuration(places, contents, tuple(launches), start.unplaced)


def _new_slot(empty: Load) -> InstanceSlot:
    return InstanceSlot(None, -1, 0, empty)


def _limits(problem: Problem, cache: LoadCache) -> dict[int, int]:
    """How many more instances of each limited offering may be launched, by its number.

    Instances are launched before others are freed: all live ones count.
    """
    live = Counter(instance.offering.id for instance in problem.snapshot.instances)
    return {
        number: max(0, more)
        for number, offering in enumerate(cache.offerings)
        if (more := more_of(offering, live)) is not None
    }
