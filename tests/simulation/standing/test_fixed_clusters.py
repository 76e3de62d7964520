"""Short and long tasks on a fixed cluster, against a plain list scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from benchmarks import short_jobs
from eva_lab.simulator.cluster.attempt_log import Occupancy
from eva_lab.simulator.results.metrics import InstanceFigures, JobFigures, RunRecord
from eva_lab.simulator.results.short_tasks import Waits, peak_up, short_tasks
from eva_lab.simulator.scenario.fixed_cluster import FixedCluster
from eva_master.model.catalog import Purchase
from eva_wire.values.ids import InstanceId

CUTOFF_S = 90.0


def lines_of(seed: int, count: int = 40, gap_s: int = 25) -> str:
    """Bursts of short jobs on a cluster that long ones fill most of the time."""
    random = Random(seed)
    lines, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(1 / gap_s)
        if random.random() < 0.2:
            durations = [random.randint(200, 500) for _ in range(8)]
        else:
            durations = [random.randint(5, 60) for _ in range(random.randint(1, 25))]
        fields = [round(now, 1), len(durations), fmean(durations), *durations]
        lines.append(" ".join(map(str, fields)) + "\n")
    return "".join(lines)


@pytest.mark.parametrize(("seed", "gap_s"), [(1, 90), (4, 60)])
@pytest.mark.parametrize("share", ["0", "0.5"])
def test_waits_and_servers_are_those_of_a_list_scheduler(
    seed: int, gap_s: int, share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "small.tr"
    trace.write_text(lines_of(seed, 60, gap_s))
    arguments = ["--servers", "16", "--short", "4", "--provisioning", "30", "--json"]
    arguments += ["--cutoff", str(CUTOFF_S), "--slots-per-node", "4", "--transient-share", share]
    arguments += ["--policy", "default", "--policy", "list"]
    assert short_jobs.main([str(trace), *arguments]) == 0
    found, expected = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert expected["short_wait_max_s"] > 50, "some wait"
    for kind in ("short", "long"):
        assert found[f"{kind}_tasks"] == expected[f"{kind}_tasks"]
        # The order is settled anew in each round, and rounds are not at the same times.
        wait = expected[f"{kind}_wait_mean_s"]
        assert found[f"{kind}_wait_mean_s"] == pytest.approx(wait, rel=0.05)
    peak = 6 if share == "0.5" else 0
    assert found["transients_peak"] == expected["transients_peak"] == peak
    assert found["transients_mean"] == pytest.approx(expected["transients_mean"], rel=0.03)
    assert found["transients_mean"] < 0.9 * peak or not peak, "servers come and go"
    assert found["reruns"] == 0


def test_transient_servers_keep_to_the_money(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "small.tr"
    trace.write_text(lines_of(3, 25))
    arguments = ["--servers", "24", "--short", "4", "--transient-share", "0.5", "--json"]
    arguments += ["--cutoff", str(CUTOFF_S), "--spot-ratio", "3", "--provisioning", "30"]
    arguments += ["--threshold", "0.8"]
    assert short_jobs.main([str(trace), *arguments, "--revocations", "2"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_name = {one["policy"]: one for one in told}
    assert set(by_name) == set(short_jobs.POLICIES)
    for name in ("default", "published-size"):
        assert 0 < by_name[name]["transients_peak"] <= 3 * 4 * 0.5
        assert by_name[name]["transients_normalised"] <= 2
    assert by_name["no-spot"]["transients_peak"] == 0
    assert len({(one["short_tasks"], one["long_tasks"]) for one in told}) == 1


def test_a_threshold_that_the_load_never_exceeds_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "small.tr"
    trace.write_text("0 1 5 5\n")
    arguments = ["--policy", "published-size", "--threshold", "0.98991"]
    assert short_jobs.main([str(trace), *arguments]) == 2
    assert "3,920 shared servers are 0.98990 of them and the 40" in capsys.readouterr().err
    arguments = ["--policy", "published-size", "--transient-share", "1"]
    assert short_jobs.main([str(trace), *arguments]) == 2
    assert "nothing would be left" in capsys.readouterr().err


def test_a_fixed_cluster_has_so_many_servers() -> None:
    cluster = FixedCluster(servers=4000, short=80, slots_per_node=300)
    sizes = [node.offering.type.capacity.milli_cpus // 1000 for node in cluster.nodes]
    assert sizes == [300] * 13 + [20]
    steady, spot = cluster.catalog
    assert (steady.price, spot.price) == (1_000_000, 333_333)
    assert sum(node.offering.price for node in cluster.nodes) == 3920 * 1_000_000
    assert (steady.purchase, spot.purchase) == (Purchase.ON_DEMAND, Purchase.SPOT)


def job_figures(name: str, submitted_ms: int) -> JobFigures:
    return JobFigures(name, "w", 1, submitted_ms, 10**6, 0, 0, 0.0, 0, id=name)


def occupancy(run: str, attempt: int, at_ms: int) -> Occupancy:
    return Occupancy(run, attempt, InstanceId("i"), at_ms, at_ms + 1, 1, 1)  # type: ignore[arg-type]


def test_a_wait_ends_with_the_first_start() -> None:
    record = RunRecord(
        jobs=(job_figures("a", 1_000), job_figures("b", 0)),
        occupancies=(
            occupancy("a/0", 1, 3_000),
            occupancy("a/0", 2, 60_000),
            occupancy("a/1", 1, 11_000),
            occupancy("b/0", 1, 500),
        ),
    )
    found = short_tasks(record, {"a"})
    assert found.short == Waits(2, 6.0, 6.0, 9.2, 9.92, 10.0)
    assert (found.long.tasks, found.long.mean_s) == (1, 0.5)
    assert found.reruns == 1
    assert (found.transients_peak, found.life_max_h) == (0, 0.0)


def up(begin_ms: int, end_ms: int, purchase: Purchase = Purchase.SPOT) -> InstanceFigures:
    return InstanceFigures(InstanceId("i"), "t", 0, begin_ms, end_ms, 0.0, purchase)


def test_transient_servers_are_counted_while_jobs_arrive() -> None:
    hour = 3_600_000
    record = RunRecord(
        jobs=(job_figures("a", hour), job_figures("b", 3 * hour)),
        instances=(
            up(0, 2 * hour),
            up(2 * hour, 8 * hour),
            up(2 * hour, 3 * hour),
            up(0, 9 * hour, Purchase.ON_DEMAND),
        ),
    )
    found = short_tasks(record, ())
    # Between one and three o'clock: one for an hour, then two for an hour.
    assert found.transients_mean == 1.5
    assert found.transients_peak == 2
    assert (found.life_mean_h, found.life_max_h) == (3.0, 6.0)
    assert peak_up([]) == 0
