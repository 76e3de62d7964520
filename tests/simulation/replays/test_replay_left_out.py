"""A replay says what was so in the journal and is not so in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_lab.runs import named_policy
from eva_lab.simulator.scenario.left_out import left_out
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.store import SqlJournal
from eva_master.control.state.store import State
from eva_master.model.catalog import Purchase
from eva_master.model.events import ResumeRequested, SuspendRequested
from eva_master.model.records import Drain, Instance
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import InstanceState
from tests.fakes.jobs import CATALOG, SMALL, job

BEGIN = Millis(1_795_000_000_000)
MINUTE_MS = 60_000
SUSPENDED = "2 jobs were suspended, for 0.74 h in all: here none is"
"""From when they had stopped on, ten seconds after the command."""


def played(folder: Path, *, suspends: bool) -> None:
    """A master's journal of an hour; maybe a job rested for 30 minutes, and one does for 15."""
    with SqlJournal.open(f"sqlite:///{folder}/journal.db") as journal:
        policy, _ = named_policy("no_packing")
        cluster = SimulatedCluster(CATALOG, policy, journal=journal, start=BEGIN)

        def post(minute: float, event: object) -> None:
            cluster.timeline.after(round(minute * MINUTE_MS), lambda: cluster.inbox.post(event))  # type: ignore[arg-type]

        for name in ("rested", "asleep", "long"):
            cluster.submit(job(name, 2, minutes=90))
        if suspends:
            post(5, SuspendRequested("1", JobId("rested-1"), "me"))
            post(35, ResumeRequested("2", JobId("rested-1"), "me"))
            post(45, SuspendRequested("3", JobId("asleep-2"), "me"))
        cluster.timeline.after(60 * MINUTE_MS, lambda: None)
        assert cluster.run(lambda: cluster.timeline.now() >= BEGIN + 60 * MINUTE_MS)


def replayed(folder: Path, *more: str) -> Result:
    arguments = ("simulate", "--from-journal", str(folder), "-p", "no_packing", "--no-reference")
    result = CliRunner().invoke(main, [*arguments, *more])
    assert result.exit_code == 0, result.output
    return result


def test_suspensions_that_are_left_out_are_told(tmp_path: Path) -> None:
    played(tmp_path, suspends=True)
    assert f"not replayed: {SUSPENDED}" in replayed(tmp_path).stdout.splitlines()
    (row,) = json.loads(replayed(tmp_path, "--json").stdout)
    assert row["history_left_out"] == [SUSPENDED]
    assert row["jobs_finished"] == 3


def test_nothing_is_told_where_all_of_it_is_replayed(tmp_path: Path) -> None:
    played(tmp_path, suspends=False)
    assert "not replayed" not in replayed(tmp_path).stdout
    (row,) = json.loads(replayed(tmp_path, "--json").stdout)
    assert row["history_left_out"] == []


def instance(name: str, at: int = 0) -> Instance:
    history = ((InstanceState.READY.value, at),)
    return Instance(InstanceId(name), SMALL, history, Millis(at), Millis(at), Millis(at))


def owned(name: str, at: int = 0) -> Instance:
    return replace(instance(name, at), offering=replace(SMALL, purchase=Purchase.OWNED))


GONE = replace(owned("rack2"), history=((InstanceState.GONE.value, 7),), gone_ms=Millis(7))
ORDERED, LEFT = Drain("drained by ann", ordered=True), Drain("left the pool")
TOLD: list[tuple[Callable[[], list[Instance]], list[str]]] = [
    (lambda: [instance("i-1"), owned("rack1")], []),
    (
        lambda: [owned("rack1"), GONE, owned("rack3", at=5)],
        ["2 owned nodes were there for a part of the time: here it is the whole time"],
    ),
    (
        lambda: [replace(instance("i-1"), drain=ORDERED)],
        ["1 instance was drained by an operator: here they take tasks"],
    ),
    (
        lambda: [replace(instance(f"i-{n}"), pool="small", drain=LEFT) for n in (1, 2)],
        ["2 instances were in pools: here there are those that a policy states"],
    ),
]


@pytest.mark.parametrize(("instances", "told"), TOLD)
def test_nodes_drains_and_pools_are_told(
    instances: Callable[[], list[Instance]], told: list[str]
) -> None:
    state = State(CATALOG)
    for record in instances():
        state.put_instance(record)
    assert list(left_out(state, Millis(1), Millis(9))) == told
