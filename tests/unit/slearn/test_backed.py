"""Who gets room first on instances that a policy behind the queues buys and packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eva_master.model.catalog import Offering
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, Json, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Leeway, Snapshot
from eva_master.packing.toolkit import PlacementGroup
from eva_master.policies.eva import POLICY as EVA
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_master.ports import Policy
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import START
from eva_policies.slearn import POLICY
from eva_policies.slearn.allocation_order import dealt, index_of
from eva_policies.slearn.config import Config
from eva_policies.slearn.memory import Memory, RequestOutcome
from eva_policies.slearn.queues import Queued
from eva_policies.slearn.sizes import work_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId
from tests.fakes.snapshots import Cluster, offer, task

ONE, TWO = task("w", any=(0, 1, 1)), task("v", any=(0, 2, 2))
MINUTE = 60_000
SURE = Config(sure_ppm=100_000_000)
"""Whatever is known of a job is enough, and none of those has pilots."""


def four(limit: int | None = None) -> Offering:
    return replace(offer("c.4", (0, 4, 4), 0.4), limit=limit)


class Seen(Policy):
    """Eva, and what it was shown."""

    name = "eva"

    def __init__(self) -> None:
        self._inner = EVA.build(EVA.config())
        self.shown: list[Snapshot] = []

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        self.shown.append(snapshot)
        return self._inner.plan(snapshot, memory)


class Jobs:
    """Arrays of tasks that take one of four CPUs, or two."""

    def __init__(self, limit: int | None = None) -> None:
        self.cluster = Cluster(four(limit))
        self._told: dict[JobId, dict[str, object]] = {}
        self.back = Seen()

    def add(
        self,
        name: str,
        tasks: int,
        each_ms: int | None = None,
        *,
        at: int = 0,
        on: tuple[str | None, ...] = (),
        size: object = ONE,
        **told: object,
    ) -> Jobs:
        """Add an array, of which `each_ms` is known; it came so many milliseconds ago."""
        estimate = None if each_ms is None else Estimate.stated(each_ms)
        told = {"size": tasks, "estimate": estimate, "submitted_ms": Millis(START - at), **told}
        places = [*on, *[None] * (tasks - len(on))]
        self.cluster.job(name, *[size] * tasks, on=places, kind=JobKind.ARRAY)  # type: ignore[list-item]
        self._told[JobId(name)] = told
        return self

    def snapshot(self) -> Snapshot:
        """What the policy sees."""
        seen = self.cluster.snapshot()
        jobs = (changed(job, **self._told.get(job.id, {})) for job in seen.jobs)
        return replace(seen, jobs=tuple(jobs))

    def plan(self, config: Config = SURE, leeway: Leeway | None = None) -> Plan:
        """What it decides."""
        seen = self.snapshot()
        if leeway is not None:
            seen = replace(seen, leeway=leeway)
        plan, memory = POLICY.backed(config, self.back).plan(seen, None)
        check(seen, plan)
        assert memory is not None
        assert Memory.read(memory).written() == memory
        return plan


def placed(plan: Plan) -> dict[str, int]:
    """How many tasks of each job are given a place."""
    found: dict[str, int] = {}
    for entry in plan.entries:
        if isinstance(entry, Assign):
            job = entry.run.partition("/")[0]
            found[job] = found.get(job, 0) + 1
    return found


def held(plan: Plan) -> dict[str, str]:
    return {it.run: it.reason for it in plan.entries if isinstance(it, Hold)}


# -- the order -------------------------------------------------------------------------------------


def _in_order(config: Config, *jobs: tuple[str, int, int, int]) -> list[str]:
    """Tasks in the order in which they get room; jobs by name, queue, tasks that wait and that run.

    Those whose names begin with `p` have one pilot.
    """
    cluster = Cluster(four())
    for name, _, waiting, running in jobs:
        for number in range(running):
            cluster.instance(f"{name}{number}", "c.4")
        places = [f"{name}{number}" for number in range(running)] + [None] * waiting
        cluster.job(name, *[ONE] * len(places), on=places, kind=JobKind.ARRAY)
    seen = cluster.snapshot()
    queues = {JobId(name): queue for name, queue, _, _ in jobs}
    queued = [
        Queued(it, work_of(it, (), START), queues[it.id], (1,) if it.id[0] == "p" else ())
        for it in seen.jobs
    ]
    queued.sort(key=lambda it: it.order(config, START))
    groups: dict[JobId, list[PlacementGroup]] = {}
    views = {it.id: it for it in seen.jobs}
    for run in seen.runs:
        if run.instance is None:
            groups.setdefault(run.job, []).append(PlacementGroup(views[run.job], (run,)))
    there = {JobId(name): running for name, _, _, running in jobs}
    return [it.runs[0].id for it in dealt(config, queued, groups, there)]


def test_the_queue_that_holds_least_for_its_weight_is_always_next() -> None:
    config = Config(weight_step=2)
    found = _in_order(config, ("a", 0, 6, 0), ("b", 1, 4, 0))
    # Tasks count one in the first queue, and two in the second.
    assert "".join(it[0] for it in found) == "abaabaabab"


def test_what_runs_counts_for_its_queue() -> None:
    config = Config(weight_step=2)
    found = _in_order(config, ("a", 0, 4, 4), ("b", 1, 3, 0))
    assert "".join(it[0] for it in found) == "bbabaaa"


def test_pilots_come_in_their_queue_and_the_other_tasks_of_their_job_last() -> None:
    found = _in_order(Config(weight_step=1_000), ("p", 1, 3, 0), ("z", 5, 2, 0))
    assert found == ["p/1", "z/0", "z/1", "p/0", "p/2"]
    assert [index_of(RunId(it)) for it in ("j/7", "a/b/12", "j/3+1")] == [7, 12, 3]


# -- where there is room for all, and where there is not -------------------------------------------


def test_with_room_for_all_the_policy_decides_once_and_nobody_is_hidden() -> None:
    jobs = Jobs().add("long", 8, 90 * MINUTE, at=9).add("short", 8, 1_000)
    plan = jobs.plan()
    assert placed(plan) == {"long": 8, "short": 8}
    assert len(jobs.back.shown) == 1
    assert len(jobs.back.shown[0].runs) == 16


@pytest.mark.parametrize("by", ["limit", "instances", "per_hour"])
def test_where_there_is_not_the_small_job_goes_first_and_the_rest_is_told_so(by: str) -> None:
    jobs = Jobs(limit=2 if by == "limit" else None)
    jobs.add("long", 8, 90 * MINUTE, at=9, size=TWO).add("short", 6, 1_000)
    leeway = {"instances": Leeway(instances=2), "per_hour": Leeway(per_hour=900_000)}.get(by)
    plan = jobs.plan(leeway=leeway)
    assert placed(plan) == {"short": 6, "long": 1}
    assert len(plan.launches) == 2
    told = held(plan)
    assert told["long/7"] == (
        "queue 3 of 10, for jobs with 2.8 h to less than 27.8 h of work: others come first"
    )
    assert len(jobs.back.shown) == 2


def test_by_itself_eva_would_give_it_to_those_who_are_worth_most() -> None:
    jobs = Jobs(limit=2).add("long", 8, 90 * MINUTE, at=9, size=TWO).add("short", 6, 1_000)
    plan, _ = jobs.back.plan(jobs.snapshot(), None)
    assert placed(plan) == {"long": 4}


def test_whoever_has_a_place_keeps_it() -> None:
    jobs = Jobs(limit=1)
    jobs.cluster.instance("i1", "c.4")
    jobs.add("long", 8, 90 * MINUTE, at=9, on=("i1",) * 4).add("short", 6, 1_000)
    plan = jobs.plan()
    assert placed(plan) == {}
    assert {type(it) for it in plan.entries} == {Hold}


def test_pilots_go_first_and_are_named() -> None:
    jobs = Jobs(limit=1).add("new", 40, at=9).add("other", 40, at=5)
    plan = jobs.plan(replace(SURE, ratio_ppm=50_000))
    named = dict(plan.pilots)
    assert {job: len(it) for job, it in named.items()} == {"new": 2, "other": 2}
    first = {it.run for it in plan.entries if isinstance(it, Assign)}
    assert first == {f"{job}/{index}" for job, indexes in named.items() for index in indexes}
    assert dict(plan.again.milestones) == {"new": 2, "other": 2}


def test_policies_that_go_by_arrival_take_the_order_of_the_queues_for_it() -> None:
    jobs = Jobs(limit=3).add("long", 4, 90 * MINUTE, at=9).add("short", 2, 1_000)
    back = NO_PACKING.build(NO_PACKING.config())
    plan, _ = POLICY.backed(SURE, back).plan(jobs.snapshot(), None)
    assert placed(plan) == {"short": 2, "long": 1}


class Picky(Seen):
    """It has no use for one job, wherever there is room."""

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        jobs = tuple(it for it in snapshot.jobs if it.id != "shunned")
        runs = tuple(it for it in snapshot.runs if it.job != "shunned")
        plan, memory = super().plan(replace(snapshot, jobs=jobs, runs=runs), memory)
        shunned = (Hold(it.id, "not here") for it in snapshot.runs if it.job == "shunned")
        return replace(plan, entries=(*plan.entries, *shunned)), memory


def test_room_for_which_those_who_come_first_have_no_use_is_for_others() -> None:
    jobs = Jobs(limit=1).add("shunned", 4, 1_000, at=9).add("other", 6, 90 * MINUTE)
    jobs.back = Picky()
    plan = jobs.plan()
    assert placed(plan) == {"other": 4}
    assert {run.partition("/")[0] for run in held(plan)} == {"shunned", "other"}
    assert len(jobs.back.shown) == 3


def test_a_gang_that_the_budget_never_allows_holds_up_nobody_however_late_it_is() -> None:
    jobs = Jobs()
    jobs.cluster = Cluster(four())
    member = task("g", any=(0, 4, 4))
    jobs.cluster.job("gang", member, member)
    known = {"size": 2, "estimate": Estimate.stated(MINUTE)}
    jobs._told[JobId("gang")] = known | {"submitted_ms": Millis(START - 100 * MINUTE)}
    jobs.add("small", 4, 60 * MINUTE)
    price = four().price
    assert placed(jobs.plan(leeway=Leeway(per_hour=price * 3 // 2))) == {"small": 4}
    assert placed(jobs.plan(leeway=Leeway(per_hour=price * 2)))["gang"] == 2


def test_what_is_launched_for_those_who_come_first_is_stated_first() -> None:
    """So limits that the policy is not told of, such as those of a user, cut the others."""
    jobs = Jobs().add("long", 8, 90 * MINUTE, at=9).add("short", 4, 1_000)
    order = [it.run.partition("/")[0] for it in jobs.plan().entries if isinstance(it, Assign)]
    assert order == ["short", "long", *["short"] * 3, *["long"] * 7], "each queue by its weight"


# -- who is refused --------------------------------------------------------------------------------


def _after(
    change: Callable[[JobView], JobView] = lambda it: it,
    later_ms: int = 1_000,
    *,
    held: bool = True,
) -> dict[str, int]:
    """Who gets the only room in the round after one in which `first` was given it, in vain."""
    jobs = Jobs(limit=1).add("first", 4, 1_000, at=9).add("second", 4, 2_000)
    seen = jobs.snapshot()
    policy = POLICY.backed(SURE, EVA.build(EVA.config()))
    plan, memory = policy.plan(seen, None)
    assert placed(plan) == {"first": 4}
    seen = replace(
        seen,
        now_ms=Millis(START + 1_000),
        runs=tuple(replace(it, held=held) for it in seen.runs),
        jobs=tuple(map(change, seen.jobs)),
    )
    plan, memory = policy.plan(seen, memory)
    if later_ms > 1_000:
        unasked = replace(seen, runs=tuple(replace(it, held=False) for it in seen.runs))
        plan, _ = policy.plan(replace(unasked, now_ms=Millis(START + later_ms)), memory)
    return placed(plan)


def test_a_job_that_was_not_let_to_where_a_plan_put_it_comes_last_for_a_minute() -> None:
    assert _after() == {"second": 4}
    assert _after(held=False) == {"first": 4}, "the plan was overtaken, and nobody refused it"
    assert _after(later_ms=60_999) == {"second": 4}
    assert _after(later_ms=61_000) == {"first": 4}
    more = _after(lambda it: changed(it, succeeded=1) if it.id == "first" else it)
    assert more == {"first": 4}, "some of it was let there"


# -- the memory ------------------------------------------------------------------------------------


def test_the_memory_of_the_policy_behind_is_kept_with_that_of_the_queues() -> None:
    memory = Memory(
        back=PolicyMemory("eva", 3, {"rounds": [1, 2]}),
        asked=RequestOutcome({JobId("a-1"): 3}, {JobId("b-2"): Millis(77)}),
    )
    written = memory.written()
    assert Memory.read(written) == memory
    assert "back" not in Memory().written().data, "without one nothing changes"
    assert "asked" not in Memory().written().data


@pytest.mark.parametrize(
    "data",
    [
        {"back": {"policy": "eva", "version": "x", "data": {}}},
        {"back": {"policy": "eva", "version": 1}},
        {"back": {}},
        {"back": 7},
        {"asked": {"a-1": "x"}},
        {"refused": {"a-1": None}},
    ],
)
def test_a_memory_behind_that_cannot_be_read_is_none(data: dict[str, Json]) -> None:
    assert Memory.read(PolicyMemory("slearn", 1, data)) == Memory()
