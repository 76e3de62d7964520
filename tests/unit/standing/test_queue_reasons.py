"""What users are told of the queues of SLearn, and of why their job stands in one."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

import pytest

from eva_master.model.catalog import Purchase
from eva_master.model.planning.estimate import Estimate, Source
from eva_master.model.planning.plan import Plan
from eva_master.testing.job_views import changed
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import PRESETS, Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION
from tests.fakes.snapshots import Cluster, offer, task

ONE = task("w", any=(0, 1, 1))
NODE = replace(offer("n.4", (0, 4, 4), 0.1), purchase=Purchase.OWNED, limit=2)
HOUR_MS = 3_600_000


def planned(config: Config, tasks: int, estimate: Estimate | None, **fields: Any) -> Plan:
    cluster = Cluster(NODE).instance("n1", "n.4").job("a", *[ONE] * tasks, kind=JobKind.ARRAY)
    snapshot = cluster.snapshot()
    known = {"size": tasks, "estimate": estimate, **fields}
    jobs = tuple(changed(job, **known) for job in snapshot.jobs)
    return POLICY.build(config).plan(replace(snapshot, jobs=jobs), None)[0]


def told(config: Config, tasks: int, estimate: Estimate | None, **fields: Any) -> tuple[str, str]:
    line = planned(config, tasks, estimate, **fields).lines[0]
    return line.reason, dict(line.notes).get(line.jobs[0], "")


def published(preset: str) -> Config:
    return Config(**PRESETS[preset])


def about(mean_ms: int, times: float) -> Estimate:
    """Two of three cases lie within a factor of the mean."""
    scale = round(MILLION * log(times) ** 2)
    # A third of the freedom is behind the deviation: the scale times 3 over 3 less 2.
    return Estimate(mean_ms, round(MILLION * log(mean_ms)), scale // 3, 3, Source.HISTORY)


def test_a_job_is_told_its_queue_and_how_much_work_is_left() -> None:
    reason, note = told(published("3sigma"), 5, about(HOUR_MS, 1.6))
    assert reason == "queue 3 of 10, for jobs with 2.8 h to less than 27.8 h of work"
    assert note == "5.0 h of work are left by estimate; a task takes 1.0 h, give or take 60 %"


def test_the_ends_of_the_queues_are_open() -> None:
    small, _ = told(published("3sigma"), 3, about(60_000, 1.6))
    assert small == "queue 1 of 10, for jobs with less than 0.3 h of work"
    large, note = told(Config(estimator="3sigma", queues=2), 3, Estimate.stated(2 * HOUR_MS))
    assert large == "queue 2 of 2, for jobs with 0.3 h of work or more"
    assert note == "6.0 h of work are left by estimate; a task takes 2.0 h", "nothing to give"


@pytest.mark.parametrize(
    ("preset", "tasks", "queue", "note"),
    [
        ("published", 2, 1, "it has fewer than 3 tasks, so that none of them runs first"),
        (
            "published",
            60,
            2,
            "1 of its 60 tasks run first: how long they take tells how much work it has",
        ),
        ("3sigma", 60, 2, "nothing is known of how long its tasks take"),
        ("las", 60, 1, "its tasks have had 0 s"),
        ("fifo", 60, 1, "every job stands in it"),
    ],
)
def test_it_is_told_what_else_puts_it_there(preset: str, tasks: int, queue: int, note: str) -> None:
    reason, found = told(published(preset), tasks, None)
    assert reason.startswith(f"queue {queue} of ")
    assert found == note


def test_other_tasks_of_a_job_with_pilots_take_what_nobody_wants() -> None:
    plan = planned(published("published"), 60, None)
    assert [line.reason for line in plan.lines][1:] == [
        "room that no queue wants, for other tasks of jobs whose pilots have not finished"
    ]
    assert plan.lines[1].notes == ()


def test_reasons_decide_nothing_and_are_left_out_where_nobody_reads_them() -> None:
    config = published("3sigma")
    quiet = planned(replace(config, explained=False), 5, about(HOUR_MS, 1.6))
    assert [(line.reason, line.notes) for line in quiet.lines] == [("", ())]
    assert quiet.lines == planned(config, 5, about(HOUR_MS, 1.6)).lines
