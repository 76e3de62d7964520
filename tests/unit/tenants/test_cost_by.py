"""What types of instances and owners of jobs cost adds up to the bill, and is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.rpc.server import views
from eva_master.control.measure import ledger
from eva_master.control.state.parts.cost_tally import CostTally
from eva_master.control.state.store import State
from eva_master.model.accounting.totals import CostTotals
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_wire._proto import api_pb2 as pb
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.ids import Exact, InstanceId, JobId, Millis
from eva_wire.values.states import RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.api import FakeApi
from tests.fakes.rpc.server import CATALOG, LARGE, SMALL, add_instance, add_job, spec

Run = Callable[..., Result]
HOUR_MS = 3_600_000


def run_on(state: State, job: JobId, place: InstanceId) -> None:
    run = next(state.members(job)).to(RunState.STARTING, Millis(1000))
    run = run.to(RunState.RUNNING, Millis(1000))
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


def test_types_and_owners_add_up_to_the_bill_to_the_last_micro_dollar() -> None:
    state = cluster()
    for now in (950, 1_001, 4_567, 1_234_567, 7_654_321):
        model, at = model_of(state), Millis(now)
        bill, types = views.bill(model, at), views.cost_shares(model, "type", at)
        assert sum(it.cost_micro_usd for it in types) == bill.cost_micro_usd
        assert sum(it.idle_micro_usd for it in types) == bill.idle_micro_usd
        owners = views.cost_shares(model, "owner", at)
        told = sum(it.cost_micro_usd for it in owners) + bill.idle_micro_usd
        assert told == bill.cost_micro_usd
        assert sum(it.no_packing_micro_usd for it in owners) == bill.no_packing_micro_usd
        ledger.book(state, InstanceId("i-1"), at)


def test_each_type_and_owner_has_its_own_costs() -> None:
    model, hour = model_of(cluster()), Millis(950 + HOUR_MS)
    types = {it.name: it for it in views.cost_shares(model, "type", hour)}
    # The large one costs $0.1785 an hour and is idle, the small one half of that.
    assert list(types) == ["c7i.xlarge", "c7i.large"]
    large, small = types["c7i.xlarge"], types["c7i.large"]
    assert (large.cost_micro_usd, large.idle_micro_usd) == (178_500, 178_500)
    assert (small.cost_micro_usd, small.idle_micro_usd) == (89_250, 0)
    owners = {it.name: it.cost_micro_usd for it in views.cost_shares(model, "owner", hour)}
    assert owners == {"ada": 44_625, "bo": 44_625}
    with pytest.raises(BadRequest, match="`type` or by `owner`"):
        views.cost_shares(model, "moon", hour)


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
    tally = CostTally("cost_by_owner/", most=2)
    tally.account("a", 1, alone=10)
    tally.account("b", 2)
    tally.account("a", 4)
    tally.account("c", 8)
    kept = {"a": CostTotals(Exact(5), alone=Exact(10)), "c": CostTotals(Exact(8))}
    assert tally.totals() == {**kept, "": CostTotals(Exact(2))}
    documents = {name: told() for name, told in tally.take_documents().items()}
    assert documents.keys() == {"cost_by_owner/0", "cost_by_owner/1"}
    again = CostTally("cost_by_owner/", most=2)
    again.restore(documents, CostTotals(Exact(15), alone=Exact(10)))
    assert again.totals() == tally.totals()
    # However many come, there are no more documents.
    for number in range(50):
        again.account(f"ci-{number}", 1)
        assert again.take_documents().keys() <= documents.keys()
    assert sum(it.charged for it in again.totals().values()) == 65
    assert len(again.totals()) == 3


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
        ["TYPE", "COST", "IDLE", "SHARE"],
        ["v100.x4", "$4.00", "$1.00", "80%"],
        ["k80.x4", "$1.00", "$0.00", "20%"],
    ]
    told = json.loads(eva("cost", "--by", "type", "--json", "-n", "1").stdout)
    assert told["types"] == [
        {
            "name": "v100.x4",
            "cost_usd": 4.0,
            "cost_micro_usd": 4_000_000,
            "idle_usd": 1.0,
            "idle_micro_usd": 1_000_000,
        }
    ]
    assert told["cost_micro_usd"] == 5_000_000
    assert "jobs" not in told


def test_the_cost_by_owner_is_shown(eva: Run, api: FakeApi) -> None:
    ada = pb.CostShare(name="ada", cost_micro_usd=3_000_000, no_packing_micro_usd=6_000_000)
    rest = pb.CostShare(cost_micro_usd=1_000_000, no_packing_micro_usd=2_000_000)
    api.bill = bill("owner", ada, rest)
    assert lines(eva("cost", "--by", "owner"))[:4] == [
        ["OWNER", "COST", "ALONE", "SAVED"],
        ["ada", "$3.00", "$6.00", "50%"],
        ["(others)", "$1.00", "$2.00", "50%"],
        ["idle", "$1.00", "-", "-"],
    ]
    _, others = json.loads(eva("cost", "--by", "owner", "--json").stdout)["owners"]
    assert (others["name"], others["no_packing_micro_usd"]) == (None, 2_000_000)


def test_an_older_master_is_told_apart(eva: Run, api: FakeApi) -> None:
    api.bill = bill("")
    told = eva("cost", "--by", "owner")
    assert told.exit_code == 1
    assert "does not tell costs by owner" in told.stderr
    assert "upgrade" in told.stderr
