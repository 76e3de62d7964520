"""A plan with certain sizes of elastic gangs, and what it comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.ids import MILLION, Family, JobId, Millis, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Assign, Plan, PolicyMemory
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.elastic.room import fitting, member_of
from eva_master.packing.elastic.worth import speed_ppm
from eva_master.packing.local_search.configuration_cost import beside_others, evaluate
from eva_master.packing.local_search.cost_model import MoveCosts, Terms
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.job_valuation import JobValuation

_ENDS_MS = 1_000
"""A gang is expected to run for at least this long."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is the same for all sizes.

    Attributes:
        snapshot: The cluster, with the sizes as they are.
        terms: What counts how much.
        latest: When task runs were moved last.
        worth: What a unit of each gang's work costs at least, see `worth.cheapest`.
        problem: Makes the packing problem of a snapshot.
    """

    snapshot: Snapshot
    terms: Terms
    latest: Mapping[RunId, Millis]
    worth: Mapping[JobId, Fraction]
    problem: Callable[[Snapshot], Problem]


@dataclass(frozen=True)
class Trial:
    """A plan with certain sizes.

    Attributes:
        question: What is the same for all.
        sizes: The numbers of members that are not as they are.
        plan: For the cluster with these.
        memory: The policy's after it.
    """

    question: Question
    sizes: Mapping[JobId, int]
    plan: Plan
    memory: PolicyMemory | None

    @cached_property
    def seen(self) -> Snapshot:
        """The cluster with these sizes."""
        return with_sizes(self.question.snapshot, self.sizes)

    @cached_property
    def places(self) -> dict[RunId, Host]:
        """Where every task run is to be that has a place."""
        live = {view.id for view in self.seen.instances}
        places: dict[RunId, Host] = {
            run.id: run.instance
            for run in self.seen.runs
            if run.instance is not None and run.instance in live
        }
        places.update((it.run, it.on) for it in self.plan.entries if isinstance(it, Assign))
        return places

    @cached_property
    def unplaced(self) -> frozenset[str]:
        """What waits on: gangs, and tasks of arrays."""
        gangs = {job.id for job in self.seen.jobs if job.kind is JobKind.GANG}
        return frozenset(
            run.job if run.job in gangs else run.id
            for run in self.seen.runs
            if run.id not in self.places
        )

    @cached_property
    def whole(self) -> bool:
        """Whether every gang that runs has places for all of its members."""
        running = {run.job for run in self.question.snapshot.runs if run.instance is not None}
        return not any(job in running and job in self.unplaced for job in self.sizes)

    @cached_property
    def changes(self) -> int:
        """What the changes of size cost, in millionths of micro-dollars per hour."""
        before = self.question.problem(self.question.snapshot)
        terms = replace(self.question.terms, horizon_left=False)  # `_change` sees to it
        costs = MoveCosts(before, terms, self.question.latest).cost
        return sum(self._change(job, costs) for job in self.seen.jobs if job.id in self.sizes)

    def _change(self, job: JobView, costs: Mapping[str, int]) -> int:
        cost = costs.get(job.id) or costs.get(job.runs[0], 0)
        left = member_of(self.seen, job).remaining
        if not cost or left is None:
            return cost
        ends = left.left_ms(self.question.snapshot.now_ms) * MILLION // self._speed(job)
        horizon = self.question.terms.horizon_ms
        return cost * horizon // min(horizon, max(_ENDS_MS, ends))

    @cached_property
    def cost(self) -> int:
        """What it costs, less what the work of elastic gangs is worth, likewise."""
        question = self.question
        problem = question.problem(self.seen)
        sets: defaultdict[Host, Counter[int]] = defaultdict(Counter)
        for run, host in self.places.items():
            sets[host][problem.class_of[run]] += 1
        configuration = Configuration(self.places, dict(sets), self.plan.launches, {})
        gangs = [
            job
            for job in self.seen.jobs
            if job.id in question.worth and job.id not in self.unplaced
        ]
        # What members take from each other is part of how fast so many are.
        apart = {job.id for job in gangs}
        total = evaluate(problem, question.terms, configuration, question.latest, apart)
        used = self.staying.keys() & sets.keys()
        total -= sum(self.staying[host].price for host in used) * MILLION  # It is paid anyway.
        for job in gangs:
            slowest = beside_others(problem, question.terms, configuration, job.runs)
            done = question.worth[job.id] * self._speed(job) * slowest / MILLION
            total -= int(done)
        return total + self.changes

    def _speed(self, job: JobView) -> int:
        assert job.elastic is not None
        hosts = {self.places[run] for run in job.runs if run in self.places}
        return max(1, speed_ppm(job.elastic, len(hosts), len(job.runs)))

    def better(self, than: Trial) -> bool:
        """Whether it is to be preferred: places more, or costs less."""
        if not self.whole or self.unplaced - than.unplaced:
            return False
        if more := than.unplaced - self.unplaced:
            prices = self._prices()
            return sum(prices[one] for one in more) > self.changes - than.changes
        return self.cost < than.cost

    def _prices(self) -> Counter[str]:
        """The reservation prices of what may be placed, in millionths of micro-dollars per hour."""
        problem = self.question.problem(self.seen)
        prices: Counter[str] = Counter()
        for run in self.seen.runs:
            price = problem.classes[problem.class_of[run.id]].price * MILLION
            prices[run.id] += price
            prices[run.job] += price
        return prices

    @cached_property
    def staying(self) -> Mapping[Host, Offering]:
        """Instances that are paid for though they are empty: owned nodes, and members of pools.

        Of pools those members count that the plan states and that take tasks.
        """
        open_members = {
            member
            for pool in self.plan.pools
            if not pool.lent
            for member in pool.members
            if member not in pool.closed
        }
        return {
            view.id: view.offering
            for view in self.seen.instances
            if view.offering.purchase is Purchase.OWNED or view.id in open_members
        }

    def seats(self, job: JobView) -> list[Host]:
        """Free room for further members on instances that hold tasks or stay without.

        Instances with members come first, empty ones last. An empty instance that is slower than
        where the members are is left out.
        """
        task = member_of(self.seen, job).task
        live = {view.id: view.offering for view in self.seen.instances}
        offerings = dict(self.staying)
        used: dict[Host, Resources] = dict.fromkeys(offerings, NOTHING)
        own = {self.places[run] for run in job.runs if run in self.places}
        known = {launch.key: launch.offering for launch in self.plan.launches}
        runs = {run.id: run for run in self.seen.runs}
        for name, host in self.places.items():
            offering = known[host] if isinstance(host, int) else live[host]
            offerings[host] = offering
            took = runs[name].task.demand_on(offering.type.family) or NOTHING
            used[host] = used.get(host, NOTHING) + took
        slower = self._slower(job, [offerings[host] for host in own])
        held = set(self.places.values())
        found: list[Host] = []
        for host in sorted(used, key=lambda it: (it not in own, it not in held, str(it))):
            offering = offerings[host]
            if host not in held and offering.type.family in slower:
                continue
            free = offering.type.capacity - used[host]
            found += [host] * min(fitting(task, offering, free), _most(job))
        return found

    def _slower(self, job: JobView, there: Collection[Offering]) -> frozenset[Family]:
        """Families on which a member would hold up those on some instances."""
        snapshot = self.question.snapshot
        if job.split_batch or len({it.type.family for it in snapshot.catalog}) <= 1:
            return frozenset()
        task = member_of(self.seen, job).task
        rates = dict(JobValuation(snapshot.catalog, snapshot.standalone).rates(task))
        pace = min((rates.get(it.type.family, 1) for it in there), default=0)
        return frozenset(family for family, rate in rates.items() if rate < pace)

    def grown(self, job: JobView, seats: list[Host]) -> Trial:
        """The same with further members on some seats."""
        sizes = {**self.sizes, job.id: len(job.runs) + len(seats)}
        larger = next(
            it for it in with_sizes(self.question.snapshot, sizes).jobs if it.id == job.id
        )
        new = zip(larger.runs[len(job.runs) :], seats, strict=True)
        joining = tuple(Assign(run, host) for run, host in new)
        names = {entry.run for entry in joining}
        rest = tuple(entry for entry in self.plan.entries if entry.run not in names)
        plan = replace(self.plan, entries=tuple(sorted((*rest, *joining), key=lambda it: it.run)))
        return Trial(self.question, sizes, plan, self.memory)


def _most(job: JobView) -> int:
    assert job.elastic is not None
    return job.elastic.most
