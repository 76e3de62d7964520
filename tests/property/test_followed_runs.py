"""Values that follow task runs from snapshot to snapshot are those of the last one alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import configure, present_sums, sums, waiting
from eva_master.packing.incremental.view import replaced
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.options import plan_of, settled
from eva_master.packing.reconfiguration.reasons import hostings
from eva_master.packing.reconfiguration.state_digest import StateDigest
from eva_wire.values.ids import InstanceId, RunId
from tests.fakes.snapshots import Cluster, carried_out, offer, table, task

HOSTS = ("i0", "i1", "i2")
TASKS = (task("a", any=(0, 1, 2)), task("b", any=(0, 1, 2)), task("c", any=(0, 2, 2)))


@st.composite
def versions(draw: st.DrawFn) -> Snapshot:
    """A version of one cluster: of the same few jobs and instances some are there."""
    cluster = Cluster(offer("box", (0, 8, 16), 1.0), offer("half", (0, 4, 8), 0.55))
    hosts = draw(st.lists(st.sampled_from(HOSTS), unique=True))
    for host in hosts:
        cluster.instance(host, "box")
    for number, waiting_task in enumerate(TASKS):  # so that most versions have equal classes
        cluster.job(f"w{number}", waiting_task)
    for number in draw(st.lists(st.integers(0, 6), unique=True)):
        members = [draw(st.sampled_from(TASKS)) for _ in range(1 + number // 5)]
        # An instance that is not there may be one that drains.
        on = [draw(st.sampled_from(HOSTS)) for _ in members]
        waits = draw(st.booleans())
        cluster.job(
            f"j{number}",
            *members,
            on=() if waits else on,
            pinned=draw(st.booleans()),
            checkpoint_s=draw(st.sampled_from([5, 10])),
            left_s=draw(st.sampled_from([None, 60])),
        )
    cluster.throughput = table({("a", ("b",)): draw(st.sampled_from([0.5, 0.9]))})
    return cluster.snapshot()


stories = st.lists(versions(), min_size=2, max_size=5)


def shared(before: Snapshot, after: Snapshot) -> Snapshot:
    """The later snapshot, with the objects of the earlier one for views that are equal."""
    views: tuple[Any, ...] = (*before.jobs, *before.runs, *before.instances)
    earlier = {view.id: view for view in views}

    def kept(views: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(earlier[v.id] if earlier.get(v.id) == v else v for v in views)

    return replace(
        after,
        jobs=kept(after.jobs),
        runs=kept(after.runs),
        instances=kept(after.instances),
    )


def told(story: Sequence[Snapshot]) -> list[Snapshot]:
    """The versions, each of which shares the views that are as they were before."""
    shown = [story[0]]
    for after in story[1:]:
        shown.append(shared(shown[-1], after))
    return shown


@given(stories)
def test_views_that_were_replaced_are_found_by_identity(story: list[Snapshot]) -> None:
    for before, after in pairwise(told(story)):
        gone, fresh = replaced(before.runs, after.runs)
        old, new = set(map(id, before.runs)), set(map(id, after.runs))
        assert gone == [run for run in before.runs if id(run) not in new]
        assert fresh == [run for run in after.runs if id(run) not in old]
        # Of views in no order some may be told twice, and none is missed.
        gone, fresh = replaced(before.runs, after.runs[::-1])
        assert {id(run) for run in gone} >= old - new
        assert {id(run) for run in fresh} >= new - old
        assert {id(run) for run in gone} - {id(run) for run in fresh} == old - new


@given(stories, st.booleans())
def test_a_problem_that_follows_is_the_problem_of_its_snapshot(
    story: list[Snapshot], profile: bool
) -> None:
    cache = PlannerCache()
    residents: dict[int, tuple[InstanceId, frozenset[tuple[RunId, int]]]] = {}
    kept = []
    for now in told(story):
        snapshot = replace(now, profile=profile)
        problem = Problem(snapshot, Valuation(), cache)
        scratch = Problem(snapshot, Valuation())
        assert (problem.classes, problem.class_of) == (scratch.classes, scratch.class_of)
        assert (problem.gangs, problem.placed) == (scratch.gangs, scratch.placed)
        assert cache.jobs(now).change_ms == {job.id: job.delays.change_ms for job in now.jobs}
        present, anew = problem.standing, scratch.standing
        assert [*present.places.items()] == [*anew.places.items()]
        assert [*present.task_sets.items()] == [*anew.task_sets.items()]
        whole = present_sums(problem, configure(problem, ()))
        assert whole == sums(scratch, configure(scratch, ()))
        for movable in ((), waiting(problem), settled(problem)):
            configuration = configure(problem, movable)
            assert hostings(problem, configuration) == hostings(scratch, configuration)
        for host, task_set in present.task_sets.items():
            numbers = frozenset(
                (run, problem.class_of[run]) for run, at in present.places.items() if at == host
            )
            # One object for one set of task runs, which is all that reasons compare.
            assert residents.setdefault(id(task_set), (host, numbers)) == (host, numbers)
            kept.append(task_set)


@given(stories)
def test_a_digest_that_follows_is_that_of_the_state_alone(story: list[Snapshot]) -> None:
    cache = PlannerCache()
    for now in told(story):
        followed, scratch = StateDigest(now, "", cache), StateDigest(now, "")
        assert followed.of() == scratch.of()
        problem = Problem(now, Valuation(), cache)
        for movable in ((), waiting(problem), settled(problem)):
            configuration = configure(problem, movable)
            aim = followed.of(configuration)
            assert aim == scratch.of(configuration)
            plan = plan_of(problem, configuration, {}, Reasons())
            assert aim == StateDigest(carried_out(now, plan), "", cache).of()
