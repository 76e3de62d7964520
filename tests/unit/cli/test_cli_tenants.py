"""`eva tenants` and `eva cost --by tenant`, and where else tenants are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import FakeApi, sample_jobs

Run = Callable[..., Result]


def answer() -> pb.TenantsResponse:
    vision = pb.Tenant(
        name="vision",
        owners=["ana", "*@vision", "bo", "carl", "dan"],
        jobs_by_state={"pending": 2, "running": 1, "succeeded": 4, "failed": 1},
        cost_micro_usd=3_000_000,
        no_packing_micro_usd=4_000_000,
    )
    rest = pb.Tenant(name="default", cost_micro_usd=1_500_000, no_packing_micro_usd=1_500_000)
    gone = pb.Tenant(name="gone", former=True, jobs_by_state={"cancelled": 1})
    bill = pb.Bill(
        cost_micro_usd=5_000_000, idle_micro_usd=500_000, no_packing_micro_usd=5_500_000, now_ms=7
    )
    return pb.TenantsResponse(tenants=[vision, rest, gone], bill=bill)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(jobs=sample_jobs(), tenants=answer()) as api:
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


def test_tenants_are_listed_with_their_jobs_and_costs(eva: Run) -> None:
    assert lines(eva("tenants")) == [
        ["TENANT", "JOBS", "RUNNING", "ENDED", "COST", "ALONE", "OWNERS"],
        ["vision", "3", "1", "5", "$3.00", "$4.00", "ana,", "*@vision,", "bo", "and", "2", "more"],
        ["default", "0", "0", "0", "$1.50", "$1.50", "everybody", "else"],
        [*("(gone)", "0", "0", "1", "$0.00", "$0.00", "no", "longer", "in", "the", "settings")],
    ]


def test_tenants_for_programs(eva: Run) -> None:
    told = json.loads(eva("tenants", "--json").stdout)
    first, _, gone = told["tenants"]
    assert first == {
        "name": "vision",
        "owners": ["ana", "*@vision", "bo", "carl", "dan"],
        "former": False,
        "jobs": 3,
        "running": 1,
        "ended": 5,
        "jobs_by_state": {"failed": 1, "pending": 2, "running": 1, "succeeded": 4},
        "cost_usd": 3.0,
        "cost_micro_usd": 3_000_000,
        "no_packing_usd": 4.0,
        "no_packing_micro_usd": 4_000_000,
    }
    assert gone["former"]


def test_the_cost_by_tenant_adds_up(eva: Run) -> None:
    told = lines(eva("cost", "--by", "tenant"))
    assert told[:5] == [
        ["TENANT", "COST", "ALONE", "SAVED"],
        ["vision", "$3.00", "$4.00", "25%"],
        ["default", "$1.50", "$1.50", "0%"],
        ["(gone)", "$0.00", "$0.00", "-"],
        ["idle", "$0.5000", "-", "-"],
    ]
    shape = json.loads(eva("cost", "--by", "tenant", "--json").stdout)
    parts = sum(one["cost_micro_usd"] for one in shape["tenants"])
    assert parts + shape["idle_micro_usd"] == shape["cost_micro_usd"]
    assert "jobs" not in shape
    assert (
        len(json.loads(eva("cost", "--by", "tenant", "-n", "1", "--json").stdout)["tenants"]) == 1
    )
    assert eva("cost", "--by", "moon").exit_code == 1


def test_ls_and_status_show_tenants_where_there_are_any(eva: Run, api: FakeApi) -> None:
    assert "TENANT" not in eva("ls").stdout
    assert "tenant" not in eva("status", "resnet18").stdout
    api.jobs["resnet18-3"].tenant = "vision"
    api.jobs["bert-1"].tenant = "default"
    head, *rows = lines(eva("ls"))
    assert head[:4] == ["JOB", "OWNER", "TENANT", "STATE"]
    assert {row[0]: row[2] for row in rows if row[0] in api.jobs} == {
        "resnet18-3": "vision",
        "bert-1": "default",
    }
    assert ["tenant", "vision"] in lines(eva("status", "resnet18"))
    assert json.loads(eva("status", "resnet18", "--json").stdout)["tenant"] == "vision"


def test_quotas_and_budgets_are_shown_where_there_are_any(api: FakeApi, eva: Run) -> None:
    vision, rest, _ = api.tenants.tenants
    vision.quota.CopyFrom(pb.Quota(stated={"v100": 16, "*": 4}, now={"v100": 12, "*": 4}))
    vision.use.update({"v100": 13})
    rest.budget_micro_usd, rest.month_micro_usd = 2_000_000, 2_500_000
    table = eva("tenants").stdout
    first, second, third, *_ = table.splitlines()
    assert "BUDGET LEFT" in first
    assert "4 *, 12 v100 (of 16)" in second
    assert "13 v100" in second
    assert "$0.00" in third
    assert "scaled down in proportion: vision." in " ".join(table.split())
    told = json.loads(eva("tenants", "--json").stdout)["tenants"]
    assert told[0]["quota"] == {"*": 4, "v100": 16}
    assert told[0]["quota_now"] == {"*": 4, "v100": 12}
    assert told[0]["use"] == {"v100": 13}
    assert (told[1]["budget_usd"], told[1]["spent_this_month_usd"]) == (2.0, 2.5)
