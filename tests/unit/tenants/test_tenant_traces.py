"""Traces name owners and tenants, and simulations tell their jobs apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.simulator.run import Setup, Simulation, simulate
from eva_lab.traces import read_trace, write_trace
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.resources import Resources
from eva_master.model.trace import Interference, Trace, TraceJob, TraceTask
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import MILLION, Family, Price, Workload

HOUR_MS = 3_600_000
BOX = Offering(InstanceType("box", Family("c"), Resources(0, 2000, 4096)), Price(MILLION))


def job(name: str, hours: int, **of: str) -> TraceJob:
    task = TraceTask(Resources(0, 2000, 1024))
    return TraceJob(name, Workload("w"), 0, hours * HOUR_MS, (task,), **of)


def trace(*jobs: TraceJob) -> Trace:
    return Trace("t", jobs)


def setup(*jobs: TraceJob) -> Setup:
    policy = NO_PACKING.build(NO_PACKING.config())
    return Setup(trace(*jobs), (BOX,), policy, Interference())


JOBS = (
    job("a", 1, owner="ana", tenant="vision"),
    job("b", 2, owner="bo", tenant="vision"),
    job("c", 3, owner="ana"),
)


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_owners_and_tenants_are_written_and_read(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"t.{suffix}"
    write_trace(trace(*JOBS), file)
    read = [(one.id, one.owner, one.tenant) for one in read_trace(file).jobs]
    assert read == [("a", "ana", "vision"), ("b", "bo", "vision"), ("c", "ana", "default")]
    write_trace(trace(job("c", 3)), file)
    assert "owner" not in file.read_text()
    assert "tenant" not in file.read_text()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("owner", "", "cannot be an owner"),
        ("owner", "a b", "cannot be an owner"),
        ("owner", 7, "must be text"),
        ("tenant", "-", "cannot name a tenant"),
        ("tenant", None, "must be text"),
    ],
)
def test_wrong_names_are_told_with_job_and_field(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    file = tmp_path / "t.json"
    write_trace(trace(*JOBS), file)
    rows = json.loads(file.read_text())
    rows["b"][key] = value
    file.write_text(json.dumps(rows))
    with pytest.raises(InvalidTrace) as caught:
        read_trace(file)
    (problem,) = caught.value.problems
    assert problem.key == f"job b: {key}"
    assert message in problem.message


def test_a_simulation_tells_tenants_apart() -> None:
    outcome = simulate(setup(*JOBS))
    rest, vision = outcome.tenants
    assert (rest.tenant, rest.jobs, vision.tenant, vision.jobs) == ("default", 1, "vision", 2)
    # Every job has its own box for a dollar per hour.
    assert rest.cost_usd == pytest.approx(3, rel=0.01)
    assert vision.cost_usd == pytest.approx(3, rel=0.01)
    assert vision.jct_mean_h == pytest.approx(1.5, rel=0.05)
    assert (rest.jct_mean_h + 2 * vision.jct_mean_h) / 3 == pytest.approx(outcome.jct_mean_h)
    assert (rest.idle_mean_h + 2 * vision.idle_mean_h) / 3 == pytest.approx(outcome.idle_mean_h)


def test_what_tenants_were_charged_is_the_bill_but_for_idle_time() -> None:
    run = Simulation(setup(*JOBS))
    outcome, state = run.run(), run.cluster.state
    idle = sum(account.idle for account in state.instance_accounts.values())
    charged = sum(one.cost_usd for one in outcome.tenants)
    assert charged + idle / HOUR_MS / MILLION == pytest.approx(outcome.cost_usd, rel=1e-12)


def test_names_change_nothing_else() -> None:
    named = simulate(setup(*JOBS))
    unnamed = simulate(setup(*(replace(one, owner="", tenant="default") for one in JOBS)))
    assert unnamed.tenants == ()
    assert named.row() == unnamed.row()


def test_the_command_shows_tenants_where_there_are_any(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    arguments = ["simulate", str(file), "--policy", "no_packing", "--no-reference"]
    for jobs, shown in ((JOBS, True), ((job("c", 3),), False)):
        write_trace(trace(*(replace(one, workload=Workload("gcn")) for one in jobs)), file)
        told = CliRunner().invoke(main, arguments)
        assert told.exit_code == 0, told.output
        assert ("TENANT" in told.stdout) == shown
        (shape,) = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
        assert [one["tenant"] for one in shape.get("tenants", ())] == (
            ["default", "vision"] if shown else []
        )
