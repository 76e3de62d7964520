"""The policy `hadar` on fleets that are small enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eva_lab.experiments.fleet import ServersSection, awaited, fleet_figures, nodes_of
from eva_lab.runs import named_policy
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_master.model.catalog import Purchase
from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, Hold, Plan, Suspend
from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import START, Cluster, carried_out, offer, task
from eva_policies.hadar.config import Config
from eva_policies.hadar.policy import Hadar
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Millis

FAST, SLOW = "fast", "slow"
HOUR = 3600


def rated(fast: int, slow: int, gpus: int = 1) -> TaskSpec:
    """A task with its iterations per second on both types."""
    sizes = (gpus, gpus, gpus)
    rates = ((Family(FAST), fast * 1_000_000), (Family(SLOW), slow * 1_000_000))
    return replace(task(f"w{fast}-{slow}", fast=sizes, slow=sizes), throughput=rates)


def fleet(fast: int = 1, slow: int = 1, gpus: int = 1) -> Cluster:
    """So many owned machines of two types, which are there."""
    sizes = (gpus, gpus, gpus)
    kinds = [
        replace(offer(f"{name}.1", sizes, 1.0, family=name, limit=count), purchase=Purchase.OWNED)
        for name, count in ((FAST, fast), (SLOW, slow))
    ]
    cluster = Cluster(*kinds)
    for name, count in ((FAST, fast), (SLOW, slow)):
        for number in range(count):
            cluster.instance(f"{name}-{number}", f"{name}.1")
    return cluster


def planned(snapshot: Snapshot) -> Plan:
    return Hadar(Config()).plan(snapshot, None)[0]


def places(snapshot: Snapshot, plan: Plan) -> dict[str, str]:
    after = carried_out(snapshot, plan)
    return {run.job: run.instance.rpartition("-")[0] for run in after.runs if run.instance}


def types_of(snapshot: Snapshot, plan: Plan) -> dict[str, list[str]]:
    """On which type each task of a job is, in their order."""
    found: dict[str, list[str]] = {}
    for run in carried_out(snapshot, plan).runs:
        if run.instance is not None:
            found.setdefault(run.job, []).append(run.instance.rpartition("-")[0])
    return found


def later(snapshot: Snapshot, seconds: int) -> Snapshot:
    """The same after a while, with leases that began when it was made."""
    began = snapshot.now_ms
    runs = tuple(
        replace(run, running_since_ms=began if run.running else None) for run in snapshot.runs
    )
    has = {run.job for run in runs if run.running}
    jobs = tuple(changed(job, lease_ms=began if job.id in has else None) for job in snapshot.jobs)
    return replace(snapshot, now_ms=Millis(began + 1000 * seconds), jobs=jobs, runs=runs)


def test_who_gains_most_has_the_faster_type() -> None:
    cluster = fleet()
    cluster.job("a", rated(10, 9), left_s=HOUR).job("gains", rated(10, 1), left_s=2 * HOUR)
    snapshot = cluster.snapshot()
    assert places(snapshot, planned(snapshot)) == {"gains": FAST, "a": SLOW}


def test_a_short_job_has_its_turn_when_the_lease_of_a_long_one_is_over() -> None:
    cluster = fleet(fast=1, slow=0)
    cluster.job("long", rated(10, 1), on=["fast-0"], left_s=40 * HOUR)
    cluster.job("longer", rated(10, 1), left_s=90 * HOUR)
    cluster.job("short", rated(10, 1), left_s=600)
    young, old = later(cluster.snapshot(), 299), later(cluster.snapshot(), 300)
    assert [type(entry) for entry in planned(young).entries] == [Hold, Hold]
    by_run = {entry.run: entry for entry in planned(old).entries}
    assert isinstance(by_run["long/0"], Suspend)
    assert isinstance(by_run["short/0"], Assign)
    assert by_run["longer/0"] == Hold(
        by_run["longer/0"].run, "others cost less to end; its turn is expected within 48 hours"
    )


def test_the_job_that_ends_last_goes_first() -> None:
    cluster = fleet(fast=1, slow=1)
    cluster.job("long", rated(10, 1), left_s=20 * HOUR)
    cluster.job("short", rated(10, 1), left_s=HOUR)
    snapshot = cluster.snapshot()
    assert places(snapshot, planned(snapshot)) == {"long": FAST, "short": SLOW}


def test_jobs_that_are_about_as_long_take_no_turns_for_the_last_place() -> None:
    cluster = fleet(fast=1, slow=0)
    cluster.job("first", rated(10, 1), on=["fast-0"], left_s=HOUR)
    cluster.job("second", rated(10, 1), left_s=HOUR + 100)
    assert [type(entry) for entry in planned(later(cluster.snapshot(), 400)).entries] == [Hold]


def test_what_is_idle_is_used_though_it_suits_nobody_well() -> None:
    cluster = fleet()
    for number in range(2):
        cluster.job(f"j{number}", rated(10, 1), left_s=HOUR)
    snapshot = cluster.snapshot()
    assert sorted(places(snapshot, planned(snapshot)).values()) == [FAST, SLOW]


def test_a_gang_that_fits_on_no_type_alone_runs_on_both() -> None:
    cluster = fleet(fast=2, slow=1)
    cluster.job("wide", *[rated(10, 5)] * 3, left_s=HOUR)
    cluster.job("wider", *[rated(10, 5)] * 4, left_s=HOUR)
    snapshot = cluster.snapshot()
    plan = planned(snapshot)
    assert [type(entry) for entry in plan.entries] == [Assign] * 3 + [Hold] * 4
    assert "limit of" in plan.entries[-1].reason  # type: ignore[union-attr]


def test_of_an_array_as_many_run_as_there_is_room_for() -> None:
    cluster = fleet(fast=2, slow=1)
    cluster.job("array", *[rated(10, 5)] * 5, kind=JobKind.ARRAY, left_s=HOUR)
    plan = planned(cluster.snapshot())
    assert sum(isinstance(entry, Assign) for entry in plan.entries) == 3
    assert sum(isinstance(entry, Hold) for entry in plan.entries) == 2


def test_who_cannot_run_in_the_fleet_has_an_instance_launched() -> None:
    cluster = fleet()
    rentable = offer("any.1", (0, 4, 4), 2.0)
    cluster.catalog = (*cluster.catalog, rentable)
    cluster.job("cpus", task(any=(0, 4, 4)), left_s=HOUR).job("gpu", rated(10, 1), left_s=HOUR)
    cluster.job("second", rated(10, 1), left_s=HOUR).job("third", rated(10, 1), left_s=HOUR)
    plan = planned(cluster.snapshot())
    assert [launch.offering for launch in plan.launches] == [rentable]
    assert [entry.run for entry in plan.entries if isinstance(entry, Hold)] == ["third/0"]


def test_a_limited_offering_belongs_to_the_fleet() -> None:
    limited = offer("fast.4", (4, 4, 4), 2.0, family=FAST, limit=1)
    cluster = Cluster(limited).job("gang", *[rated(10, 1)] * 4, left_s=4 * HOUR)
    cluster.job("next", *[rated(10, 1)] * 4, left_s=8 * HOUR)
    plan = planned(cluster.snapshot())
    assert [launch.offering for launch in plan.launches] == [limited]
    assert [entry.run for entry in plan.entries if isinstance(entry, Assign)] == [
        f"gang/{number}" for number in range(4)
    ]


def test_a_job_of_unknown_length_counts_as_long_as_half_of_the_others_and_says_so() -> None:
    cluster = fleet(fast=1, slow=0)
    cluster.job("a", rated(10, 1), left_s=100).job("b", rated(10, 1), left_s=300)
    cluster.job("unknown", rated(10, 1))
    plan = planned(cluster.snapshot())
    holds = {entry.run: entry.reason for entry in plan.entries if isinstance(entry, Hold)}
    assert "length unknown" in holds["unknown/0"]  # type: ignore[index]
    assert "length unknown" not in "".join(why for run, why in holds.items() if run != "unknown/0")
    assert plan.figures["bound_ms"] == 600_000


def test_figures_say_how_soon_everything_can_be_done_and_what_types_are_worth() -> None:
    cluster = fleet()
    for number in range(2):
        cluster.job(f"much{number}", rated(4, 1), left_s=3600)
        cluster.job(f"less{number}", rated(2, 1), left_s=3600)
    figures = planned(cluster.snapshot()).figures
    # See the same example of the LP: 8/3 hours, and two thirds of them are the faster type's.
    assert figures["bound_ms"] == pytest.approx(3600_000 * 8 / 3, rel=1e-6)
    assert figures["worth_ppm:fast"] == 666_667
    assert figures["worth_ppm:slow"] == 333_333


EXAMPLE = """job,workload,gpus,iterations,v100,p100,k80
1,a,3,240,40,20,30
2,b,2,60,5,15,5
3,c,2,100,10,2,20
"""


def test_the_paper_s_example_takes_as_few_rounds_as_any_schedule(tmp_path: Path) -> None:
    """Section II-A: epochs per round; the fewest rounds are 6 at the slowest member's pace."""
    file = tmp_path / "example.csv"
    file.write_text(EXAMPLE)
    round_s = 1  # so that rates per second are epochs per round
    trace = GpusRecipe.model_validate({"kind": "gpus", "file": file, "move": "0s"}).trace(0, ())
    servers = {
        name: ServersSection(servers=1, gpus=gpus)
        for name, gpus in (("v100", 2), ("p100", 3), ("k80", 1))
    }
    policy, _ = named_policy("hadar", {"lease_s": 1})
    gap_ms = 1000 * round_s
    setup = Setup(
        awaited(trace, gap_ms),
        (),
        policy,
        nodes=nodes_of(servers),
        round_gap_ms=gap_ms,
        keep_record=True,
    )
    figures = fleet_figures(Simulation(setup).run(), trace, servers)
    assert figures["total_h"] * 3600 == pytest.approx(6, abs=0.01)
    assert figures["bound_h"] * 3600 == pytest.approx(10 / 3, abs=0.01)


