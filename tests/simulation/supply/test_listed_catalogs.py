"""A cloud that sells other things each week, under a master that runs on: on virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eva_lab.simulator.cluster.cloud import SimulatedCloud
from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.catalog.market import as_spot
from eva_master.app.policy_registry import policies
from eva_master.control.features.catalog.differences import in_words
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import CloudAction, LaunchInstance, ListCatalog, RequestPlan
from eva_master.model.catalog import Catalog, Purchase, quoted_at, spot_family
from eva_master.model.events import CatalogListed, JobSubmitted, PlanReady, Tick
from eva_master.model.feed import FeedKind
from eva_master.model.fleet.listing import CatalogListing
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.resources import Resources
from eva_wire.values.ids import InstanceId, Millis, OfferingId, Price, RunId, Workload
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import CPU, LARGE, MEDIUM, SMALL, offering

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WEEK = 7 * DAY
ANSWER_MS = 20_000
"""An answer is so long under way."""
Answer = Catalog | str
NODE_TYPE = offering(2, 0, purchase=Purchase.OWNED)
NODE = OwnedNode(
    InstanceId("rack"), replace(NODE_TYPE, type=replace(NODE_TYPE.type, name="rack")), 60_000
)


class World(SimulatedCluster):
    """A cluster whose cloud answers what it sells.

    Args:
        catalog: Offerings on sale at the start.
        answers: The cloud's answers in order, an error in words among them; the last one stays.
        policy: Name of the policy.
        age_ms: Age of the catalog at the start; `None` if no cloud was asked.

    Attributes:
        asked: When the cloud was asked.
        bought: When which offering was launched.
        lose: So many answers never come.
    """

    journal: MemoryJournal

    def __init__(
        self,
        catalog: Catalog,
        *answers: Answer,
        policy: str = "eva",
        age_ms: int | None = 0,
        nodes: Sequence[OwnedNode] = (),
    ) -> None:
        self.asked: list[int] = []
        self.bought: list[tuple[int, OfferingId]] = []
        self.answers_left = list(answers)
        self.lose = 0
        kind = policies()[policy]
        super().__init__(
            catalog,
            kind.build(kind.config()),
            settings=Settings(
                feed=True,
                catalog_period_ms=WEEK,
                catalog_age_ms=age_ms,
                nodes={node.name: node for node in nodes},
            ),
        )

    def _make_loop(self, machine: Machine) -> Loop:
        self.cloud.execute = self._execute  # type: ignore[method-assign]
        return super()._make_loop(machine)

    def _execute(self, action: CloudAction) -> None:
        now = int(self.timeline.now())
        if isinstance(action, ListCatalog):
            self.asked.append(now)
            rest = self.answers_left
            answer = rest.pop(0) if len(rest) > 1 else rest[0]
            said = CatalogListed(None, answer) if isinstance(answer, str) else CatalogListed(answer)
            self.timeline.after(ANSWER_MS, lambda: self._answer(said))
        elif isinstance(action, LaunchInstance):
            self.bought.append((now, action.offering.id))
        SimulatedCloud.execute(self.cloud, action)

    def _answer(self, said: CatalogListed) -> None:
        if self.lose:
            self.lose -= 1
        else:
            self.inbox.post(said)

    def pass_time(self, until_ms: int) -> None:
        """Step until a time has come."""
        self.timeline.after(until_ms - self.timeline.now(), lambda: self.inbox.post(Tick()))
        while self.timeline.now() < until_ms:
            self.loop.step()

    def begin_again(self, catalog: Catalog, age_ms: int | None) -> None:
        """Restart the master, which finds a catalog in its files."""
        self._catalog = catalog
        self._settings = replace(self._settings, catalog_age_ms=age_ms)
        self.restart()

    @property
    def told(self) -> list[str]:
        """Events about the catalog."""
        return [each.text for each in self.journal.feed if each.kind is FeedKind.CATALOG]

    @property
    def on_sale(self) -> dict[str, int]:
        """Prices by offering."""
        return {each.id: each.price for each in self.state.catalog}


def job(name: str, cpus: int, hours: float, *, spot: bool = False) -> JobSpec:
    size = Resources(0, cpus * 1000, 1024)
    families = (CPU, spot_family(CPU)) if spot else (CPU,)
    demand = tuple((family, size) for family in families)
    task = TaskSpec(Workload(name), Program("true"), demand)
    return JobSpec(name, "me", (task,), duration_ms=round(hours * HOUR))


def test_it_is_asked_once_a_week() -> None:
    world = World((SMALL, LARGE), (SMALL, LARGE), age_ms=3 * DAY)
    world.pass_time(30 * DAY)
    first = 4 * DAY
    assert world.asked == [first + number * (WEEK + ANSWER_MS) for number in range(4)]
    assert world.told == []
    assert world.state.listing.asked_ms == world.asked[-1] + ANSWER_MS
    # A restart changes nothing: what was asked is in the journal.
    world.begin_again((SMALL, LARGE), 30 * DAY)
    world.pass_time(31 * DAY)
    assert len(world.asked) == 4


def test_prices_of_the_project_are_replaced_at_once() -> None:
    world = World((SMALL,), (SMALL, MEDIUM), age_ms=None)
    world.pass_time(HOUR)
    assert world.asked == [0]
    assert world.told == ["what is on sale has changed; new: c.4"]


def test_without_an_answer_the_catalog_stays_and_it_is_told_once() -> None:
    errors = ["EC2 is on holiday"] * 3
    world = World((SMALL,), *errors, (SMALL, MEDIUM), age_ms=WEEK)
    world.pass_time(9 * HOUR)
    due, pauses = [0], (1, 2, 4)
    for pause in pauses:
        due.append(due[-1] + pause * HOUR + ANSWER_MS)
    assert world.asked == due
    sentence, change = world.told
    assert "EC2 is on holiday; it is asked again in 1h 0m" in sentence
    assert change == "what is on sale has changed; new: c.4"
    assert (world.state.listing.failures, world.state.listing.error) == (0, "")


def test_pauses_end_at_a_day_and_survive_a_restart() -> None:
    world = World((SMALL,), "no", age_ms=WEEK)
    world.pass_time(20 * DAY)
    gaps = [after - before for before, after in zip(world.asked, world.asked[1:], strict=False)]
    assert max(gaps) == gaps[-1] == DAY + ANSWER_MS
    assert world.on_sale == {SMALL.id: SMALL.price}
    asked = len(world.asked)
    for _ in range(5):
        world.begin_again((SMALL,), world.timeline.now() + WEEK)
        world.pass_time(world.timeline.now() + HOUR)
    assert len(world.asked) - asked <= 1
    assert len(world.told) == 1


def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    world = World((SMALL,), (SMALL, MEDIUM), age_ms=WEEK)
    world.lose = 1
    world.pass_time(2 * HOUR)
    assert world.asked == [0, HOUR]
    assert MEDIUM.id in world.on_sale


def test_a_new_price_is_paid_from_then_on() -> None:
    dearer = quoted_at(SMALL, 2 * SMALL.price)
    world = World((SMALL,), (dearer,), age_ms=WEEK - HOUR)
    world.submit(job("long", 2, hours=3))
    assert world.run(world.quiet)
    (instance,) = world.state.instances.values()
    assert instance.up_ms is not None
    assert instance.gone_ms is not None
    changed = HOUR + ANSWER_MS
    spent = (changed - instance.up_ms) * SMALL.price + (instance.gone_ms - changed) * dearer.price
    assert world.state.instance_accounts[instance.id].charged == spent
    assert world.told == [
        "what is on sale has changed; at other prices: c.2 ($0.1000/h -> $0.2000/h)"
    ]


POLICIES = ("cloudcoaster", "eva", "no_packing", "stratus")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gone_type_is_bought_no_more_beside_spot_pools_and_own_nodes(policy: str) -> None:
    spot = as_spot(SMALL, Price(30_000), 10 * HOUR)
    before, after = (SMALL, spot, MEDIUM, LARGE), (MEDIUM, LARGE)
    world = World(before, after, policy=policy, age_ms=WEEK - 2 * HOUR, nodes=[NODE])
    for number in range(4):
        world.submit(job(f"old-{number}", 2, hours=4, spot=number == 3))
        world.submit(job(f"new-{number}", 2, hours=1, spot=True), Millis(3 * HOUR + number))
    assert world.run(lambda: len(world.state.jobs) == 8 and not world.state.active)
    assert {each.state for each in world.state.jobs.values()} == {JobState.SUCCEEDED}
    changed = 2 * HOUR + ANSWER_MS
    gone = {SMALL.id, spot.id}
    early = [sold for at, sold in world.bought if at <= changed]
    late = [sold for at, sold in world.bought if at > changed]
    assert gone & {*early}
    assert late
    assert not gone & {*late}
    # Jobs ran on, where they were and at the price of that place.
    runs = [run for run in world.state.runs.values() if run.id.startswith("old-")]
    assert [run.lost for run in runs] == [0] * 4
    ran_on = {instance.offering.id for instance in world.state.instances.values()}
    assert NODE.offering.id in ran_on
    assert world.told == ["what is on sale has changed; gone: c.2"]
    for instance in world.state.instances.values():
        if instance.offering.id in gone:
            assert instance.paid == ()


def test_a_master_that_ends_before_it_has_written_the_answer_tells_it_at_its_next_start() -> None:
    """The adapter has written the catalog down for the next start."""
    world = World((SMALL, LARGE), (SMALL,), age_ms=WEEK)
    world.submit(job("long", 6, hours=300))
    world.pass_time(ANSWER_MS - 1)
    assert (world.asked, world.told) == ([0], [])
    world.lose = 1
    world.begin_again((SMALL, MEDIUM), 1)
    world.pass_time(6 * DAY)
    expected = ["what is on sale has changed; new: c.4; gone: c.8"]
    assert (world.asked, world.told) == ([0], expected)
    world.begin_again((SMALL, MEDIUM), 6 * DAY + 1)
    world.pass_time(6 * DAY + HOUR)
    assert world.told == expected
    # An instance of an offering that is gone runs on.
    (instance,) = world.state.live
    assert world.state.instances[instance].offering.id == LARGE.id
    assert [each.state for each in world.state.runs.values()] == [RunState.RUNNING]


def test_a_master_that_ends_before_the_answer_asks_again_later() -> None:
    world = World((SMALL,), (SMALL, MEDIUM), age_ms=WEEK)
    world.pass_time(1)
    world.lose = 1
    world.begin_again((SMALL,), WEEK + 1)
    world.pass_time(HOUR - 1)
    assert world.asked == [0]
    world.pass_time(2 * HOUR)
    assert (world.asked, MEDIUM.id in world.on_sale) == ([0, HOUR], True)


def test_a_plan_that_was_made_before_launches_nothing_that_is_gone() -> None:
    settings = Settings(round_gap_ms=0, catalog_period_ms=WEEK, catalog_age_ms=0)
    machine = Machine(State((SMALL, LARGE)), settings)
    asked = [
        action
        for action in machine.handle([JobSubmitted("c", job("one", 2, hours=1))], Millis(1))
        if isinstance(action, RequestPlan)
    ]
    small = next(each for each in asked[0].snapshot.catalog if each.id == SMALL.id)
    plan = Plan((NewInstance(0, small),), (Assign(RunId("one-1/0"), 0),))
    machine.handle([CatalogListed((LARGE,))], Millis(2))
    actions = machine.handle([PlanReady(asked[0].round, plan, None)], Millis(3))
    assert not [action for action in actions if isinstance(action, LaunchInstance)]
    (again,) = (action for action in actions if isinstance(action, RequestPlan))
    assert [each.id for each in again.snapshot.catalog] == [LARGE.id]


def test_refusals_and_measured_sizes_outlast_a_new_catalog() -> None:
    settings = Settings(catalog_period_ms=WEEK, catalog_age_ms=0)
    machine = Machine(State((SMALL, LARGE)), settings)
    machine.recover(Millis(0))
    state = machine.state
    state.set_unavailable([SMALL.id], Millis(HOUR), "none left")
    heard = state.sizes.heard("c.2", 4000)
    assert heard is not None
    state.remember(heard)
    machine.handle([CatalogListed((SMALL, MEDIUM))], Millis(2))
    small, medium = state.catalog
    assert (small.unavailable_until, small.why_unavailable) == (HOUR, "none left")
    assert medium.unavailable_until is None
    assert small.type.capacity.memory_mib == 4000 != SMALL.type.capacity.memory_mib
    # As a restart has it.
    restored = State.restored((SMALL, MEDIUM), machine.take_changes())
    assert Machine(restored, settings).state.catalog == state.catalog


def test_many_changes_are_counted() -> None:
    new = tuple(offering(cpus, 50_000 * cpus) for cpus in range(10, 32))
    moved = (replace(SMALL, zone="b"), replace(LARGE, price=Price(LARGE.price - 1)))
    assert in_words((SMALL, LARGE), (*moved, *new)) == (
        "what is on sale has changed; new: c.10, c.11, c.12, c.13, c.14 and 17 more; "
        "at other prices: c.8 ($0.3700/h -> $0.3700/h); in other zones: c.2"
    )


@pytest.mark.parametrize("rows", [None, 7, [{}], [{"type": 3}], ["x"]])
def test_a_damaged_document_is_as_none(rows: Any) -> None:
    whole = {
        name: make() for name, make in CatalogListing(Millis(3), catalog=(SMALL,)).documents.items()
    }
    assert CatalogListing.from_json(json.loads(json.dumps(whole))).catalog == (SMALL,)
    assert CatalogListing.from_json({**whole, "catalog": rows}) == CatalogListing()
