"""Gangs that divide each batch by the speed of their members, on virtual time."""

from __future__ import annotations

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import Tick
from eva_master.model.job import JobSpec, Program, TaskSpec, Training
from eva_master.model.resources import Resources
from eva_wire.values.ids import MILLION, Family, Price, RunId, Workload
from tests.fakes.jobs import Script

FAST, SLOW = Family("fast"), Family("slow")
ROOM = Resources(0, 1_000, 1_024)
DELAYS = EqualDelays(fetch_ms=0, start_ms=1_000, stop_ms=1_000, report_ms=2_000)
SPEEDS = {FAST: 1.0, SLOW: 0.25}


def offering(family: Family, price: float) -> Offering:
    machine = InstanceType(f"{family}.1", family, ROOM, 1_000, 1_000)
    return Offering(machine, Price(round(price * MILLION)))


QUICK, LAME = offering(FAST, 4), offering(SLOW, 0.9)


class Stage:
    """A gang of three, of which the last two are on the slow family.

    Attributes:
        rates: What its user states, in iterations per second.
    """

    def __init__(self, rates: dict[Family, float], *, split: bool = True) -> None:
        stated = tuple(sorted((family, round(it * MILLION)) for family, it in rates.items()))
        task = TaskSpec(Workload("w"), Program("x"), ((FAST, ROOM), (SLOW, ROOM)), stated)
        places = {"g-1/0": QUICK, "g-1/1": LAME, "g-1/2": LAME}
        self.script = Script({name: name for name in places}, places)
        self.world = SimulatedCluster(
            (QUICK, LAME),
            self.script,
            settings=Settings(price_limit_ppm=None),
            delays=DELAYS,
            work_of=lambda _run: Work(3_600_000.0, steps_per_s=1_000),
            speed_of=lambda _run, family: SPEEDS[family],
        )
        self.world.submit(
            JobSpec(
                "g", "me", (task,) * 3, total_steps=3_600_000, training=Training(split_batch=split)
            )
        )

    def run(self) -> None:
        self.until(0)
        assert self.world.run(lambda: not self.world.state.active)

    def until(self, steps: int) -> None:
        runs = self.world.state.runs
        first = RunId("g-1/0")
        assert self.world.run(lambda: first in runs and runs[first].progress.steps > steps)

    @property
    def shares(self) -> list[int]:
        return [run.batch_ppm for _, run in sorted(self.world.state.runs.items())]

    @property
    def ran_ms(self) -> int:
        history = dict(self.world.state.runs[RunId("g-1/0")].history)
        return history["succeeded"] - history["running"]


def test_members_do_their_parts_and_the_gang_goes_at_their_mean_pace() -> None:
    stage = Stage({FAST: 1_000, SLOW: 250})
    stage.until(0)
    assert stage.shares == [666_666, 166_667, 166_667]
    orders = stage.world.history.orders
    assert [orders[RunId(f"g-1/{n}"), 1].gang.batch_ppm for n in range(3)] == stage.shares
    stage.run()
    assert stage.ran_ms == pytest.approx(3_600_000 / 0.5, rel=0.01)


def test_without_it_the_slowest_sets_the_pace() -> None:
    stage = Stage({FAST: 1_000, SLOW: 250}, split=False)
    stage.run()
    assert stage.shares == [0, 0, 0]
    assert stage.ran_ms == pytest.approx(3_600_000 / 0.25, rel=0.01)


def test_where_nothing_is_known_of_their_speed_members_do_equal_parts() -> None:
    stage = Stage({})
    stage.until(0)
    assert stage.shares == [333_334, 333_333, 333_333]
    stage.run()
    assert stage.ran_ms == pytest.approx(3_600_000 / 0.25, rel=0.01)


def test_the_time_that_is_left_is_that_at_the_mean_pace() -> None:
    stage = Stage({FAST: 1_000, SLOW: 250})
    stage.until(600_000)
    now = stage.world.timeline.now()
    view = snapshot(stage.world.state, now, Settings()).runs[0]
    left_ms = view.remaining.standalone_ms(now)
    done = stage.world.state.runs[RunId("g-1/0")].progress.steps
    # Told as time at home, where the gang is as fast as is worth most.
    pace = view.remaining.pace_ppm / MILLION
    assert left_ms / pace == pytest.approx((3_600_000 - done) / 0.5, rel=0.02)


def test_a_gang_that_starts_again_divides_its_batches_anew() -> None:
    stage = Stage({FAST: 1_000, SLOW: 250})
    stage.until(100_000)
    stage.script.offerings["faster"] = QUICK
    stage.script.wanted["g-1/2"] = "faster"
    stage.world.inbox.post(Tick())
    runs = stage.world.state.runs
    assert stage.world.run(lambda: runs[RunId("g-1/0")].attempt == 2)
    assert stage.shares == [444_444, 111_112, 444_444]
