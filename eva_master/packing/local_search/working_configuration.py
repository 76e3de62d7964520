"""A configuration that is changed task run by task run, with its cost kept up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from eva_master.model.ids import MILLION, InstanceId, Millis, RunId
from eva_master.model.planning.plan import NewInstance
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.local_search.cost_model import NEVER, Book, Load, Moves, slowdown_cost
from eva_master.packing.problem import Problem


class Place:
    """An instance, live or to be launched.

    A new one is of whatever offering is cheapest for what is on it.

    Attributes:
        id: Of the live instance, `None` of a new one.
        bit: Of its offering, see `Load.fits`; of a new one all.
        price: Of a live one, in millionths of micro-dollars per hour.
        root: The load of an empty instance of its family.
        load: What is on it.
        movable: Numbers of the task runs on it that may leave.
        gangs: Numbers of the task runs on it that are members of gangs.
        sunk: As much of its cost counts as spent whatever is put on it.
        excess: What was worked out of a load that it held, see `Arrangement.ranked`.
        standing: What was on it when a change was last kept; `None` of one that is not in use.
    """

    __slots__ = (
        *("bit", "excess", "gangs", "id", "load", "movable", "price", "root", "standing", "sunk"),
    )

    def __init__(self, id_: InstanceId | None, bit: int, price: int, root: Load) -> None:
        self.id = id_
        self.bit = bit
        self.price = price
        self.root = root
        self.load = root
        self.movable: list[int] = []
        self.gangs: list[int] = []
        self.sunk = 0
        self.excess: tuple[Load | None, int] = None, 0
        self.standing: Load | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is on it."""
        return self.load is self.root

    @property
    def cost(self) -> int:
        """What it costs by itself if anything is on it, its launch included."""
        return self.load.fresh if self.id is None else self.price


class _Room(NamedTuple):
    """An instance with room for a task run of some class.

    Attributes:
        cost: What the task run adds, its move and what gangs lose left out.
        rank: A number of its own.
        place: The instance.
        load: What was on it; if that has changed the rest no longer holds.
        slower: What would be on it, if gangs lose by that.
    """

    cost: int
    rank: int
    place: Place
    load: Load
    slower: Load | None


_Kept = tuple[Load, list[int], list[int]]


