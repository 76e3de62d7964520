"""Runs many agents of owned nodes in one process; their tasks are timers and no processes.

Run as `python -m benchmarks.clockwork_agents REQUEST`, a JSON file with the `tokens` of the nodes,
their `type`, `milli_cpus` and `memory_mib`, and `task_ms`, after which each task exits with 0; or
`tasks_ms`, which has that of each task by the name of its job. Each agent joins with its token,
keeps its lease and speaks the whole protocol over a TLS connection of its own. They do so until
SIGTERM. With `launches` there are those of a cloud's instances as well: each line of standard input
is a JSON object with the `instance` that was launched, and with `enrol`, `workers`, `authorities`
and `token` of its worker, or with an `instance` alone that is gone.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub, WorkersStub
from eva_worker.link.channel import dial
from eva_worker.link.identity import Identity
from eva_worker.link.joining import Invitation

Key = tuple[str, int]
"""A task run and its attempt."""

_LEASES = 3
"""How often an agent asks for its lease in the time for which it holds."""


@dataclass(frozen=True)
class Machine:
    """The machine that every node is.

    Attributes:
        type: As the master's settings name it.
        task_ms: How long a task takes.
        tasks_ms: How long each takes, by the name of its job, for jobs that are named here.
    """

    type: str
    milli_cpus: int
    memory_mib: int
    task_ms: int = 1_000
    tasks_ms: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def takes_ms(self, run: str) -> int:
        """How long a task run takes, by its id."""
        job, _, index = run.partition("/")
        known = self.tasks_ms.get(job.rpartition("-")[0])
        return self.task_ms if known is None else known[int(index.partition("+")[0])]

    def resources(self) -> pb.Resources:
        """The resources that tasks may use."""
        return pb.Resources(milli_cpus=self.milli_cpus, memory_mib=self.memory_mib)


@dataclass(frozen=True)
class Place:
    """An agent's instance or node, and what it needs to connect for it.

    Attributes:
        name: The instance's id.
        workers: ``HOST:PORT`` of the master's port for workers.
        authorities: In PEM, as are the key and the certificate.
        capacity: `None` if the cloud's catalog has it.
    """

    name: str
    workers: str
    authorities: bytes
    key: bytes
    certificate: bytes
    capacity: pb.Resources | None = None


class ClockworkAgent:
    """One agent.

    Args:
        machine: Machine that it runs on.
        token: Of its node, if it is on one.
    """

    def __init__(self, machine: Machine, token: str = "") -> None:
        self._machine = machine
        self._token = token
        self._reports: dict[Key, pb.TaskReport] = {}
        self._outgoing: asyncio.Queue[pb.WorkerMessage] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Join, register, and obey until the stream ends.

        Raises:
            grpc.aio.AioRpcError: The master refused it, or the stream broke.
        """
        place = await self.enrolled()
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(
                dial(
                    place.workers,
                    authorities=place.authorities,
                    key=place.key,
                    certificate=place.certificate,
                )
            )
            workers: Any = WorkersStub(channel)
            register = pb.Register(
                instance_id=place.name, capacity=place.capacity, agent_version="bench"
            )
            self._outgoing.put_nowait(pb.WorkerMessage(register=register))
            call = workers.Session(self._each())
            welcome = (await call.read()).welcome
            for regular in (self._beat(welcome.heartbeat_ms), self._keep_lease(welcome.fence_ms)):
                stack.callback(asyncio.create_task(regular).cancel)
            while isinstance(message := await call.read(), pb.MasterMessage):
                self._obey(message)

    async def enrolled(self) -> Place:
        """Join the cluster as a node."""
        invitation = Invitation.read(self._token)
        authorities = invitation.authorities.encode()
        with tempfile.TemporaryDirectory(prefix="eva-bench-node-") as home:
            identity = Identity(Path(home), invitation.node)
            request = pb.JoinNodeRequest(
                token=invitation.secret,
                type=self._machine.type,
                measured=self._machine.resources(),
                signing_request=identity.signing_request(),
            )
            async with dial(invitation.enrol, authorities=authorities) as channel:
                joining: Any = EnrolmentStub(channel)
                node = await joining.JoinNode(request)
            key = identity.key_file.read_bytes()
        certificate = node.identity.certificate
        return Place(node.name, node.workers, authorities, key, certificate, node.capacity)

    def _obey(self, message: pb.MasterMessage) -> None:
        match message.WhichOneof("body"):
            case "start":
                self._start((message.start.order.run_id, message.start.order.attempt))
            case "stop":
                self._stop((message.stop.run_id, message.stop.attempt))
            case "forget":
                self._reports.pop((message.forget.run_id, message.forget.attempt), None)
            case "fetch":
                order = message.fetch.order
                fetched = pb.Fetched(run_id=order.run_id, attempt=order.attempt)
                self._outgoing.put_nowait(pb.WorkerMessage(fetched=fetched))
            case "sync":
                known = pb.Reports(tasks=self._reports.values(), complete=True)
                self._outgoing.put_nowait(pb.WorkerMessage(reports=known))

    def _start(self, key: Key) -> None:
        if key not in self._reports:
            self._note(key, pb.PHASE_RUNNING)
            self._loop.call_later(self._machine.takes_ms(key[0]) / 1_000, self._exit, key)
        else:
            self._tell(key)

    def _exit(self, key: Key) -> None:
        known = self._reports.get(key)
        if known is not None and known.phase == pb.PHASE_RUNNING:
            self._note(key, pb.PHASE_EXITED)

    def _stop(self, key: Key) -> None:
        known = self._reports.get(key)
        if known is None:
            self._note(key, pb.PHASE_EXITED, never_started=True, stopped=True)
        elif known.phase == pb.PHASE_RUNNING:
            self._note(key, pb.PHASE_EXITED, exit_code=-signal.SIGTERM, stopped=True)
        else:
            self._tell(key)

    def _note(self, key: Key, phase: pb.Phase.ValueType, **more: Any) -> None:
        run, attempt = key
        self._reports[key] = pb.TaskReport(run_id=run, attempt=attempt, phase=phase, **more)
        self._tell(key)

    def _tell(self, key: Key) -> None:
        reports = pb.Reports(tasks=[self._reports[key]])
        self._outgoing.put_nowait(pb.WorkerMessage(reports=reports))

    async def _each(self) -> AsyncIterator[pb.WorkerMessage]:
        while True:
            yield await self._outgoing.get()

    async def _beat(self, every_ms: int) -> None:
        await asyncio.sleep(every_ms / 1_000 * random.random())  # they do not begin all at once
        while True:
            self._outgoing.put_nowait(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
            await asyncio.sleep(every_ms / 1_000)

    async def _keep_lease(self, fence_ms: int) -> None:
        while fence_ms:
            lease = pb.LeaseRequest(asked_ms=round(time.monotonic() * 1_000))
            self._outgoing.put_nowait(pb.WorkerMessage(lease=lease))
            await asyncio.sleep(fence_ms / 1_000 / _LEASES)


class LaunchedAgent(ClockworkAgent):
    """The agent of a cloud's instance.

    Args:
        machine: Machine that it runs on.
        launch: A line of standard input.
    """

    def __init__(self, machine: Machine, launch: Mapping[str, str]) -> None:
        super().__init__(machine)
        self._launch = launch

    async def enrolled(self) -> Place:
        """Get the certificate of the instance."""
        name, authorities = self._launch["instance"], self._launch["authorities"].encode()
        with tempfile.TemporaryDirectory(prefix="eva-bench-instance-") as home:
            identity = Identity(Path(home), name)
            request = pb.JoinRequest(
                instance_id=name,
                token=self._launch["token"],
                signing_request=identity.signing_request(),
            )
            async with dial(self._launch["enrol"], authorities=authorities) as channel:
                joining: Any = EnrolmentStub(channel)
                joined = await joining.Join(request)
            key = identity.key_file.read_bytes()
        return Place(name, self._launch["workers"], authorities, key, joined.certificate)


async def _follow(machine: Machine, agents: dict[str, asyncio.Task[None]]) -> None:
    """Begin the agents of instances that are launched, and end those of instances that are gone."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        launch = json.loads(line)
        if "token" in launch:
            agent = LaunchedAgent(machine, launch).run()
            agents[launch["instance"]] = asyncio.create_task(agent)
        elif launch["instance"] in agents:
            agents[launch["instance"]].cancel()


async def _run(path: str) -> None:
    request = json.loads(Path(path).read_text())
    tokens, launches = request.pop("tokens", ()), request.pop("launches", False)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    machine = Machine(**request)
    agents = {token: asyncio.create_task(ClockworkAgent(machine, token).run()) for token in tokens}
    following = asyncio.create_task(_follow(machine, agents)) if launches else None
    await stop.wait()
    for task in [*agents.values(), *([] if following is None else [following])]:
        task.cancel()
    ends = await asyncio.gather(*agents.values(), return_exceptions=True)
    for end in {repr(end) for end in ends if isinstance(end, Exception)}:
        print(end, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
