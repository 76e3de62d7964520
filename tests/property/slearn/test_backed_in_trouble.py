"""Whatever fails, dies or is cancelled, with a policy behind the queues every job ends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits
from eva_master.model.planning.estimate import Estimates
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_wire.values.bounds import JobKind
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property import test_control_loop as loop
from tests.property.slearn.test_pilots_in_trouble import _check_pilots, configs, stories
from tests.property.test_control_loop import CHAOS_MS, LIMITED, QUICK, Story

backs = st.sampled_from(["eva", "stratus", "no_packing"])
limits = st.sampled_from([Limits(), Limits(instances=3), Limits(instances_per_user=3)])
_MEMBERS = 3
"""So many the limits let a gang have instances for."""


def _possible(story: Story) -> Story:
    arrivals = [
        replace(it, tasks=min(it.tasks, _MEMBERS)) if it.kind is JobKind.GANG else it
        for it in story.arrivals
    ]
    return replace(story, arrivals=arrivals)


def _world(story: Story, config: Config, back: str, most: Limits) -> ChaoticWorld:
    kind = policies()[back]
    mode = POLICY.estimates(config)
    settings = replace(
        QUICK,
        limits=most,
        estimates=mode if mode is not Estimates.OFF else Estimates.POSTERIOR,
    )
    policy = POLICY.backed(config, kind.build(kind.config()))
    return loop._world(story, settings, policy=policy, catalog=LIMITED)


@drawn(12)
@given(stories.map(_possible), configs, backs, limits)
def test_every_job_ends_and_leaves_sampling(
    story: Story, config: Config, back: str, most: Limits
) -> None:
    world = _world(story, config, back, most)
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.arrivals) and world.quiet():
                break
        assert world.timeline.now() < 20 * CHAOS_MS, loop._stuck(world)
        world.step()
        loop._check_now(world)
        _check_pilots(world)
    loop._check_end(world, story)