class Arrangement:
    """Every task run's place, and what that costs.

    Task runs are numbered. `total` is always what `objective.evaluate` says of the configuration,
    but for what is sunk in between; and less than that where limits keep a new instance of the
    start from being the cheapest that would do, see `legal`.

    Args:
        problem: The snapshot's.
        book: Prices loads.
        start: The configuration to begin with.
        latest: When task runs were moved last.

    Attributes:
        places: Every live instance, and the new ones that hold something.
        sizes: What each task run costs if others fill the rest of its instance, at least.
        total: The cost.
    """

    def __init__(
        self,
        problem: Problem,
        book: Book,
        start: Configuration,
        latest: Mapping[RunId, Millis] | None = None,
    ) -> None:
        self._problem = problem
        self._book = book
        self._ids: list[RunId] = list(start.places)
        classes = [problem.classes[problem.class_of[run]] for run in self._ids]
        numbers = {task_class: book.number(task_class) for task_class in set(classes)}
        self._class = [numbers[task_class] for task_class in classes]
        self.sizes = [book.stakes[number] for number in self._class]
        self._fresh = {root: Place(None, -1, 0, root) for root in book.roots.values()}
        self._limits = _limits(problem, book)
        self.places: list[Place] = []
        self._changed: list[Place] = []
        self._rooms: dict[int, tuple[int, list[_Room]]] = {}
        self.total = 0
        moves = Moves(problem, book.terms, latest)
        self._number_units(moves)
        self._fill(start, self._open(start), moves)
        self.stand(self.places)

    def _number_units(self, moves: Moves) -> None:
        """Number what moves as one: gangs, and task runs that are in none."""
        names: dict[str, int] = {}
        self._unit: list[int] = []
        self._cost: list[int] = []
        self._charge: list[int] = []
        self._members: list[list[int]] = []
        for run, id_ in enumerate(self._ids):
            name = moves.gang.get(id_, id_)
            unit = names.setdefault(name, len(names))
            if unit == len(self._cost):
                task_class = self._problem.classes[self._problem.class_of[id_]]
                gang = task_class.charge > task_class.price
                self._cost.append(moves.cost.get(name, 0))
                self._charge.append(task_class.charge if gang else 0)
                self._members.append([])
            self._unit.append(unit)
            self._members[unit].append(run)
        self._away = [0] * len(self._cost)
        self._pace = [MILLION] * len(self._ids)
        self._slowdown = [0] * len(self._cost)

    def _open(self, start: Configuration) -> dict[Host, Place]:
        """Set up all live instances and the new ones of the configuration, empty."""
        book, opened = self._book, dict[Host, Place]()
        for instance in self._problem.snapshot.instances:
            offering = self._problem.offering_of(instance.id)
            root = book.roots[offering.type.family]
            bit = 1 << book.index[offering.id]
            opened[instance.id] = Place(instance.id, bit, offering.price * MILLION, root)
        for launch in start.launches:
            opened[launch.key] = Place(None, -1, 0, book.roots[launch.offering.type.family])
        self.places.extend(opened.values())
        return opened

    def _fill(self, start: Configuration, opened: dict[Host, Place], moves: Moves) -> None:
        """Put every task run where the configuration has it."""
        self._where: list[Place | None] = [opened[start.places[run]] for run in self._ids]
        self._home: list[Place | None] = [None] * len(self._ids)
        keys: dict[Place, list[int]] = {}
        for run, id_ in enumerate(self._ids):
            place, home = self._where[run], moves.home.get(id_)
            assert place is not None
            if home is not None:
                self._home[run] = opened[home]
                self._away[self._unit[run]] += place is not opened[home]
            keys.setdefault(place, []).append(self._class[run])
            if not self._problem.runs[id_].pinned:
                place.movable.append(run)
            if self._charge[self._unit[run]]:
                place.gangs.append(run)
        for place, key in keys.items():
            self._change(place, self._book.load(place.root, key))
        self.total += sum(cost for cost, away in zip(self._cost, self._away, strict=True) if away)

    # -- one task run
    # --------------------------------------------------------------------------------

    def put(self, run: int, place: Place) -> None:
        """Put a task run without a place on an instance that holds it."""
        number, unit = self._class[run], self._unit[run]
        load = place.load.after.get(number) or self._book.more(place.load, number)
        self._where[run] = place
        place.movable.append(run)
        if self._charge[unit]:
            place.gangs.append(run)
        self._change(place, load)
        home = self._home[run]
        if home is not None and place is not home:
            if not self._away[unit]:
                self.total += self._cost[unit]
            self._away[unit] += 1

    def take(self, run: int) -> None:
        """Take a task run that may leave from its instance."""
        place, number, unit = self._where[run], self._class[run], self._unit[run]
        assert place is not None
        load = place.load.before.get(number) or self._book.less(place.load, number)
        self._where[run] = None
        place.movable.remove(run)
        if self._charge[unit]:
            place.gangs.remove(run)
            self._pace[run] = MILLION
            self._slow((unit,))
        self._change(place, load)
        home = self._home[run]
        if home is not None and place is not home:
            self._away[unit] -= 1
            if not self._away[unit]:
                self.total -= self._cost[unit]

    def _change(self, place: Place, load: Load) -> None:
        before, sunk, root = place.load, place.sunk, place.root
        if load.lost < 0:
            self._book.lost(load)
        if place.id is None:
            more = max(load.fresh, sunk) - max(before.fresh, sunk)
        else:
            more = (load is not root) - (before is not root)
            more = more * (place.price - sunk)
        self.total += more + load.lost - before.lost
        place.load = load
        if place.gangs:
            for run in place.gangs:
                self._pace[run] = load.paces[self._class[run]]
            self._slow({self._unit[run] for run in place.gangs})

    def _slow(self, gangs: Iterable[int]) -> None:
        for gang in gangs:
            slowest = min(self._pace[member] for member in self._members[gang])
            cost = slowdown_cost(self._charge[gang], slowest)
            self.total += cost - self._slowdown[gang]
            self._slowdown[gang] = cost

    def _slower(self, run: int, place: Place, load: Load) -> int:
        """How much more gangs lose if a task run is put on an instance."""
        here = {*place.gangs, run} if self._charge[self._unit[run]] else {*place.gangs}
        more = 0
        for gang in {self._unit[other] for other in here}:
            slowest = min(
                load.paces[self._class[member]] if member in here else self._pace[member]
                for member in self._members[gang]
            )
            cost = slowdown_cost(self._charge[gang], slowest)
            more += cost - self._slowdown[gang]
        return more

    def cheapest(
        self, run: int, spots: Iterable[Place], touched: Container[Place] = ()
    ) -> Place | None:
        """The instance on which a task run adds least.

        Args:
            run: It has no place now.
            spots: Instances that are not in `places`, and those that are `touched`.
            touched: Instances that are not as they were when a change was last kept.
        """
        unit, home, moving = self._unit[run], None, 0
        if not self._away[unit]:
            home = self._home[run]
            moving = self._cost[unit] if home is not None else 0
        if moving and home is not None and home not in touched:
            spots = (home, *spots)
        best, least = self._cheapest_of(run, spots, home, moving)
        for cost, _, place, load, slower in self._room(self._class[run]):
            if cost + moving >= least:
                break
            if load is not place.standing or place in touched:
                continue
            # Gangs are held to gain by no company: then what is cheaper comes first.
            whole = cost + moving
            whole += self._slower(run, place, slower) if slower is not None else 0
            if whole < least:
                best, least = place, whole
        return best

    def _cheapest_of(
        self, run: int, places: Iterable[Place], home: Place | None, moving: int
    ) -> tuple[Place | None, int]:
        """The instance among some on which a task run adds least, and that; of equals the first."""
        number, book = self._class[run], self._book
        best, least = None, NEVER
        for place in places:
            load = place.load
            after = load.after.get(number) or book.more(load, number)
            if not after.fits & place.bit:
                continue
            cost = (after.lost if after.lost >= 0 else book.lost(after)) - load.lost
            if place.id is None:
                cost += after.fresh - load.fresh
                if sunk := place.sunk:
                    cost += max(sunk - after.fresh, 0) - max(sunk - load.fresh, 0)
            elif load is place.root:
                cost += place.price - place.sunk
            if place is not home:
                cost += moving
            if after.paces:
                cost += self._slower(run, place, after)
            if cost < least:
                best, least = place, cost
        return best, least

    def _room(self, number: int) -> list[_Room]:
        """Which instances hold a run of a class as they stand, cheapest first; some no longer."""
        known, found = self._rooms.get(number, (0, []))
        if known == len(self._changed):
            return found
        for rank, place in enumerate(self._changed[known:], known):
            load = place.standing
            if load is None:
                continue
            after = load.after.get(number) or self._book.more(load, number)
            if not after.fits & place.bit:
                continue
            cost = (after.lost if after.lost >= 0 else self._book.lost(after)) - load.lost
            if place.id is None:
                cost += after.fresh - load.fresh
            elif load is place.root:
                cost += place.price
            found.append(_Room(cost, rank, place, load, after if after.paces else None))
        found.sort()
        self._rooms[number] = len(self._changed), found
        return found

    def stand(self, places: Iterable[Place]) -> None:
        """What is on some instances is to stay."""
        for place in places:
            place.standing = None if place.id is None and place.empty else place.load
            self._changed.append(place)

    # -- instances -------------------------------------------------------------------------------

    def ranked(self) -> list[Place]:
        """Instances that can be taken apart, those first that cost most above what they hold."""
        found = []
        for number, place in enumerate(self.places):
            if place.movable:
                found.append((self._excess(place), number))
        found.sort()
        return [self.places[number] for _, number in found]

    def _excess(self, place: Place) -> int:
        """What is on an instance less what it costs, negative; those that stay do not change."""
        load, excess = place.excess
        if load is not place.load:
            held = sum(self.sizes[run] for run in place.movable)
            excess = held - place.cost - place.load.lost
            place.excess = place.load, excess
        return excess

    def prospects(self) -> list[Place]:
        """An empty new instance of each family, to put task runs on."""
        for root, place in self._fresh.items():
            if not place.empty:
                self._fresh[root] = Place(None, -1, 0, root)
        return list(self._fresh.values())

    def prospect(self, kind: int) -> Place:
        """A new instance of an offering that counts as bought, to be filled."""
        place = Place(None, -1, 0, self._book.roots[self._book.offerings[kind].type.family])
        place.sunk = self._book.fresh[kind]
        self.total += place.sunk
        return place

    def sink(self, place: Place) -> None:
        """Count what an instance costs as spent, until `settle`."""
        place.sunk = place.cost

    def settle(self, place: Place) -> None:
        """Count what an instance really costs."""
        if place.sunk:
            if place.id is None:
                self.total += place.load.fresh - max(place.load.fresh, place.sunk)
            elif place.empty:
                self.total -= place.sunk
            place.sunk = 0

    def forget_empty(self) -> None:
        """Leave out new instances that hold nothing."""
        self.places = [place for place in self.places if place.id is not None or not place.empty]

    def legal(self) -> bool:
        """Whether no offering is beyond its limit."""
        left = dict(self._limits)
        for place in self.places:
            kind = place.load.kind
            if place.id is None and kind in left and not place.empty:
                left[kind] -= 1
                if left[kind] < 0:
                    return False
        return True

    def configuration(self, start: Configuration) -> Configuration:
        """The configuration in its usual form.

        Args:
            start: What it began with; tells of task runs without a place.
        """
        self._settle_at_home()
        launches: list[NewInstance] = []
        hosts: dict[Place, Host] = {}
        places: dict[RunId, Host] = {}
        contents: dict[Host, dict[int, int]] = {}
        for run, id_ in enumerate(self._ids):
            place = self._where[run]
            assert place is not None
            host = hosts.get(place)
            if host is None:
                host = place.id if place.id is not None else len(launches)
                hosts[place] = host
                if isinstance(host, int):
                    launches.append(NewInstance(host, self._book.offerings[place.load.kind]))
            places[id_] = host
            row = contents.setdefault(host, {})
            number = self._problem.class_of[id_]
            row[number] = row.get(number, 0) + 1
        return Configuration(places, contents, tuple(launches), start.unplaced)

    def _settle_at_home(self) -> None:
        """Exchange what is on instances of one offering for what it costs least to move there."""
        strays: set[Place | None] = set()
        for run, home in enumerate(self._home):
            if home is not None and home is not self._where[run]:
                strays.update((home, self._where[run]))
        alike: dict[int, list[Place]] = {}
        for place in self.places:
            if len(place.movable) < len(place.load.key):
                continue  # what is pinned stays
            if place.id is None and not place.empty:
                alike.setdefault(1 << place.load.kind, []).append(place)
            elif place.id is not None and (place.empty or place in strays):
                alike.setdefault(place.bit, []).append(place)
        for bit, places in alike.items():
            if len(places) > 1:
                self._exchange(places, self._book.launch[bit.bit_length() - 1])

    def _exchange(self, places: Sequence[Place], launch: int) -> None:
        """Assign the loads of instances of one offering to them anew, if that costs less.

        At equal cost fewer are launched or moved.

        Args:
            places: The instances.
            launch: What launching one of them costs.
        """
        rows = {place: row for row, place in enumerate(places)}
        saved = np.zeros((len(places), len(places)))
        bought = [row for place, row in rows.items() if place.id is None]
        for place, column in rows.items():
            if place.empty:
                saved[bought, column] = launch + 1
            for run in place.movable:
                home = self._home[run]
                if home in rows:
                    saved[rows[home], column] += self._cost[self._unit[run]] + 1
        hosts, loads = linear_sum_assignment(saved, maximize=True)
        if saved[hosts, loads].sum() <= saved.trace():
            return
        exchanged = [pair for pair in zip(hosts, loads, strict=True) if pair[0] != pair[1]]
        targets = {run: places[host] for host, load in exchanged for run in places[load].movable}
        before = self.total, self._changes(places)
        attempt = Attempt(self, [places[load] for _, load in exchanged])
        for run in attempt.pool:
            attempt.put(run, targets[run])
        # Members of a gang do not each save its whole move: only the cost itself tells.
        if (self.total, self._changes(places)) >= before or not self.legal():
            attempt.undo()

    def _changes(self, places: Sequence[Place]) -> int:
        """How many of some instances are launched, and how many tasks are moved to them."""
        launched = sum(place.id is None and not place.empty for place in places)
        held = [(self._home[run], place) for place in places for run in place.movable]
        return launched + sum(home is not None and home is not place for home, place in held)


