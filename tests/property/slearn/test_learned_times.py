"""What is learned of run times: bounds whatever clocks say, restarts, and tasks that agree."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.learning.run_times.posterior import NONE_FINISHED, Finished, Prior
from eva_master.learning.runtimes import RunTimes, Traits
from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.events import Phase
from eva_master.model.planning.estimate import LONGEST_MS, Estimate, Estimates, Source
from eva_master.model.planning.job_view import JobView
from eva_master.model.resources import Resources
from eva_wire.values.ids import MILLION, JobId, Millis, RunId, run_id
from tests.drawing import drawn
from tests.fakes.hand_driven import JOB, SETTINGS, Cluster
from tests.unit.learning.test_run_time_estimates import restarted

MONTH = 31 * 86_400_000
TASKS = 5
ARRAY = JOB + f"workload: w\nkind: array\ntasks: {TASKS}\n"
LEARNING = [it for it in Estimates if it is not Estimates.OFF]
TRAITS = Traits("w", "job", Millis(0), Resources(0, 1_000, 1_024))
odd = st.one_of(
    st.sampled_from([0, 1, -1, MONTH, -MONTH, LONGEST_MS, 10**30]), st.integers(-MONTH, 50 * MONTH)
)
clocks = st.one_of(st.sampled_from([0, 1, MONTH, LONGEST_MS]), st.integers(0, 500 * MONTH))
"""In whatever order: a clock may be put back."""


def _finished(*took_ms: int) -> Finished:
    found = NONE_FINISHED
    for took in took_ms:
        found = found.plus(took)
    return found


def _check(estimate: Estimate | None) -> None:
    if estimate is not None:
        assert 1 <= estimate.least_ms <= estimate.most_ms <= LONGEST_MS
        assert 1 <= estimate.mean_ms <= LONGEST_MS
        told = [estimate.exceeds_ppm(at) for at in (0, 1, MONTH, LONGEST_MS)]
        assert MILLION >= told[0] >= told[1] >= told[2] >= told[3] >= 0


# -- numbers and clocks ----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.lists(odd, min_size=1, max_size=4), clocks), max_size=6))
def test_whatever_jobs_are_said_to_have_taken_and_whenever_what_is_learned_is_in_bounds(
    jobs: list[tuple[list[int], int]],
) -> None:
    times = RunTimes()
    for took, at in jobs:
        times = times.observe("me", TRAITS, _finished(*took), Millis(at))
    known = times.of("me")
    assert RunTimes.from_json(times.to_json()) == times
    if (prior := known.prior(TRAITS)) is not None:
        for own in (NONE_FINISHED, _finished(0), _finished(10**30, -5)):
            _check(prior.after(own).estimate(Source.POSTERIOR, own))


@drawn(25)
@given(
    st.sampled_from(LEARNING),
    st.lists(st.tuples(st.integers(0, TASKS - 1), odd), max_size=6),
    odd,
)
def test_a_clock_that_goes_back_or_leaps_breaks_no_estimate(
    mode: Estimates, ends: list[tuple[int, int]], submitted: int
) -> None:
    cluster = Cluster(settings=replace(SETTINGS, estimates=mode))
    start = max(0, min(submitted, 10 * MONTH))
    cluster.start(ARRAY, at=start)
    done: set[int] = set()
    for index, offset in ends:
        if index not in done:
            done.add(index)
            at = max(0, min(start + offset, LONGEST_MS))
            cluster.say(run_id(JobId("job-1"), index), Phase.EXITED, at=at, exit_code=0)
    if len(done) < TASKS:
        view = cluster.job_view("job-1")
        _check(view.progress.estimate)
        assert view.progress.succeeded_ms >= len(done), "each took a millisecond at least"
    took = [it.took_ms for it in cluster.state.runs.values() if it.took_ms]
    assert len(took) == len(done)
    assert all(1 <= it <= LONGEST_MS for it in took)
    cluster.start(ARRAY, name="next", at=max(0, cluster.now))
    _check(cluster.job_view("next-2").progress.estimate)


# -- restarts --------------------------------------------------------------------------------------


def _views(cluster: Cluster, names: list[str], pilots: set[int]) -> list[JobView]:
    """What policies are told of jobs, once the pilots of the last one are named."""
    last = JobId(names[-1])
    runs = [it for it in cluster.state.runs.values() if it.job == last]
    if pilots:
        cluster.state.finished_tasks.choose(cluster.state.jobs[last], pilots, runs)
        cluster.state.view_cache.job_changed(last)
    return [cluster.job_view(name) for name in names]


@drawn(10)
@given(
    st.sampled_from(LEARNING),
    st.lists(st.lists(st.integers(1, 10**7), min_size=TASKS, max_size=TASKS), max_size=2),
    st.lists(st.integers(1, 10**7), max_size=TASKS - 1),
    st.sets(st.integers(0, TASKS - 1), max_size=3),
)
def test_a_restart_changes_no_estimate(
    mode: Estimates, earlier: list[list[int]], ended: list[int], pilots: set[int]
) -> None:
    cluster = Cluster(settings=replace(SETTINGS, estimates=mode))
    for took in [*earlier, ended]:
        name = f"j{len(cluster.state.jobs)}"
        at = cluster.now + 10_000
        cluster.start(ARRAY, name=name, at=at)
        job = f"{name}-{len(cluster.state.jobs)}"
        for index, each in sorted(enumerate(took), key=lambda it: it[1]):
            cluster.say(RunId(f"{job}/{index}"), Phase.EXITED, at=at + each, exit_code=0)
    names = [job]
    after = restarted(cluster)
    before = _views(cluster, names, pilots)
    again = _views(after, names, pilots)

    def told(views: list[JobView]) -> list[object]:
        return [
            (
                it.progress.estimate,
                it.progress.succeeded,
                it.progress.succeeded_ms,
                it.progress.pilots_left,
            )
            for it in views
        ]

    assert told(again) == told(before)


# -- tasks that agree ------------------------------------------------------------------------------

priors = st.builds(
    Prior,
    st.integers(7 * MILLION, 18 * MILLION),
    st.integers(100, 4 * MILLION),
    st.integers(100, 4 * MILLION),
    st.integers(4, 64),
)


@given(priors, st.lists(st.integers(-900_000, 900_000), max_size=6), st.integers(-900_000, 900_000))
def test_the_spread_never_grows_when_a_task_ends_that_agrees(
    prior: Prior, off: list[int], last: int
) -> None:
    """It agrees with what was believed, which earlier tasks of the job did not contradict."""

    def near(centre: int, spread: int, part_ppm: int) -> int:
        return exp_of_ppm(centre + spread * part_ppm // MILLION)

    own = NONE_FINISHED
    estimate = prior.after(own).estimate(Source.POSTERIOR, own)
    for part in (*off, last):
        spread = min(estimate.spread_ppm, 600_000, _allowed(prior))
        own = own.plus(near(estimate.log, spread, part))
        before, estimate = estimate, prior.after(own).estimate(Source.POSTERIOR, own)
        assert estimate.spread_ppm <= before.spread_ppm + 2, "but for rounding"
    assert log_ppm(own.total_ms // own.tasks) > 0


def _allowed(prior: Prior) -> int:
    """By how much a task may differ from what is expected of its job by its variance over jobs."""
    return int(prior.between**0.5 * 1_000)
