"""Pilots that a job states, and those of jobs with several kinds of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import RemainingWork, RunView, Snapshot
from eva_master.testing.job_views import changed, job_view
from eva_master.testing.snapshots import START
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_policies.slearn.memory import Memory
from eva_policies.slearn.sampling import chosen, chosen_of
from eva_policies.slearn.sizes import work_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, run_id
from tests.fakes.snapshots import task
from tests.unit.slearn.test_queues import Jobs

SECOND = 1_000


def job(tasks: int, pilots: int | None = None, kinds: Sequence[Sequence[int]] = ()) -> JobView:
    return job_view(
        JobId("job-1"),
        JobKind.ARRAY,
        (),
        Millis(0),
        0,
        size=tasks,
        pilots=pilots,
        kinds=tuple(kinds),
    )


def plan(config: Config, **told: Any) -> tuple[dict[str, int], PolicyMemory | None]:
    """How many pilots the job `it` of a hundred tasks has, and what is remembered."""
    tasks = told.pop("tasks", 100)
    jobs = Jobs().add("it", tasks=tasks, **told)
    found, memory = POLICY.build(config).plan(jobs.snapshot(), None)
    return {name: len(it) for line in found.lines for name, it in line.chosen}, memory


# -- as a job states -------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0, 20_000])
def test_a_job_has_as_many_as_it_states_whatever_the_share(ratio: int) -> None:
    config = Config(ratio_ppm=ratio)
    assert plan(config, pilots=17)[0] == {"it": 17}
    assert plan(config)[0] == {"it": 2 if ratio else 3}


def test_it_has_them_though_it_is_thin_or_known() -> None:
    assert plan(Config(), tasks=2, pilots=1)[0] == {"it": 1}
    assert plan(Config(), tasks=2)[0] == {}
    sure = Config(sure_ppm=100_000_000)
    assert plan(sure, each_ms=SECOND)[0] == {}
    assert plan(sure, each_ms=SECOND, pilots=5)[0] == {"it": 5}


@pytest.mark.parametrize("estimator", ["3sigma", "point", "las", "fifo", "oracle"])
def test_estimators_without_pilots_have_none(estimator: Any) -> None:
    assert plan(Config(estimator=estimator), pilots=5)[0] == {}


def test_what_it_states_tells_nothing_of_the_best_share() -> None:
    policy = POLICY.build(Config())
    jobs = Jobs().add("it", tasks=100, pilots=5)
    _, memory = policy.plan(jobs.snapshot(), None)
    known = Memory.read(memory)
    assert known.ratios.started == 0
    assert known.sampled[JobId("it")].ratio_ppm == 0
    seen = jobs.snapshot()
    (view,) = seen.jobs
    sized = changed(view, pilots_left=0, succeeded=5, estimate=Estimate.stated(SECOND))
    _, memory = policy.plan(replace(seen, jobs=(sized,)), memory)
    assert Memory.read(memory).sampled[JobId("it")].work_ms == 100 * SECOND
    gone: Snapshot = replace(seen, jobs=(), runs=(), now_ms=Millis(START + 10))
    assert Memory.read(policy.plan(gone, memory)[1]).ratios.scores == {}


# -- several kinds of tasks ------------------------------------------------------------------------

EVEN, ODD, LAST = tuple(range(0, 90, 2)), tuple(range(1, 90, 2)), tuple(range(90, 100))


def test_of_each_kind_some_are_pilots() -> None:
    found = chosen_of(job(100, kinds=(EVEN, ODD, LAST)), 50_000, 1)
    assert [len(set(found).intersection(kind)) for kind in (EVEN, ODD, LAST)] == [2, 2, 1]
    assert len(found) == len(set(found)) == 5
    assert chosen_of(job(100), 50_000, 1) == chosen(JobId("job-1"), 100, 5, 1)


def test_as_many_as_are_stated_go_round_among_the_kinds() -> None:
    def count(pilots: int) -> list[int]:
        found = chosen_of(job(100, pilots, (EVEN, ODD, LAST)), 0, 1)
        assert len(found) == len(set(found)) == pilots
        return [len(set(found).intersection(kind)) for kind in (EVEN, ODD, LAST)]

    assert count(2) == [1, 1, 0]
    assert count(6) == [2, 2, 2]
    assert count(50) == [20, 20, 10]
    assert count(100) == [45, 45, 10]


def test_with_more_kinds_than_pilots_may_be_there_are_a_hundred() -> None:
    assert len(chosen_of(job(300, kinds=[(it,) for it in range(300)]), 10_000, 1)) == 100


def test_a_job_of_several_kinds_is_as_large_as_all_of_them_together() -> None:
    """The estimate of a job is that of the kind that takes longest."""
    known = changed(
        job(10, kinds=((0, 1, 2, 3), (4, 5, 6, 7, 8, 9))),
        estimate=Estimate.stated(100 * SECOND),
        succeeded=1,
        succeeded_ms=90 * SECOND,
        unseen=3,
    )

    def run(index: int, left: RemainingWork | None, since: int | None = None) -> RunView:
        return RunView(
            run_id(known.id, index),
            known.id,
            task("w", any=(0, 1, 1)),
            None if since is None else InstanceId("i1"),
            pinned=False,
            running=since is not None,
            remaining=left,
            running_since_ms=None if since is None else Millis(since),
        )

    def waits(index: int, seconds: int) -> RunView:
        return run(index, RemainingWork(seconds * SECOND))

    since = Millis(970 * SECOND)
    going = run(1, RemainingWork(100 * SECOND, since), since)
    now = Millis(1_000 * SECOND)
    runs = [going, waits(4, 2), waits(5, 2), waits(2, 100), run(6, None)]
    work = work_of(known, runs, now)
    # 70 s of the one that runs, 2, 2 and 100 s, 100 s of one of which nothing is known, and three
    # that are not seen, each like those that wait on average: 51 s.
    assert work.left_ms == (70 + 2 + 2 + 100 + 100 + 3 * 51) * SECOND
    assert work.whole_ms == work.left_ms + (90 + 30) * SECOND
