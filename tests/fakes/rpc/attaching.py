"""A master, an agent's attachments and a task that runs, joined by real connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire.values.ids import InstanceId, JobId, RunId, run_id
from eva_wire.values.states import RunState
from eva_wire.values.users import Role
from eva_worker.attach.attachments import Attachments
from eva_worker.link import wire
from eva_worker.orders import TaskKey
from eva_worker.runtime import TaskSpec
from eva_worker.runtime.process.runtime import ProcessRuntime
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.server import Agent, RpcMaster, add_job, rpc_master, spec

HERE = InstanceId("i-1")
OWNER = "ana"


@dataclass
class Attached:
    """A user's call.

    Attributes:
        output: Bytes that have come on standard output, or by the connection.
        errors: Bytes that have come on standard error.
    """

    call: grpc.aio.StreamStreamCall
    first: asyncio.Task[None]
    output: bytes = b""
    errors: bytes = b""
    opened: bool = False

    async def say(self, **body: object) -> None:
        """Send a frame."""
        await self.first
        await self.call.write(pb.Input(**body))

    async def heard(self, text: bytes) -> None:
        """Wait until the output holds a text."""
        while text not in self.output:
            assert await self._frame() is None, self.output

    async def until_open(self) -> None:
        """Wait until the command runs."""
        while not self.opened:
            assert await self._frame() is None

    async def end(self) -> pb.Exit:
        """Read on until the command has ended."""
        while (ended := await self._frame()) is None:
            pass
        return ended

    async def _frame(self) -> pb.Exit | None:
        async with asyncio.timeout(DEADLINE_S):
            frame = await self.call.read()
        if not isinstance(frame, pb.Output):
            await self.call  # Raises how it ended.
            raise AssertionError("the call ended without a last frame")
        match frame.WhichOneof("body"):
            case "opened":
                self.opened = True
            case "data":
                self.output += frame.data
            case "error":
                self.errors += frame.error
            case "exit":
                return frame.exit
        return None


@dataclass
class AttachWorld:
    """A running task of ana's, whose agent answers the master.

    Attributes:
        wishes: Wishes that the agent was told of.
        answers: Whether the agent answers them.
    """

    master: RpcMaster
    home: Path
    job: JobId
    runtime: ProcessRuntime
    attachments: Attachments
    agent: Agent
    wishes: list[wpb.OpenAttach]
    answers: bool = True

    @property
    def key(self) -> TaskKey:
        """The attempt that runs."""
        return TaskKey(run_id(self.job, 0), 1)

    def attach(
        self, *command: str, owner: str = OWNER, role: Role = Role.USER, **options: object
    ) -> Attached:
        """Run a command as a user."""
        kind = pb.Kind(exec=pb.Exec(command=command))
        return self.open(kind, owner=owner, role=role, **options)

    def open(
        self, kind: pb.Kind, *, owner: str = OWNER, role: Role = Role.USER, **options: object
    ) -> Attached:
        """Attach as a user, by a channel of their own."""
        return self.by(self.master.channel_of(owner, role), kind, **options)

    def by(self, channel: grpc.aio.Channel, kind: pb.Kind, **options: object) -> Attached:
        """Attach by a channel."""
        call = JobsStub(channel).Attach()
        opening = pb.Open(**{"job": self.job, "kind": kind, **options})
        return Attached(call, asyncio.create_task(_write(call, pb.Input(open=opening))))

    async def hear(self) -> None:
        """Do what the master says, as an agent does."""
        with contextlib.suppress(AssertionError):
            while True:
                message = await self.agent.call.read()
                if not isinstance(message, wpb.MasterMessage):
                    return
                if message.HasField("detach"):
                    self.attachments.leave(message.detach.id)
                if message.HasField("attach"):
                    self.wishes.append(message.attach)
                    if self.answers:
                        self.begin(message.attach)

    def begin(self, message: wpb.OpenAttach, refusal: str = "") -> None:
        """Answer a wish."""
        wanted = wire.wanted(message)
        self.attachments.begin(
            wire.key(message), wanted, lambda: self.master.worker_channel(HERE), refusal
        )


async def _write(call: grpc.aio.StreamStreamCall, frame: pb.Input) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call.write(frame)


def task(home: Path, key: TaskKey, command: str) -> TaskSpec:
    """A task of plain processes in a directory."""
    env = {
        "PATH": os.environ["PATH"],
        "EVA_TASK_ID": key.run,
        "EVA_ATTEMPT": str(key.attempt),
        "EVA_SOCKET": str(home / "socket"),
        "EVA_SOCKET_SECRET": "secret",
        "COLOUR": "blue",
    }
    return TaskSpec(key, command, env, home, home / "log")


@asynccontextmanager
async def attach_world(
    directory: Path, command: str = "sleep 3600", tasks: int = 1
) -> AsyncIterator[AttachWorld]:
    """Run a master, and a task whose agent answers."""
    work = directory / "work"
    work.mkdir(exist_ok=True)
    async with rpc_master(directory) as master:
        job = await master.loop.change(
            lambda state: add_job(state, spec("train", owner=OWNER, tasks=tasks))
        )
        agent = await master.welcomed(HERE)
        run = run_id(job, 0)
        await master.loop.change(lambda state: state.put_run(placed(state.runs[run])))
        runtime = ProcessRuntime(directory / "runtime")
        key = TaskKey(run, 1)
        await runtime.start(task(work, key, command))
        world = AttachWorld(master, work, job, runtime, Attachments(runtime), agent, [])
        hearing = asyncio.create_task(world.hear())
        try:
            yield world
        finally:
            hearing.cancel()
            await runtime.kill(key)
            async with asyncio.timeout(DEADLINE_S):
                await runtime.wait(key)
            runtime.close()


def placed(run: object, state: RunState = RunState.RUNNING) -> object:
    """A record of a task run in a state, on the instance."""
    history = (*run.history, (state.value, 2000))  # type: ignore[attr-defined]
    return replace(run, history=history, attempt=1, instance=HERE, target=HERE)  # type: ignore[type-var]


__all__ = ["HERE", "OWNER", "AttachWorld", "Attached", "RunId", "attach_world", "placed", "task"]