class Attempt:
    """Instances that were taken apart; what comes of it may be undone.

    Args:
        arrangement: That they are in.
        victims: The instances.

    Attributes:
        pool: The task runs that have no place now.
    """

    def __init__(self, arrangement: Arrangement, victims: Sequence[Place]) -> None:
        now = self._now = arrangement
        self._before = now.total
        self.pool = [run for place in victims for run in place.movable]
        self._source = [place for place in victims for _ in place.movable]
        self._away = [(now._unit[run], now._away[now._unit[run]]) for run in self.pool]
        self._kept: dict[Place, _Kept] = {}
        for place in victims:
            self._keep(place)
        for run in self.pool:
            now.take(run)

    def _keep(self, place: Place) -> None:
        self._kept[place] = place.load, list(place.movable), list(place.gangs)

    @property
    def touched(self) -> Collection[Place]:
        """The instances that were taken apart or that something was put on."""
        return self._kept.keys()

    def put(self, run: int, place: Place) -> None:
        """Give a task run a place."""
        if place not in self._kept:
            self._keep(place)
        self._now.put(run, place)

    def undo(self) -> None:
        """Make everything as it was before."""
        now, gangs = self._now, set[int]()
        for place, (load, movable, members) in self._kept.items():
            gangs.update(now._unit[run] for run in place.gangs)
            place.load, place.movable, place.gangs, place.sunk = load, movable, members, 0
            for run in members:
                now._pace[run] = load.paces[now._class[run]]
                gangs.add(now._unit[run])
        for unit, away in self._away:
            now._away[unit] = away
        for run, place in zip(self.pool, self._source, strict=True):
            now._where[run] = place
        now._slow(gangs)
        now.total = self._before


def _limits(problem: Problem, book: Book) -> dict[int, int]:
    """How many more instances of each limited offering may be launched, by its number.

    Instances are launched before others are freed: all live ones count.
    """
    live = Counter(instance.offering.id for instance in problem.snapshot.instances)
    return {
        number: max(0, offering.limit - live[offering.id])
        for number, offering in enumerate(book.offerings)
        if offering.limit is not None
    }
