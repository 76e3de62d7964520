"""Room for short jobs, whatever goes wrong: nothing is lost, nothing idle, and the budget holds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.events import ClosingDown
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.suspension import Preemption
from eva_master.packing.parts.splitter import Splitter
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_policies.cloudcoaster import POLICY as CLOUDCOASTER
from eva_policies.cloudcoaster.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Price
from eva_wire.values.states import InstanceState
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property.standing.test_lines import _check_bound, _check_lines
from tests.property.test_control_loop import (
    CATALOG,
    CHAOS_MS,
    Arrival,
    Story,
    _check_end,
    _check_now,
    _stuck,
    _world,
    stories,
)


def _arrival(at_ms: int, kind: JobKind, *, tasks: int, duration_s: int) -> Arrival:
    return Arrival(
        at_ms=at_ms,
        kind=kind,
        tasks=tasks,
        cpus=1,
        duration_s=duration_s,
        failures=0,
        all_publish=False,
        cancel_after_ms=None,
        after=(),
        priority=0,
        rests=(),
    )


SPOT = tuple(
    replace(it, purchase=Purchase.SPOT, price=Price(max(1, it.price // 3))) for it in CATALOG
)
common = {
    "slots": st.sampled_from([2, 6, 20]),
    "slot_milli_cpus": st.sampled_from([0, 0, 1_000]),
    "transient_share_ppm": st.sampled_from([0, 250_000, 500_000]),
    "clear_within_s": st.sampled_from([20, 600]),
    "hold_s": st.sampled_from([1, 300]),
    "long_patience_s": st.sampled_from([30, 600]),
}
configs = st.one_of(
    st.builds(Config, **common),
    st.builds(
        Config,
        **common,
        resize=st.just("published"),
        short_first=st.booleans(),
        threshold_ppm=st.sampled_from([100_000, 500_000, 950_000]),
    ),
)


# A job was held back after its instance was lost, and nobody offered it room once it no longer was.
HELD_BACK = Story(
    seed=0,
    arrivals=[
        _arrival(0, JobKind.GANG, tasks=1, duration_s=1),
        replace(_arrival(36_000, JobKind.ARRAY, tasks=2, duration_s=48), failures=1, slow=3),
    ],
    trouble=0.4,
    fuses=[],
    cuts=[],
    deaths=[(123_000, 1)],
    wipes=[],
    risks=[(36_000, 0)],
    terminate_ms=45_000,
    sold_out=0.3,
    preemption=Preemption.NEVER,
)
SMALL = Config(slots=2, transient_share_ppm=0, hold_s=1, long_patience_s=30)


def _is_short(job: JobView) -> bool:
    return int(job.id.rpartition("-")[2]) % 3 > 0


def _check_budget(world: ChaoticWorld, config: Config) -> None:
    """Spot members cost no more than their share of the slots does on demand, the dearest.

    Those whose end the cloud was asked for are not paid for any more.
    """
    state = world.state
    members = [
        state.instances[name].offering
        for name in state.live
        if state.instances[name].pool == "short.transient"
        and state.instances[name].state not in (InstanceState.TERMINATING, InstanceState.GONE)
    ]
    share = config.slots * config.transient_share_ppm
    most = max(it.price for it in CATALOG) * share // MILLION
    assert len(members) == 1 or sum(it.price for it in members) <= most, members


def _live(world: ChaoticWorld, story: Story, config: Config) -> int:
    looked, closed = 0, False
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            over = accepted == len(story.arrivals) and not world.state.active
            if over and not closed:
                closed = True
                world.inbox.post(ClosingDown())
            if over and world.quiet():
                return looked
        assert world.timeline.now() < 20 * CHAOS_MS, _stuck(world)
        world.step()
        _check_now(world)
        _check_budget(world, config)
        if not closed:
            _check_bound(world)
            looked += _check_lines(world)


def _with_short_jobs(story: Story, config: Config) -> ChaoticWorld:
    splitter = Splitter(
        CLOUDCOASTER.build(config),
        NO_PACKING.build(NO_PACKING.config()),
        _is_short,
        shares=CLOUDCOASTER.shares,
    )
    catalog: tuple[Offering, ...] = (*CATALOG, *SPOT)
    return _world(story, policy=splitter, catalog=catalog)


@drawn(15)
@example(HELD_BACK, SMALL)
@given(stories, configs)
def test_short_jobs_lose_nothing_and_keep_to_their_money(story: Story, config: Config) -> None:
    world = _with_short_jobs(story, config)
    _live(world, story, config)
    _check_end(world, story)


@drawn(3)
@given(stories, configs)
def test_the_same_seed_has_the_same_history(story: Story, config: Config) -> None:
    def history() -> list[object]:
        world = _with_short_jobs(story, config)
        _live(world, story, config)
        return [world.history.starts, [it.history for it in world.state.instances.values()]]

    assert history() == history()
