"""The LP tier: its bound holds, its packings are lawful and no worse than greedy ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.catalog import Offering
from eva_master.packing.greedy.algorithm1 import PackedSet, pack
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.column_generation import EffortLimits, Generator, PackingRequest
from eva_master.packing.lp.columns import cost
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.lp.pricing import compiled_knapsack, knapsack
from eva_master.packing.lp.pricing.knapsack import KnapsackProblem
from eva_master.packing.lp.pricing.workload_multisets import MultisetSearch
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation.vectors import vector
from eva_wire.values.ids import MILLION, Family, OfferingId
from tests.drawing import drawn
from tests.fakes.snapshots import Cluster, offer, table, task

ANY = Family("any")
WORKLOADS = ("u", "v", "w")
sizes = st.tuples(
    st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.sampled_from((0, 0, 1, 3))
)
catalogs = st.lists(
    st.tuples(
        st.sampled_from(["p", "c"]),
        st.tuples(
            st.integers(0, 4), st.integers(1, 9), st.integers(0, 9), st.sampled_from((0, 4, 9))
        ),
        st.integers(1, 12),
        st.one_of(st.none(), st.none(), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=4,
)
jobs = st.lists(
    st.tuples(
        st.sampled_from(WORKLOADS),
        st.dictionaries(st.sampled_from(["p", "c"]), sizes, min_size=1),
        st.integers(1, 2),
        st.dictionaries(st.sampled_from(["p", "c"]), st.integers(1, 5)),
    ),
    min_size=1,
    max_size=4,
)
entries = st.dictionaries(
    st.tuples(
        st.sampled_from(WORKLOADS),
        st.lists(st.sampled_from(WORKLOADS), min_size=1, max_size=3).map(sorted).map(tuple),
    ),
    st.sampled_from([0.000001, 0.3, 0.7, 0.9, 0.95, 0.999999, 1.0]),
    max_size=8,
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to eight tasks of up to four classes."""
    cluster = Cluster(
        *(
            offer(f"{family}.{number}", size, usd, family=family, limit=limit)
            for number, (family, size, usd, limit) in enumerate(draw(catalogs))
        )
    )
    alike = draw(st.booleans())
    for number, (workload, demand, count, rates) in enumerate(draw(jobs)):
        spec = task(workload, **demand)
        if not alike:
            spec = replace(spec, throughput=tuple(sorted(rates.items())))
        cluster.job(f"{number}", *[spec] * count)
    cluster.throughput = table(draw(entries))
    return Problem(cluster.snapshot(), Valuation(draw(st.booleans())))


def supply_of(problem: Problem) -> dict[OfferingId, int | None]:
    return {offering.id: offering.limit for offering in problem.offerings}


def fits(problem: Problem, offering: Offering, pattern: tuple[int, ...]) -> bool:
    need = problem.need[offering.type.family]
    return all(
        sum(count * int(need[number][column]) for number, count in enumerate(pattern)) <= size
        for column, size in enumerate(vector(offering.type.capacity))
    )


def cheapest(problem: Problem, counts: tuple[int, ...]) -> int | None:
    """The cost of the best packing, by trying all; `None` if there is none."""
    patterns = [p for p in product(*(range(count + 1) for count in counts)) if any(p)]
    columns: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for pattern in patterns:
        contents = {n: count for n, count in enumerate(pattern) if count}
        columns[pattern] = [
            (place, problem.lost(contents, offering.type.family) + MILLION * offering.price)
            for place, offering in enumerate(problem.offerings)
            if fits(problem, offering, pattern)
        ]

    @cache
    def best(left: tuple[int, ...], supply: tuple[int, ...]) -> int | None:
        if not any(left):
            return 0
        first = next(number for number, count in enumerate(left) if count)
        found: int | None = None
        for pattern in patterns:
            # Whichever instance the first task that is left goes to comes next.
            if not pattern[first] or any(p > n for p, n in zip(pattern, left, strict=True)):
                continue
            for place, price in columns[pattern]:
                if supply[place]:
                    fewer = (*supply[:place], supply[place] - 1, *supply[place + 1 :])
                    rest = best(tuple(n - p for n, p in zip(left, pattern, strict=True)), fewer)
                    if rest is not None and (found is None or rest + price < found):
                        found = rest + price
        return found

    limits = tuple(
        sum(counts) if o.limit is None else min(o.limit, sum(counts)) for o in problem.offerings
    )
    return best(counts, limits)


@drawn(80)
@given(problems())
def test_bound_is_never_above_the_optimum_and_packings_are_never_below_it(problem):
    counts = problem.counts(problem.class_of)
    supply = supply_of(problem)
    greedy, left = pack(problem, counts, supply)
    placed = counts - left
    best = cheapest(problem, tuple(placed.tolist()))
    optimizer = Optimizer(problem, Tier.LP)
    sets, missing = optimizer.pack(counts, supply)
    assert missing.tolist() == left.tolist()
    assert best is not None
    assert best <= cost(problem, sets) <= cost(problem, greedy)
    bound = optimizer.bound(placed, supply)
    assert bound is not None
    assert bound <= best


