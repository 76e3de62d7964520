"""What an operator has said of an owned node holds until they say otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import NodeRequested, WorkerLost, WorkerRegistered
from eva_master.model.fleet.nodes import NODE_ZONE, NodeVerb, OwnedNode
from eva_master.model.resources import Resources
from eva_wire.values.errors import EvaError, InvalidRequest
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from eva_wire.values.states import InstanceState

SIZE = Resources(0, 4_000, 8 * 1024)
SMALLER = Resources(0, 4_000, 4 * 1024)
NAME = InstanceId("rack1")
OFFERING = Offering(InstanceType("own.4", Family("c"), SIZE), Price(0), NODE_ZONE, Purchase.OWNED)
SETTINGS = replace(Settings(), nodes={NAME: OwnedNode(NAME, OFFERING, 60_000)})


class Node:
    """A node and what an operator says of it."""

    def __init__(self) -> None:
        self.machine = Machine(State(()), SETTINGS)
        self.now = 0
        self.sessions = 0

    def _handle(self, event: object) -> None:
        self.now += 1_000
        self.told = self.machine.handle([event], Millis(self.now))  # type: ignore[list-item]

    def comes(self, size: Resources = SIZE) -> None:
        self.sessions += 1
        self._handle(WorkerRegistered(NAME, self.sessions, size, ()))

    def leaves(self) -> None:
        self._handle(WorkerLost(NAME, self.sessions, goodbye=True, reason="terminated"))
        departed = self.machine.state.instances[NAME]
        assert departed.state is InstanceState.GONE
        assert departed.reason == "its worker said goodbye: terminated"

    def hears(self, verb: NodeVerb) -> EvaError | None:
        """What the operator is answered."""
        command = f"c{self.now}"
        self._handle(NodeRequested(command, NAME, verb, "ops"))
        (reply,) = (it for it in self.told if isinstance(it, Reply) and it.command == command)
        return reply.error

    @property
    def takes_tasks(self) -> bool:
        return self.machine.state.can_place(NAME)


def test_a_drained_node_that_was_away_gets_no_tasks_when_it_is_back() -> None:
    node = Node()
    node.comes()
    assert node.takes_tasks
    node.hears(NodeVerb.DRAIN)
    node.leaves()
    node.comes()
    assert not node.takes_tasks
    node.hears(NodeVerb.RESUME)
    assert node.takes_tasks


def test_a_node_that_was_removed_joins_as_a_new_one() -> None:
    node = Node()
    node.comes()
    node.hears(NodeVerb.DRAIN)
    node.hears(NodeVerb.REMOVE)
    assert node.machine.state.instances[NAME].state is InstanceState.GONE
    node.comes()
    assert node.takes_tasks


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("away", [False, True])
def test_no_word_of_an_operator_makes_a_node_larger(*, drained: bool, away: bool) -> None:
    node = Node()
    node.comes()
    if drained:
        node.hears(NodeVerb.DRAIN)
    if away:
        node.leaves()
    node.comes(SMALLER)
    error = node.hears(NodeVerb.RESUME)
    assert isinstance(error, InvalidRequest)
    assert f"it has {SMALLER} and is stated with {SIZE}" in error.message
    assert "nodes.rack1.capacity" in error.hint
    assert not node.takes_tasks
    node.hears(NodeVerb.DRAIN)
    assert node.hears(NodeVerb.RESUME) is not None
    # Once it has what is stated, what an operator said holds, and they may take it back.
    node.comes()
    assert not node.takes_tasks
    assert node.hears(NodeVerb.RESUME) is None
    assert node.takes_tasks


def test_a_smaller_node_takes_tasks_once_it_has_what_is_stated() -> None:
    node = Node()
    node.comes(SMALLER)
    assert not node.takes_tasks
    node.comes()
    assert node.takes_tasks
