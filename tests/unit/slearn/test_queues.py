"""Who stands in which queue of SLearn, in which order, and what that is as lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import START
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_policies.slearn.sizes import outgrows_ms, queue_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis
from tests.fakes.snapshots import Cluster, offer, task

ONE, HALF = task("w", any=(0, 1, 1)), task("w", any=(0, 2, 2))
NODE: Offering = replace(offer("n.4", (0, 4, 4), 0.1), purchase=Purchase.OWNED, limit=2)
CLOUD = offer("c.16", (0, 16, 16), 2.0)
MINUTE = 60_000
SURE = Config(sure_ppm=100_000_000)
"""Whatever is known of a job is enough, and none of those has pilots."""


class Jobs:
    """Arrays of tasks that each take a slot, on two nodes of four slots."""

    def __init__(self) -> None:
        self.cluster = Cluster(NODE, CLOUD).instance("n1", "n.4").instance("n2", "n.4")
        self._told: dict[JobId, dict[str, object]] = {}

    def add(
        self,
        name: str,
        *,
        tasks: int = 10,
        each_ms: int | None = None,
        at: int = 0,
        priority: int = 0,
        **told: object,
    ) -> Jobs:
        """Add a job.

        Args:
            name: Of the job.
            tasks: How many it has.
            each_ms: What one of them is known to take; `None` for unknown.
            at: When it came, in milliseconds before now.
            priority: The more urgent go first.
            told: What else policies are told of it.
        """
        estimate = None if each_ms is None else Estimate.stated(each_ms)
        told |= {"size": tasks, "estimate": estimate, "submitted_ms": Millis(START - at)}
        self.cluster.job(name, *[ONE] * tasks, kind=JobKind.ARRAY, priority=priority)
        self._told[JobId(name)] = told
        return self

    def gang(self, name: str, members: int) -> None:
        """Add a gang each of whose members takes half a node, and of which nothing is known."""
        self.cluster.job(name, *[HALF] * members)
        self._told[JobId(name)] = {"size": members}

    def snapshot(self) -> Snapshot:
        """What the policy sees."""
        seen = self.cluster.snapshot()
        jobs = (changed(job, **self._told.get(job.id, {})) for job in seen.jobs)
        return replace(seen, jobs=tuple(jobs))

    def plan(self, config: Config = SURE) -> Plan:
        """What it decides."""
        seen = self.snapshot()
        plan, _ = POLICY.build(config).plan(seen, None)
        check(seen, plan)
        return plan

    def lines(self, config: Config = SURE) -> list[tuple[int, int, tuple[str, ...]]]:
        """Rank, weight and jobs of each line."""
        return [(it.rank, it.weight_ppm, it.jobs) for it in self.plan(config).lines]


# -- the edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work_s", "queue"),
    [
        (0, 0),
        (999.999, 0),
        (1_000, 1),
        (9_999.999, 1),
        (10_000, 2),
        (100_000, 3),
        (10**10 - 0.001, 7),
        (10**11 - 0.001, 8),
        (10**11, 9),
        (10**15, 9),
    ],
)
def test_each_queue_has_ten_times_the_work_of_the_one_before(work_s: float, queue: int) -> None:
    assert queue_of(Config(), round(work_s * 1_000)) == queue


def test_the_edges_are_the_operator_s() -> None:
    config = Config(first_queue_s=60, growth=2, queues=4)
    edges = [59_999, 60_000, 119_999, 120_000, 239_999, 240_000, 10**12]
    assert [queue_of(config, it) for it in edges] == [0, 1, 1, 2, 2, 3, 3]
    assert [outgrows_ms(config, it) for it in edges[::2]] == [60_000, 120_000, 240_000, None]
    assert queue_of(Config(estimator="fifo", queues=1), 10**15) == 0


def test_jobs_stand_by_size_and_a_queue_weighs_a_tenth_of_the_one_before() -> None:
    jobs = Jobs().add("hours", each_ms=60 * MINUTE).add("minute", each_ms=MINUTE)
    jobs.add("days", each_ms=3_000 * MINUTE).add("moment", each_ms=99_999)
    assert jobs.lines() == [
        (0, 10**9, ("minute", "moment")),
        (0, 10**7, ("hours",)),
        (0, 10**5, ("days",)),
    ]
    assert [it[1] for it in jobs.lines(replace(SURE, weight_step=3, queues=6))] == [3**5, 3**3, 3]


def test_those_who_are_more_urgent_have_queues_of_their_own_before_all_others() -> None:
    jobs = Jobs().add("large", each_ms=60 * MINUTE, priority=2).add("small", each_ms=MINUTE)
    jobs.add("new", priority=1)
    assert [(rank, names) for rank, _, names in jobs.lines(Config(sure_ppm=10**8))] == [
        (0, ("large",)),
        (2, ("new",)),
        (3, ("new",)),
        (4, ("small",)),
    ]


# -- inside a queue --------------------------------------------------------------------------------


def test_who_has_least_left_goes_first_or_who_came_first() -> None:
    jobs = Jobs().add("more", each_ms=9_000, at=50).add("less", each_ms=8_000, at=10)
    jobs.add("as-much", each_ms=8_000, at=20)
    assert jobs.lines() == [(0, 10**9, ("as-much", "less", "more"))]
    by_arrival = replace(SURE, order="arrival")
    assert jobs.lines(by_arrival) == [(0, 10**9, ("more", "as-much", "less"))]


def test_who_was_passed_over_for_five_times_its_own_work_goes_first() -> None:
    jobs = Jobs().add("less", each_ms=1_000, at=49_999).add("more", each_ms=2_000, at=100_001)
    assert jobs.lines() == [(0, 10**9, ("more", "less"))]
    assert jobs.lines(replace(SURE, age_cap=0)) == [(0, 10**9, ("less", "more"))]
    assert jobs.lines(replace(SURE, age_cap=6)) == [(0, 10**9, ("less", "more"))]
    # A round is due at the moment in which the next one has been.
    assert jobs.plan().again.at_ms == START + 1_000, "not sooner than a second"
    soon = Jobs().add("less", each_ms=1_000, at=40_000)
    assert soon.plan().again.at_ms == START + 10_000
    assert soon.plan(replace(SURE, age_cap=0)).again.at_ms is None


def test_a_job_moves_on_with_the_work_that_it_has_left_unless_it_is_to_stay() -> None:
    jobs = Jobs().add("job", tasks=10, each_ms=200_000)
    seen = jobs.snapshot()
    stays = POLICY.build(replace(SURE, requeue=False))
    plan, memory = stays.plan(seen, None)
    assert plan.lines[0].weight_ppm == 10**8
    # Six of its tasks are done.
    runs = tuple(it for it in seen.runs if it.id in {f"job/{number}" for number in range(4)})
    (job,) = seen.jobs
    later = replace(
        seen,
        runs=runs,
        jobs=(changed(job, runs=tuple(it.id for it in runs), succeeded=6),),
    )
    assert stays.plan(later, memory)[0].lines[0].weight_ppm == 10**8
    assert POLICY.build(SURE).plan(later, memory)[0].lines[0].weight_ppm == 10**9


# -- pilots ----------------------------------------------------------------------------------------


def test_pilots_stand_in_the_second_queue_and_the_others_take_what_nobody_wants() -> None:
    jobs = Jobs().add("late", tasks=100, at=10).add("early", tasks=300, at=20)
    jobs.add("large", each_ms=60 * MINUTE)
    plan = jobs.plan(replace(SURE, ratio_ppm=20_000))
    sampling, large, rest = plan.lines
    assert (sampling.rank, sampling.weight_ppm, sampling.jobs) == (0, 10**8, ("early", "late"))
    chosen = dict(sampling.chosen)
    assert {job: len(set(it)) for job, it in chosen.items()} == {"early": 6, "late": 2}
    assert all(0 <= index < 300 for index in chosen[JobId("early")])
    assert large.chosen == ()
    assert rest == Line(("nodes",), (JobId("early"), JobId("late")), rank=1)
    assert dict(plan.again.milestones) == {"early": 6, "late": 2, "large": 1}


def test_thin_jobs_have_no_pilots_and_are_in_the_first_queue() -> None:
    jobs = Jobs().add("pair", tasks=2, each_ms=900 * MINUTE).add("three", tasks=3)
    plan = jobs.plan()
    assert [(it.weight_ppm, it.jobs) for it in plan.lines[:2]] == [
        (10**9, ("pair",)),
        (10**8, ("three",)),
    ]
    assert [len(it) for _, it in plan.lines[1].chosen] == [1]
    # As the paper's rival has it, who knows only the past of a job.
    assert jobs.lines(Config(estimator="3sigma"))[0][2] == ("three",)
    assert jobs.lines(Config(estimator="3sigma-tl"))[0][2] == ("pair",)


def test_a_job_leaves_sampling_with_the_last_of_its_pilots() -> None:
    config = replace(SURE, ratio_ppm=20_000)
    jobs = Jobs().add("job", tasks=100)
    seen = jobs.snapshot()
    policy = POLICY.build(config)
    _, memory = policy.plan(seen, None)
    (job,) = seen.jobs
    known = {"estimate": Estimate.stated(20_000)}
    half = replace(seen, jobs=(changed(job, succeeded=1, pilots_left=1, **known),))
    plan, memory = policy.plan(half, memory)
    assert len(dict(plan.lines[0].chosen)[JobId("job")]) == 2
    assert dict(plan.again.milestones) == {"job": 2}
    done = replace(seen, jobs=(changed(job, succeeded=2, pilots_left=0, **known),))
    (line,) = policy.plan(done, memory)[0].lines
    assert (line.rank, line.weight_ppm, line.chosen) == (0, 10**8, ())


def test_who_is_known_well_enough_or_has_finished_tasks_has_no_pilots() -> None:
    sure = Estimate(60_000, 11_002_100, 10_000, 30, Estimate.stated(1).source)
    unsure = replace(sure, scale=4_000_000)
    jobs = Jobs().add("sure").add("unsure").add("begun", succeeded=3)
    seen = jobs.snapshot()
    told = {"sure": sure, "unsure": unsure, "begun": None}
    seen = replace(seen, jobs=tuple(changed(it, estimate=told[it.id]) for it in seen.jobs))
    plan, _ = POLICY.build(Config()).plan(seen, None)
    assert {job for line in plan.lines for job, _ in line.chosen} == {"unsure"}
    plan, _ = POLICY.build(Config(estimator="pilots")).plan(seen, None)
    assert {job for line in plan.lines for job, _ in line.chosen} == {"sure", "unsure"}


# -- other estimators ------------------------------------------------------------------------------


def test_las_goes_by_what_a_job_has_had_and_asks_again_when_that_is_too_much() -> None:
    config = Config(estimator="las", order="arrival", age_cap=0)
    jobs = Jobs().add("much", succeeded_ms=2_000_000).add("little", succeeded_ms=999_000)
    assert jobs.lines(config) == [(0, 10**9, ("little",)), (0, 10**8, ("much",))]
    seen = jobs.snapshot()
    # Two tasks of it have run for 0.2 s each: 0.6 s are left of its time in the first queue.
    since = Millis(START - 200)
    running = {"little/0": "n1", "little/1": "n1"}
    runs = tuple(
        replace(it, instance=running[it.id], running=True, running_since_ms=since)
        if it.id in running
        else it
        for it in seen.runs
    )
    hosts = tuple(
        replace(it, residents=tuple(running)) if it.id == "n1" else it for it in seen.instances
    )
    plan, _ = POLICY.build(config).plan(replace(seen, runs=runs, instances=hosts), None)
    assert plan.again.at_ms == START + 1_000
    assert plan.lines[0].jobs == ("little",)


def test_fifo_has_one_queue_by_arrival() -> None:
    jobs = Jobs().add("small", each_ms=1, at=1).add("large", each_ms=60 * MINUTE, at=2)
    jobs.add("new", at=3)
    config = POLICY.config(**POLICY.presets["fifo"])
    assert jobs.lines(config) == [(0, 1, ("new", "large", "small"))]


# -- gangs and what fits no node -------------------------------------------------------------------


def test_a_gang_that_waits_holds_up_who_comes_after_it_and_nobody_else() -> None:
    jobs = Jobs().add("small", each_ms=1_000).add("large", each_ms=60 * MINUTE)
    jobs.cluster.job("there", ONE, on=["n1"])
    jobs.gang("gang", 4)
    plan = jobs.plan()
    assert [it.jobs for it in plan.lines] == [("there", "small")]
    held = {entry.run.partition("/")[0] for entry in plan.entries if isinstance(entry, Hold)}
    assert held == {"gang", "large"}
    assert plan.launches == (), "the gang fits the nodes"


def test_the_cheapest_instance_is_bought_for_who_fits_no_node() -> None:
    jobs = Jobs().add("small", each_ms=1_000)
    jobs.cluster.job("huge", task("w", any=(0, 16, 16)))
    plan = jobs.plan()
    assert [it.offering.type.name for it in plan.launches] == ["c.16"]
    assert [it.jobs for it in plan.lines] == [("small",)]
    nobody = Cluster(CLOUD).job("a", ONE, ONE, kind=JobKind.ARRAY).snapshot()
    plan, _ = POLICY.build(Config()).plan(nobody, None)
    check(nobody, plan)
    assert (plan.pools, plan.lines) == ((), ())
    assert len(plan.launches) == 1