@drawn(80)
@given(problems(), st.integers(1, 3), st.integers(0, 3), st.lists(st.floats(0, 40), min_size=4))
def test_a_bound_without_effort_is_never_above_the_optimum(problem, nodes, rounds, guesses):
    counts = problem.counts(problem.class_of)
    supply = supply_of(problem)
    _, left = pack(problem, counts, supply)
    placed = counts - left
    effort = EffortLimits(iterations=rounds, nodes=nodes, multisets=8 * nodes)
    optimizer = Optimizer(problem, Tier.LP, (), effort)
    duals = enumerate(guesses[: len(counts)])
    optimizer.recall((), {number: round(usd * MILLION) for number, usd in duals})
    bound = optimizer.bound(placed, supply)
    best = cheapest(problem, tuple(placed.tolist()))
    assert bound is not None
    assert best is not None
    assert bound <= best, "each class is scaled by the worst machine that holds it"


@drawn(80)
@given(problems())
def test_optimal_sets_fit_and_place_what_algorithm_1_places(problem):
    counts, supply = problem.counts(problem.class_of), supply_of(problem)
    sets, left = Optimizer(problem, Tier.LP).pack(counts, supply)
    placed: Counter[int] = Counter(dict(enumerate(left.tolist())))
    used: Counter[OfferingId] = Counter()
    for packed in sets:
        pattern = tuple(packed.task_set.get(n, 0) for n in range(len(problem.classes)))
        assert fits(problem, packed.offering, pattern)
        used[packed.offering.id] += packed.times
        for number, count in packed.task_set.items():
            placed[number] += packed.times * count
    assert [placed[n] for n in range(len(problem.classes))] == counts.tolist()
    for offering_id, number in used.items():
        limit = supply[offering_id]
        assert limit is None or number <= limit


@drawn(60)
@given(problems())
def test_greedy_and_optimal_are_the_same_again_and_again(problem):
    counts, supply = problem.counts(problem.class_of), supply_of(problem)
    first = Optimizer(problem, Tier.LP)
    again = Optimizer(problem, Tier.LP)
    sets = first.pack(counts, supply)[0]
    assert sets == again.pack(counts, supply)[0]
    assert first.effort == again.effort
    assert first.seeds(100) == again.seeds(100)
    # What was found serves again.
    warm = Optimizer(problem, Tier.LP, first.seeds(100))
    assert cost(problem, warm.pack(counts, supply)[0]) <= cost(
        problem, pack(problem, counts, supply)[0]
    )


questions = st.tuples(
    st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9), st.sampled_from((0, 3, 7))),
    st.lists(st.tuples(sizes, st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=5),
    st.integers(0, 20),
    st.sampled_from([1, 3, 100_000]),
)


def asked(
    capacity: tuple[int, ...], rows: list[tuple[tuple[int, ...], int, int]], worth: int
) -> tuple[Ints, Ints, np.ndarray, Ints, list[tuple[int, ...]]]:
    need = np.array([row[0] for row in rows], dtype=np.int64)
    counts = np.array([row[2] for row in rows], dtype=np.int64)
    patterns = [
        pattern
        for pattern in product(*(range(row[2] + 1) for row in rows))
        if (np.array(pattern) @ need <= np.array(capacity)).all()
    ]
    value = np.array([float(row[1]) for row in rows])
    return np.array(capacity), need, value, counts, patterns


@pytest.mark.parametrize("search", [knapsack.search, compiled_knapsack.search])
@drawn(100)
@given(question=questions)
def test_search_bounds_all_patterns_and_finds_the_best(search, question):
    size, rows, worth, nodes = question
    capacity, need, value, counts, patterns = asked(size, rows, worth)
    best = max(float(np.array(pattern) @ value) for pattern in patterns)
    found = search(KnapsackProblem(capacity, need, value, counts, float(worth), nodes))
    assert max(found.bound, worth) >= best - 1e-6
    for pattern in found.task_sets:
        full = tuple(dict(pattern).get(n, 0) for n in range(len(rows)))
        assert full in patterns
        assert float(np.array(full) @ value) > worth
    if nodes == 100_000 and best > worth + 1e-6:
        (*_, last) = found.task_sets
        assert sum(count * value[n] for n, count in last) == pytest.approx(best)


