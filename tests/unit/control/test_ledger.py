from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.learning.voices.lessons import Lessons
from eva_master.model.catalog import Offering
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, Price, RunId, Workload
from tests.fakes.jobs import CATALOG, LARGE, job, task
from tests.fakes.learned.lessons import owner_of, teach

BOX = InstanceId("box")


def _state(*cpus: int, rate_ppm: int | None = None) -> State:
    """One instance of type LARGE, up since 1,000, that runs one job per number of vCPUs."""
    state = State(CATALOG)
    box = Instance(BOX, LARGE, (("ready", 1_000),), Millis(0), up_ms=Millis(1_000))
    state.put_instance(replace(box, ready_ms=Millis(61_000)))
    ledger.open_account(state, state.instances[BOX])
    for number, n in enumerate(cpus):
        spec = job(f"j{number}", n)
        spec = replace(spec, tasks=(task(n, f"j{number}", rate_ppm),))
        name = JobId(f"j{number}")
        state.put_job(Job(name, spec, Millis(0), (("running", 1_000),)))
        running = (("running", 1_000),)
        state.put_run(TaskRun(RunId(f"{name}/0"), name, 0, running, 1, BOX, BOX))
    return state


def test_a_charge_is_split_by_reservation_price() -> None:
    # LARGE costs 370,000; alone the tasks would need SMALL (100,000) and MEDIUM (190,000).
    state = _state(2, 4)
    ledger.book(state, BOX, Millis(30_000 + 1_000))
    bill = ledger.bill(state, Millis(31_000))
    assert bill.charged == 370_000 * 30_000
    assert bill.jobs[JobId("j0")].charged == 370_000 * 30_000 * 100 // 290 + 1
    assert bill.jobs[JobId("j1")].charged == 370_000 * 30_000 * 190 // 290
    assert bill.idle == 0


def test_until_it_is_measured_sharing_is_expected_to_cost_what_is_known_of_it() -> None:
    state = _state(2, 4)
    # Never seen together: 5 % each.
    bill = ledger.bill(state, Millis(31_000))
    assert bill.alone == (100_000 + 190_000) * 30_000 * 95 // 100
    known = ThroughputTable((((Workload("j0"), (Workload("j1"),)), 600_000),))
    teach(state, Lessons(throughput=known), owner_of(state))
    bill = ledger.bill(state, Millis(31_000))
    assert bill.jobs[JobId("j0")].alone == 100_000 * 30_000 * 60 // 100


def test_time_without_tasks_is_idle() -> None:
    state = _state()
    bill = ledger.bill(state, Millis(11_000))
    assert (bill.charged, bill.idle, bill.jobs) == (370_000 * 10_000, 370_000 * 10_000, {})


def test_a_bill_books_nothing() -> None:
    state = _state(2)
    early = ledger.bill(state, Millis(5_000))
    assert ledger.bill(state, Millis(5_000)) == early
    assert state.instance_accounts[BOX].charged == 0


def test_slow_work_would_have_cost_less_alone() -> None:
    state = _state(2, 4, rate_ppm=10 * MILLION)
    run = state.runs[RunId("j0/0")]
    state.put_run(replace(run, progress=Progress(steps=1, rate=7.5)))
    bill = ledger.bill(state, Millis(11_000))
    assert bill.jobs[JobId("j0")].alone == 100_000 * 10_000 * 750_000 // MILLION


def test_work_that_is_slow_by_itself_costs_as_much_alone() -> None:
    state = _state(2, rate_ppm=10 * MILLION)
    run = state.runs[RunId("j0/0")]
    state.put_run(replace(run, progress=Progress(steps=1, rate=7.5)))
    assert ledger.bill(state, Millis(11_000)).alone == 100_000 * 10_000


def test_the_first_run_books_the_boot_it_would_have_waited_for() -> None:
    state = _state(4)
    ledger.book_boot(state, state.runs[RunId("j0/0")], state.instances[BOX], Millis(0))
    assert state.job_accounts[JobId("j0")].alone == 190_000 * 60_000


def test_a_closed_account_is_price_times_billed_time() -> None:
    state = _state(2)
    gone = replace(state.instances[BOX], gone_ms=Millis(8_000))
    ledger.close_account(state, gone)
    account = state.instance_accounts[BOX]
    assert (account.charged, account.closed) == (370_000 * 7_000, True)
    assert ledger.bill(state, Millis(99_000)).charged == 370_000 * 7_000


def test_the_billing_minimum_is_idle_time() -> None:
    state = _state(2)
    minimum = replace(LARGE, minimum_ms=60_000)
    state.put_instance(replace(state.instances[BOX], offering=minimum, gone_ms=Millis(8_000)))
    ledger.close_account(state, state.instances[BOX])
    account = state.instance_accounts[BOX]
    assert account.charged == 370_000 * 60_000
    assert account.idle == 370_000 * 53_000


