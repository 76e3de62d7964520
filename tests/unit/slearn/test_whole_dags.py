"""Stages of DAGs under SLearn: they stand where their whole DAG belongs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.job_view import DagView
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.standing import Line
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import START
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_policies.slearn.dags import whole
from eva_policies.slearn.sizes import JobWork
from eva_wire.values.ids import JobId, Millis
from tests.unit.slearn.test_queues import MINUTE, SURE, Jobs

HOUR = 60 * MINUTE


def dag(first: str = "a", **told: int) -> DagView:
    return DagView("etl", JobId(first), Millis(START), **told)


def standing(plan: Plan) -> list[tuple[str, ...]]:
    return [line.jobs for line in plan.lines]


def line_of(plan: Plan, job: str) -> Line:
    return next(it for it in plan.lines if job in it.jobs)


def test_the_work_of_a_dag_is_that_of_what_is_there_what_waits_and_what_has_ended() -> None:
    jobs = Jobs().add("a").add("b").add("c").add("d").snapshot().jobs
    about = {"a": dag(waiting_ms=70, ended_ms=500), "c": dag(waiting_ms=70, ended_ms=500)}
    views = [changed(it, dag=about.get(it.id)) for it in jobs]
    works = {it.id: JobWork(100, 40, 60, 3, Millis(0)) for it in views}
    found = whole(views, works)
    assert found[JobId("a")] == found[JobId("c")] == JobWork(770, 150, 620, 3, Millis(0))
    assert found[JobId("b")] is works[JobId("b")]
    works[JobId("c")] = JobWork(None, None, 60, 3, Millis(0))
    found = whole(views, works)
    assert found[JobId("a")] == JobWork(None, None, 620, 3, Millis(0))
    other = changed(views[3], dag=dag(), owner="bob")
    found = whole([*views[:3], other], {**works, JobId("d"): JobWork(1, 1, 1, 1, Millis(0))})
    assert found[JobId("d")] == JobWork(1, 1, 1, 1, Millis(0)), "another owner's"


@pytest.mark.parametrize("estimator", ["posterior", "oracle", "3sigma-dag", "point-dag"])
def test_a_small_stage_of_a_large_dag_comes_after_a_job_of_middling_size(estimator: str) -> None:
    config = Config(estimator=estimator, sure_ppm=100_000_000)  # type: ignore[arg-type]
    jobs = Jobs().add("small", each_ms=MINUTE, dag=dag("small", waiting=2, waiting_ms=900 * HOUR))
    jobs.add("middling", each_ms=HOUR)
    plan = jobs.plan(config)
    assert standing(plan) == [("middling",), ("small",)]
    assert plan.lines[0].weight_ppm > plan.lines[1].weight_ppm
    apart = jobs.plan(replace(config, estimator="3sigma"))
    assert standing(apart) == [("small",), ("middling",)], "who knows nothing of DAGs"


def test_a_dag_that_is_almost_done_comes_first() -> None:
    jobs = Jobs().add("long", each_ms=HOUR, dag=dag("long", waiting_ms=10 * HOUR))
    jobs.add("last", each_ms=HOUR, at=-5, dag=dag("first", ended=4, ended_ms=800 * HOUR))
    assert standing(jobs.plan()) == [("last", "long")]
    kept = Config(estimator="3sigma-dag", requeue=False, order="arrival")
    assert standing(jobs.plan(kept)) == [("long",), ("last",)], "by all of it, as published"


def test_las_dag_counts_what_all_stages_have_had() -> None:
    jobs = Jobs().add("new").add("old", dag=dag("gone", ended=1, ended_ms=9 * HOUR), at=1_000)
    for estimator, first in (("las-dag", "new"), ("las", "old")):
        config = Config(estimator=estimator, order="arrival")  # type: ignore[arg-type]
        plan = jobs.plan(config)
        assert plan.lines[0].jobs[0] == first
        assert (len(plan.lines) == 2) == (estimator == "las-dag")


def test_stages_of_a_dag_came_when_it_did() -> None:
    old = replace(dag("gone", ended=1), submitted_ms=Millis(START - HOUR))
    jobs = Jobs().add("waited", each_ms=MINUTE, at=MINUTE).add("stage", each_ms=MINUTE, dag=old)
    config = Config(estimator="3sigma-dag", order="arrival")
    assert standing(jobs.plan(config)) == [("stage", "waited")]


def test_only_the_first_stage_has_pilots_under_slearn_dag() -> None:
    config = Config(estimator="slearn-dag")
    jobs = Jobs().add("a", dag=dag("a", waiting=1)).add("b", dag=dag("other", ended=1))
    jobs.add("lone")
    chosen = {job for line in jobs.plan(config).lines for job, _ in line.chosen}
    assert chosen == {"a", "lone"}


def test_a_later_stage_has_pilots_only_if_nothing_else_tells_of_it() -> None:
    jobs = Jobs().add("unknown", dag=dag("other", ended=1))
    jobs.add("known", dag=dag("third", ended=1), each_ms=MINUTE)
    chosen = {job for line in jobs.plan(Config(sure_ppm=0)).lines for job, _ in line.chosen}
    assert chosen == {"unknown"}


def test_a_thin_stage_is_in_the_queue_of_its_dag() -> None:
    jobs = Jobs().add("thin", tasks=2, each_ms=MINUTE)
    jobs.add("stage", tasks=2, each_ms=MINUTE, dag=dag("stage", waiting=1, waiting_ms=90 * HOUR))
    assert standing(jobs.plan()) == [("thin",), ("stage",)]
    plan = Config(estimator="pilots", sure_ppm=0)
    assert standing(jobs.plan(plan))[0] == ("stage", "thin"), "pilots judge each by itself"


def test_users_are_told_of_the_dag() -> None:
    jobs = Jobs().add("a", each_ms=HOUR, dag=dag("a", waiting=2, waiting_ms=30 * HOUR))
    (note,) = [note for line in jobs.plan(SURE).lines for _, note in line.notes]
    assert note.startswith("40.0 h of work are left by estimate of its DAG, with 2 more stages")
    config = Config(estimator="las-dag", order="arrival")
    jobs = Jobs().add("b", dag=dag("gone", ended=1, ended_ms=9 * HOUR))
    (note,) = [note for line in jobs.plan(config).lines for _, note in line.notes]
    assert note == "the tasks of its DAG have had 9.0 h"


def test_presets_of_dags_are_as_published() -> None:
    for preset in ("slearn-dag", "3sigma-dag", "point-dag", "las-dag"):
        config = POLICY.config(**POLICY.presets[preset])
        assert config.estimator == preset
        assert (config.order, config.age_cap) == ("arrival", 0)
        assert config.requeue == (preset == "las-dag")
