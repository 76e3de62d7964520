"""Jobs of random worlds with caps: none is overspent for longer than a stop and a minute."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

import pytest

from eva_master.control.measure import ledger
from eva_master.model.planning.suspension import Suspender
from eva_wire.values.ids import JobId, Millis, micro_usd
from tests.worlds.drawing import draw
from tests.worlds.life import Life
from tests.worlds.records import HOUR_MS
from tests.worlds.running import begin
from tests.worlds.world import World

SPARE_MS = 60_000
"""Beyond the grace period, a cap may be overspent for so long."""


class CappedLife(Life):
    """A run of a world that also ends where all that is left has come to its cap.

    Attributes:
        prices: The highest price of the instances of a job at a time, in micro-dollars per hour.
    """

    def __init__(self, *args: object, **more: object) -> None:
        self.prices: defaultdict[JobId, int] = defaultdict(int)
        super().__init__(*args, **more)  # type: ignore[arg-type]

    def _ended(self) -> bool:
        arrived = len(self._story.fates) == len(self._world.jobs)
        late = self.timeline.now() >= self._last_order_ms()
        return arrived and late and all(map(self._rests, self.state.active))

    def _rests(self, name: JobId) -> bool:
        job = self.state.jobs[name]
        return job.waits or (job.suspension is not None and job.suspension.by is Suspender.COST)

    def _look(self) -> None:
        super()._look()
        for name in self.state.active:
            places = {run.instance for run in self.state.in_hand(name) if run.instance}
            price = sum(self.state.instances[place].offering.price for place in places)
            self.prices[name] = max(self.prices[name], price)


def capped(world: World) -> World:
    """The world with a cap on most of its jobs, between cents and a part of them."""
    rng = Random(f"{world.flavour}/{world.seed}/caps")
    jobs = tuple(
        replace(job, keys={**job.keys, "max_cost": f"${rng.choice([0.001, 0.004, 0.01, 0.03])}"})
        if rng.random() < 0.8
        else job
        for job in world.jobs
    )
    return replace(world, jobs=jobs)


@pytest.mark.parametrize(
    ("flavour", "policy", "seeds"),
    [
        ("mixed", "eva", 6),
        ("elastic", "eva", 2),
        ("moves", "eva", 2),
        ("rests", "eva", 3),
        ("spot-deadlines", "eva", 3),
        ("short", "cloudcoaster+eva", 2),
        ("priorities", "slearn", 2),
        ("tenants", "astraea", 2),
        ("retries", "no_packing", 2),
    ],
)
def test_caps_hold_in_worlds_of_all_kinds(flavour: str, policy: str, seeds: int) -> None:
    stopped = 0
    for seed in range(seeds):
        life = begin(capped(draw(seed, flavour)), policy, kind=CappedLife)
        life.lived()
        state, now = life.state, Millis(life.timeline.now())
        for name, job in state.jobs.items():
            if job.max_cost is None:
                continue
            stopped += job.suspension is not None and job.suspension.by is Suspender.COST
            grace_ms = job.spec.restarts.grace_period_ms
            beyond = life.prices[name] * (grace_ms + SPARE_MS) // HOUR_MS
            spent = micro_usd(ledger.job_account(state, name, now).charged)
            assert spent <= job.max_cost + beyond, (seed, name, job.max_cost, life.prices[name])
    assert stopped, "some caps are reached"