def test_a_long_job_is_not_passed_over_for_ever() -> None:
    cluster = fleet(fast=1, slow=0)
    cluster.job("long", rated(10, 1), left_s=20 * HOUR)
    for number in range(9):
        cluster.job(f"short{number}", rated(10, 1), left_s=3 * HOUR)
    snapshot = cluster.snapshot()  # 47 hours are left

    def came(hours: int) -> Snapshot:
        """The same if the long job came earlier than the others."""
        at = Millis(snapshot.now_ms - 3_600_000 * hours)
        jobs = (replace(it, submitted_ms=at) if it.id == "long" else it for it in snapshot.jobs)
        return replace(snapshot, jobs=tuple(jobs))

    assert "long" not in places(came(94), planned(came(94)))
    assert places(came(95), planned(came(95))) == {"long": FAST}


def test_who_ends_within_a_lease_waits_for_twelve_of_them_at_most() -> None:
    cluster = fleet(fast=1, slow=0)
    cluster.job("long", rated(10, 1), on=["fast-0"], left_s=100 * HOUR)
    cluster.job("quick", rated(10, 1), left_s=60)
    snapshot = cluster.snapshot()
    runs = tuple(replace(run, since_ms=None if run.running else START) for run in snapshot.runs)
    for seconds, entries in ((3_600, [Hold]), (3_601, [Suspend, Assign])):
        found = planned(later(replace(snapshot, runs=runs), seconds)).entries
        assert [type(entry) for entry in found] == entries


