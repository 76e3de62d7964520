"""Algorithm 1 on classes with repeated patterns is the plain one-by-one algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.catalog import Offering
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.greedy.algorithm1 import pack
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation.vectors import IMPOSSIBLE, WIDTH, vector
from eva_master.testing.job_views import changed
from eva_wire.values.ids import MILLION, Family, OfferingId, Workload
from tests.drawing import drawn
from tests.fakes.paper import throughput_by_the_paper
from tests.fakes.snapshots import Cluster, offer, table, task

WORKLOADS = ("u", "v", "w")
Sets = Counter[tuple[OfferingId, tuple[tuple[int, int], ...]]]

sizes = st.tuples(
    st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.sampled_from((0, 0, 1, 3))
)
offerings = st.lists(
    st.tuples(
        st.sampled_from(["p", "c"]),
        st.tuples(
            st.integers(0, 4), st.integers(1, 10), st.integers(0, 10), st.sampled_from((0, 4, 9))
        ),
        st.integers(1, 20),
        st.one_of(st.none(), st.none(), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=4,
)
jobs = st.lists(
    st.tuples(
        st.sampled_from(WORKLOADS),
        st.dictionaries(st.sampled_from(["p", "c"]), sizes, min_size=1),
        st.integers(1, 3),
        st.dictionaries(st.sampled_from(["p", "c"]), st.integers(1, 5)),
    ),
    min_size=1,
    max_size=8,
)
entries = st.dictionaries(
    st.tuples(
        st.sampled_from(WORKLOADS),
        st.lists(st.sampled_from(WORKLOADS), min_size=1, max_size=3).map(sorted).map(tuple),
    ),
    st.integers(1, 20).map(lambda twentieths: twentieths / 20),
    max_size=6,
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    catalog = [
        offer(f"{family}.{number}", size, usd, family=family, limit=limit)
        for number, (family, size, usd, limit) in enumerate(draw(offerings))
    ]
    cluster = Cluster(*catalog)
    alike = draw(st.booleans())
    for number, (workload, demand, count, rates) in enumerate(draw(jobs)):
        spec = task(workload, **demand)
        if not alike:
            spec = replace(spec, throughput=tuple(sorted(rates.items())))
        # Twice, so that classes have more than one member.
        cluster.job(f"{number}", *[spec] * count).job(f"{number}+", *[spec] * count)
    cluster.throughput = table(draw(entries))
    split = draw(st.booleans())
    found = cluster.snapshot()
    return replace(found, jobs=tuple(changed(job, split_batch=split) for job in found.jobs))


@st.composite
def divided_gangs(draw: st.DrawFn) -> Snapshot:
    """Gangs that divide batches, of tasks that are faster on one of two families."""
    rate = st.integers(1, 9)
    sold = st.tuples(st.integers(1, 20), st.sampled_from([None, None, 1, 2]))
    catalog = []
    for family in ("p", "c"):
        for number, (usd, limit) in enumerate(draw(st.lists(sold, min_size=1, max_size=2))):
            name, size = f"{family}.{number}", 2 + 2 * number
            catalog.append(offer(name, (0, size, size), usd, family=family, limit=limit))
    cluster = Cluster(*catalog)
    for number, members in enumerate(
        draw(st.lists(st.lists(st.tuples(rate, rate), min_size=2, max_size=3), max_size=3))
    ):
        spec = task("u", p=(0, 1, 1), c=(0, 2, 1))
        tasks = [replace(spec, throughput=tuple(zip("cp", each, strict=True))) for each in members]
        cluster.job(f"{number}", *tasks)
    found = cluster.snapshot()
    return replace(found, jobs=tuple(changed(job, split_batch=True) for job in found.jobs))


class OneByOne:
    """Algorithm 1 as the paper states it, task by task; ties, downsizing and limits as here."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        buyable = [o for o in problem.offerings if o.limit != 0]
        self.own = [
            self.least(n, buyable) or self.least(n, problem.offerings)
            for n in range(len(problem.classes))
        ]
        self.first = list(self.own)
        self.supply = {offering.id: offering.limit for offering in problem.offerings}

    def speed(self, number: int, family: str) -> int:
        return dict(self.problem.classes[number].speeds).get(family, 1)

    def least(self, number: int, offerings: Sequence[Offering]) -> Offering | None:
        """Where an iteration of the task, or of its whole gang, costs least."""
        others = self.problem.classes[number].others
        return min(
            (o for o in offerings if self.fits([number], o)),
            key=lambda o: Fraction(o.price + others, self.speed(number, o.type.family)),
            default=None,
        )

    def price(self, number: int, family: str) -> int:
        own, others = self.own[number], self.problem.classes[number].others
        if own is None:
            return 0
        speed, usual = self.speed(number, family), self.speed(number, own.type.family)
        if not others:
            return own.price * speed // usual
        # All of its gang is slowed down with it, and nobody gains by its being faster; unless they
        # divide batches.
        if not self.problem.classes[number].split:
            speed = min(speed, usual)
        return (own.price + others) * speed // usual - others

    def tnrp(self, members: list[int], family: str) -> int:
        total = 0
        for position, number in enumerate(members):
            others = members[:position] + members[position + 1 :]
            task_class = self.problem.classes[number]
            throughput = throughput_by_the_paper(
                ((whose, beside, ppm) for (whose, beside), ppm in self.problem.table.observed),
                task_class.workload,
                [self.problem.classes[other].workload for other in others],
                self.problem.default_ppm,
            )
            charge = task_class.charge - task_class.price + self.price(number, family)
            total += MILLION * self.price(number, family) - (MILLION - throughput) * charge
        return total

    def needs(self, members: list[int], offering: Offering) -> list[int]:
        rows = [self.problem.need[offering.type.family][number] for number in members]
        return [sum(int(row[column]) for row in rows) for column in range(WIDTH)]

    def fits(self, members: list[int], offering: Offering) -> bool:
        capacity = vector(offering.type.capacity)
        return all(n <= c for n, c in zip(self.needs(members, offering), capacity, strict=True))

    def alignment(self, number: int, members: list[int], offering: Offering) -> int:
        capacity = vector(offering.type.capacity)
        used, need = self.needs(members, offering), self.needs([number], offering)
        return sum(
            need[c] * MILLION // capacity[c] * ((capacity[c] - used[c]) * MILLION // capacity[c])
            for c in range(WIDTH)
            if capacity[c]
        )

    def run(self, counts: list[int]) -> tuple[Sets, list[int]]:
        left, sets = list(counts), Sets()
        while True:
            for offering in sorted(self.problem.offerings, key=lambda o: (-o.price, o.id)):
                while self.supply[offering.id] != 0:
                    members = self.fill(offering, list(left))
                    if (
                        not members
                        or self.tnrp(members, offering.type.family) < MILLION * offering.price
                    ):
                        break
                    self.place(members, offering, sets, left)
            on_sale = [o for o in self.problem.offerings if self.supply[o.id] != 0]
            if not self.revalue(on_sale, left):
                return sets, left

    def fill(self, offering: Offering, left: list[int]) -> list[int]:
        members: list[int] = []
        family = offering.type.family
        while True:
            options = [
                (self.tnrp([*members, n], family), self.alignment(n, members, offering), -n)
                for n, count in enumerate(left)
                if count and self.fits([*members, n], offering)
            ]
            if not options or max(options)[0] < self.tnrp(members, family):
                return members
            members.append(-max(options)[2])
            left[members[-1]] -= 1

    def place(self, members: list[int], offering: Offering, sets: Sets, left: list[int]) -> None:
        contents = Counter(members)
        holding = [
            o for o in self.problem.offerings if self.supply[o.id] != 0 and self.fits(members, o)
        ]

        def saved(o: Offering) -> int:
            return self.problem.value(contents, o.type.family) - o.price * MILLION

        # Of equals the one it is on, then the cheapest.
        chosen = max([offering, *holding], key=saved)
        limit = self.supply[chosen.id]
        self.supply[chosen.id] = None if limit is None else limit - 1
        sets[chosen.id, tuple(sorted(Counter(members).items()))] += 1
        for number in members:
            left[number] -= 1

    def revalue(self, on_sale: list[Offering], left: list[int]) -> bool:
        again = False
        for number in range(len(self.problem.classes)):
            own = self.least(number, on_sale)
            self.own[number] = own or self.first[number]
            again |= own is not None and left[number] > 0
        return again


