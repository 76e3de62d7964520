"""Specs that an earlier version wrote without groups are read as they were."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from eva_master.adapters.store import SqlJournal
from eva_master.model.accounting.worth import Worth
from eva_master.model.changes import Changes
from eva_master.model.forks.merging import MergeRule
from eva_master.model.job import (
    ArrayRules,
    DatasetSize,
    Deadline,
    ElasticGang,
    FailureRules,
    ForkRules,
    JobSpec,
    JobStage,
    Latency,
    ModelSize,
    OnFailure,
    ParameterServers,
    Restarts,
    Retry,
    Stragglers,
    Training,
)
from eva_master.model.records import Job
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import JobId, Millis
from tests.fakes.jobs import task

TASKS = (task(1), task(1))
PLAIN: dict[str, Any] = {
    "name": "a",
    "owner": "me",
    "kind": "gang",
    "depends_on": [],
    "total_steps": None,
    "duration_ms": None,
    "grace_period_ms": 60000,
    "retries": 3,
    "max_duration_ms": None,
    "priority": 0,
    "checkpoint_ms": None,
    "launch_ms": None,
    "tenant": "default",
    "concurrency": None,
    "least": None,
    "scaling": [],
    "partition": "",
    "stragglers": "keep",
    "latency": "auto",
    "pilots": None,
    "dag": "",
    "forks": 1,
    "merge": {
        "every_ms": 60000,
        "check": "",
        "tolerance_ppm": 20000,
        "larger": False,
        "at_last_fastest": False,
    },
    "deadline": None,
    "spot_wait_ms": 0,
    "checkpoint_interval_ms": 0,
    "on_failure": "stop",
}
"""As the version before wrote a job that states nothing."""
FULL: dict[str, Any] = {
    **PLAIN,
    "kind": "array",
    "depends_on": ["b-1", "c-2"],
    "only_ended": ["b-1"],
    "dag": "nightly",
    "total_steps": 7,
    "duration_ms": 8,
    "grace_period_ms": 9,
    "retries": 1,
    "retry_on": [4],
    "fail_on": [5, 6],
    "on_failure": "cautious",
    "max_duration_ms": 10,
    "priority": 2,
    "checkpoint_ms": 11,
    "launch_ms": 12,
    "checkpoint_interval_ms": 13,
    "tenant": "vision",
    "partition": "ml",
    "concurrency": 14,
    "stragglers": "duplicate",
    "pilots": 15,
    "least": 1,
    "scaling": [[1, 16], [2, 17]],
    "scaling_apart": [[2, 18]],
    "latency": "short",
    "forks": 3,
    "merge": {**PLAIN["merge"], "every_ms": 19, "check": "loss"},
    "split_batch": True,
    "training": {"batch_size": 20, "model": "high", "dataset": "L"},
    "worth": {"amount": 21, "loses_per_hour": 22},
    "ps": {"minibatch_us": 23, "update_us": 24, "gradient_bytes": 25},
    "deadline": {"at_ms": 26, "within_ms": None, "fails": True},
    "spot_wait_ms": 27,
    "unique": True,
    "retry": {"job": "a-9", "tasks": [0], "origins": []},
}


def read(file: Path, document: Mapping[str, Any], checksum: int | None = None) -> JobSpec:
    """The spec of a job as it is read from a document without groups."""
    job = Job(JobId("a-1"), JobSpec("a", "me", TASKS), Millis(1), (("pending", 1),))
    with SqlJournal.open(f"sqlite:///{file}") as journal:
        journal.commit(Changes(jobs=(job,)))
    record = json.dumps(document)
    with closing(sqlite3.connect(file)) as connection:
        ((tasks, runs),) = connection.execute("SELECT tasks, runs FROM job_specs").fetchall()
        sums = crc32("\x1f".join(map(str, ("a-1", record, 2, tasks, runs))).encode())
        connection.execute(
            "UPDATE job_specs SET record = ?, version = 2, checksum = ?",
            (record, sums if checksum is None else checksum),
        )
        for later in ("secrets", "feed", "notices", "notice_marks"):
            connection.execute(f"DROP TABLE {later}")
        connection.execute("ALTER TABLE user_tokens DROP COLUMN identity")
        connection.execute("UPDATE alembic_version SET version_num = '0015'")
        connection.commit()
    with SqlJournal.open(f"sqlite:///{file}") as journal:
        (found,) = journal.load().jobs
    return found.spec


def test_a_job_that_states_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "journal.db", PLAIN) == JobSpec("a", "me", TASKS)


def test_a_job_that_states_everything(tmp_path: Path) -> None:
    assert read(tmp_path / "journal.db", FULL) == JobSpec(
        "a",
        "me",
        TASKS,
        kind=JobKind.ARRAY,
        tenant="vision",
        partition="ml",
        priority=2,
        total_steps=7,
        duration_ms=8,
        unique=True,
        latency=Latency.SHORT,
        spot_wait_ms=27,
        worth=Worth(21, loses_per_hour=22),
        deadline=Deadline(at_ms=26, fails=True),
        retry=Retry(JobId("a-9"), (0,)),
        stage=JobStage((JobId("b-1"), JobId("c-2")), (JobId("b-1"),), "nightly"),
        restarts=Restarts(9, 11, 12, 13),
        failing=FailureRules(1, (4,), (5, 6), OnFailure.CAUTIOUS, 10),
        array=ArrayRules(14, Stragglers.DUPLICATE, 15),
        elastic=ElasticGang(1, ((1, 16), (2, 17)), ((2, 18),)),
        forking=ForkRules(3, MergeRule(19, "loss")),
        training=Training(20, ModelSize.HIGH, DatasetSize.L, True, ParameterServers(23, 24, 25)),
    )


def test_a_job_before_there_were_most_of_the_keys(tmp_path: Path) -> None:
    assert read(tmp_path / "journal.db", {"name": "a", "owner": "me"}) == JobSpec("a", "me", TASKS)


def test_a_damaged_document_is_not_made_good(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="job_specs: 'a-1'"):
        read(tmp_path / "journal.db", PLAIN, checksum=5)
