"""False reports of one user's programs say nothing of another user's jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.rpc.server import learned
from eva_master.control.features.deadlines.refusing import refusal
from eva_master.control.features.partitions.membership import chosen
from eva_master.control.measure import ledger, remaining
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.state.store import State
from eva_master.learning.colocation import key
from eva_master.learning.delays import Delay
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import marked
from eva_master.model.catalog import Purchase
from eva_master.model.events import PlanReady
from eva_master.model.fleet.partitions import Partition, Partitions, Rule
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan
from eva_master.packing.valuation.delays import of_job
from eva_wire.values.ids import Family, JobId, Millis, Price, RunId, Workload
from tests.fakes.hand_driven import CATALOG, JOB, SETTINGS, SLOW, WINDOW_MS, Cluster
from tests.fakes.models import model_of

W = Workload("resnet")
RESNET = JOB + "workload: resnet\n"
STEPS = RESNET + "total_steps: 6000\n"
DUE = STEPS + "deadline: {within: 20m}\n"
SPOT = replace(
    CATALOG[0], type=replace(CATALOG[0].type, family=Family("fast-spot")), price=Price(900_000),
    zone="a", purchase=Purchase.SPOT,
)  # fmt: skip
QUICK = Partitions(
    (Partition("quick", rule=Rule(below_ms=600_000)), Partition("main", default=True))
)
LIES = pytest.mark.parametrize("lie", [0.5, 1e6])


def poisoned(lie: float | None, catalog: tuple[Any, ...] = CATALOG) -> Cluster:
    """A cluster in which a job of Ben's has reported a false rate, or none."""
    cluster = Cluster(State(catalog), replace(SETTINGS, partitions=QUICK))
    cluster.start(RESNET, name="theirs", owner="ben")
    begin = cluster.now
    for at in range(begin + 2_000, begin + 4 * WINDOW_MS, 2_000):
        if lie is not None:
            cluster.progress(round(at * lie), at=at, run="theirs-1/0")
    cluster.now = begin + 4 * WINDOW_MS
    while (request := cluster.request) is not None:
        cluster.request = None
        cluster.handle(PlanReady(request.round, Plan((), ()), None), at=cluster.now)
    if lie is not None:
        told = cluster.state.learned.of("ben").standalone
        assert told.lookup(W, Family("fast")) == pytest.approx(lie * 1_000, rel=0.1)
    return cluster


def spec_of(cluster: Cluster, text: str, owner: str = "ana") -> JobSpec:
    catalog = cluster.state.catalog
    return parse_job(text, file_name="j", owner=owner, catalog=catalog, workdir=None, name="asked")


def fate(cluster: Cluster, text: str) -> tuple[object, ...]:
    """How a job of Ana's is received that is submitted now."""
    cluster.submit(text, name="mine", owner="ana", at=cluster.now)
    job = cluster.state.jobs.get(JobId("mine-2"))
    assert job is not None, "it was refused"
    reserved = cluster.state.prices.of(job.spec)
    told = remaining.of_spec(cluster.state, job.spec, Millis(cluster.now))
    return job.partition, job.buys, job.buys_ms, reserved, told.longest_ms


@LIES
def test_a_deadline_is_neither_refused_nor_bought_for_by_what_another_reports(lie: float) -> None:
    honest = fate(poisoned(None, (*CATALOG, SPOT)), DUE)
    assert fate(poisoned(lie, (*CATALOG, SPOT)), DUE) == honest


@LIES
def test_no_rule_of_duration_sorts_by_what_another_reports(lie: float) -> None:
    partition = fate(poisoned(lie), STEPS)[0]
    assert partition == "main", "nothing is known of how long it takes"


