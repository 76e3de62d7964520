"""Experiments and their reports tell tenants apart where jobs have one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.experiments.runs import Results, cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.experiments.summary import summarise
from eva_lab.simulator.results.metrics import JobFigures, by_tenant
from eva_lab.traces import write_trace
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import ANY_FAMILY
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.ids import Exact, Workload

HOUR_MS = 3_600_000
EXPERIMENT = """
name: tenants
traces: {ours: {kind: file, file: t.json}}
policies: [no_packing]
seeds: [1]
reference: false
"""


def job(name: str, hours: int, tenant: str) -> TraceJob:
    task = TraceTask(Resources(0, 2000, 1024))
    return TraceJob(name, Workload("w"), 0, hours * HOUR_MS, (task,), tenant=tenant)


def done(folder: Path, *jobs: TraceJob, more: str = "") -> tuple[str, dict[str, Any], str]:
    """What the command prints, its summary, and its page."""
    write_trace(Trace("t", jobs), folder / "t.json")
    (folder / "e.yaml").write_text(EXPERIMENT + more)
    out = folder / "out"
    arguments = ["experiment", str(folder / "e.yaml"), "--out", str(out), "-j", "1"]
    result = CliRunner().invoke(main, [*arguments, "--backend", "sequential"])
    assert result.exit_code == 0, result.output
    summary = json.loads((out / "summary.json").read_text())
    return result.stdout, summary, (out / "report.html").read_text()


def test_each_tenant_has_its_own_figures(tmp_path: Path) -> None:
    told, summary, page = done(
        tmp_path, job("a", 1, "vision"), job("b", 3, "vision"), job("c", 5, "speech")
    )
    (row,) = summary["rows"]
    assert row["tenants"].keys() == {"vision", "speech"}
    vision, speech = row["tenants"]["vision"], row["tenants"]["speech"]
    assert (vision["jobs"]["mean"], speech["jobs"]["mean"]) == (2, 1)
    # Every job has an instance of its own, of one price.
    ratio = vision["cost_usd"]["mean"] / speech["cost_usd"]["mean"]
    assert ratio == pytest.approx(4 / 5, rel=0.02)
    assert vision["jct_mean_h"]["mean"] == pytest.approx(2, rel=0.1)
    lines = [line.split() for line in told.splitlines()]
    assert ["TRACE", "POLICY", "TENANT", "JOBS", "COST", "JCT", "IDLE"] in lines
    assert [line[:4] for line in lines if line[2:3] == ["vision"]] == [
        ["ours", "no_packing", "vision", "2"]
    ]
    assert "Figures of each tenant" in page
    assert "alpha" not in page
    assert '<td class="name">speech</td><td>1</td>' in page


def test_gains_over_quotas_are_alphas() -> None:
    million = 1_000_000
    dollars = Exact(3_600_000 * million)
    sums = {
        "a": TenantTotals(value=6 * million, paid=Exact(2 * dollars), received=million),
        "b": TenantTotals(value=2 * million, earned=Exact(2 * dollars), given=million),
        "c": TenantTotals(),
    }
    figures = [JobFigures("j", "w", 1, 0, 1, 1, 1, 1.0, 0, tenant=name) for name in ("a", "b", "c")]
    quotas = {"a": ((ANY_FAMILY, 6),), "b": ((ANY_FAMILY, 2),)}
    a, b, c = by_tenant(figures, sums, quotas)
    # a has 5 of 8 dollars and 6 of 8 GPUs, b 3 of 8 dollars and 2 of 8 GPUs.
    assert (a.value_usd, a.gain_usd, a.alpha) == (6, 5, pytest.approx(5 / 6))
    assert (b.value_usd, b.gain_usd, b.alpha) == (2, 3, pytest.approx(1.5))
    assert c.alpha is None


def test_reports_tell_how_fair_it_is_where_tenants_have_quotas(tmp_path: Path) -> None:
    quotas = "tenants: {vision: {quota: {'*': 2}}, speech: {quota: {'*': 6}}}\n"
    jobs = job("a", 2, "vision"), job("b", 2, "speech")
    _, summary, page = done(tmp_path, *jobs, more=quotas)
    (row,) = summary["rows"]
    vision, speech = row["tenants"]["vision"], row["tenants"]["speech"]
    # Equal jobs are worth the same, so each has half: over a quarter, and over three.
    assert vision["alpha"]["mean"] == pytest.approx(2, rel=0.01)
    assert speech["alpha"]["mean"] == pytest.approx(2 / 3, rel=0.01)
    assert row["figures"]["alpha_variance"]["mean"] == pytest.approx((2 / 3) ** 2, rel=0.02)
    values = vision["value_usd"]["mean"] + speech["value_usd"]["mean"]
    assert row["figures"]["revenue"]["mean"] == pytest.approx(values)
    assert values > 0
    assert "<th>alpha</th>" in page
    assert "variance of alpha" in page


def test_nothing_is_shown_of_tenants_where_there_are_none(tmp_path: Path) -> None:
    told, summary, page = done(tmp_path, job("a", 1, "default"))
    assert "TENANT" not in told
    assert "tenants" not in summary["rows"][0]
    assert "each tenant" not in page


def test_a_tenant_is_averaged_over_the_runs_in_which_it_had_jobs(tmp_path: Path) -> None:
    text = (
        "name: e\ntraces: {p: {kind: production, jobs: 8}}\npolicies: [no_packing]\nseeds: [1, 2]"
    )
    (tmp_path / "e.yaml").write_text(text)
    plan = load_experiment(tmp_path / "e.yaml", ())
    found, results = cells(plan), Results(tmp_path / "runs")
    for cell in found:
        of = [("vision", cell.seed)] + ([("speech", 7)] if cell.seed == 2 else [])
        tenants = [
            {"tenant": name, "jobs": jobs, "cost_usd": 1, "jct_mean_h": 1, "idle_mean_h": 0}
            for name, jobs in of
        ]
        figures = {"cost_usd": 1.0}
        results.keep(
            {"digest": cell.digest, "figures": figures, "tenants": tenants, "made": {"code": "c"}}
        )
    (row,) = summarise(plan, found, results).rows
    assert (row.tenants["vision"]["jobs"].mean, row.tenants["vision"]["jobs"].count) == (1.5, 2)
    assert (row.tenants["speech"]["jobs"].mean, row.tenants["speech"]["jobs"].half) == (7, None)
