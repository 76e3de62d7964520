"""Owned nodes whose network fails, whose agents and masters die: nothing runs twice at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.app.policy_registry import policies
from eva_master.control.measure import ledger
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.events import NodeRequested
from eva_master.model.fleet.nodes import NODE_ZONE, NodeVerb, OwnedNode
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import Resources
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, Price
from eva_wire.values.states import InstanceState
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property import test_control_loop as loop
from tests.property.test_control_loop import CHAOS_MS, QUICK, Arrival, Story


def _node(name: str, cpus: int, price: int, fence_s: int) -> OwnedNode:
    machine = InstanceType(f"own.{cpus}", Family("c"), Resources(0, cpus * 1000, cpus * 2048))
    offering = Offering(machine, Price(price), NODE_ZONE, Purchase.OWNED)
    return OwnedNode(InstanceId(name), offering, fence_s * 1000)


NODES = (_node("rack1", 4, 0, 60), _node("rack2", 4, 0, 60), _node("box", 8, 90_000, 120))


@dataclass(frozen=True)
class NodeStory:
    """What happens to owned nodes beside all the rest."""

    story: Story
    nodes: int
    partitions: list[tuple[int, int, int]]
    outages: list[tuple[int, int, int]]
    words: list[tuple[int, int, NodeVerb]]


which, spans = st.integers(0, 2), st.integers(0, 400).map(lambda s: s * 1000)
# Long ones: what is cut off is to be in the middle of something.
arrivals = st.builds(
    Arrival,
    at_ms=st.integers(0, 600_000),
    kind=st.sampled_from(JobKind),
    tasks=st.integers(1, 3),
    cpus=st.sampled_from([1, 2, 3]),
    duration_s=st.integers(200, 900),
    failures=st.integers(0, 1),
    all_publish=st.booleans(),
    cancel_after_ms=st.none() | st.integers(0, 600_000),
    after=st.just(()),
    priority=st.integers(0, 2),
    rests=st.just(()),
)
worlds = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    arrivals=st.lists(arrivals, min_size=2, max_size=6),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(0, 60), max_size=4),
    cuts=st.just([]),
    deaths=st.lists(st.tuples(loop.times, st.integers(0, 9)), max_size=2),
    wipes=st.lists(st.tuples(loop.times, st.integers(0, 9)), max_size=1),
    risks=st.just([]),
    terminate_ms=st.just(1_000),
    sold_out=st.sampled_from([0.0, 0.3]),
    preemption=st.just(Preemption.NEVER),
)
stories = st.builds(
    NodeStory,
    worlds,
    st.integers(1, 3),
    st.lists(st.tuples(loop.times, which, spans), min_size=2, max_size=8),
    st.lists(st.tuples(loop.times, which, spans), max_size=3),
    st.lists(st.tuples(loop.times, which, st.sampled_from(NodeVerb)), max_size=3),
)


# More than there is room for on three nodes, of which some are cut off meanwhile.
turn_stories = st.builds(
    NodeStory,
    st.builds(
        replace,
        worlds,
        arrivals=st.lists(
            st.builds(
                replace,
                arrivals,
                at_ms=st.integers(0, 200_000),
                cpus=st.sampled_from([2, 3, 4]),
            ),
            min_size=6,
            max_size=9,
        ),
    ),
    st.just(3),
    st.lists(st.tuples(loop.times, which, spans), min_size=2, max_size=6),
    st.lists(st.tuples(loop.times, which, spans), max_size=2),
    st.lists(st.tuples(loop.times, which, st.sampled_from(NodeVerb)), max_size=2),
)


class _Stays:
    """When each node was there, as was committed."""

    def __init__(self) -> None:
        self.over: set[tuple[InstanceId, int, int]] = set()

    def look(self, world: ChaoticWorld) -> None:
        for name in world._settings.nodes:
            known = world.state.instances.get(name)
            if known is not None and known.state is InstanceState.GONE:
                self.over.add((name, known.up_ms, known.gone_ms))

    def charged(self, world: ChaoticWorld, name: InstanceId) -> int:
        node, known = world._settings.nodes[name], world.state.instances[name]
        total = sum(gone - up for it, up, gone in self.over if it == name)
        if known.state is not InstanceState.GONE:
            total += world.timeline.now() - known.up_ms
        return node.offering.price * total


def _world(
    story: NodeStory, policy: Policy | None = None, catalog: Catalog | None = None
) -> ChaoticWorld:
    nodes = {node.name: node for node in NODES[: story.nodes]}
    world = loop._world(story.story, replace(QUICK, nodes=nodes), policy, catalog)
    names = list(nodes)

    def pick(number: int) -> InstanceId:
        return names[number % len(names)]

    for at, number, span in story.partitions:
        world.timeline.after(at, partial(world.workers.cut, pick(number), span))
    for at, number, span in story.outages:
        world.timeline.after(at, partial(world.workers.outage, pick(number), span))
    for command, (at, number, verb) in enumerate(story.words):
        request = NodeRequested(f"node-{command}", pick(number), verb)
        world.timeline.after(at, partial(_say, world, request))
    for name in names:  # In the end an operator lets every node be used.
        last = NodeRequested(f"last-{name}", name, NodeVerb.RESUME)
        world.timeline.after(CHAOS_MS, partial(world.inbox.post, last))
    return world


def _say(world: ChaoticWorld, request: NodeRequested) -> None:
    """An operator says that a node is gone only if nothing runs on it."""
    if request.verb is NodeVerb.GONE and world.workers._agents[request.node].present():
        return
    world.inbox.post(request)


def _live(world: ChaoticWorld, story: NodeStory, stays: _Stays) -> None:
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.story.arrivals) and world.quiet():
                return
        assert world.timeline.now() < 20 * CHAOS_MS, loop._stuck(world)
        world.step()
        loop._check_now(world)
        stays.look(world)


@drawn(15)
@given(stories)
def test_no_task_runs_on_two_nodes_at_once(story: NodeStory) -> None:
    _check(story, _world(story))


TURNS = {
    "hadar": {"lease_s": 30, "slack_s": 60},
    "gavel": {"lease_s": 30, "divide_s": 60, "round_gap_s": 30},
}
"""The policies whose jobs take turns, with leases that are short enough to see many."""


@pytest.mark.parametrize("name", TURNS)
@drawn(8)
@given(story=turn_stories)
def test_nor_where_jobs_take_turns(name: str, story: NodeStory) -> None:
    kind = policies()[name]
    policy = kind.build(replace(kind.config(), **TURNS[name]))
    # Two instances for rent hold any gang, so that each job ends some day.
    _check(story, _world(story, policy, (replace(loop.CATALOG[2], limit=2),)))


def _check(story: NodeStory, world: ChaoticWorld) -> None:
    stays = _Stays()
    _live(world, story, stays)
    loop._check_end(world, story.story)
    launched = {launch for launch, _ in world.cloud.bill().items()}
    assert launched.isdisjoint(world._settings.nodes), "a node was launched"
    bill = ledger.bill(world.state, world.timeline.now())
    for name, account in bill.instances.items():
        if name in world._settings.nodes:
            assert account.charged == stays.charged(world, name)
