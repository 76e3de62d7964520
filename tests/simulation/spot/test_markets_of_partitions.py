"""Jobs choose between the markets that their partition has, and between no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.rpc.server.shown.deadlines import notes_on
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase, spot_family
from eva_master.model.events import MoveRequested
from eva_master.model.fleet.partitions import Offers, Partition, Partitions
from eva_master.model.job import Deadline, JobSpec
from eva_master.model.records import MarketRule
from eva_master.model.resources import Resources
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import Family, JobId, Price
from tests.fakes.jobs import job

MINUTE_MS = 60_000
PLAIN = Family("c")
SPOT = spot_family(PLAIN)
ALL, ON_DEMAND_ALONE, SPOT_ALONE = (
    Offers(),
    Offers(purchase=frozenset({Purchase.ON_DEMAND})),
    Offers(purchase=frozenset({Purchase.SPOT})),
)
NEVER_MS = 10**13


def sold(family: Family, price: int, purchase: Purchase, **more: int) -> Offering:
    kind = InstanceType("c.4", family, Resources(0, 4_000, 8_192), 10_000, 20_000)
    return Offering(kind, Price(price), purchase=purchase, **more)  # type: ignore[arg-type]


class World(SimulatedCluster):
    def __init__(self, *offers: Offers, spot_until_ms: int | None = None) -> None:
        kind = policies()["eva"]
        parts = (
            Partition(f"p{number}", default=not number, offers=its)
            for number, its in enumerate(offers)
        )
        self.settings = Settings(partitions=Partitions(tuple(parts)))
        scarce = {} if spot_until_ms is None else {"unavailable_until": spot_until_ms}
        super().__init__(
            (
                sold(PLAIN, 200_000, Purchase.ON_DEMAND),
                sold(SPOT, 60_000, Purchase.SPOT, **scarce),
            ),
            kind.build(kind.config()),
            settings=self.settings,
            work_of=lambda _: Work(10 * MINUTE_MS),
        )

    def play(self, minutes: float) -> None:
        until_ms = self.timeline.now() + round(minutes * MINUTE_MS)
        self.timeline.after(until_ms - self.timeline.now(), lambda: None)
        self.run(lambda: self.timeline.now() >= until_ms)

    @property
    def started_ms(self) -> int | None:
        return self.state.jobs[JobId("a-1")].started_ms


def allowed(**more: object) -> JobSpec:
    """A job that may run on either market."""
    spec = job("a", 2, minutes=10)
    need = spec.tasks[0].demand[0][1]
    (task,) = spec.tasks
    both = replace(task, demand=((PLAIN, need), (SPOT, need)))
    return with_values(replace(spec, tasks=(both,)), more)


def test_no_spot_instance_is_waited_for_where_none_is_sold() -> None:
    world = World(ON_DEMAND_ALONE)
    world.submit(allowed(spot_wait_ms=60 * MINUTE_MS))
    world.play(2)
    assert world.started_ms is not None


def test_where_both_are_sold_it_waits_as_long_as_it_says() -> None:
    world = World(ALL, spot_until_ms=NEVER_MS)
    world.submit(allowed(spot_wait_ms=20 * MINUTE_MS))
    world.play(19)
    assert world.started_ms is None
    world.play(3)
    assert world.started_ms is not None


def test_a_job_that_is_moved_to_where_none_is_sold_waits_no_longer() -> None:
    world = World(ALL, ON_DEMAND_ALONE, spot_until_ms=NEVER_MS)
    world.submit(allowed(spot_wait_ms=60 * MINUTE_MS))
    world.play(5)
    assert world.state.jobs[JobId("a-1")].buys is MarketRule.SPOT
    world.inbox.post(MoveRequested("m", JobId("a-1"), "p1", "me", operator=True))
    world.play(2)
    assert world.started_ms is not None


@pytest.mark.parametrize("within", [13, 20, 60])
def test_a_deadline_calls_for_nothing_that_is_not_sold(within: float) -> None:
    world = World(SPOT_ALONE)
    world.submit(allowed(deadline=Deadline(within_ms=round(within * MINUTE_MS))))
    world.play(4)
    assert world.started_ms is not None
    (instance,) = world.state.live
    world.cloud.fail(instance)
    world.play(30)
    assert world.state.jobs[JobId("a-1")].finished_ms is not None, "it went on, late or not"


def test_users_are_told_that_none_is_waited_for() -> None:
    spec = allowed(spot_wait_ms=MINUTE_MS)
    world = World(ALL, ON_DEMAND_ALONE)
    both, alone = (it.sold(world.state.catalog) for it in world.settings.partitions.parts)
    assert notes_on(spec, both) == ()
    (note,) = notes_on(spec, alone)
    assert note.startswith("`spot_wait`: no spot instances are sold")
    assert notes_on(allowed(), alone) == ()
