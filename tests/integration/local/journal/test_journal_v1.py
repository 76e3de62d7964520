"""A journal that the version before wrote opens, and says what it said then."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from eva_lab.simulator.cluster.clock import Timeline
from eva_master.adapters.store import SqlArchive, SqlJournal, UserTokens
from eva_master.adapters.store.launches import LaunchTable
from eva_master.control.machine import Machine
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import Catalog
from eva_master.model.changes import Changes
from eva_master.model.records import Instance, Job
from eva_wire.values.ids import InstanceId, JobId, Millis

DATA = Path(__file__).parents[3] / "data"
EXPECTED = json.loads((DATA / "journal_v1_expected.json").read_text())
CATALOG: Catalog = TypeAdapter(Catalog).validate_python(EXPECTED["catalog"])
NOW = Millis(EXPECTED["now_ms"])


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    """The old journal, as a master of this version opens it."""
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "journal_v1.sql").read_text())
    with SqlJournal.open(f"sqlite:///{path}") as opened:
        yield opened


def said(record: object, like: dict[str, Any]) -> dict[str, Any]:
    """Fields of a record that the expectation has, as JSON has them."""
    fields = {name: getattr(record, name) for name in like if hasattr(record, name)}
    text = json.dumps(fields, default=asdict)
    # The expectation has them as words, since JSON has no such numbers.
    found: dict[str, Any] = json.loads(text, parse_constant=str)
    for name, value in like.items():
        if isinstance(value, dict) and isinstance(inner := found.get(name), dict):
            found[name] = {key: inner[key] for key in value}
    return found


def about(expected: dict[str, Any], record: object) -> dict[str, Any]:
    """The part of an expectation that is about the fields of a record."""
    return {name: value for name, value in expected.items() if hasattr(record, name)}


def test_every_record_is_what_it_was(journal: SqlJournal) -> None:
    written = journal.load()
    for found, expected in (
        (written.jobs, EXPECTED["jobs"]),
        (written.runs, EXPECTED["copies"]),
        (written.instances, EXPECTED["instances"]),
    ):
        records = {record.id: record for record in found}
        assert sorted(records) == sorted(each["id"] for each in expected)
        for each in expected:
            record = records[each["id"]]
            told = dict(each)
            if isinstance(record, Instance):
                assert record.offering.id == told.pop("offering")
            assert said(record, told) == about(told, record)
            if isinstance(record, Job):
                spec = record.spec
                assert (spec.name, spec.owner, len(spec.tasks), spec.duration_ms) == (
                    *(each["name"], each["owner"], each["tasks"], each["duration_ms"]),
                )


def test_a_job_that_names_one_that_has_succeeded_arrives_at_the_start(journal: SqlJournal) -> None:
    """The version before wrote such names down and did not look at them."""
    state = State.restored(CATALOG, journal.load())
    name = JobId("vit-26")
    assert state.jobs[name].waits
    Machine(state, Settings()).recover(NOW)
    assert state.jobs[name].released_ms == NOW
    assert not state.jobs[name].waits


def test_states_are_counted_as_they_were(journal: SqlJournal) -> None:
    totals = State.restored(CATALOG, journal.load()).totals
    assert {state.value: count for state, count in totals.jobs.items()} == EXPECTED["jobs_by_state"]
    assert {state.value: count for state, count in totals.runs.items()} == (
        EXPECTED["copies_by_state"]
    )
    instances = Counter(it.state.value for it in journal.load().instances)
    assert instances == EXPECTED["instances_by_state"]


def test_money_is_what_it_was(journal: SqlJournal) -> None:
    written = journal.load()
    state = State.restored(CATALOG, written)
    old = EXPECTED["totals"]
    assert state.totals.charged == int(old["booked_charged"])
    assert state.totals.idle == int(old["booked_idle"])
    assert state.totals.alone == int(old["booked_jobs_alone"])
    assert state.totals.migrations == sum(each["moves"] for each in EXPECTED["copies"])
    jobs = {account.job: account for account in written.job_accounts}
    for each in EXPECTED["jobs"]:
        if (told := each["account"]) is not None:
            account = jobs[each["id"]]
            assert (account.charged, account.alone, account.busy_ms) == (
                *(int(told["charged"]), int(told["alone"]), told["busy_ms"]),
            )
    bill = ledger.bill(state, NOW)
    assert bill.charged == int(old["bill_charged"])
    assert bill.idle == int(old["bill_idle"])


def test_tenants_owed_each_other_nothing_then(journal: SqlJournal) -> None:
    state = State.restored(CATALOG, journal.load())
    (sums,) = state.totals.tenants.values()
    assert (sums.value, sums.paid, sums.earned, sums.received, sums.given) == (0, 0, 0, 0, 0)
    assert (sums.gpu_ms, sums.borrowed_ms, sums.lent_ms) == (0, 0, 0)
    assert not state.tally.lending.in_force()


def test_counters_memory_and_what_was_learned_are_there(journal: SqlJournal) -> None:
    state = State.restored(CATALOG, journal.load())
    later = {"events": 0, "restored_ms": 0, "restored_mark": 0}
    assert asdict(state.counters) == {**EXPECTED["counters"], **later}
    assert state.memories.get("") is not None
    assert (state.memories[""].policy, state.memories[""].version) == (
        "eva",
        EXPECTED["memory"]["version"],
    )
    assert sorted(state.memories[""].data) == EXPECTED["memory"]["keys"]
    learned = state.learned.to_json()
    assert learned.pop("runtimes") == []  # not known then
    ((voice, tables),) = learned.pop("voices")
    assert voice == "", "rows of those days are nobody's own"
    delays = sorted(learned.pop("delays") + tables.pop("delays"))
    expected = {**EXPECTED["learned"], "version": 4}
    assert delays == sorted(expected.pop("delays"))
    assert {**learned, **tables} == expected
    assert state.market.lives.to_json() == EXPECTED["interruptions"]
    until = {it.id: it.unavailable_until for it in state.catalog if it.unavailable_until}
    assert until == {name: told[0] for name, told in EXPECTED["unavailable"].items()}


def test_rounds_and_their_reasons_are_there_under_the_new_names(journal: SqlJournal) -> None:
    rounds = journal.rounds(limit=1000)[::-1]
    told = [{**asdict(each), "figures": dict(each.figures)} for each in rounds]
    assert [{k: v for k, v in each.items() if k != "reasons"} for each in told] == (
        EXPECTED["rounds"]
    )
    last, expected = journal.explained(), EXPECTED["last_explained"]
    assert last is not None
    assert last.reasons is not None
    assert last.number == expected["number"]
    occupants = [
        (hosting.on, occupant.run, occupant.throughput_ppm, occupant.value_micro_usd_per_hour)
        for hosting in last.reasons.hostings
        for occupant in hosting.occupants
    ]
    assert occupants == [
        (
            hosting["on"],
            *(occupant[k] for k in ("copy", "throughput_ppm", "value_micro_usd_per_hour")),
        )
        for hosting in expected["reasons"]["hostings"]
        for occupant in hosting["tenants"]
    ]
    moves = [(it.run, it.source, it.target) for one in last.reasons.exchanges for it in one.moves]
    assert moves == [
        (it["copy"], it["source"], it["target"])
        for one in expected["reasons"]["exchanges"]
        for it in one["moves"]
    ]
    for number in EXPECTED["explained_rounds"]:
        found = journal.explained(number)
        assert found is not None
        assert found.number == number
        assert found.reasons is not None, f"the reasons of round {number} cannot be read"


def test_tokens_and_launches_are_there(journal: SqlJournal) -> None:
    tokens = UserTokens(journal.engine, Timeline(NOW)).all()
    assert {it.id: it.owner for it in tokens} == {
        it["id"]: it["owner"] for it in EXPECTED["user_tokens"]
    }
    launches = LaunchTable(journal.engine)
    for it in EXPECTED["launches"]:
        request = launches.remembered(InstanceId(it["instance_id"]), it["attempt"])
        assert request == it["request"]


def test_what_is_over_is_found_by_every_new_column(journal: SqlJournal) -> None:
    archive = SqlArchive(journal.engine)
    jobs = {each["id"]: each for each in EXPECTED["jobs"]}
    by_number = sorted(jobs, key=lambda name: int(name.rpartition("-")[2]), reverse=True)
    assert list(archive.page_of_jobs(None, 1000)) == by_number
    assert list(archive.page_of_jobs(JobId(by_number[4]), 3)) == by_number[5:8]
    instances = sorted((it["id"] for it in EXPECTED["instances"]), reverse=True)
    assert list(archive.page_of_instances(None, 1000)) == instances
    for name, each in jobs.items():
        assert archive.submitted(each["owner"], each["command"]) == name
        newest = archive.newest_named(each["owner"], each["name"])
        assert newest is not None
        assert newest.job.spec.name == each["name"]
        assert int(newest.job.id.rpartition("-")[2]) >= int(name.rpartition("-")[2])


@pytest.mark.parametrize("kept_ms", [0, 3_600_000])
def test_a_master_loads_what_is_alive_and_what_was_over_for_less(
    journal: SqlJournal, kept_ms: int
) -> None:
    since = Millis(NOW - kept_ms)
    everything, loaded = journal.load(), journal.load(since)
    ended = {"succeeded", "failed", "cancelled"}
    alive = [
        job.id
        for job in everything.jobs
        if job.state.value not in ended or job.history[-1][1] > since
    ]
    assert [job.id for job in loaded.jobs] == alive
    assert {run.job for run in loaded.runs} == set(alive)
    assert {account.job for account in loaded.job_accounts} <= set(alive)
    there = [
        it.id
        for it in everything.instances
        if it.state.value != "gone" or it.history[-1][1] > since
    ]
    assert [it.id for it in loaded.instances] == there
    assert {account.instance for account in loaded.instance_accounts} <= set(there)
    assert len(loaded.jobs) < len(everything.jobs)
    totals = State.restored(CATALOG, everything).totals
    quick = State.restored(CATALOG, loaded).totals
    # By type and owner this journal has no sums: what is not loaded is in the row of all others.
    assert replace(quick, types={}, owners={}) == replace(totals, types={}, owners={})
    for one, other in ((quick.types, totals.types), (quick.owners, totals.owners)):
        assert sum(it.charged for it in one.values()) == sum(it.charged for it in other.values())


def test_a_master_of_this_version_writes_on(journal: SqlJournal) -> None:
    state = State.restored(CATALOG, journal.load(Millis(NOW)))
    job = next(iter(state.active))
    state.put_job(state.jobs[job])
    state.count(rounds=1)
    journal.commit(state.take_changes())
    assert isinstance(journal.load(), Changes)
    assert State.restored(CATALOG, journal.load()).counters.rounds == (
        EXPECTED["counters"]["rounds"] + 1
    )
