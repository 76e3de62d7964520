"""Costs of pools are written exactly."""

from __future__ import annotations

from pathlib import Path

from eva_master.adapters.store import SqlJournal
from eva_master.control.state.tally import Tally
from eva_master.model.accounting.pool_costs import PoolCost
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes, InstanceAccount
from eva_master.model.records import Instance
from eva_master.model.resources import Resources
from eva_wire.values.ids import Exact, Family, InstanceId, Millis, Price

LARGE = 10**21
"""More than the database's integers hold."""


def test_exact_amounts_by_pool_come_back(tmp_path: Path) -> None:
    cost = PoolCost(*(Exact(LARGE + n) for n in range(5)))
    account = InstanceAccount(
        InstanceId("i1"), Millis(5), Exact(LARGE * 2), standing=(("p", PoolCost()), ("q", cost))
    )
    tally = Tally()
    offering = Offering(InstanceType("p.large", Family("p"), Resources(0, 1000, 1024)), Price(7))
    launched = Instance(InstanceId("i1"), offering, history=(), requested_ms=Millis(0))
    tally.instance_account(launched, None, account)
    with SqlJournal.open(f"sqlite:///{tmp_path}/j.db") as journal:
        totals = tally.to_json()
        journal.commit(Changes(instance_accounts=(account,), values={"totals": totals}))
        loaded = journal.load()
    assert loaded.instance_accounts == (account,)
    after = Tally()
    document = loaded.documents()["totals"]
    assert isinstance(document, dict)
    after.restore(document, loaded.documents())
    assert after.totals().pools == {"p": PoolCost(), "q": cost}
