"""The server around the real control loop: a job from submission to its end, and a restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.objects import open_store
from eva_master.adapters.objects.checkpoints import StoredCheckpoints
from eva_master.adapters.rpc.workers.sessions import Welcome, WorkerSessions
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import CloudAction, LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp, Tick
from eva_master.ports import Inbox
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire.values.ids import InstanceId, Millis
from tests.fakes.archive import LoadedArchive
from tests.fakes.planner import InlinePlanner
from tests.fakes.rpc.server import (
    CATALOG,
    DEADLINE_S,
    JOB_YAML,
    Agent,
    FirstFit,
    RpcMaster,
    agent_certificates,
    served,
)


class ObedientCloud:
    """Does what it is asked, at once."""

    def __init__(self) -> None:
        self.inbox: Inbox | None = None
        self.up: dict[InstanceId, Millis] = {}

    def execute(self, action: CloudAction) -> None:
        assert self.inbox is not None
        now = SystemClock().now()
        match action:
            case LaunchInstance(instance=instance):
                self.inbox.post(InstanceUp(instance, self.up.setdefault(instance, now)))
            case TerminateInstance(instance=instance):
                self.inbox.post(InstanceGone(instance, self.up.pop(instance, None), now))
            case SyncCloud():
                self.inbox.post(CloudListed(tuple(self.up.items())))


@asynccontextmanager
async def master(
    directory: Path, journal: MemoryJournal, cloud: ObedientCloud
) -> AsyncIterator[RpcMaster]:
    clock, settings = SystemClock(), Settings(round_gap_ms=10)
    cloud.inbox = inbox = LiveInbox(clock)
    gateway, store = LoopGateway(inbox), open_store(f"file://{directory}")
    welcome = Welcome("test", f"file://{directory}", heartbeat_ms=1000, upload_ms=5000)
    sessions = WorkerSessions(inbox, clock, agent_certificates(gateway), welcome)
    planner = InlinePlanner(inbox, FirstFit())
    loop = Loop(
        Machine(State.restored(CATALOG, journal.load()), settings),
        clock=clock,
        inbox=inbox,
        journal=journal,
        cloud=cloud,
        workers=sessions,
        planner=planner,
        checkpoints=StoredCheckpoints(store, inbox, clock, LoadedArchive(journal.load).ended),
        replies=gateway,
    )
    stopping = threading.Event()

    def run() -> None:
        loop.start()
        while not stopping.is_set():
            loop.step()

    thread = threading.Thread(target=run, name="loop")
    thread.start()
    try:
        async with served(
            None,
            gateway=gateway,
            sessions=sessions,
            store=store,
            planner=planner,
            archive=LoadedArchive(journal.load),
        ) as running:
            yield running
    finally:
        stopping.set()
        inbox.post(Tick())
        await asyncio.to_thread(thread.join, DEADLINE_S)


async def until_state(watch: grpc.aio.UnaryStreamCall, state: str) -> pb.Job:
    """The first version of the job in this state."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            job = await watch.read()
            assert isinstance(job, pb.Job), f"the watch ended before {state}"
            if job.state == state:
                return job


async def until_body(agent: Agent, body: str) -> wpb.MasterMessage:
    """The first command of a kind."""
    while (message := await agent.hear()).WhichOneof("body") != body:
        pass
    return message


async def launched(cloud: ObedientCloud) -> InstanceId:
    async with asyncio.timeout(DEADLINE_S):
        while not cloud.up:
            await asyncio.sleep(0.01)
    return next(iter(cloud.up))


def report(attempt: int, phase: wpb.Phase) -> wpb.TaskReport:
    return wpb.TaskReport(run_id="resnet-1/0", attempt=attempt, phase=phase)


async def test_a_job_runs_from_submission_to_its_end_over_a_restart_of_the_master(
    tmp_path: Path,
) -> None:
    journal, cloud = MemoryJournal(), ObedientCloud()
    request = pb.SubmitRequest(command_id="c", job_yaml=JOB_YAML.format(name="resnet"))
    async with master(tmp_path, journal, cloud) as first:
        job = (await first.jobs.Submit(request)).job_id
        assert job == "resnet-1"
        watch = first.jobs.Watch(pb.WatchRequest(jobs=[job]))
        instance = await launched(cloud)
        agent = await first.agent(instance)
        order = (await until_body(agent, "start")).start.order
        assert (order.run_id, order.run) == ("resnet-1/0", "python train.py")
        await agent.say(reports=wpb.Reports(tasks=[report(order.attempt, wpb.PHASE_RUNNING)]))
        assert (await until_state(watch, "running")).tasks[0].instance == instance

    running = (report(order.attempt, wpb.PHASE_RUNNING),)
    async with master(tmp_path, journal, cloud) as second:
        # The same command again, as from a client that never saw the answer.
        assert (await second.jobs.Submit(request)).job_id == job
        watch = second.jobs.Watch(pb.WatchRequest(jobs=[job]))
        await until_state(watch, "running")
        agent = await second.agent(instance, tasks=running)
        sample = wpb.Sample(run_id="resnet-1/0", attempt=order.attempt, steps=5)
        await agent.say(heartbeat=wpb.Heartbeat(samples=[sample]))
        await agent.say(reports=wpb.Reports(tasks=[report(order.attempt, wpb.PHASE_EXITED)]))
        ended = await until_state(watch, "succeeded")
        assert await watch.read() is grpc.aio.EOF
        assert (ended.exit_code, ended.tasks[0].steps, ended.tasks[0].attempt) == (0, 5, 1)
        assert ended.cost_micro_usd >= 0
        # Empty now, so it is given back at once.
        async with asyncio.timeout(DEADLINE_S):
            while cloud.up:
                await asyncio.sleep(0.01)
        bill = await second.cluster.Cost(pb.CostRequest())
        assert [cost.closed for cost in bill.instances] == [True]


async def test_cancelling_kills_what_runs(tmp_path: Path) -> None:
    journal, cloud = MemoryJournal(), ObedientCloud()
    async with master(tmp_path, journal, cloud) as running:
        request = pb.SubmitRequest(command_id="c", job_yaml=JOB_YAML.format(name="resnet"))
        job = (await running.jobs.Submit(request)).job_id
        watch = running.jobs.Watch(pb.WatchRequest(jobs=[job]))
        agent = await running.agent(await launched(cloud))
        order = (await until_body(agent, "start")).start.order
        await agent.say(reports=wpb.Reports(tasks=[report(order.attempt, wpb.PHASE_RUNNING)]))
        await until_state(watch, "running")
        await running.jobs.Cancel(pb.CancelRequest(command_id="d", job="resnet"))
        stop = (await until_body(agent, "stop")).stop
        assert (stop.run_id, stop.attempt) == ("resnet-1/0", order.attempt)
        exited = report(order.attempt, wpb.PHASE_EXITED)
        exited.stopped, exited.exit_code = True, -15
        await agent.say(reports=wpb.Reports(tasks=[exited]))
        assert (await until_state(watch, "cancelled")).id == job
