"""Whatever fails, dies or is cancelled, every job leaves sampling and no slot is idle."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.suspension import Preemption
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_wire.values.bounds import JobKind
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property import test_control_loop as loop
from tests.property.fleet.test_owned_nodes import NODES, spans, which
from tests.property.standing.test_lines import _check_bound, _check_lines
from tests.property.test_control_loop import CHAOS_MS, QUICK, Arrival, Story

ESTIMATORS = ("posterior", "pilots", "3sigma", "las", "fifo")
configs = st.builds(
    Config,
    estimator=st.sampled_from(ESTIMATORS),
    queues=st.sampled_from([2, 10]),
    first_queue_s=st.sampled_from([60, 1_000]),
    thin=st.sampled_from([0, 3]),
    ratio_ppm=st.sampled_from([0, 400_000]),
    order=st.sampled_from(["remaining", "arrival"]),
    requeue=st.booleans(),
    sure_ppm=st.just(0),
    age_cap=st.sampled_from([0, 5]),
)
arrivals = st.builds(
    Arrival,
    at_ms=st.integers(0, 600_000),
    kind=st.sampled_from([JobKind.ARRAY, JobKind.ARRAY, JobKind.GANG]),
    tasks=st.integers(1, 9),
    cpus=st.sampled_from([1, 2, 3, 8]),
    duration_s=st.integers(1, 300),
    failures=st.integers(0, 2),
    all_publish=st.booleans(),
    cancel_after_ms=st.none() | st.integers(0, 600_000),
    after=st.just(()),
    priority=st.integers(0, 1),
    rests=st.just(())
    | st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 200_000)), max_size=1).map(tuple),
    slow=st.sampled_from([1, 3]),
)
stories = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    arrivals=st.lists(arrivals, min_size=2, max_size=5),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(0, 60), max_size=3),
    cuts=st.just([]),
    deaths=st.lists(st.tuples(loop.times, st.integers(0, 9)), max_size=2),
    wipes=st.just([]),
    risks=st.just([]),
    terminate_ms=st.just(1_000),
    sold_out=st.sampled_from([0.0, 0.3]),
    preemption=st.just(Preemption.NEVER),
)
outages = st.lists(st.tuples(loop.times, which, spans), max_size=3)


def _world(story: Story, config: Config, cut: list[tuple[int, int, int]]) -> ChaoticWorld:
    nodes = {node.name: node for node in NODES[:2]}
    mode = POLICY.estimates(config)
    settings = replace(
        QUICK, nodes=nodes, estimates=mode if mode is not Estimates.OFF else Estimates.POSTERIOR
    )
    world = loop._world(story, settings, policy=POLICY.build(config))
    for at, number, span in cut:
        victim = list(nodes)[number % len(nodes)]
        world.timeline.after(at, lambda v=victim, s=span: world.workers.outage(v, s))
    return world


def _check_pilots(world: ChaoticWorld) -> None:
    """Who has ended has no pilots any more, and of who has some no more are left than waits."""
    state = world.state
    for job in state.jobs.values():
        left = state.finished_tasks.pilots_left(job.id)
        if left is not None:
            assert job.id in state.active, job
            assert left <= len(job.spec.tasks) - state.tasks.succeeded(job.id), job


@drawn(10)
@given(stories, configs, outages)
def test_every_job_leaves_sampling_and_no_slot_is_idle_for_it(
    story: Story, config: Config, cut: list[tuple[int, int, int]]
) -> None:
    world = _world(story, config, cut)
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.arrivals) and world.quiet():
                break
        assert world.timeline.now() < 20 * CHAOS_MS, loop._stuck(world)
        world.step()
        loop._check_now(world)
        _check_bound(world)
        _check_lines(world)
        _check_pilots(world)
    loop._check_end(world, story)


@drawn(3)
@given(stories, configs)
def test_the_same_seed_has_the_same_history(story: Story, config: Config) -> None:
    def history() -> list[object]:
        world = _world(story, config, [])
        while not (world.timeline.now() >= CHAOS_MS and world.quiet()):
            if world.timeline.now() >= CHAOS_MS:
                world.calm_down()
            world.step()
        return [world.history.starts, world.state.memories.get("")]

    assert history() == history()
