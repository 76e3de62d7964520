"""The Nodes service: tokens of owned nodes, and what operators ask of these."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import structlog

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.pki.node_register import NodeRegister
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.handlers import Context, to_the_end
from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.access import caller
from eva_master.model.events import NodeRequested
from eva_master.model.fleet.nodes import NodeVerb
from eva_master.model.values import replace
from eva_master.ports.reading import ReadModel
from eva_wire._proto.api_pb2_grpc import NodesServicer
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import InvalidRequest
from eva_wire.values.ids import InstanceId

_LONGEST_LIFETIME_MS = 30 * 86_400_000

log = structlog.get_logger(__name__)


class NodesService(NodesServicer):
    """Serves operators; behind an `AccessInterceptor`.

    Args:
        gateway: Carries commands to the control loop.
        register: The declared nodes and their tokens.
    """

    def __init__(self, gateway: LoopGateway, register: NodeRegister) -> None:
        self._gateway = gateway
        self._register = register
        # A thread of its own, so that no other call is waited for.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nodes")

    async def Token(  # noqa: N802
        self,
        request: pb.NodeTokenRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.NodeTokenResponse:
        """Make a token; its secret is in the answer and nowhere else."""
        node = self._register.node(request.node)
        if not 0 < request.lifetime_ms <= _LONGEST_LIFETIME_MS:
            raise InvalidRequest(
                "a token of a node lasts 30 days at most", hint="make it when it is needed"
            )
        model = await self._gateway.model()
        if node.name in model.live:
            raise InvalidRequest(
                f"{node.name} has joined already",
                hint=f"if another machine is to take its place: eva node remove {node.name} first",
            )
        token, secret = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._register.tokens.create, node.name, request.lifetime_ms
        )
        log.info("node token made", node=node.name, by=caller().owner)
        return pb.NodeTokenResponse(
            node=node.name,
            expires_ms=token.expires_ms,
            secret=self._register.invitation(node.name, secret),
            type=node.offering.type.name,
            now_ms=token.expires_ms - request.lifetime_ms,
        )

    async def Act(  # noqa: N802
        self,
        request: pb.NodeActRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.NodeActResponse:
        """Drain, resume, give up or remove a node."""
        try:
            verb = NodeVerb(request.verb)
        except ValueError as error:
            raise BadRequest(f"there is nothing like {request.verb[:80]!r} to ask") from error
        event = NodeRequested(
            request.command_id, InstanceId(request.node[:80]), verb, caller().owner
        )
        await to_the_end(self._carry_out(event))
        log.info("node command", node=event.node, verb=verb.value, by=event.owner)
        return pb.NodeActResponse()

    async def _carry_out(self, event: NodeRequested) -> None:
        await self._gateway.command(event)
        if event.verb is NodeVerb.REMOVE:
            await asyncio.get_running_loop().run_in_executor(
                self._thread, self._register.tokens.forget, event.node
            )
            # Its agent may have come back in between. From now on it cannot.
            await self._gateway.command(replace(event, command=uuid.uuid4().hex))

    async def List(  # noqa: N802
        self,
        request: pb.ListNodesRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ListNodesResponse:
        """Answer with every declared node."""
        return await self._gateway.read(self._listed)

    def _listed(self, model: ReadModel) -> pb.ListNodesResponse:
        nodes = []
        for name, node in self._register.declared.items():
            machine = node.offering.type
            message = pb.Node(
                name=name,
                type=machine.name,
                capacity=views.resources(machine.capacity),
                price_micro_usd_per_hour=node.offering.price,
                fence_ms=node.fence_ms,
                joined=self._register.joined(name),
                partition=model.partitions.of_node(name).name,
            )
            if (here := model.live.get(name)) is not None:
                message.instance.CopyFrom(views.instance(model, here))
            nodes.append(message)
        return pb.ListNodesResponse(nodes=nodes)