def run(problem: Problem) -> tuple[Sets, list[int]]:
    supply = {offering.id: offering.limit for offering in problem.offerings}
    packed, left = pack(problem, problem.counts(problem.class_of), supply)
    sets = Sets()
    for item in packed:
        sets[item.offering.id, tuple(sorted(item.task_set.items()))] += item.times
    return sets, left.tolist()


@drawn(80)
@given(snapshots(), st.booleans(), st.booleans())
def test_packing_classes_is_packing_one_by_one(snapshot, interference, multi_task_view):
    valuation = Valuation(interference, multi_task_view=multi_task_view)
    problem = Problem(snapshot, valuation)
    counts = problem.counts(problem.class_of).tolist()
    assert run(problem) == OneByOne(Problem(snapshot, valuation)).run(counts)


@drawn(80)
@given(divided_gangs())
def test_packing_gangs_that_divide_batches_is_packing_one_by_one(snapshot):
    problem = Problem(snapshot, Valuation())
    counts = problem.counts(problem.class_of).tolist()
    assert run(problem) == OneByOne(Problem(snapshot, Valuation())).run(counts)


@drawn(80)
@given(divided_gangs())
def test_a_member_of_a_divided_gang_is_worth_what_all_of_it_gains(snapshot):
    """The gang is worth its price times its pace, wherever one member is and the others at home."""
    problem = Problem(snapshot, Valuation())
    cheapest = [it for it in snapshot.catalog if it.available(snapshot.now_ms)]
    for job in snapshot.jobs:
        specs = [run.task for run in snapshot.runs if run.job == job.id]
        classes = [problem.classes[problem.class_of[run]] for run in job.runs]
        rates = [dict(spec.throughput) for spec in specs]
        if all(len(set(known.values())) == 1 for known in rates):
            continue
        told = [{it: one.price_on(it) for it in rates[0]} for one in classes]
        choices = list(product(cheapest, repeat=len(specs)))

        def cost(homes: Sequence[Offering], rates: list[dict[Family, int]] = rates) -> Fraction:
            pace = sum(known[it.type.family] for known, it in zip(rates, homes, strict=True))
            return Fraction(sum(it.price for it in homes), pace)

        least = min(map(cost, choices))
        assert told in [_worth_of(homes, rates) for homes in choices if cost(homes) == least]


