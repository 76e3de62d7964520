"""What types of instances and owners of jobs cost adds up to the bill, and is bounded."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.bills import divided_bill
from eva_master.adapters.rpc.server.shown import costs
from eva_master.control.measure import ledger
from eva_master.control.state.parts.cost_tally import (
    CostTally,
    earliest,
    idle_longest_of_commonest_key,
)
from eva_master.control.state.store import State
from eva_master.model.accounting.splits import CostShare, CostSplit
from eva_master.model.accounting.totals import CostTotals
from eva_master.model.changes import Documents, InstanceAccount, JobAccount
from eva_master.ports.reading import ReadModel
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import InvalidRequest
from eva_wire.values.ids import Exact, InstanceId, JobId, Millis, Workload
from eva_wire.values.states import RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.api import FakeApi
from tests.fakes.rpc.server import CATALOG, LARGE, SMALL, add_instance, add_job, spec

Run = Callable[..., Result]
HOUR_MS = 3_600_000


def run_on(state: State, job: JobId, place: InstanceId) -> None:
    for member in list(state.members(job)):
        run = member.to(RunState.STARTING, Millis(1000)).to(RunState.RUNNING, Millis(1000))
        state.put_run(replace(run, attempt=1, instance=place, target=place))


def cluster() -> State:
    """A small instance with a job of each of two owners, and a large one that is idle."""
    state = State(CATALOG)
    small, large = add_instance(state, "i-1", SMALL), add_instance(state, "i-2", LARGE)
    for owner in ("ada", "bo"):
        run_on(state, add_job(state, spec(f"of-{owner}", owner=owner)), small)
    for place in (small, large):
        ledger.open_account(state, state.instances[place])
    return state


def shares(model: ReadModel, by: str, now: Millis) -> tuple[CostShare, ...]:
    return divided_bill(model, CostSplit.of(by), now).shares


def test_types_and_owners_add_up_to_the_bill_to_the_last_micro_dollar() -> None:
    state = cluster()
    for now in (950, 1_001, 4_567, 1_234_567, 7_654_321):
        model, at = model_of(state), Millis(now)
        bill, types = costs.bill(model, at), shares(model, "type", at)
        assert sum(share.charged for share in types) == bill.cost_micro_usd
        assert sum(share.idle for share in types) == bill.idle_micro_usd
        owners = shares(model, "owner", at)
        assert sum(share.charged for share in owners) + bill.idle_micro_usd == bill.cost_micro_usd
        assert sum(share.alone for share in owners) == bill.no_packing_micro_usd
        ledger.book(state, InstanceId("i-1"), at)


def test_each_type_and_owner_has_its_own_costs() -> None:
    model, hour = model_of(cluster()), Millis(950 + HOUR_MS)
    types = {share.name: share for share in shares(model, "type", hour)}
    # The large one costs $0.1785 an hour and is idle, the small one half of that.
    assert list(types) == ["c7i.xlarge", "c7i.large"]
    large, small = types["c7i.xlarge"], types["c7i.large"]
    assert (large.charged, large.idle) == (178_500, 178_500)
    assert (small.charged, small.idle) == (89_250, 0)
    owners = {share.name: share.charged for share in shares(model, "owner", hour)}
    assert owners == {"ada": 44_625, "bo": 44_625}
    with pytest.raises(InvalidRequest, match="divided by 'moon'"):
        shares(model, "moon", hour)


def test_what_was_booked_stays_when_masters_die_and_jobs_are_forgotten() -> None:
    state, journal = cluster(), MemoryJournal()
    for place in state.live:
        ledger.book(state, place, Millis(400_000))
    journal.commit(state.take_changes())
    before = state.totals
    assert before.owners["ada"].charged == state.job_accounts[JobId("of-ada-1")].charged
    again = State.restored(CATALOG, journal.load(Millis(10**12)))
    assert again.totals == before
    state.put_job_account(JobAccount(JobId("of-bo-2"), charged=Exact(7)))
    written = [name for name in state.take_changes().documents() if name.startswith("cost_by")]
    assert written == ["cost_by_owner/1"]


def test_of_an_older_journal_what_is_in_memory_has_its_owner_and_the_rest_none() -> None:
    state, journal = State(CATALOG), MemoryJournal()
    small, large = add_instance(state, "i-1", SMALL), add_instance(state, "i-2", LARGE)
    for name, owner in (("old", "ada"), ("new", "bo")):
        job = add_job(state, spec(name, owner=owner))
        state.put_job_account(JobAccount(job, Exact(30), Exact(45)))
    state.put_instance_account(InstanceAccount(small, Millis(1), Exact(100), Exact(40)))
    state.put_instance_account(InstanceAccount(large, Millis(1), Exact(0)))
    written = state.take_changes()
    values = {k: v for k, v in written.values.items() if not k.startswith("cost_by")}
    accounts = written.job_accounts[1:]
    journal.commit(replace(written, values=values, job_accounts=accounts))
    again = State.restored(CATALOG, journal.load())
    rest = CostTotals(Exact(30), alone=Exact(45))
    assert again.totals.owners == {"bo": rest, "": rest}
    assert again.totals.types == state.totals.types
    # From then on the journal knows.
    again.put_instance_account(InstanceAccount(small, Millis(2), Exact(105), Exact(40)))
    again.put_job_account(JobAccount(JobId("new-2"), Exact(35), Exact(45)))
    journal.commit(again.take_changes())
    assert State.restored(CATALOG, journal.load()).totals.owners == again.totals.owners


def test_of_more_names_than_are_kept_the_one_without_bookings_for_longest_joins_the_rest() -> None:
    written = Documents()
    tally = CostTally(written, "cost_by_owner/", most=2)
    tally.account("a", 1, alone=10)
    tally.account("b", 2)
    tally.account("a", 4)
    tally.account("c", 8)
    kept = {"a": CostTotals(Exact(5), alone=Exact(10)), "c": CostTotals(Exact(8))}
    assert tally.totals() == {**kept, "": CostTotals(Exact(2))}
    documents = {name: made() for name, made in written.items() if callable(made)}
    assert documents.keys() == {"cost_by_owner/0", "cost_by_owner/1"}
    later = Documents()
    again = CostTally(later, "cost_by_owner/", most=2)
    again.restore(documents, CostTotals(Exact(15), alone=Exact(10)))
    assert again.totals() == tally.totals()
    # However many come, there are no more documents.
    for number in range(50):
        again.account(f"ci-{number}", 1)
    assert later.keys() == documents.keys()
    assert sum(share.charged for share in again.totals().values()) == 65
    assert len(again.totals()) == 3


def after(hours: float) -> Millis:
    return Millis(round(hours * HOUR_MS))


def test_a_stretch_over_midnight_belongs_to_both_days() -> None:
    state = State(CATALOG)
    small = add_instance(state, "i-1", SMALL)
    run_on(state, add_job(state, spec("of-ada", owner="ada")), small)
    record = replace(state.instances[small], up_ms=after(22))
    ledger.open_account(state, record)
    # Two hours of the first day, a whole day, and an hour at $0.08925 each.
    at = after(49)
    for _ in range(2):  # projected, then booked
        days = {
            share.name: (share.charged, share.idle) for share in shares(model_of(state), "day", at)
        }
        assert days == {
            "1970-01-03": (89_250, 0),
            "1970-01-02": (24 * 89_250, 0),
            "1970-01-01": (2 * 89_250, 0),
        }
        assert [share.name for share in shares(model_of(state), "day", at)] == sorted(
            days, reverse=True
        )
        ledger.book(state, small, at)


def test_tasks_of_several_workloads_share_by_their_reservation_prices() -> None:
    state = State(CATALOG)
    small = add_instance(state, "i-1", SMALL)
    job = replace(spec("pair"), labels=(("team", "vision"),))
    task = job.tasks[0]
    other = replace(task, workload=Workload("other"))
    run_on(state, add_job(state, replace(job, tasks=(task, other))), small)
    ledger.open_account(state, state.instances[small])
    hour = Millis(950 + HOUR_MS)
    parts = {share.name: share.charged for share in shares(model_of(state), "workload", hour)}
    assert parts == {task.workload: 44_625, "other": 44_625}
    ledger.book(state, small, hour)
    assert {
        share.name: share.charged for share in shares(model_of(state), "workload", hour)
    } == parts
    (label,) = shares(model_of(state), "label:team", hour)
    assert (label.name, label.charged) == ("team=vision", 89_250)
    (none,) = shares(model_of(state), "label:project", hour)
    assert (none.name, none.charged) == ("", 89_250)


def test_a_label_with_a_value_per_job_leaves_the_sums_of_others_alone() -> None:
    tally = CostTally(Documents(), "cost_by_label/", 5, idle_longest_of_commonest_key, rest=False)
    tally.account("team=vision", 7)
    for number in range(100):
        tally.account(f"run={number}", 1)
    assert tally.totals()["team=vision"].charged == 7
    assert [name for name in tally.totals() if name != "team=vision"] == [
        *(f"run={number}" for number in range(96, 100)),
    ]


def test_the_last_days_are_kept_apart_whatever_is_booked_to_older_ones() -> None:
    tally = CostTally(Documents(), "cost_by_day/", 2, earliest)
    for day in ("2026-11-26", "2026-11-27", "2026-11-28", "2026-11-20"):
        tally.account(day, 3)
    three = CostTotals(Exact(3))
    assert tally.totals() == {"2026-11-27": three, "2026-11-28": three, "": CostTotals(Exact(6))}


def bill(by: str, *shares: pb.CostShare) -> pb.Bill:
    return pb.Bill(
        cost_micro_usd=5_000_000,
        idle_micro_usd=1_000_000,
        no_packing_micro_usd=8_000_000,
        by=by,
        shares=shares,
    )


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_the_cost_by_type_is_shown(eva: Run, api: FakeApi) -> None:
    api.bill = bill(
        "type",
        pb.CostShare(name="v100.x4", cost_micro_usd=4_000_000, idle_micro_usd=1_000_000),
        pb.CostShare(name="k80.x4", cost_micro_usd=1_000_000),
    )
    assert lines(eva("cost", "--by", "type"))[:3] == [
        ["TYPE", "COST", "SHARE", "IDLE"],
        ["v100.x4", "$4.00", "80%", "$1.00"],
        ["k80.x4", "$1.00", "20%", "$0.00"],
    ]
    told = json.loads(eva("cost", "--by", "type", "--json", "-n", "1").stdout)
    assert told["types"] == [
        {
            "name": "v100.x4",
            "cost_usd": 4.0,
            "cost_micro_usd": 4_000_000,
            "idle_usd": 1.0,
            "idle_micro_usd": 1_000_000,
        },
        # The others add up to the bill with it.
        {
            "name": None,
            "cost_usd": 1.0,
            "cost_micro_usd": 1_000_000,
            "idle_usd": 0.0,
            "idle_micro_usd": 0,
        },
    ]
    assert told["cost_micro_usd"] == 5_000_000
    assert "jobs" not in told


def test_the_cost_by_owner_is_shown(eva: Run, api: FakeApi) -> None:
    ada = pb.CostShare(name="ada", cost_micro_usd=3_000_000, no_packing_micro_usd=6_000_000)
    rest = pb.CostShare(cost_micro_usd=1_000_000, no_packing_micro_usd=2_000_000)
    api.bill = bill("owner", ada, rest)
    assert lines(eva("cost", "--by", "owner"))[:5] == [
        ["OWNER", "COST", "SHARE", "ALONE", "SAVED"],
        ["ada", "$3.00", "60%", "$6.00", "50%"],
        ["(others)", "$1.00", "20%", "$2.00", "50%"],
        ["idle", "$1.00", "20%", "-", "-"],
        ["total", "$5.00", "100%", "$8.00", "38%"],
    ]
    _, others = json.loads(eva("cost", "--by", "owner", "--json").stdout)["owners"]
    assert (others["name"], others["no_packing_micro_usd"]) == (None, 2_000_000)


def test_costs_of_days_have_their_weekdays(eva: Run, api: FakeApi) -> None:
    share = pb.CostShare(
        name="2026-11-27",
        cost_micro_usd=4_000_000,
        idle_micro_usd=1_000_000,
        no_packing_micro_usd=8_000_000,
    )
    api.bill = bill("day", share, pb.CostShare(cost_micro_usd=1_000_000))
    assert lines(eva("cost", "--by", "day"))[:3] == [
        ["DAY", "COST", "SHARE", "IDLE", "ALONE", "SAVED"],
        ["2026-11-27", "Fri", "$4.00", "80%", "$1.00", "$8.00", "50%"],
        ["(earlier)", "$1.00", "20%", "$0.00", "$0.00", "-"],
    ]


def test_csv_adds_up_to_the_bill_and_starts_no_formula(eva: Run, api: FakeApi) -> None:
    names = ("ada", '=HYPERLINK("http://x")', "-2+3", 'a "b", c')
    parts = [pb.CostShare(name=name, cost_micro_usd=1_000_001) for name in names]
    api.bill = bill("workload", *parts)
    api.bill.cost_micro_usd = 5_000_004
    text = eva("cost", "--by", "workload", "--csv", "-n", "3").stdout
    header, *rows = csv.reader(StringIO(text))
    assert header == ["workload", "cost_usd", "idle_usd", "no_packing_usd"]
    assert [row[0] for row in rows] == [
        "ada",
        '\'=HYPERLINK("http://x")',
        "'-2+3",
        "(others)",
        "(idle)",
    ]
    assert sum(Decimal(row[1]) for row in rows) == Decimal("5.000004")
    assert "needs --by" in eva("cost", "--csv").stderr


def test_an_older_master_is_told_apart(eva: Run, api: FakeApi) -> None:
    api.bill = bill("")
    told = eva("cost", "--by", "owner")
    assert told.exit_code == 1
    assert "does not tell costs by owner" in told.stderr
    assert "upgrade" in told.stderr