@LIES
def test_its_owner_s_own_figure_decides_all_the_same(lie: float) -> None:
    cluster = poisoned(lie)
    rates = Lessons().standalone.observe(W, Family("fast"), 10.0, Millis(1))
    rates = rates.observe(W, Family("slow"), 10.0, Millis(1))
    cluster.state.teach("ana", Lessons(standalone=rates))
    told = remaining.of_spec(cluster.state, spec_of(cluster, STEPS), Millis(cluster.now))
    assert told.longest_ms == 600_000
    assert refusal(cluster.state, spec_of(cluster, DUE), Millis(cluster.now), SETTINGS) is None


@LIES
def test_a_job_s_own_rate_goes_before_all_tables_from_its_first_window(lie: float) -> None:
    cluster = poisoned(lie)
    cluster.start(STEPS, name="mine", owner="ana", at=cluster.now)
    begin = cluster.now
    for at in range(begin + 2_000, begin + 2 * WINDOW_MS + 2_000, 2_000):
        cluster.progress(round((at - begin) / 100), at=at, run="mine-2/0")
    assert cluster.left("mine-2/0") == pytest.approx(600_000 - 2 * WINDOW_MS, rel=0.05)


@LIES
def test_bills_are_the_same_whatever_a_neighbour_reports(lie: float) -> None:
    def bill(reported: float | None) -> object:
        cluster = poisoned(reported)
        cluster.start(STEPS, name="mine", owner="ana", at=cluster.now, beside=RunId("theirs-1/0"))
        begin = cluster.now
        for at in range(begin + 2_000, begin + 4 * WINDOW_MS, 2_000):
            if reported is not None:
                cluster.progress(round(at * reported / 3), at=at, run="theirs-1/0")
        told = ledger.bill(cluster.state, Millis(begin + 4 * WINDOW_MS))
        return told.jobs[JobId("mine-2")].alone

    assert bill(lie) == bill(None)


def figures(state: State, text: str = DUE) -> list[object]:
    """Answers on which refusals, deadlines, rules, quotas and charges of Ana's jobs depend."""
    cluster = Cluster(state)
    spec, now = spec_of(cluster, text), Millis(1_000)
    kinds = spec.tasks
    (task,) = kinds
    error = refusal(state, spec, now, SETTINGS)
    entries = (key(W, [W]), key(W, [marked(W, "ben")]), key(W, [marked(W, "ben"), W]))
    return [
        state.prices.of(spec),
        state.prices.rates(spec, task),
        [state.figures.expected_ppm("ana", it) for it in entries],
        [state.figures.observed_ppm("ana", it) for it in entries],
        [of_job(state.learned, spec, kinds, SETTINGS.assumed_delays, slowest=slowest)
         for slowest in (False, True)],
        remaining.of_spec(state, spec, now),
        chosen(state, QUICK, spec, now),
        None if error is None else error.message,
    ]  # fmt: skip


RATES = st.floats(1e-3, 1e9)
FALSE = st.builds(
    lambda rates, ppm, beside, start, workloads: (rates, ppm, beside, start, workloads),
    st.dictionaries(st.sampled_from(["fast", "slow"]), RATES),
    st.integers(1, 1_000_000),
    st.lists(st.sampled_from([W, marked(W, "ana"), Workload("x")]), min_size=1, max_size=3),
    st.integers(0, 10**8),
    st.lists(st.sampled_from([W, Workload("x"), Workload("y")]), min_size=1, unique=True),
)


def lessons(false: tuple[Any, ...]) -> Lessons:
    rates, ppm, beside, start, workloads = false
    known = Lessons()
    for name in workloads:
        standalone, delays = known.standalone, known.delays
        for family, rate in rates.items():
            standalone = standalone.observe(name, Family(family), rate, Millis(0))
        for kind in (Delay.START, Delay.CHECKPOINT):
            for at in range(3):
                delays = delays.observe(kind, name, start, Millis(at))
        known = replace(known, standalone=standalone, delays=delays)
        known = known.in_company([key(name, beside)], ppm, Millis(0))
    return known


