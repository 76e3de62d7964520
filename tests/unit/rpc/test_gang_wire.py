"""An order, as the master sends it and as a worker reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.adapters.rpc.workers.messages import order
from eva_master.model import actions
from eva_master.model.job import JobOutputs, Program
from eva_master.model.resources import Resources
from eva_wire._proto import worker_pb2 as pb
from eva_wire.values.ids import JobId, RunId
from eva_worker import orders
from eva_worker.errors import UnsupportedInput
from eva_worker.files.inputs import Roots
from eva_worker.link import wire

TRUE = Program("true")
GANG = actions.Gang(rank=1, size=3, address="10.0.0.7", port=20_003)


def made(program: Program = TRUE, **more: object) -> actions.TaskOrder:
    return actions.TaskOrder(
        run=RunId("g-1/1"),
        attempt=4,
        job=JobId("g-1"),
        index=1,
        workload="w",
        program=program,
        demand=Resources(0, 1000, 1024),
        grace_period_ms=60_000,
        **more,  # type: ignore[arg-type]
    )


def sent(program: Program = TRUE, **more: object) -> orders.Order:
    message = order(made(program, **more))
    return wire.order(pb.TaskOrder.FromString(message.SerializeToString()))


@pytest.mark.parametrize("resume", [None, 0, 7])
def test_from_nothing_is_not_from_the_newest(resume: int | None) -> None:
    received = sent(resume=resume)
    assert received.resume == resume
    assert orders.Order.from_json(received.to_json()) == received


def test_a_member_knows_its_gang() -> None:
    received = sent(gang=GANG, resume=7, checkpoint_of=RunId("g-1/0"))
    assert received.gang == orders.Gang(1, 3, "10.0.0.7", 20_003)
    assert received.checkpoint_of == "g-1/0"
    assert received.companions == ["g-1/0", "g-1/2"]
    assert received.gang.environment == {
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "20003",
        "NODE_RANK": "1",
        "NNODES": "3",
    }
    assert orders.Order.from_json(received.to_json()) == received


@pytest.mark.parametrize(
    ("ppm", "told"), [(1, "0.000001"), (333_334, "0.333334"), (1_000_000, "1.000000")]
)
def test_a_member_knows_its_part_of_each_batch(ppm: int, told: str) -> None:
    received = sent(gang=replace(GANG, batch_ppm=ppm))
    assert received.gang is not None
    assert received.gang.environment["EVA_BATCH_SHARE"] == told
    assert float(told) == pytest.approx(ppm / 1e6)
    assert orders.Order.from_json(received.to_json()) == received


def test_outputs_of_jobs_are_no_urls_to_an_agent_and_refused_by_one_that_knows_none() -> None:
    outputs = JobOutputs("data", JobId("prep-1"), 2, 0, "a/b")
    program = Program("true", inputs=(("set", "s3://b/x"),), outputs=(outputs,))
    received = sent(program)
    assert received.outputs == {"data": orders.JobOutputs("prep-1", 2, 0, "a/b")}
    assert received.inputs == {"set": "s3://b/x"}
    assert orders.Order.from_json(received.to_json()) == received
    url = order(made(program)).inputs["data"]
    assert url == str(received.outputs["data"]) == "job:prep-1/2/outputs/a/b"
    with pytest.raises(UnsupportedInput):
        Roots(["s3://", "file:///data"], "file:///objects").place(url)


def test_a_url_alone_names_no_outputs() -> None:
    received = sent(Program("true", inputs=(("data", "job:prep-1/outputs"),)))
    assert (received.outputs, received.inputs) == ({}, {"data": "job:prep-1/outputs"})


def test_an_order_that_an_earlier_agent_has_kept_is_read() -> None:
    document = sent(gang=GANG).to_json()
    del document["gang"]["batch_ppm"]
    assert orders.Order.from_json(document) == sent(gang=GANG)


def test_a_task_on_its_own_has_none() -> None:
    assert sent().gang is None
    assert sent().companions == []


@pytest.mark.parametrize("larger", [True, False])
def test_a_fork_is_told_of_the_others(larger: bool) -> None:
    received = sent(fork=actions.ForkOrder(2, 5, 60_000, "score", larger, 90_000))
    assert received.fork is not None
    assert received.fork.environment == {
        "EVA_FORK": "2",
        "EVA_FORKS": "5",
        "EVA_MERGE_EVERY_MS": "60000",
        "EVA_MERGE_CHECK": "score",
        "EVA_MERGE_BETTER": "larger" if larger else "smaller",
        "EVA_MERGE_PATIENCE_MS": "90000",
    }
    written = received.to_json()
    assert orders.Order.from_json(written) == received
    del written["fork"]["larger"]  # an attempt that an earlier agent started
    del written["fork"]["patience_ms"]
    assert orders.Order.from_json(written).fork == orders.Fork(2, 5, 60_000, "score")


def test_whatever_a_program_says_of_parts_can_be_sent() -> None:
    parts = (orders.KeptPart(1, kept=False, reason="\ud800" * 300),)
    news = orders.PartsMerged(orders.TaskKey("j-1/0", 1), 5, parts, float("nan"), None)
    sent = pb.WorkerMessage.FromString(wire.merge_news(news).SerializeToString())
    assert sent.merged.parts[0].reason.startswith("??")
