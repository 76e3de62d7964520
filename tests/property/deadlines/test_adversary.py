"""Deadlines are kept on a spot market that watches what is bought and does its worst."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.cloud import SimulatedInstance
from eva_lab.simulator.cluster.supply.spot_market import NOTICE_MS
from eva_lab.simulator.run import Setup, Simulation
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.market import Market, Span
from eva_wire.values.ids import Millis, OfferingId
from tests.drawing import drawn
from tests.property.deadlines.test_any_market import MINUTE, check_in_time, drawn_jobs, works
from tests.simulation.spot.test_spot_markets import GPU

ALWAYS = Market({("*", "a"): (Span(0, 100, 300_000), Span(1, 100, 300_000))}, 1_000_000_000)
INTERVAL_MS = 7 * MINUTE


@dataclass
class Adversary:
    """Takes instances back when it likes, and then refuses some launches.

    It knows which instance a job is on and for how long: of each spot instance it decides when it
    is bought how long its tasks may run there.

    Attributes:
        lives: How many seconds after each instance is up all that are there are taken back.
        refusals: How many launches it refuses after each time.
        notice: Whether it gives notice.
    """

    simulation: Simulation
    lives: Iterator[int]
    refusals: Iterator[int]
    notice: bool
    left: int = 0
    taken: int = 0

    def __post_init__(self) -> None:
        cloud = self.simulation.cluster.cloud
        self._watch, self._sold_out = cloud.watch, cloud.sold_out
        cloud.watch = self._bought
        cloud.sold_out = self._refuses

    def _bought(self, machine: SimulatedInstance) -> None:
        self._watch(machine)
        if machine.offering.purchase is Purchase.SPOT:
            later = 1_000 * next(self.lives)
            self.simulation.cluster.timeline.after(later, lambda: self._take_back(machine))

    def _refuses(self, offering: OfferingId) -> bool:
        if self.left and offering.endswith(f"/{Purchase.SPOT}"):
            self.left -= 1
            return True
        return self._sold_out(offering)

    def _take_back(self, machine: SimulatedInstance) -> None:
        cluster = self.simulation.cluster
        if not cluster.cloud.is_there(machine.instance):
            return
        self.left = next(self.refusals)
        self.taken += 1
        ends_ms = NOTICE_MS if self.notice else 0
        if self.notice:
            cluster.workers.interrupt(machine.instance, Millis(cluster.timeline.now() + ends_ms))

        def end() -> None:
            cluster.cloud.fail(machine.instance, "it was taken back", reclaimed=True)

        cluster.timeline.after(ends_ms, end)


lives = st.lists(st.integers(0, 20_000), min_size=1, max_size=12)
refusals = st.lists(st.integers(0, 5), min_size=1, max_size=12)


@pytest.mark.long
@pytest.mark.parametrize("notice", [True, False])
@given(works, lives, refusals, st.sampled_from(["no_packing", "eva"]))
@drawn(4)
def test_no_deadline_is_missed_whatever_is_taken_back(
    notice: bool,
    told: list[tuple[int, int, int]],
    times: list[int],
    refused: list[int],
    policy: str,
) -> None:
    trace = drawn_jobs(told)
    if not notice:
        # What goes without notice takes the work since the last checkpoint along.
        jobs = (replace(it, checkpoint_interval_ms=INTERVAL_MS) for it in trace.jobs)
        trace = replace(trace, jobs=tuple(jobs))
    chosen, _ = named_policy(policy)
    setup = Setup(trace, ALWAYS.offered((GPU,)), chosen, market=ALWAYS, keep_record=True)
    simulation = Simulation(setup)
    Adversary(simulation, cycle(times), cycle(refused), notice)
    simulation.run()
    check_in_time(simulation, trace, policy)


def test_a_notice_from_before_the_agent_runs_is_heard() -> None:
    """It was lost once, and a task ran until its instance went, three times one after the other."""
    trace = drawn_jobs([(0, 5, 0)])
    chosen, _ = named_policy("no_packing")
    setup = Setup(trace, ALWAYS.offered((GPU,)), chosen, market=ALWAYS, keep_record=True)
    simulation = Simulation(setup)
    Adversary(simulation, cycle([0]), cycle([0]), notice=True)
    simulation.run()
    (job,) = simulation.outcome().record.jobs
    assert job.late_ms == 0


def test_the_adversary_does_something() -> None:
    trace = drawn_jobs([(0, 300, 300)])
    chosen, _ = named_policy("no_packing")
    setup = Setup(trace, ALWAYS.offered((GPU,)), chosen, market=ALWAYS, keep_record=True)
    simulation = Simulation(setup)
    adversary = Adversary(simulation, cycle([1_000]), cycle([1]), notice=True)
    simulation.run()
    assert adversary.taken > 2
    (job,) = simulation.outcome().record.jobs
    assert job.late_ms == 0