@given(st.lists(FALSE, max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_number_of_other_voices_changes_what_an_owner_s_jobs_are_judged_by(
    false: list[tuple[Any, ...]], taught: bool
) -> None:
    own = lessons(({"fast": 10.0}, 700_000, [W], 5_000, [W])) if taught else Lessons()
    clean, spoilt = State(CATALOG), State(CATALOG)
    voices = {f"ben{number}": lessons(it) for number, it in enumerate(false)}
    clean.set_learned(Knowledge({"ana": own}))
    spoilt.set_learned(Knowledge({**voices, "ana": own}))
    assert figures(spoilt) == figures(clean)


def test_a_tenant_s_users_share_what_they_teach_and_no_name_is_taken_for_a_tenant_s() -> None:
    state = State(CATALOG)
    rates = Lessons().standalone.observe(W, Family("fast"), 10.0, Millis(0))
    state.set_learned(Knowledge({"@vision": Lessons(standalone=rates)}))
    cluster = Cluster(state)
    spec = spec_of(cluster, STEPS)
    (task,) = spec.tasks
    assert state.prices.rates(replace(spec, tenant="vision"), task)
    assert not state.prices.rates(spec, task)
    assert not state.prices.rates(replace(spec, owner="vision"), task)


def test_plans_know_of_a_new_owner_s_workload_what_three_others_have_taught() -> None:
    cluster = Cluster()
    cluster.submit(STEPS, name="mine", owner="ana")
    rates = Lessons().standalone.observe(W, Family("fast"), 10.0, Millis(0))
    taught = Lessons(standalone=rates)
    for number, name in enumerate(("ben", "cem", "dan")):
        seen = snapshot(cluster.state, Millis(0), SETTINGS)
        (run,) = seen.runs
        known = dict(seen.standalone.measured)
        assert (run.task.workload, Family("fast")) not in known, number
        cluster.state.teach(name, taught)
    seen = snapshot(cluster.state, Millis(0), SETTINGS)
    (run,) = seen.runs
    assert run.task.workload == W
    assert dict(seen.standalone.measured) == {(W, Family("fast")): 10_000_000}
    assert run.remaining is None, "how long it takes nobody else can tell"


def test_views_follow_labels_and_keep_one_task_for_equal_ones() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.submit(STEPS, name=f"mine{number}", owner="ana")
        cluster.submit(STEPS, name=f"theirs{number}", owner="ben")
    rates = Lessons().standalone.observe(W, Family("fast"), 10.0, Millis(0))
    cluster.state.set_learned(Knowledge({"ana": Lessons(standalone=rates)}))
    seen = snapshot(cluster.state, Millis(0), SETTINGS)
    names = {run.job[:4]: run.task.workload for run in seen.runs}
    assert names["mine"] == W
    assert names["thei"] != W
    again = snapshot(cluster.state, Millis(0), SETTINGS)
    assert all(one is other for one, other in zip(seen.runs, again.runs, strict=True))


def test_users_see_their_own_figures_and_no_names_of_others() -> None:
    state = State((SLOW,))
    own = Lessons().in_company([key(W, [marked(Workload("x"), "ben")])], 700_000, Millis(1))
    rates = {
        name: Lessons().standalone.observe(W, Family("slow"), 5.0, Millis(1))
        for name in ("ben", "cem", "dan")
    }
    rated = {name: Lessons(standalone=it) for name, it in rates.items()}
    state.set_learned(Knowledge({**rated, "ana": own}))
    snapshot(state, Millis(9), SETTINGS)
    mine = learned.view(model_of(state), "ana", Millis(9))
    assert [(it.owner, it.rate, it.windows) for it in mine.standalone] == [("", 5.0, 0)]
    assert [(it.owner, list(it.others)) for it in mine.interference] == [
        ("ana", ["x of another owner"])
    ]
    assert not any(name in str(mine) for name in ("ben", "cem", "dan"))
    everything = learned.view(model_of(state), None, Millis(9))
    assert {it.owner for it in everything.standalone} == {"ben", "cem", "dan"}
    assert list(everything.interference[0].others) == ["x of ben"]