def test_the_billing_minimum_is_charged_at_the_last_price() -> None:
    state = _state()
    minimum = replace(LARGE, minimum_ms=60_000)
    box = replace(state.instances[BOX], offering=minimum).at_price(Price(100), Millis(3_000))
    ledger.close_account(state, replace(box, gone_ms=Millis(8_000)))
    account = state.instance_accounts[BOX]
    assert account.charged == 370_000 * 2_000 + 100 * 58_000


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=5), st.integers(0, 99))
def test_a_charge_is_that_of_each_moment(changes: list[tuple[int, int]], until: int) -> None:
    box = Instance(BOX, LARGE, (("ready", 0),), Millis(0), up_ms=Millis(0))
    prices, now = [], 0
    for length, price in changes:
        prices += [box.offering.price] * length
        now += length
        box = box.at_price(Price(price), Millis(now))
    prices += [box.offering.price] * 100
    for since in (0, 7, 30):
        assert ledger.charge(box, Millis(since), Millis(until)) == sum(prices[since:until])


def test_what_was_booked_past_the_clouds_own_end_is_taken_back() -> None:
    state = _state(2)
    ledger.book(state, BOX, Millis(20_000))
    ledger.close_account(state, replace(state.instances[BOX], gone_ms=Millis(15_000)))
    bill = ledger.bill(state, Millis(20_000))
    assert bill.charged == 370_000 * 14_000
    assert bill.charged == bill.idle + bill.jobs[JobId("j0")].charged


@given(st.integers(0, 10**24), st.lists(st.integers(0, 10**9), max_size=9))
def test_parts_add_up_to_the_last_integer(amount: int, weights: list[int]) -> None:
    parts = ledger.split(amount, weights)
    assert sum(parts) == (amount if weights else 0)
    assert len(parts) == len(weights)
    total = sum(weights)
    if total:
        for part, weight in zip(parts, weights, strict=True):
            assert 0 <= part - amount * weight // total <= 1


def test_the_bill_lists_jobs_as_they_came() -> None:
    state = _state(2, 4)
    ledger.book_boot(state, state.runs[RunId("j1/0")], state.instances[BOX], Millis(0))
    assert list(ledger.bill(state, Millis(31_000)).jobs) == ["j0", "j1"]


FAST = replace(
    LARGE, type=replace(LARGE.type, name="f.8", family=Family("f")), price=Price(800_000)
)
"""As LARGE, of another family and dearer."""


def _gang_on(*places: tuple[Offering, int, int]) -> State:
    """A gang, or a task of its own, that has run since 1,000.

    Each member has the offering that it is on and its rates on families c and f.
    """
    state = State((LARGE, FAST))
    need = Resources(0, 8_000, 1_024)
    families = Family("c"), Family("f")
    tasks = tuple(
        replace(
            task(8, "g"),
            demand=tuple((family, need) for family in families),
            throughput=tuple(zip(families, rates, strict=True)),
        )
        for _, *rates in places
    )
    state.put_job(Job(JobId("g"), replace(job("g"), tasks=tasks), Millis(0), (("running", 1_000),)))
    for number, (offering, *_) in enumerate(places):
        box = InstanceId(f"box{number}")
        instance = Instance(box, offering, (("ready", 0),), Millis(0), up_ms=Millis(1_000))
        state.put_instance(replace(instance, ready_ms=Millis(1_000)))
        ledger.open_account(state, state.instances[box])
        running = (("running", 1_000),)
        state.put_run(TaskRun(RunId(f"g/{number}"), JobId("g"), number, running, 1, box, box))
    return state


def test_time_on_a_slow_family_counts_by_the_speed_there() -> None:
    # At ten times the speed the dear family has the cheaper iterations: 800,000 micro-dollars.
    state = _gang_on((LARGE, 1_000, 10_000))
    assert state.reservation(state.runs[RunId("g/0")]).price == 800_000
    assert ledger.bill(state, Millis(11_000)).alone == 800_000 // 10 * 10_000
    # At twice the speed the cheap one has: 370,000; an hour on the dear one counts for two.
    state = _gang_on((FAST, 1_000, 2_000))
    assert ledger.bill(state, Millis(11_000)).alone == 370_000 * 2 * 10_000


def test_a_gang_counts_by_its_slowest_member() -> None:
    state = _gang_on((FAST, 1_000, 10_000), (LARGE, 1_000, 10_000))
    # Both would be on the dear family; they are a tenth as fast as there.
    assert ledger.bill(state, Millis(11_000)).alone == 2 * 800_000 // 10 * 10_000


def test_a_measured_gang_is_compared_with_its_slowest_member_alone() -> None:
    """Its slow family is not charged twice: once by the rate and once by the family's speed."""
    fast, slow = 10_000 * MILLION, 1_000 * MILLION
    state = _gang_on((FAST, slow, fast), (LARGE, slow, fast))
    other = replace(state.runs[RunId("g/0")], id=RunId("x/0"), job=JobId("x"))
    state.put_job(Job(JobId("x"), job("x", 2), Millis(0), (("running", 1_000),)))
    state.put_run(other)
    for number in range(2):
        run = state.runs[RunId(f"g/{number}")]
        state.put_progress(run, Progress(rate=800.0))
    account = ledger.bill(state, Millis(11_000)).jobs[JobId("g")]
    # 800 of the 1,000 iterations per second that its slow family would let it do.
    assert account.alone == 2 * 800_000 // 10 * 10_000 * 8 // 10
