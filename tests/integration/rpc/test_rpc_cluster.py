"""The cluster as a whole: over gRPC, and as Prometheus sees it."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from eva_master.adapters.http.metrics import MasterMetrics
from eva_master.adapters.loop.clock import SystemClock
from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.changes import Changes, Round
from eva_master.ports.reading import Pause
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.states import RunState
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import Agent, RpcMaster, add_instance, add_job, rpc_master, spec


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def one_runs_one_waits(state: State) -> None:
    """Two jobs on one instance with room for both, of which one runs."""
    place = add_instance(state)
    running = add_job(state, spec("running"))
    add_job(state, spec("waiting"))
    run = next(state.members(running)).to(RunState.STARTING, Millis(1000))
    run = run.to(RunState.RUNNING, Millis(1000))
    state.put_run(replace(run, attempt=1, instance=place, target=place))
    ledger.open_account(state, state.instances[place])
    state.count(rounds=3)


async def test_a_pause_is_told_of_the_cluster_and_of_jobs_that_go_on(master: RpcMaster) -> None:
    await master.loop.change(one_runs_one_waits)
    master.loop.gateway.paused(Pause(Millis(7), "the disk is full", "make room"))
    state = await master.cluster.Describe(pb.DescribeRequest())
    job = await master.jobs.Get(pb.GetJobRequest(job="running"))
    (listed, _) = (await master.jobs.List(pb.ListJobsRequest())).jobs
    for told in (state, job, listed):
        pause = told.pause
        assert (pause.since_ms, pause.reason, pause.hint) == (7, "the disk is full", "make room")
    master.loop.gateway.paused(None)
    assert not (await master.cluster.Describe(pb.DescribeRequest())).HasField("pause")
    assert not (await master.jobs.Get(pb.GetJobRequest(job="running"))).HasField("pause")


async def test_a_round_that_takes_long_is_told_of_the_cluster(master: RpcMaster) -> None:
    assert not (await master.cluster.Describe(pb.DescribeRequest())).planning
    master.loop.gateway.planning = lambda: "a plan takes long"
    assert (await master.cluster.Describe(pb.DescribeRequest())).planning == "a plan takes long"


async def test_who_watches_jobs_hears_of_a_pause_and_of_its_end(master: RpcMaster) -> None:
    await master.loop.change(one_runs_one_waits)
    pause = Pause(Millis(7), "the disk is full", "make room")
    stream = master.jobs.Watch(pb.WatchRequest(jobs=["running"]))

    async def heard() -> pb.Pause | None:
        async with asyncio.timeout(DEADLINE_S):
            job = await stream.read()
        return job.pause if job.HasField("pause") else None

    assert await heard() is None
    master.loop.gateway.paused(pause)
    told = await heard()
    assert told is not None
    assert told.reason == "the disk is full"
    master.loop.gateway.paused(pause)  # it is said again with each try, and is no news
    master.loop.gateway.paused(None)
    assert await heard() is None
    stream.cancel()


async def test_the_cluster_describes_itself(master: RpcMaster) -> None:
    await master.loop.change(one_runs_one_waits)
    cluster = await master.cluster.Describe(pb.DescribeRequest())
    assert (cluster.cluster, cluster.policy, cluster.rounds) == ("test", "first-fit", 3)
    assert dict(cluster.tasks_by_state) == {"running": 1, "waiting": 1}
    assert dict(cluster.jobs_by_state) == {"pending": 2}
    assert cluster.price_micro_usd_per_hour == 89_250
    assert cluster.no_packing_micro_usd_per_hour == 89_250
    (instance,) = cluster.instances
    assert (instance.id, instance.type, list(instance.tasks)) == (
        "i-1",
        "c7i.large",
        ["running-1/0"],
    )
    assert (instance.used.milli_cpus, instance.capacity.milli_cpus) == (1000, 2000)
    assert instance.connected


async def test_the_bill_adds_up(master: RpcMaster) -> None:
    await master.loop.change(one_runs_one_waits)
    bill = await master.cluster.Cost(pb.CostRequest())
    (instance,) = bill.instances
    assert instance.billed_ms == bill.now_ms - 950
    assert bill.cost_micro_usd == instance.cost_micro_usd
    assert abs(sum(job.cost_micro_usd for job in bill.jobs) - bill.cost_micro_usd) <= 1
    assert bill.idle_micro_usd == 0


async def test_the_settings_are_shown(master: RpcMaster) -> None:
    config = await master.cluster.Config(pb.ConfigRequest())
    assert json.loads(config.json) == {"policy": "first-fit"}


async def test_health_and_reflection_answer(master: RpcMaster) -> None:
    health = health_pb2_grpc.HealthStub(master.channel)
    for service in ("", "eva.api.v1.Jobs", "eva.worker.v1.Enrolment"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(master.channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in reflection.ServerReflectionInfo(iter([question])):
        listed = {service.name for service in answer.list_services_response.service}
    assert {"eva.api.v1.Jobs", "eva.api.v1.Cluster", "eva.worker.v1.Enrolment"} <= listed


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """Name and label values to value."""
    trust = ssl.create_default_context(cadata=authority().certificates.decode())
    url = f"https://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=DEADLINE_S, context=trust) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_bill_is_divided_by_each_property_and_by_no_other(master: RpcMaster) -> None:
    await master.loop.change(one_runs_one_waits)
    kinds = ("job", "owner", "tenant", "workload", "label:team", "partition", "type", "day")
    for by in kinds:
        request = pb.CostRequest(without_jobs=True, without_instances=True, by=by)
        bill = await master.cluster.Cost(request)
        assert bill.by == by
        between = bill.idle_micro_usd if by not in ("partition", "type", "day") else 0
        assert sum(share.cost_micro_usd for share in bill.shares) + between == bill.cost_micro_usd
        assert bill.cost_micro_usd > 0
    for by in ("label", "label:", "label:=", "moon", "owner:x", "label:" + "x" * 64, "x" * 900):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await master.cluster.Cost(pb.CostRequest(by=by))
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "costs cannot be divided by" in (refused.value.details() or "")


async def test_metrics_are_read_when_somebody_scrapes(master: RpcMaster) -> None:
    loop = master.loop
    metrics = MasterMetrics(
        gateway=loop.gateway, inbox=loop.inbox, sessions=master.sessions, clock=SystemClock()
    )
    server = metrics.serve("127.0.0.1", 0, authority().server())
    try:
        before = await asyncio.to_thread(scrape, server.port)
        assert before[("eva_queue_tasks",)] == 0
        agent = await master.welcomed()
        await agent.say(heartbeat=wpb.Heartbeat())
        await agent.say(reports=wpb.Reports())
        await loop.event()
        await loop.change(one_runs_one_waits)
        round_ = Round(1, Millis(1), planned_ms=20, launches=0, moves=0)
        loop.gateway.publish(Changes(rounds=(round_,)), loop.gateway.latest)
        after = await asyncio.to_thread(scrape, server.port)
    finally:
        await asyncio.to_thread(server.stop)
    expected = {
        ("eva_queue_tasks",): 1,
        ("eva_late_jobs",): 0,
        ("eva_agents_silent",): 0,
        ("eva_types_refused",): 0,
        ("eva_planning_long",): 0,
        ("eva_tasks", "running"): 1,
        ("eva_tasks", "waiting"): 1,
        ("eva_jobs", "pending"): 2,
        ("eva_tenant_jobs", "pending", "default"): 2,
        ("eva_tenant_jobs", "running", "default"): 0,
        ("eva_instances", "ready", "c7i.large"): 1,
        ("eva_rounds_total",): 3,
        ("eva_round_seconds_count",): 1,
        ("eva_round_seconds_sum",): 0.02,
        ("eva_cost_usd_per_hour",): 0.08925,
        ("eva_no_packing_usd_per_hour",): 0.08925,
        ("eva_workers_connected",): 1,
        ("eva_heartbeats_total",): 1,
    }
    assert {key: after[key] for key in expected} == expected
    assert after[("eva_cost_usd_total",)] > 0
    assert after[("eva_tenant_cost_usd_total", "default")] > 0
    assert after[("eva_inbox_events_total",)] > before[("eva_inbox_events_total",)]
    assert InstanceId("i-1") in loop.state.sessions


async def test_how_long_boots_take_is_counted_by_type_and_stage(master: RpcMaster) -> None:
    loop = master.loop
    for instance, ms in (("i-1", 1_000), ("i-2", 2_000)):
        await master.launched(instance)
        agent = Agent(WorkersStub(master.worker_channel(instance)).Session())
        stages = [
            wpb.BootStage(name="download", ms=ms),
            wpb.BootStage(name="Not a stage", ms=ms),
            *(wpb.BootStage(name="filler_" + "x" * number, ms=0) for number in range(13)),
            *(wpb.BootStage(name=f"more_{letter}", ms=0) for letter in "abcdefgh"),
        ]
        await agent.say(
            register=wpb.Register(instance_id=instance, instance_type="c7i.large", boot=stages)
        )
        await agent.hear()
        await loop.event()
    metrics = MasterMetrics(
        gateway=loop.gateway, inbox=loop.inbox, sessions=master.sessions, clock=SystemClock()
    )
    server = metrics.serve("127.0.0.1", 0, authority().server())
    try:
        found = await asyncio.to_thread(scrape, server.port)
    finally:
        await asyncio.to_thread(server.stop)
    assert found["eva_boot_stage_seconds_count", "download", "c7i.large"] == 2
    assert found["eva_boot_stage_seconds_sum", "download", "c7i.large"] == 3
    counted = {key[1] for key in found if key[0] == "eva_boot_stage_seconds_count"}
    assert "Not a stage" not in counted
    assert len(counted) == 15, "an agent does not decide how many there are"