def test_tasks_that_no_plan_sees_count_as_whole_ones() -> None:
    cluster = fleet(fast=2, slow=0)
    cluster.job("array", *[rated(10, 1)] * 3, kind=JobKind.ARRAY, left_s=HOUR)
    snapshot = cluster.snapshot()
    jobs = tuple(changed(job, unseen=1000) for job in snapshot.jobs)
    first = replace(snapshot.runs[0], remaining=RemainingWork(1000))
    seen = replace(snapshot, jobs=jobs, runs=(first, *snapshot.runs[1:]))
    hours = planned(seen).figures["bound_ms"]
    assert hours == pytest.approx((1002 * HOUR + 1) * 1000 / 2, rel=1e-6)


def test_a_gang_of_unlike_tasks_may_be_faster_on_two_types_than_on_one() -> None:
    cluster = fleet(fast=2, slow=2)
    cluster.job("pair", rated(10, 1), rated(1, 10), left_s=HOUR)
    # Each of them takes an hour where it is fastest; on one type both would take ten.
    snapshot = cluster.snapshot()
    plan = planned(snapshot)
    assert plan.figures["bound_ms"] <= HOUR * 1000
    assert types_of(snapshot, plan) == {"pair": [FAST, SLOW]}
    # There it stays, and the fallback is a type that holds both.
    settled = carried_out(snapshot, plan)
    assert planned(later(settled, 400)).entries == ()
    assert types_of(settled, planned(later(settled, 400))) == {"pair": [FAST, SLOW]}


def test_a_gang_of_unlike_tasks_stays_on_one_type_where_two_cost_more() -> None:
    cluster = fleet(fast=4, slow=2)
    # On both types the pair would be twice as fast; but to the others the slow one is worth ten
    # times as much.
    cluster.job("pair", rated(20, 1), rated(10, 20), left_s=HOUR)
    for number in range(6):
        cluster.job(f"other{number}", rated(1, 10), left_s=HOUR)
    snapshot = cluster.snapshot()
    assert types_of(snapshot, planned(snapshot))["pair"] == [FAST, FAST]


def test_without_room_on_both_types_a_gang_of_unlike_tasks_takes_one() -> None:
    cluster = fleet(fast=2, slow=1)
    cluster.job("there", rated(1, 10), on=["slow-0"], left_s=100 * HOUR)
    cluster.job("pair", rated(10, 1), rated(1, 10), left_s=HOUR)
    snapshot = later(cluster.snapshot(), 10)
    assert types_of(snapshot, planned(snapshot))["pair"] == [FAST, FAST]


def test_a_gang_that_can_never_be_whole_holds_up_nobody() -> None:
    sizes = (rated(10, 1, gpus=3), rated(10, 1, gpus=3), rated(10, 1, gpus=2))
    for policy in ("hadar", "gavel:makespan", "yarn_cs"):
        cluster = fleet(fast=2, slow=0, gpus=4).job("never", *sizes, left_s=HOUR, priority=1)
        for number in range(6):
            cluster.job(f"one{number}", rated(10, 1), left_s=HOUR)
        plan, _ = named_policy(policy, {})[0].plan(cluster.snapshot(), None)
        assert sum(isinstance(entry, Assign) for entry in plan.entries) == 6, policy