@drawn(100)
@given(questions, entries, st.data())
def test_search_among_tasks_that_slow_each_other_down_bounds_all_patterns(question, seen, data):
    size, rows, worth, nodes = question
    names = [data.draw(st.sampled_from(WORKLOADS)) for _ in rows]
    cluster = Cluster(offer("box", (9, 99, 99), 6))
    for number, name in enumerate(names):
        cluster.job(str(number), task(name, any=(0, 1, 1 + number)))
    cluster.throughput = table(seen)
    problem = Problem(cluster.snapshot(), Valuation())
    order = [problem.class_of[f"{number}/0"] for number in range(len(rows))]
    rows = [rows[order.index(number)] for number in range(len(rows))]
    capacity, need, value, counts, patterns = asked(size, rows, worth)

    def worth_of(pattern: tuple[int, ...]) -> float:
        lost = problem.lost({n: count for n, count in enumerate(pattern) if count}, ANY)
        return float(np.array(pattern) @ value) - lost / MILLION / MILLION

    charges = np.array([c.charge / MILLION for c in problem.classes])
    search = MultisetSearch(problem.throughput, problem.workloads, charges)
    found = search.run(KnapsackProblem(capacity, need, value, counts, float(worth), nodes))
    best = max(worth_of(pattern) for pattern in patterns)
    assert max(found.bound, worth) >= best - 1e-6
    for pattern in found.task_sets:
        full = tuple(dict(pattern).get(n, 0) for n in range(len(rows)))
        assert full in patterns
        assert worth_of(full) > worth - 1e-6


@pytest.mark.parametrize("seed", range(40))
def test_search_finds_the_best_of_larger_sets_that_slow_each_other_down(seed):
    choose = random.Random(seed)
    cluster = Cluster(offer("box", (9, 99, 99), 5))
    rows = [
        ((choose.randint(0, 1), choose.randint(1, 3), choose.randint(0, 3)), number, 3)
        for number in range(4)
    ]
    for number, _ in enumerate(rows):
        cluster.job(str(number), task(choose.choice(WORKLOADS), any=(0, 1, 1 + number)))
    cluster.throughput = table(
        {(a, (b,)): choose.choice([0.8, 0.93, 0.97, 1.0]) for a in WORKLOADS for b in WORKLOADS}
    )
    problem = Problem(cluster.snapshot(), Valuation())
    size = (choose.randint(0, 4), 10, 12)
    capacity, need, _, counts, patterns = asked(size, rows, 0)
    value = np.array([choose.uniform(2, 6) for _ in rows])
    charges = np.array([c.charge / MILLION for c in problem.classes])
    best = max(
        sum(count * value[n] for n, count in enumerate(pattern))
        - problem.lost({n: count for n, count in enumerate(pattern) if count}, ANY)
        / MILLION
        / MILLION
        for pattern in patterns
    )
    search = MultisetSearch(problem.throughput, problem.workloads, charges)
    found = search.run(KnapsackProblem(capacity, need, value, counts, best * 0.5, 100_000))
    assert found.bound == pytest.approx(best, rel=1e-5)  # throughput is rounded down


def test_a_budget_of_nothing_leaves_greedy_standing():
    cluster = Cluster(offer("box", (0, 10, 100), 1.0), offer("half", (0, 5, 50), 0.6))
    for number in range(6):
        cluster.job(f"{number}", task(any=(0, 3 + number % 3, 20)))
    problem = Problem(cluster.snapshot(), Valuation())
    counts, supply = problem.counts(problem.class_of), supply_of(problem)
    nothing = EffortLimits(iterations=0, nodes=1, dives=0, integer_classes=0)
    sets: list[PackedSet] = Optimizer(problem, Tier.LP, (), nothing).pack(counts, supply)[0]
    assert sets == pack(problem, counts, supply)[0]


def test_auto_leaves_many_classes_to_greedy():
    cluster = Cluster(offer("box", (0, 64, 640), 1.0))
    for number in range(12):
        cluster.job(f"{number}", task(any=(0, 1 + number, 10)))
    problem = Problem(cluster.snapshot(), Valuation())
    counts, supply = problem.counts(problem.class_of), supply_of(problem)
    few = Optimizer(problem, Tier.AUTO, (), EffortLimits(classes=11))
    few.pack(counts, supply)
    assert few.bound(counts, supply) is None
    assert few.effort.iterations == 0
    assert (
        Optimizer(problem, Tier.AUTO, (), EffortLimits(classes=12)).bound(counts, supply)
        is not None
    )
    assert Optimizer(problem, Tier.GREEDY).bound(counts, supply) is None


@drawn(60)
@given(problems())
def test_the_lp_s_own_solution_is_never_below_its_bound(problem):
    """Its columns cost what they cost, whatever their tasks lose on slow families."""
    supply = supply_of(problem)
    sets, left = pack(problem, problem.counts(problem.class_of), supply)
    request = PackingRequest(problem, problem.counts(problem.class_of) - left, supply)
    for interference in (True, False):
        generator = Generator(request, interference=interference)
        seeds = [
            generator.column(packed.offering, tuple(sorted(packed.task_set.items())))
            for packed in sets
        ]
        generated = generator.run(seeds, EffortLimits())
        if sets:
            assert generated is not None
            assert generated.bound <= generated.cost * (1 + 1e-6)