def _worth_of(
    homes: Sequence[Offering], rates: Sequence[Mapping[Family, int]]
) -> list[dict[Family, int]]:
    """What each member is worth on each family if all are at home but for it."""
    price = sum(it.price for it in homes)
    own = [known[it.type.family] for known, it in zip(rates, homes, strict=True)]
    return [
        {
            family: price * (sum(own) - own[number] + rate) // sum(own) - price + home.price
            for family, rate in rates[number].items()
        }
        for number, home in enumerate(homes)
    ]


@drawn(80)
@given(snapshots(), st.booleans())
def test_every_set_fits_and_every_task_is_accounted_for(snapshot, interference):
    problem = Problem(snapshot, Valuation(interference))
    sets, left = run(problem)
    placed = Counter(dict(enumerate(left)))
    used: Counter[OfferingId] = Counter()
    for (offering, contents), times in sets.items():
        capacity = vector(problem.by_id[offering].type.capacity)
        need = problem.need[problem.by_id[offering].type.family]
        for column, size in enumerate(capacity):
            assert sum(int(need[number][column]) * count for number, count in contents) <= size
        used[offering] += times
        for number, count in contents:
            placed[number] += count * times
    assert [placed[n] for n in range(len(problem.classes))] == problem.counts(
        problem.class_of
    ).tolist()
    for offering_id, number in used.items():
        limit = problem.by_id[offering_id].limit
        assert limit is None or number <= limit


@drawn(60)
@given(snapshots())
def test_packing_never_costs_more_than_no_packing(snapshot):
    unlimited = [offering for offering in snapshot.catalog if offering.limit is None]
    problem = Problem(
        Snapshot(
            snapshot.now_ms, tuple(unlimited), snapshot.jobs, snapshot.runs, snapshot.instances
        ),
        Valuation(interference=False),
    )
    sets, left = run(problem)
    saved = 0
    for (name, tasks), times in sets.items():
        offering = problem.by_id[name]
        value = problem.value(dict(tasks), offering.type.family)
        saved += times * (value - offering.price * MILLION)
    assert saved >= 0
    if problem.uniform:
        # Where speeds differ a dearer instance may do more than its price's worth of work.
        alone = sum(problem.classes[number].price for number in problem.class_of.values())
        assert sum(problem.by_id[name].price * n for (name, _), n in sets.items()) <= alone
    for number, count in enumerate(left):
        assert not count or problem.classes[number].price == 0


def test_the_reference_agrees_that_absent_families_are_impossible():
    problem = Problem(
        Cluster(offer("p.1", (0, 1, 1), 1, family="p")).job("a", task("u", c=(0, 1, 1))).snapshot(),
        Valuation(),
    )
    assert problem.need["p"].tolist() == [[IMPOSSIBLE] * WIDTH]
    assert problem.throughput.index == {Workload(""): 0}
    assert OneByOne(problem).run([1]) == (Sets(), [1])
