"""What every journal promises, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.store import SqlJournal
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.changes import Changes, InstanceAccount, JobAccount, Round
from eva_master.model.job import JobSpec, JobStage, Program, TaskSpec
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, StopReason, TaskRun
from eva_master.model.resources import Resources
from eva_master.ports import Journal
from eva_wire.values.bounds import JobKind
from eva_wire.values.states import InstanceState, JobState, RunState

TASK = TaskSpec(
    workload="resnet",
    program=Program(
        run="python train.py\n# ünïcode \u2028 \x00",
        env=(("LR", "0.1"),),
        workdir="a" * 64,
        inputs=(("imagenet", "s3://bucket/imagenet"),),
    ),
    demand=(("c7i", Resources(0, 8000, 16384)), ("p3", Resources(1, 4000, 24576))),
    throughput=(("c7i", 2_100_000),),
)
JOB = Job(
    id="resnet-1",
    spec=JobSpec(
        "resnet", "alice", (TASK, TASK), kind=JobKind.ARRAY, stage=JobStage(depends_on=("prep-1",))
    ),
    submitted_ms=1_700_000_000_000,
    history=((JobState.PENDING.value, 1_700_000_000_000),),
    command="c0ffee",
)
RUN = TaskRun(
    id="resnet-1/0",
    job=JOB.id,
    index=0,
    history=((RunState.WAITING.value, 1_700_000_000_000),),
    stop=StopReason.MOVE,
    progress=Progress(7, 100, (("loss", 0.1 + 0.2), ("huge", 1e300)), 1 / 3),
)
INSTANCE = Instance(
    id="i-1",
    offering=Offering(
        InstanceType("c7i.2xlarge", "c7i", Resources(0, 8000, 16384), 40_000, 20_000),
        price=357_000,
        zone="us-east-1a",
        purchase=Purchase.SPOT,
        limit=3,
    ),
    history=((InstanceState.LAUNCHING.value, 1_700_000_000_000),),
    requested_ms=1_700_000_000_000,
)
ALL = Changes(
    jobs=(JOB,),
    runs=(RUN,),
    instances=(INSTANCE,),
    job_accounts=(JobAccount(JOB.id, charged=3, alone=5, busy_ms=7),),
    instance_accounts=(InstanceAccount(INSTANCE.id, 1_700_000_000_001, 11, 2),),
    values={"counters": {"round": 3}, "memory": None},
)


@dataclass
class Subject:
    """A journal, and the way a restarted master gets at it."""

    journal: Journal
    reopen: Callable[[], Journal]


@pytest.fixture(params=["memory", "sqlite"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    if request.param == "memory":
        memory = MemoryJournal()
        yield Subject(memory, lambda: memory)
        return
    url = f"sqlite:///{tmp_path}/state/journal.db"
    opened = [SqlJournal.open(url)]

    def reopen() -> Journal:
        opened[-1].close()
        opened.append(SqlJournal.open(url))
        return opened[-1]

    yield Subject(opened[0], reopen)
    opened[-1].close()


def state(journal: Journal) -> dict[str, Any]:
    """What a journal holds, whatever the order it gives it in; no record may come twice."""
    loaded = journal.load()
    assert loaded.rounds == ()
    records = [
        *loaded.jobs,
        *loaded.runs,
        *loaded.instances,
        *loaded.job_accounts,
        *loaded.instance_accounts,
    ]
    assert len(set(records)) == len(records)
    return {"records": set(records), "values": dict(loaded.values)}


def held(changes: Changes) -> dict[str, Any]:
    memory = MemoryJournal()
    memory.commit(changes)
    return state(memory)


def test_a_new_journal_holds_nothing(subject: Subject) -> None:
    assert not subject.journal.load()


def test_what_was_committed_is_there_after_a_restart(subject: Subject) -> None:
    subject.journal.commit(ALL)
    assert state(subject.journal) == held(ALL)
    assert state(subject.reopen()) == held(ALL)


def test_of_each_record_the_latest_version_is_kept(subject: Subject) -> None:
    subject.journal.commit(ALL)
    newer = Changes(
        jobs=(JOB.to(JobState.RUNNING, 5),),
        runs=(RUN.to(RunState.STARTING, 5),),
        instances=(replace(INSTANCE.to(InstanceState.UP, 5), up_ms=4),),
        job_accounts=(JobAccount(JOB.id, charged=4),),
        instance_accounts=(InstanceAccount(INSTANCE.id, 9, 12, 2, closed=True),),
        values={"counters": {"round": 4}, "memory": {"a": [1, 2.5, "x", None, True]}},
    )
    subject.journal.commit(newer)
    assert state(subject.reopen()) == held(newer)


def test_a_commit_leaves_other_records_alone(subject: Subject) -> None:
    subject.journal.commit(ALL)
    other = replace(RUN, id="resnet-1/1", index=1)
    subject.journal.commit(Changes(runs=(other,), values={"learned": [1]}))
    assert state(subject.reopen()) == held(
        replace(ALL, runs=(RUN, other), values={**ALL.values, "learned": [1]})
    )


def test_committing_twice_is_harmless(subject: Subject) -> None:
    subject.journal.commit(ALL)
    subject.journal.commit(ALL)
    subject.reopen().commit(ALL)
    assert state(subject.reopen()) == held(ALL)


def test_of_two_versions_in_one_commit_the_last_counts(subject: Subject) -> None:
    subject.journal.commit(Changes(jobs=(JOB, replace(JOB, attempt=1), replace(JOB, attempt=2))))
    assert state(subject.reopen()) == held(Changes(jobs=(replace(JOB, attempt=2),)))


def test_a_changed_spec_is_kept_too(subject: Subject) -> None:
    subject.journal.commit(ALL)
    changed = replace(JOB, spec=replace(JOB.spec, priority=9))
    subject.journal.commit(Changes(jobs=(changed,)))
    again = subject.reopen()
    assert again.load().jobs == (changed,)
    again.commit(Changes(jobs=(JOB,)))
    assert subject.reopen().load().jobs == (JOB,)


def test_money_is_exact_beyond_64_bits(subject: Subject) -> None:
    amount = 2**70 + 1
    accounts = Changes(
        job_accounts=(JobAccount(JOB.id, amount, amount + 2, 10**15),),
        instance_accounts=(InstanceAccount(INSTANCE.id, 1, amount + 4, amount + 6),),
    )
    subject.journal.commit(accounts)
    assert state(subject.reopen()) == held(accounts)


def test_rounds_are_for_reading_only(subject: Subject) -> None:
    subject.journal.commit(Changes(rounds=(Round(1, 2, 3, 4, 5, {"savings": 0.5}),)))
    assert not subject.reopen().load()


def test_records_need_no_company(subject: Subject) -> None:
    alone = Changes(
        runs=(RUN,),
        job_accounts=(JobAccount("gone-1", 1),),
        instance_accounts=(InstanceAccount("i-unknown", 1),),
    )
    subject.journal.commit(alone)
    assert state(subject.reopen()) == held(alone)
