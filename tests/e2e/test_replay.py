"""A cluster of real processes, and its life run again in the simulator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eva_lab.history import Replay, read_history
from eva_lab.runs import named_policy
from eva_lab.simulator.results.metrics import charge
from eva_lab.simulator.run import Simulation
from eva_master.adapters.catalog import load_catalog
from eva_master.control.settings import Settings
from eva_wire.values.ids import InstanceId, RunId
from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

CATALOG = {"only": ["c7i"]}
OPTIONS = {"interference": False}
"""What was measured when is not on record: no plan is to hang on it, or be made because of it."""
HINTS = {"delays": {"checkpoint": "1s", "launch": "2s"}}
SETTINGS = {
    "round_period": "1h",
    "profile": False,
    "throughput_window": "10m",
    "policy": {"name": "eva", "options": OPTIONS},
}
LOOP = Settings(round_gap_ms=300, window_ms=600_000)
"""What the cluster's master is given, by `SETTINGS` and `tests.e2e.cluster.SETTINGS`."""

Assignment = tuple[RunId, int, InstanceId, int, int]
"""Copy, attempt and instance; when it was ordered, and when its room was free."""


def live(cluster: Cluster) -> None:
    """Jobs share an instance, one moves to a cheaper one, a gang comes and goes."""
    first = cluster.submit("first", resources={"cpus": 5, "memory": "8GiB"}, **HINTS)
    second = cluster.submit("second", resources={"cpus": 3, "memory": "5GiB"}, **HINTS)
    cluster.until_running(first, second)
    gang = cluster.submit("gang", tasks=2, resources={"cpus": 1, "memory": "1GiB"}, **HINTS)
    cluster.until_running(gang)
    cluster.finish(first)
    cluster.until_ended(first)
    until(lambda: cluster.task(second).attempt > 1, "the second job moves")
    cluster.until_running(second)
    cluster.finish(gang, second)
    cluster.until_ended(gang, second)
    cluster.until_empty()


def run_again(history: Replay) -> Simulation:
    policy, _ = named_policy("eva", OPTIONS)
    setup = replace(history.setup, policy=policy, round_gap_s=None, keep_record=True, settings=LOOP)
    # The jobs stated no durations, by which a plan would go.
    simulation = Simulation(replace(setup, durations=False))
    simulation.run()
    return simulation


def as_it_was(history: Replay) -> list[Assignment]:
    recorded_attempts = history.past.recorded_attempts.values()
    assert all(recorded.over_ms is not None for recorded in recorded_attempts)
    return sorted(
        (
            recorded.run,
            recorded.attempt,
            recorded.instance,
            recorded.ordered_ms,
            recorded.over_ms or 0,
        )
        for recorded in recorded_attempts
    )


def as_simulated(simulation: Simulation) -> list[Assignment]:
    occupancies = simulation.outcome().record.occupancies
    return sorted((s.run, s.attempt, s.instance, s.from_ms, s.to_ms) for s in occupancies)


def bought(simulation: Simulation) -> dict[InstanceId, tuple[str, int]]:
    """Type and bill of each instance."""
    bills = simulation.cluster.cloud.bill().values()
    return {it.instance: (it.offering.type.name, charge(it)) for it in bills}


@pytest.mark.long
def test_a_life_is_the_same_when_it_is_run_again(make_cluster: Clusters) -> None:
    """The same plans in the same order, the same times of each task, the same bill to the last."""
    cluster = make_cluster(settings=SETTINGS, catalog=CATALOG)
    live(cluster)
    cluster.stop()
    history = read_history(cluster.state_dir, load_catalog(cluster.home / "catalog.yaml"))
    simulation = run_again(history)

    assert as_simulated(simulation) == as_it_was(history)
    with cluster.journal() as journal:
        written = journal.load()
    accounts = {account.instance: account.charged for account in written.instance_accounts}
    types = {instance.id: instance.offering.type.name for instance in written.instances}
    assert bought(simulation) == {it: (types[it], charged) for it, charged in accounts.items()}
    assert simulation.outcome().cost_usd == history.cost_usd > 0


@pytest.mark.explore
def test_what_it_would_have_cost(make_cluster: Clusters, tmp_path: Path) -> None:
    """The command tells of a master that still runs, and of other policies."""
    cluster = make_cluster(settings=SETTINGS, catalog=CATALOG)
    job = cluster.submit("only")
    cluster.until_running(job)
    cluster.finish(job)
    cluster.until_ended(job)
    cluster.until_empty()
    told = cluster.eva(
        *("simulate", "--from-journal", str(cluster.state_dir), "--json"),
        *("--policy", "no_packing", "--policy", "stratus", "--out", str(tmp_path)),
    )
    assert told.returncode == 0, told.stderr
    rows = {row["policy"]: row for row in json.loads(told.stdout)}
    assert rows.keys() == {"no_packing", "stratus"}
    for row in rows.values():
        assert row["jobs_finished"] == 1
        assert row["history_usd"] > 0
        assert row["cost_usd"] >= row["reference_bound_usd"] > 0
    assert (tmp_path / "stratus" / "bills.parquet").exists()
