"""`eva partitions`, `eva move`, and where else partitions are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import FakeApi, sample_bill, sample_jobs, sample_state

Run = Callable[..., Result]


def answer() -> pb.PartitionsResponse:
    quick = pb.Partition(
        name="quick",
        policy="no_packing",
        offerings=3,
        jobs=3,
        most_jobs=1000,
        tasks=12,
        instances=2,
        most_instances=20,
        price_micro_usd_per_hour=360_000,
        budget_micro_usd_per_hour=15_000_000,
        month_micro_usd=41_200_000,
        budget_micro_usd_per_month=2_000_000_000,
        cost_micro_usd=97_000_000,
        idle_micro_usd=1_000_000,
    )
    main_ = pb.Partition(name="main", policy="eva", default=True, open=True, cost_micro_usd=3)
    gone = pb.Partition(name="gone", former=True, cost_micro_usd=2_999_997)
    bill = pb.Bill(cost_micro_usd=100_000_000, idle_micro_usd=1_000_000)
    return pb.PartitionsResponse(partitions=[quick, main_, gone], bill=bill)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(
        jobs=sample_jobs(), state=sample_state(), bill=sample_bill(), partitions=answer()
    ) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return run


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_partitions_are_listed_with_what_they_have_and_may_have(
    eva: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    head, quick, main_, gone = lines(eva("partitions"))
    columns = ["PARTITION", "POLICY", "JOBS", "TASKS", "NODES", "HOURLY", "MONTH", "COST", "NOTE"]
    assert head == columns
    assert quick[:5] == ["quick", "no_packing", "3/1,000", "12", "2/20"]
    assert quick[5:8] == ["$0.3600/$15.00", "$41.20/$2,000.00", "$97.00"]
    assert quick[8:] == ["not", "open", "to", "you"]
    assert main_[-1] == "default"
    assert gone[0] == "(gone)"


def test_partitions_for_programs(eva: Run) -> None:
    quick, main_, gone = json.loads(eva("partitions", "--json").stdout)["partitions"]
    assert quick == {
        "name": "quick",
        "policy": "no_packing",
        "default": False,
        "former": False,
        "open": False,
        "offerings": 3,
        "jobs": 3,
        "tasks": 12,
        "instances": 2,
        "limits": {"jobs": 1000, "tasks": None, "instances": 20},
        "price_usd_per_hour": 0.36,
        "price_micro_usd_per_hour": 360_000,
        "budget_micro_usd_per_hour": 15_000_000,
        "budget_micro_usd_per_month": 2_000_000_000,
        "month_usd": 41.2,
        "month_micro_usd": 41_200_000,
        "cost_usd": 97.0,
        "cost_micro_usd": 97_000_000,
        "idle_usd": 1.0,
        "idle_micro_usd": 1_000_000,
    }
    assert (main_["default"], main_["budget_micro_usd_per_hour"], gone["former"]) == (
        True,
        None,
        True,
    )


def test_the_cost_by_partition_adds_up(eva: Run) -> None:
    head, quick, *_ = lines(eva("cost", "--by", "partition"))
    assert head == ["PARTITION", "COST", "IDLE", "SHARE"]
    assert quick == ["quick", "$97.00", "$1.00", "97%"]
    shape = json.loads(eva("cost", "--by", "partition", "--json").stdout)
    assert sum(one["cost_micro_usd"] for one in shape["partitions"]) == shape["cost_micro_usd"]


def test_a_job_is_moved_once(eva: Run, api: FakeApi) -> None:
    api.jobs["resnet18-3"].partition = "main"
    told = json.loads(eva("move", "resnet18-3", "quick", "--json").stdout)
    assert told == {
        "id": "resnet18-3",
        "partition": "quick",
        "changed": True,
        "message": "runs in partition quick from now on",
    }
    (call,) = api.of("Move")
    assert (call.request.job, call.request.partition) == ("resnet18-3", "quick")
    assert call.request.command_id
    assert "is there already" in eva("move", "resnet18-3", "main").stdout
    api.jobs["resnet18-3"].state = "succeeded"
    assert "has ended already" in eva("move", "resnet18-3", "quick").stdout
    assert len(api.of("Move")) == 2


def test_lists_name_the_partition_where_there_is_any(eva: Run, api: FakeApi) -> None:
    assert "PARTITION" not in eva("ls").stdout
    assert "PARTITION" not in eva("nodes").stdout
    assert "partition" not in eva("status", "resnet18").stdout
    for job in api.jobs.values():
        job.partition = "main"
    for instance in api.state.instances:
        instance.partition = "quick"
    room = pb.Resources(milli_cpus=1000)
    api.nodes.append(pb.Node(name="rack1", type="own.1", capacity=room, partition="racks"))
    assert "PARTITION" in lines(eva("ls"))[0]
    head, *rows = lines(eva("nodes"))
    assert head[:4] == ["NODE", "TYPE", "PARTITION", "STATE"]
    names = {it.id for it in api.state.instances}
    assert all("quick" in row[2:4] for row in rows if row and row[0] in names)
    assert [row[2] for row in rows if row[:1] == ["rack1"]] == ["racks"]
    assert ["partition", "main"] in lines(eva("status", "resnet18"))
    told = json.loads(eva("nodes", "--json").stdout)
    assert {one["partition"] for one in told["instances"]} == {"quick"}
    assert [one["partition"] for one in told["nodes"]] == ["racks"]


def test_status_tells_who_is_next_at_limits_that_partitions_share(eva: Run, api: FakeApi) -> None:
    queued = [
        pb.QueuedJob(job=f"j-{n}", partition="ml", priority=9 - n, tasks=n + 1, since_ms=n)
        for n in range(7)
    ]
    limit = pb.SharedLimit(
        name="the limit of box.4@local/on-demand",
        kind="offering",
        about="box.4@local/on-demand",
        used=2,
        most=2,
        used_by={"ml": 1, "ci": 1},
        waiting=queued,
        more=3,
    )
    api.state.shared_limits.append(limit)
    told = " ".join(eva("status").stdout.split())
    assert "the limit of box.4@local/on-demand: 2 of 2 in use (ci 1, ml 1); next: j-0 (ml" in told
    assert "j-1 (ml, priority 8, 2 tasks)" in told
    assert "and 5 more" in told
    (shown,) = json.loads(eva("status", "--json").stdout)["shared_limits"]
    assert (shown["used"], shown["most"], shown["used_by"]) == (2, 2, {"ml": 1, "ci": 1})
    assert [it["job"] for it in shown["waiting"]] == [f"j-{n}" for n in range(7)]
    assert shown["more_waiting"] == 3
