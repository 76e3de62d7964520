"""Costs of parts of configurations until their tasks have ended.

All costs are in micro-dollars per hour times milliseconds, all times in milliseconds from now.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eva_master.model.catalog import Offering
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.migration_cost import expected_migration_cost
from eva_master.packing.valuation.reservation_price import relative_speed
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, RunId


@dataclass(frozen=True, slots=True)
class Stay:
    """A task run on an instance.

    Attributes:
        run: Which.
        until_ms: When it ends or leaves, in milliseconds from now.
    """

    run: RunView
    until_ms: int


def sold_as(problem: Problem, configuration: Configuration, host: Host) -> Offering:
    """The offering of an instance of a configuration."""
    if isinstance(host, int):
        return configuration.launches[host].offering
    return problem.offering_of(host)


class CostsToTheEnd:
    """Costs of instances and moves.

    Args:
        problem: The snapshot's.
        terms: What counts how much.

    Attributes:
        problem: The snapshot's.
    """

    def __init__(self, problem: Problem, terms: CostWeights) -> None:
        self.problem = problem
        self._terms = terms
        self._on_sale = [sold for name, sold in problem.by_id.items() if problem.buyable(name)]
        self._holding: dict[frozenset[tuple[int, int]], Offering | None] = {}
        self._speeds: dict[tuple[int, Family], Fraction] = {}
        self._losses: dict[tuple[Family, bool, tuple[int, ...]], int] = {}

    def stays(
        self, configuration: Configuration, runs: Iterable[RunId]
    ) -> Mapping[Host, Sequence[Stay]]:
        """Task runs by instance, those first that end first, and where they run until then.

        Args:
            configuration: Where they are to be.
            runs: Those that are on some instances; one of unknown length goes on for a horizon.
        """
        problem, stays = self.problem, defaultdict[Host, list[Stay]](list)
        for name in runs:
            run, host = problem.runs[name], configuration.places[name]
            kind, home = sold_as(problem, configuration, host).type, run.instance
            ready_ms = kind.boot_ms if isinstance(host, int) else 0
            work_ms, until_ms = self._work_ms(run), 0
            if run.running and home is not None and home in problem.instances:
                until_ms = self._takes(run, work_ms, problem.offering_of(home).type.family)
                if host != home:
                    stays[home].append(Stay(run, min(until_ms, ready_ms)))
                    work_ms = work_ms * max(0, until_ms - ready_ms) // max(1, until_ms)
            if host != home and work_ms:
                until_ms = ready_ms + self._takes(run, work_ms, kind.family)
            stays[host].append(Stay(run, until_ms))
        for residents in stays.values():
            residents.sort(key=lambda stay: stay.until_ms)
        return stays

    def _work_ms(self, run: RunView) -> int:
        """Remaining standalone time of a task run, a horizon if that is unknown."""
        if run.remaining is None:
            return self._terms.horizon_ms
        return run.remaining.standalone_ms(self.problem.snapshot.now_ms)

    def _takes(self, run: RunView, work_ms: int, family: Family) -> int:
        """Time for which a task run with so much work left goes on, on a family."""
        speed = self._speed(run, family)
        return work_ms * speed.denominator // speed.numerator if speed > 0 else work_ms

    def _speed(self, run: RunView, family: Family) -> Fraction:
        """Speed of a task run on a family, against the family of its reservation price."""
        number = self.problem.class_of[run.id]
        speed = self._speeds.get((number, family))
        if speed is None:
            task_class = self.problem.classes[number]
            speed = relative_speed(family, self.problem.reservation(number), task_class.speeds)
            if task_class.others and not task_class.split:
                speed = min(speed, Fraction(1))
            self._speeds[number, family] = speed
        return speed

    def _elsewhere(self, stay: Stay, since_ms: int, before: Family, after: Family) -> Stay:
        """Stay of which the rest is on another family."""
        rest_ms, slow = stay.until_ms - since_ms, self._speed(stay.run, after)
        if before != after and slow > 0:
            fast = self._speed(stay.run, before)
            rest_ms *= fast.numerator * slow.denominator
            rest_ms //= fast.denominator * slow.numerator
        return Stay(stay.run, since_ms + rest_ms)

    def moves(self, configuration: Configuration, runs: Iterable[RunId]) -> int:
        """Cost of the moves of those task runs that run elsewhere now, whole gangs with them."""
        problem, moving = self.problem, dict[RunId, None]()
        for name in runs:
            run = problem.runs[name]
            running = run.running and run.instance in problem.instances
            if running and configuration.places[name] != run.instance:
                job = problem.jobs[run.job]
                whole = job.runs if job.spec.kind is JobKind.GANG else (name,)
                moving.update(dict.fromkeys(whole))
        return sum(self.move(problem.runs[name]) for name in moving)

    def move(self, run: RunView) -> int:
        """Cost of a move of a task run."""
        price = self.problem.classes[self.problem.class_of[run.id]].price
        cost = expected_migration_cost(self.problem.jobs[run.job], price)
        return cost * self._terms.moves_ppm // MILLION

    def until(
        self, configuration: Configuration, stays: Mapping[Host, Sequence[Stay]], until_ms: int
    ) -> int:
        """Cost of instances up to a time."""
        offerings = ((sold_as(self.problem, configuration, host), host) for host in stays)
        return sum(self._held(offering, stays[host], 0, until_ms) for offering, host in offerings)

    def since(
        self, configuration: Configuration, stays: Mapping[Host, Sequence[Stay]], since_ms: int
    ) -> int:
        """Cost of instances from a time on, until all tasks have ended or have moved on."""
        total = 0
        for host, residents in stays.items():
            offering = sold_as(self.problem, configuration, host)
            rest = [stay for stay in residents if stay.until_ms > since_ms]
            if not rest:
                continue
            costs = [self._held(offering, rest, since_ms, rest[-1].until_ms)]
            for number, stay in enumerate(rest[:-1], 1):
                further = self._further(offering, rest[number:], stay.until_ms)
                if further is not None:
                    costs.append(self._held(offering, rest, since_ms, stay.until_ms) + further)
            total += min(costs)
        return total

    def _held(self, offering: Offering, stays: Sequence[Stay], since_ms: int, until_ms: int) -> int:
        """Cost of an instance from one time to another, with what its tasks lose together."""
        total, begin = 0, since_ms
        for number, stay in enumerate(stays):
            end = min(stay.until_ms, until_ms)
            if end > begin:
                lost = self._lost(stays[number:], offering)
                total += (offering.price + lost) * (end - begin)
                begin = end
        return total

    def _further(self, offering: Offering, rest: Sequence[Stay], since_ms: int) -> int | None:
        """Cost of tasks that move on to the cheapest instance that holds them, or to one each."""
        problem, family = self.problem, offering.type.family
        tasks = Counter(problem.class_of[stay.run.id] for stay in rest)
        moves, options = sum(self.move(stay.run) for stay in rest), list[int]()
        shared = self._cheapest(tasks)
        if shared is not None and shared.price < offering.price:
            boot = offering.price * shared.type.boot_ms
            moved = [self._elsewhere(stay, since_ms, family, shared.type.family) for stay in rest]
            moved.sort(key=lambda stay: stay.until_ms)
            options.append(boot + moves + self._held(shared, moved, since_ms, moved[-1].until_ms))
        alone = [problem.reservation(problem.class_of[stay.run.id]) for stay in rest]
        each = [lone for lone in alone if lone is not None]
        if len(each) == len(alone):
            boot = offering.price * max(lone.type.boot_ms for lone in each)
            held = 0
            for own, stay in zip(each, rest, strict=True):
                until_ms = self._elsewhere(stay, since_ms, family, own.type.family).until_ms
                held += own.price * (until_ms - since_ms)
            options.append(boot + moves + held)
        return min(options, default=None)

    def _cheapest(self, tasks: TaskSet) -> Offering | None:
        """The cheapest offering on sale that holds some tasks."""
        key = frozenset(tasks.items())
        if key not in self._holding:
            fitting = (sold for sold in self._on_sale if self.problem.fits(sold.id, tasks))
            self._holding[key] = next(fitting, None)
        return self._holding[key]

    def _lost(self, stays: Sequence[Stay], offering: Offering) -> int:
        """Loss of tasks beside each other, in micro-dollars per hour.

        A slow family is no loss where the longer stay is paid for. On an own node, which costs
        nothing, the longer stay is worth what the tasks lose to the family.
        """
        problem, family = self.problem, offering.type.family
        numbers = sorted([problem.class_of[stay.run.id] for stay in stays])
        key = family, bool(offering.price), tuple(numbers)
        lost = self._losses.get(key)
        if lost is None:
            tasks = Counter(numbers)
            slow = sum(many * problem.slowness(number, family) for number, many in tasks.items())
            beside = problem.lost(tasks, family) // MILLION - slow
            lost = (0 if offering.price else slow) + beside * self._terms.lost_ppm // MILLION
            self._losses[key] = lost
        return lost
