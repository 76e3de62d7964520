"""A plan with certain sizes of elastic gangs, and what it comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Plan, PolicyMemory
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.elastic.room import fitting, member_of
from eva_master.packing.elastic.worth import speed_ppm
from eva_master.packing.local_search.configuration_cost import beside_others, evaluate
from eva_master.packing.local_search.cost_model import CostWeights, MoveCosts
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.problem import Problem
from eva_master.packing.room import need_on, room_beside
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, JobId, Millis, RunId

_ENDS_MS = 1_000
"""A gang is expected to run for at least this long."""


@dataclass(frozen=True, slots=True)
class TrialInputs:
    """Inputs common to the trials of all sizes.

    Attributes:
        snapshot: The cluster, with the sizes as they are.
        terms: Weights of the costs.
        latest: Time of each task run's last move.
        worth: Least cost of a unit of each gang's work, see `worth.cheapest`.
        problem: Function that makes the packing problem of a snapshot.
    """

    snapshot: Snapshot
    terms: CostWeights
    latest: Mapping[RunId, Millis]
    worth: Mapping[JobId, Fraction]
    problem: Callable[[Snapshot], Problem]


@dataclass(frozen=True)
class SizeTrial:
    """A plan with certain sizes.

    Attributes:
        question: The common inputs.
        sizes: Numbers of members of the gangs that change.
        plan: The plan for the cluster with these sizes.
        memory: The policy's memory after it.
    """

    question: TrialInputs
    sizes: Mapping[JobId, int]
    plan: Plan
    memory: PolicyMemory | None

    @cached_property
    def seen(self) -> Snapshot:
        """The cluster with these sizes."""
        return with_sizes(self.question.snapshot, self.sizes)

    @cached_property
    def places(self) -> dict[RunId, Host]:
        """Places of all task runs that have one after the plan."""
        live = {view.id for view in self.seen.instances}
        places: dict[RunId, Host] = {
            run.id: run.instance
            for run in self.seen.runs
            if run.instance is not None and run.instance in live
        }
        places.update(
            (entry.run, entry.on) for entry in self.plan.entries if isinstance(entry, Assign)
        )
        return places

    @cached_property
    def unplaced(self) -> frozenset[str]:
        """Gangs and tasks of arrays that still wait."""
        gangs = {job.id for job in self.seen.jobs if job.spec.kind is JobKind.GANG}
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
        """Cost of the changes of size, in millionths of micro-dollars per hour."""
        before = self.question.problem(self.question.snapshot)
        terms = replace(self.question.terms, horizon_left=False)  # `_change` accounts for it
        costs = MoveCosts(before, terms, self.question.latest).cost
        return sum(self._change(job, costs) for job in self.seen.jobs if job.id in self.sizes)

    def _change(self, job: JobView, costs: Mapping[str, int]) -> int:
        cost = costs.get(job.id) or costs.get(job.runs[0], 0)
        work = member_of(self.seen, job).remaining
        if not cost or work is None:
            return cost
        ends = work.standalone_ms(self.question.snapshot.now_ms) * MILLION // self._speed(job)
        horizon = self.question.terms.horizon_ms
        return cost * horizon // min(horizon, max(_ENDS_MS, ends))

    @cached_property
    def cost(self) -> int:
        """Cost less the worth of elastic gangs' work, in millionths of micro-dollars per hour."""
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
        # Interference between members is part of the gang's speed.
        apart = {job.id for job in gangs}
        cache = LoadCache(problem, question.terms)
        total = evaluate(
            problem, question.terms, configuration, question.latest, apart, cache=cache
        )
        used = self.staying.keys() & sets.keys()
        total -= sum(self.staying[host].price for host in used) * MILLION  # Paid in any case.
        for job in gangs:
            slowest = beside_others(problem, cache, configuration, job.runs)
            done = question.worth[job.id] * self._speed(job) * slowest / MILLION
            total -= int(done)
        return total + self.changes

    def _speed(self, job: JobView) -> int:
        assert job.sharing.elastic is not None
        hosts = {self.places[run] for run in job.runs if run in self.places}
        return max(1, speed_ppm(job.sharing.elastic, len(hosts), len(job.runs)))

    def better(self, than: SizeTrial) -> bool:
        """Whether the trial is preferable: it places more, or costs less."""
        if not self.whole or self.unplaced - than.unplaced:
            return False
        if more := than.unplaced - self.unplaced:
            prices = self._prices()
            return sum(prices[unit] for unit in more) > self.changes - than.changes
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
            if not pool.shared
            for member in pool.members
            if member not in pool.closed
        }
        return {
            view.id: view.offering
            for view in self.seen.instances
            if view.offering.purchase is Purchase.OWNED or view.id in open_members
        }

    def seats(self, job: JobView) -> list[Host]:
        """Free room for further members on instances that hold tasks or stay empty.

        Instances with members come first, empty ones last. Empty instances that are slower than
        those of the members are left out.
        """
        task = member_of(self.seen, job).task
        live = {view.id: view.offering for view in self.seen.instances}
        offerings = dict(self.staying)
        used: dict[Host, Resources] = dict.fromkeys(offerings, NOTHING)
        own = {self.places[run] for run in job.runs if run in self.places}
        bought = {launch.key: launch.offering for launch in self.plan.launches}
        runs = {run.id: run for run in self.seen.runs}
        for name, host in self.places.items():
            offering = bought[host] if isinstance(host, int) else live[host]
            offerings[host] = offering
            took = need_on(runs[name].task, offering)
            used[host] = used.get(host, NOTHING) + took
        slower = self._slower(job, [offerings[host] for host in own])
        held = set(self.places.values())
        seats: list[Host] = []
        for host in sorted(used, key=lambda it: (it not in own, it not in held, str(it))):
            offering = offerings[host]
            if host not in held and offering.type.family in slower:
                continue
            free = room_beside(offering, used[host])
            seats += [host] * min(fitting(task, offering, free), _most(job))
        return seats

    def _slower(self, job: JobView, there: Collection[Offering]) -> frozenset[Family]:
        """Families on which a member would slow down the members on some instances."""
        snapshot = self.question.snapshot
        if (
            job.spec.training.split_batch
            or len({offering.type.family for offering in snapshot.catalog}) <= 1
        ):
            return frozenset()
        task = member_of(self.seen, job).task
        rates = dict(JobValuation(snapshot.catalog, snapshot.standalone).rates(task))
        pace = min((rates.get(offering.type.family, 1) for offering in there), default=0)
        return frozenset(family for family, rate in rates.items() if rate < pace)

    def grown(self, job: JobView, seats: list[Host]) -> SizeTrial:
        """This trial with further members on some seats."""
        sizes = {**self.sizes, job.id: len(job.runs) + len(seats)}
        larger = next(
            view for view in with_sizes(self.question.snapshot, sizes).jobs if view.id == job.id
        )
        new = zip(larger.runs[len(job.runs) :], seats, strict=True)
        joining = tuple(Assign(run, host) for run, host in new)
        names = {entry.run for entry in joining}
        rest = tuple(entry for entry in self.plan.entries if entry.run not in names)
        plan = replace(self.plan, entries=tuple(sorted((*rest, *joining), key=lambda it: it.run)))
        return SizeTrial(self.question, sizes, plan, self.memory)


def _most(job: JobView) -> int:
    assert job.sharing.elastic is not None
    return job.sharing.elastic.most
