"""Tokens of owned nodes, while machines and operators use them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import create_engine

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.pki.node_register import NodeRegister
from eva_master.adapters.pki.node_tokens import NodeTokens
from eva_master.adapters.rpc.handlers import Context
from eva_master.adapters.rpc.nodes.service import NodesService
from eva_master.adapters.rpc.server.access import _CALLER
from eva_master.adapters.store.tables import METADATA
from eva_master.model.actions import Reply
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import NodeRequested
from eva_master.model.fleet.nodes import NODE_ZONE, NodeVerb, OwnedNode
from eva_master.model.resources import Resources
from eva_master.ports import Clock
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotAuthorised
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from eva_wire.values.users import Role, UserToken

NODE = InstanceId("rack-1")
KEY = b"the first machine's"


class At:
    """A clock that stands."""

    def now(self) -> Millis:
        return Millis(1_000)


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[NodeTokens]:
    engine = create_engine(f"sqlite:///{tmp_path / 'journal.db'}")
    METADATA.create_all(engine)
    yield NodeTokens(engine, cast("Clock", At()))
    engine.dispose()


class _Key:
    """A public key, as a certificate has it."""

    def public_bytes(self, encoding: Encoding, form: PublicFormat) -> bytes:
        assert (encoding, form) == (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return KEY


@pytest.mark.parametrize("declared", [False, True])
def test_who_is_taken_out_of_the_settings_is_refused(tokens: NodeTokens, *, declared: bool) -> None:
    _, secret = tokens.create(NODE, 1_000)
    tokens.redeem(secret, KEY)
    machine = InstanceType("rack.large", Family("rack"), Resources(0, 1_000, 1_024))
    node = OwnedNode(NODE, Offering(machine, Price(0), NODE_ZONE, Purchase.OWNED), 60_000)
    register = NodeRegister({NODE: node} if declared else {}, tokens)
    register.require_machine(InstanceId("i00001"), _Key())
    if declared:
        register.require_machine(NODE, _Key())
        return
    with pytest.raises(NotAuthorised, match="the settings do not name it") as refused:
        register.require_machine(NODE, _Key())
    assert "nodes:" in refused.value.hint


class ComesBack:
    """A control loop whose node opens a new session right after it was removed, if it may."""

    def __init__(self, may_join: Callable[[], bool]) -> None:
        self.live = True
        self.commands: list[str] = []
        self._may_join = may_join

    async def command(self, event: NodeRequested) -> Reply:
        assert (event.node, event.verb) == (NODE, NodeVerb.REMOVE)
        assert event.command not in self.commands, "it would be taken for a repetition"
        self.commands.append(event.command)
        self.live = self._may_join()
        return Reply(event.command, None, owner=event.owner)


class TakesLong(ComesBack):
    """Such a loop that holds its first command.

    Attributes:
        begun: Set once it has the command.
        go_on: Set by the test, once it may carry it out.
        over: Set once no command follows.
    """

    def __init__(self, may_join: Callable[[], bool]) -> None:
        super().__init__(may_join)
        self.begun, self.go_on, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def command(self, event: NodeRequested) -> Reply:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.over.set()
            raise
        reply = await super().command(event)
        if len(self.commands) == 2:
            self.over.set()
        return reply


async def removal(loop: ComesBack, tokens: NodeTokens) -> None:
    """An operator's removal of a node that has joined."""
    service = NodesService(cast("LoopGateway", loop), NodeRegister({}, tokens))
    _CALLER.set(UserToken("t", "ops", Role.OPERATOR, "", Millis(0)))
    request = pb.NodeActRequest(command_id="c", node=NODE, verb="remove")
    await service.Act(request, cast("Context", None))


def require_removed(loop: ComesBack, tokens: NodeTokens) -> None:
    assert not loop.live
    with pytest.raises(NotAuthorised, match="removed"):
        tokens.require_machine(NODE, KEY)


async def test_a_removed_node_that_came_back_at_once_is_removed_too(tokens: NodeTokens) -> None:
    _, secret = tokens.create(NODE, 1_000)
    tokens.redeem(secret, KEY)
    loop = ComesBack(lambda: tokens.joined(NODE))
    await removal(loop, tokens)
    require_removed(loop, tokens)


async def test_a_node_is_removed_though_its_operator_has_gone(tokens: NodeTokens) -> None:
    _, secret = tokens.create(NODE, 1_000)
    tokens.redeem(secret, KEY)
    loop = TakesLong(lambda: tokens.joined(NODE))
    call = asyncio.create_task(removal(loop, tokens))
    await loop.begun.wait()
    call.cancel()
    await asyncio.wait([call])
    loop.go_on.set()
    await loop.over.wait()
    require_removed(loop, tokens)


def test_a_token_that_is_replaced_while_it_is_used_is_of_no_use(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'journal.db'}")
    METADATA.create_all(engine)
    meanwhile: list[Callable[[], object]] = []

    class Late:
        """A clock that lets somebody else act before it tells the time."""

        def now(self) -> Millis:
            while meanwhile:
                meanwhile.pop()()
            return Millis(1_000)

    tokens = NodeTokens(engine, cast("Clock", Late()))
    _, secret = tokens.create(NODE, 1_000)
    meanwhile.append(lambda: tokens.create(NODE, 1_000))
    with pytest.raises(NotAuthorised, match="a newer one has taken its place"):
        tokens.redeem(secret, KEY)
    assert not tokens.joined(NODE)
    _, newer = tokens.create(NODE, 1_000)
    meanwhile.append(lambda: tokens.forget(NODE))
    with pytest.raises(NotAuthorised, match="not that of an owned node"):
        tokens.redeem(newer, KEY)
    engine.dispose()


def test_a_token_lasts_through_a_restart_and_joins_one_machine(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'journal.db'}")
    METADATA.create_all(engine)
    _, secret = NodeTokens(engine, cast("Clock", At())).create(NODE, 1_000)
    again = NodeTokens(engine, cast("Clock", At()))
    assert again.redeem(secret, KEY) == again.redeem(secret, KEY) == NODE
    with pytest.raises(NotAuthorised, match="has joined as rack-1 with this token already"):
        again.redeem(secret, b"another machine's")
    engine.dispose()


def test_a_token_that_has_expired_is_refused_with_what_to_do(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'journal.db'}")
    METADATA.create_all(engine)
    _, secret = NodeTokens(engine, cast("Clock", At())).create(NODE, 1_000)

    class Later:
        """A clock that shows when the token's time is over."""

        def now(self) -> Millis:
            return Millis(2_000)

    with pytest.raises(NotAuthorised, match="expired") as refused:
        NodeTokens(engine, cast("Clock", Later())).redeem(secret, KEY)
    assert "eva node token" in refused.value.hint
    engine.dispose()
