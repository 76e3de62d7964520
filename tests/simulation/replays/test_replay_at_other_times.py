"""Pasts that are simulated with other rounds than they had."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.history import read_history
from eva_lab.runs import named_policy
from eva_lab.simulator.run import Simulation
from eva_lab.simulator.scenario.script import PastScript
from eva_lab.simulator.simulated_cluster import SimulatedCluster, answered_ms
from eva_master.adapters.store import SqlJournal
from eva_master.model.actions import TaskOrder
from eva_master.model.events import CancelRequested
from eva_master.model.job import Program
from eva_master.model.resources import Resources
from eva_wire.values.errors import SimulationStalled
from eva_wire.values.ids import JobId, Millis, RunId
from tests.fakes.jobs import CATALOG, job
from tests.simulation.test_accounting import Reluctant

BEGIN = Millis(1_795_000_000_000)
POLICIES = ("eva", "eva_published", "no_packing", "owl", "stratus", "synergy")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A master that ran two jobs of one name, one after the other, and one whose name is an id."""
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        policy, _ = named_policy("no_packing")
        cluster = SimulatedCluster(CATALOG, policy, journal=journal, start=BEGIN)
        cluster.submit(job("daily-2", 2, minutes=4), at=Millis(BEGIN + 1_000))
        cluster.submit(job("daily", 2, minutes=0.5), at=Millis(BEGIN + 2_000))
        cluster.submit(job("daily", 2, 2, minutes=1), at=Millis(BEGIN + 150_000))
        assert cluster.run(cluster.quiet)
        assert [it.id for it in cluster.state.jobs.values()] == ["daily-2-1", "daily-2", "daily-3"]
    return tmp_path


