"""Programs of one, two or many users report nonsense; another user's jobs fare as without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from eva_master.control.measure import ledger, remaining
from eva_master.control.state.store import State
from eva_master.learning.colocation import key
from eva_master.learning.voices.names import marked
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.events import PlanReady
from eva_master.model.fleet.partitions import Partition, Partitions, Rule
from eva_master.model.planning.plan import Plan
from eva_wire.values.ids import Family, JobId, Millis, Price, RunId, Workload
from tests.fakes.hand_driven import CATALOG, JOB, SETTINGS, WINDOW_MS, Cluster

W = Workload("resnet")
STEPS = JOB + "workload: resnet\ntotal_steps: 6000\n"
DUE = STEPS + "deadline: {within: 20m}\nvalue: {worth: $100}\n"
SPOT = replace(
    CATALOG[0], type=replace(CATALOG[0].type, family=Family("fast-spot")), price=Price(900_000),
    zone="a", purchase=Purchase.SPOT,
)  # fmt: skip
QUICK = Partitions(
    (Partition("quick", rule=Rule(below_ms=600_000)), Partition("main", default=True))
)
CHOICES: tuple[tuple[Offering, ...], ...] = (CATALOG, (*CATALOG, SPOT))
WINDOWS, EVERY_MS = 5, 5_000

Steps = Callable[[int], int]
"""Steps that a program says it has done, by the milliseconds since it began."""


def honest(ms: int) -> int:
    return ms // 100


LIES: dict[str, Steps] = {
    "none": lambda ms: 0,
    "one and no more": lambda ms: 1,
    "slow": lambda ms: ms // 30_000,
    "huge": lambda ms: ms * 2**40,
    "to the end of 63 bits": lambda ms: min(2**63 - 1, ms * 2**50),
    "backwards": lambda ms: max(0, 10_000_000 - ms),
    "by turns": lambda ms: (ms // (2 * WINDOW_MS)) * 10**6 + min(ms % (2 * WINDOW_MS), 10),
    "up and down": lambda ms: 10**9 if ms // EVERY_MS % 2 else 0,
}


def told(steps: Steps, liars: int, catalog: tuple[Offering, ...]) -> Cluster:
    """A cluster in which programs of other users have reported for some windows."""
    cluster = Cluster(State(catalog), replace(SETTINGS, partitions=QUICK))
    for number in range(liars):
        cluster.start(STEPS, name=f"j{number}", owner=f"ben{number}", at=cluster.now)
    _report(cluster, steps, liars)
    return cluster


def _report(cluster: Cluster, steps: Steps, liars: int) -> None:
    begin = cluster.now
    for ms in range(EVERY_MS, WINDOWS * WINDOW_MS, EVERY_MS):
        for number in range(liars):
            cluster.progress(steps(ms), at=begin + ms, run=f"j{number}-{number + 1}/0")
    cluster.now = begin + WINDOWS * WINDOW_MS
    while (request := cluster.request) is not None:
        cluster.request = None
        cluster.handle(PlanReady(request.round, Plan((), ()), None), at=cluster.now)


def fate(cluster: Cluster, text: str) -> tuple[object, ...]:
    """How a job of Ana's is received that is submitted now; nothing but its id if it is refused."""
    number = len(cluster.state.jobs) + 1
    cluster.submit(text, name="mine", owner="ana", at=cluster.now)
    job = cluster.state.jobs.get(JobId(f"mine-{number}"))
    if job is None:
        return ()
    entries = key(W, [W]), key(W, [marked(W, "ben0")]), key(W, [marked(W, "ben1"), W])
    return (
        job.partition,
        job.buys,
        job.buys_ms,
        cluster.state.prices.of(job.spec),
        [cluster.state.figures.expected_ppm("ana", entry) for entry in entries],
        remaining.of_spec(cluster.state, job.spec, Millis(cluster.now)),
    )


@cache
def fate_without_lies(liars: int, text: str) -> list[tuple[object, ...]]:
    """A job's fate under each choice of the catalog."""
    return [fate(told(honest, liars, catalog), text) for catalog in CHOICES]


@pytest.mark.parametrize("liars", [1, 2, 5])
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("text", [STEPS, DUE], ids=["steps", "deadline"])
def test_no_job_is_refused_sorted_or_bought_for_by_what_others_report(
    lie: str, liars: int, text: str
) -> None:
    for catalog, expected in zip(CHOICES, fate_without_lies(liars, text), strict=True):
        assert expected, "it is accepted"
        assert expected[0] == "main"
        assert fate(told(LIES[lie], liars, catalog), text) == expected


@pytest.mark.parametrize("liars", [1, 2, 5])
@pytest.mark.parametrize("lie", LIES)
def test_no_job_is_charged_by_what_its_neighbours_report(lie: str, liars: int) -> None:
    def bill(steps: Steps) -> object:
        cluster = told(honest, liars, CATALOG)
        name = f"mine-{liars + 1}/0"
        cluster.start(STEPS, name="mine", owner="ana", at=cluster.now, beside=RunId("j0-1/0"))
        begin, before = cluster.now, honest(WINDOWS * WINDOW_MS)
        for ms in range(EVERY_MS, WINDOWS * WINDOW_MS, EVERY_MS):
            cluster.progress(before + steps(ms), at=begin + ms, run="j0-1/0")
            cluster.progress(honest(ms), at=begin + ms, run=name)
        job = ledger.bill(cluster.state, Millis(begin + WINDOWS * WINDOW_MS)).jobs[
            JobId(f"mine-{liars + 1}")
        ]
        return job.alone, cluster.state.prices.rates(
            cluster.state.jobs[JobId(f"mine-{liars + 1}")].spec,
            cluster.state.task(cluster.state.runs[RunId(name)]),
        )

    assert bill(LIES[lie]) == bill(honest)
