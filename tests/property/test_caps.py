"""Whatever goes wrong, caps hold but for a stop, and every division of the bill adds up to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.bills import divided_bill
from eva_master.adapters.rpc.server.shown import costs
from eva_master.control.measure import ledger
from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.control.stopping.grace import stopping_ms
from eva_master.model.accounting.splits import CostSplit, SplitKind
from eva_master.model.planning.suspension import Suspender
from eva_wire.values.ids import JobId, Millis, micro_usd
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.fakes.models import model_of
from tests.property.test_control_loop import CHAOS_MS, QUICK, Story, _world, stories

HOUR_MS = 3_600_000
BY_COST = (Suspender.COST, Suspender.MONTH)
SPARE_MS = 60_000
"""Beyond the grace period, a cap may be overspent for so long."""
ENDS_MS = 4 * CHAOS_MS

caps = st.none() | st.sampled_from([100, 1_000, 3_000, 10_000, 30_000])
"""In micro-dollars: an hour of the smallest instance costs 100,000."""


def with_caps(story: Story, most: list[int | None], owners: list[str]) -> Story:
    return replace(
        story,
        arrivals=[
            replace(arrival, max_cost=cap, owner=owner, rests=())
            for arrival, cap, owner in zip(story.arrivals, most, owners, strict=False)
        ],
    )


@dataclass
class Watcher:
    """Follows what parties are charged, and the highest price that each of them ever paid.

    Attributes:
        prices: Highest price of the instances of a job at a time, in micro-dollars per hour.
        early: Jobs that were suspended by cost, with what was left of the cap then.
    """

    world: ChaoticWorld
    prices: defaultdict[JobId, int] = field(default_factory=lambda: defaultdict(int))
    early: dict[JobId, int] = field(default_factory=dict)

    def look(self) -> None:
        state, now = self.world.state, self.world.timeline.now()
        for name in state.active:
            job = state.jobs[name]
            places = {run.instance for run in state.in_hand(name) if run.instance is not None}
            price = sum(state.instances[place].offering.price for place in places)
            self.prices[name] = max(self.prices[name], price)
            if job.suspension is None or job.suspension.by is not Suspender.COST:
                self.early.pop(name, None)
            elif name not in self.early and job.max_cost is not None:
                spent = micro_usd(ledger.job_account(state, name, Millis(now)).charged)
                self.early[name] = job.max_cost - spent


def settled(world: ChaoticWorld) -> bool:
    state = world.state
    resting = all(
        state.jobs[name].waits
        or ((rests := state.jobs[name].suspension) is not None and rests.by in BY_COST)
        for name in state.active
    )
    return world.idle and resting and not state.live


def live(world: ChaoticWorld, watcher: Watcher) -> None:
    while world.timeline.now() < ENDS_MS:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            if settled(world):
                return
        world.step()
        watcher.look()


def charged(world: SimulatedCluster, job: JobId) -> int:
    return micro_usd(ledger.job_account(world.state, job, Millis(world.timeline.now())).charged)


@drawn(40)
@given(stories, st.lists(caps, min_size=6, max_size=6))
def test_a_cap_is_overspent_for_no_longer_than_a_stop_and_a_minute(
    story: Story, most: list[int | None]
) -> None:
    story = with_caps(story, most, ["me"] * 6)
    world = _world(story)
    watcher = Watcher(world)
    live(world, watcher)
    for name, job in world.state.jobs.items():
        if job.max_cost is None:
            continue
        grace_ms, price = job.spec.restarts.grace_period_ms, watcher.prices[name]
        beyond = price * (grace_ms + SPARE_MS) // HOUR_MS
        assert charged(world, name) <= job.max_cost + beyond, (name, job.max_cost, price)
        if name in watcher.early:
            # The reserve is for a stop at present prices; a turn of the loop may come in between.
            reserve = price * (stopping_ms(job.spec, QUICK) + 1_000) // HOUR_MS
            assert watcher.early[name] <= reserve + 1, (name, job.max_cost, price)


@drawn(25)
@given(stories, st.sampled_from([1_000, 5_000, 20_000]), st.lists(caps, min_size=6, max_size=6))
def test_the_limit_of_an_owner_holds_likewise_and_others_run_on(
    story: Story, most: int, own: list[int | None]
) -> None:
    story = with_caps(story, own, ["me", "me", "you", "me", "you", "me"])
    world = _world(story, replace(QUICK, limits=replace(QUICK.limits, max_cost=most)))
    watcher = Watcher(world)
    live(world, watcher)
    for owner in ("me", "you"):
        jobs = [job for job in world.state.jobs.values() if job.spec.owner == owner]
        price = sum(watcher.prices[job.id] for job in jobs)
        grace_ms = max((job.spec.restarts.grace_period_ms for job in jobs), default=0)
        spent = sum(charged(world, job.id) for job in jobs)
        assert spent <= most + price * (grace_ms + SPARE_MS) // HOUR_MS, owner
    assert Limits(max_cost=most).max_cost < NO_LIMIT


@drawn(20)
@given(
    stories,
    st.lists(caps, min_size=6, max_size=6),
    st.sampled_from([0, 400_000, 10**15]),
    st.integers(0, 2 * CHAOS_MS),
)
def test_every_division_of_the_bill_adds_up_to_it(
    story: Story, most: list[int | None], kept_ms: int, at_ms: int
) -> None:
    story = with_caps(story, most, ["me", "you"] * 3)
    world = _world(story, replace(QUICK, history_kept_ms=kept_ms))
    while world.timeline.now() < at_ms and not (world.timeline.now() >= CHAOS_MS and world.idle):
        world.step()
    model, now = model_of(world.state), Millis(world.timeline.now() + 1_234)
    bill = costs.bill(model, now)
    for kind in SplitKind:
        split = CostSplit(kind, "team" if kind is SplitKind.LABEL else "")
        divided = divided_bill(model, split, now)
        parts = divided.shares
        assert sum(part.charged for part in parts) + divided.between == bill.cost_micro_usd, kind
        if kind.of_jobs:
            assert divided.between == bill.idle_micro_usd
            assert sum(part.idle for part in parts) == 0
        else:
            assert sum(part.idle for part in parts) == bill.idle_micro_usd
        if kind not in (SplitKind.TYPE, SplitKind.PARTITION, SplitKind.PART):
            assert sum(part.alone for part in parts) == bill.no_packing_micro_usd, kind
        names = {part.name for part in parts}
        # The rest is of jobs that left memory, and of labels that no job has.
        assert "" not in names or kind in (SplitKind.JOB, SplitKind.LABEL), kind
        assert all(part.charged >= 0 for part in parts)