def simulate(*arguments: str) -> list[dict[str, float]]:
    result = CliRunner().invoke(main, ["simulate", "--json", *arguments])
    assert result.exit_code == 0, result.output
    found: list[dict[str, float]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("gap", ["0", "5m", "3h", "3d"])
def test_jobs_of_one_name_may_meet(state: Path, gap: str) -> None:
    """The second arrives while the first still waits for its round."""
    chosen = [word for name in POLICIES for word in ("-p", name)]
    rows = simulate("--from-journal", str(state), "--round-gap", gap, *chosen, "--no-reference")
    assert [(row["policy"], row["jobs_finished"]) for row in rows] == [(it, 3) for it in POLICIES]


def test_a_past_that_does_not_end_says_when_and_who_waits(state: Path) -> None:
    """A journal's jobs go by the ids that its users know, and its times are dates."""
    setup = read_history(state).setup
    with pytest.raises(SimulationStalled) as told:
        Simulation(replace(setup, policy=Reluctant())).run()
    assert "after 0h 2m of virtual time (2026-11-18 11:09 UTC)" in told.value.message
    assert "3 of 3 jobs have not ended" in told.value.message
    assert "daily-3 (task 0) waits: not today" in told.value.hint


def test_names_stay_where_they_do_not_meet(state: Path) -> None:
    """No name is given twice, not even one that is like another job's id."""
    script = PastScript(read_history(state).past, durations=True)
    arrivals = list(script.arrivals())
    assert [spec.name for _, _, spec in arrivals] == ["daily-2", "daily", "daily-3"]
    assert [script.title(command) for _, command, _ in arrivals] == [
        "daily-2-1",
        "daily-2",
        "daily-3",
    ]


def test_who_waited_for_others_waits_for_them_again(tmp_path: Path) -> None:
    """By the ids that they have in the simulation; without those that never came to run."""
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        policy, _ = named_policy("no_packing")
        cluster = SimulatedCluster(CATALOG, policy, journal=journal, start=BEGIN)

        def submit(name: str, minute: int, *others: str) -> None:
            spec = job(name, 1, minutes=2, depends_on=tuple(map(JobId, others)))
            cluster.submit(spec, at=Millis(BEGIN + minute * 60_000))

        submit("daily", 0)
        submit("report", 1, "daily-1")
        submit("given-up", 2, "report-2")
        cluster.timeline.after(
            150_000, lambda: cluster.inbox.post(CancelRequested("x", JobId("given-up-3"), "me"))
        )
        submit("daily", 30)
        submit("report", 31, "daily-4", "report-2")
        assert cluster.run(cluster.quiet)
    history = read_history(tmp_path)
    assert [it.id for it in history.past.jobs] == ["daily-1", "report-2", "daily-4", "report-5"]
    # In a trace, which knows no jobs that wait, they come when they no longer waited.
    arrivals = {it.id: it.arrival_ms for it in history.setup.trace.jobs}
    assert arrivals["report-2/0"] > 120_000
    script = PastScript(history.past, durations=True)
    specs = [spec for _, _, spec in script.arrivals()]
    assert [(spec.name, spec.stage.depends_on) for spec in specs] == [
        ("daily", ()),
        ("report", ("daily-1",)),
        ("daily-4", ()),
        ("report-5", ("daily-4-3", "report-2")),
    ]
    rows = simulate("--from-journal", str(tmp_path), "-p", "no_packing", "-p", "eva")
    assert {row["jobs_finished"] for row in rows} == {4}


def test_delays_are_those_of_the_job_whatever_its_number(state: Path) -> None:
    """A journal that forgot its first jobs is simulated with others' numbers."""
    with sqlite3.connect(state / "journal.db") as journal:
        for table, column in (("jobs", "id"), ("task_runs", "job_id")):
            journal.execute(f"DELETE FROM {table} WHERE {column} = 'daily-2-1'")
    journal.close()
    past = read_history(state).past
    assert [it.id for it in past.jobs] == ["daily-2", "daily-3"]
    script = PastScript(replace(past, inits_ms={("daily-3/1", 1): 777}), durations=True)
    tasks = {"daily-2-1/0": ("submit-0", 0), "daily-3-2/1": ("submit-1", 1)}
    delays = script.delays(tasks.__getitem__)

    def init_ms(run: str) -> int:
        program, demand = Program("true"), Resources(0, 1, 1)
        return delays.init(
            TaskOrder(RunId(run), 1, JobId("any"), 0, "daily", program, demand, grace_period_ms=1)
        )

    assert [init_ms(run) for run in tasks] == [0, 777]


def test_a_round_at_another_time_takes_as_long_as_the_recorded_one() -> None:
    """It does not wait until the day on which the round of its number was adopted."""
    assert answered_ms(5_000, 5_000, 5_090) == 5_090
    assert answered_ms(5_040, 5_000, 5_090) == 5_090
    assert answered_ms(5_000, 86_400_000, 86_400_300) == 5_300
    assert answered_ms(86_400_000, 5_000, 5_300) == 86_400_300


@pytest.fixture
def gangs(tmp_path: Path) -> Path:
    """A master that ran two gangs: one member failed at each attempt; the other gang succeeded."""
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        policy, _ = named_policy("no_packing")
        cluster = SimulatedCluster(CATALOG, policy, journal=journal, start=BEGIN)
        cluster.submit(job("torn", 2, 2, minutes=3, retries=3))
        cluster.submit(job("whole", 2, 2, minutes=3), at=Millis(BEGIN + 60_000))
        failures = [1, 1, 1, 1]
        cluster.timeline.after(
            600, lambda: cluster.workers.work(RunId("torn-1/1")).failures.extend(failures)
        )
        assert cluster.run(cluster.quiet)
        ends = [(it.state.value, it.failures) for it in cluster.state.jobs.values()]
        assert ends == [("failed", 4), ("succeeded", 0)]
    return tmp_path


@pytest.mark.parametrize("policy", POLICIES)
def test_gangs_come_to_their_end_whatever_the_rounds(gangs: Path, policy: str) -> None:
    """A gang that failed, with its attempts, beside one that did not."""
    for gap in ("0", "1m", "5m", "1h"):
        arguments = ("-p", policy, "--round-gap", gap, "--no-reference")
        (row,) = simulate("--from-journal", str(gangs), *arguments)
        assert row["jobs_finished"] == 2


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A master that was cut off while jobs of every state were there."""
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        policy, _ = named_policy("no_packing")
        catalog = (replace(CATALOG[0], limit=3), *CATALOG[1:2], replace(CATALOG[2], limit=1))
        cluster = SimulatedCluster(catalog, policy, journal=journal, start=BEGIN)

        def at(minute: float, what: Callable[[], object]) -> None:
            cluster.timeline.after(round(minute * 60_000), what)

        def cancel(name: str) -> None:
            cluster.inbox.post(CancelRequested(f"cancel-{name}", JobId(name), "me"))

        def fail(run: str) -> None:
            cluster.workers.work(RunId(run)).failures.append(1)

        cluster.submit(job("done", 2, minutes=2))
        cluster.submit(job("crashed", 2, minutes=3, retries=0))
        cluster.submit(job("crashed-late", 2, 2, minutes=3, array=True, retries=1))
        cluster.submit(job("cancelled-early", 2, minutes=5))
        cluster.submit(job("cancelled-late", 2, 2, minutes=60))
        cluster.submit(job("large", 8, minutes=300))
        cluster.submit(job("never-placed", 8, minutes=5))
        cluster.submit(job("waits-for-large", 7, minutes=5))
        cluster.submit(job("gang", 4, 4, minutes=500))
        at(0.01, lambda: fail("crashed-2/0"))
        at(0.01, lambda: fail("crashed-late-3/1"))
        at(0.02, lambda: cancel("cancelled-early-4"))
        at(9, lambda: cancel("cancelled-late-5"))
        at(20, lambda: cluster.submit(job("just-submitted", 2, minutes=5)))
        end = BEGIN + 20 * 60_000 + 50
        assert cluster.run(lambda: cluster.timeline.now() >= end)
        states = [it.state.value for it in cluster.state.jobs.values()]
        assert set(states) >= {"succeeded", "failed", "cancelled", "running", "pending"}, states
    return tmp_path


@pytest.mark.parametrize("gap", ["0", pytest.param("1m", marks=pytest.mark.long), "1h"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_journal_with_jobs_of_every_state_comes_to_its_end(
    mixed: Path, policy: str, gap: str
) -> None:
    """What was cancelled or failed, never placed, or still ran, under every policy."""
    past = read_history(mixed).past
    arguments = ("-p", policy, "--round-gap", gap, "--no-reference")
    (row,) = simulate("--from-journal", str(mixed), *arguments)
    assert row["jobs_finished"] == len(past.jobs)
    assert past.unfinished >= 4
