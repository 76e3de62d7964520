"""Costs of pools are written exactly, and a journal that had the idle part alone is read."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from eva_master.adapters.store import SqlJournal, migrate
from eva_master.control.state.store import State
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


def test_the_form_that_had_the_idle_part_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        command.upgrade(migrate.configured(connection), "0012")
    engine.dispose()
    totals = {
        **{"charged": "9", "idle": "7", "alone": "0", "migrations": 0, "jobs": {}, "runs": {}},
        "standing": {"a/p": str(LARGE), "q": "2"},
    }
    with closing(sqlite3.connect(path)) as written:
        row = "INSERT INTO instance_accounts VALUES (?, 5, '9', '7', 0, ?)"
        written.execute(row, ("i1", json.dumps({"a/p": str(LARGE), "q": "2"})))
        written.execute(row, ("i2", ""))
        written.execute("INSERT INTO documents VALUES ('totals', ?)", (json.dumps(totals),))
        written.commit()
    with SqlJournal.open(f"sqlite:///{path}") as journal:
        loaded = journal.load()
    known = {
        "a/p": PoolCost(Exact(LARGE), Exact(LARGE)),
        "q": PoolCost(Exact(2), Exact(2)),
    }
    accounts = {it.instance: dict(it.standing) for it in loaded.instance_accounts}
    assert accounts == {"i1": known, "i2": {}}
    document = loaded.documents()["totals"]
    assert isinstance(document, dict)
    tally = Tally()
    tally.restore(document, loaded.documents())
    assert tally.totals().pools == known


def test_an_empty_journal_of_that_form_is_read(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        command.upgrade(migrate.configured(connection), "0012")
    engine.dispose()
    with SqlJournal.open(f"sqlite:///{path}") as journal:
        assert not journal.load()
    assert State(()).totals.pools == {}
