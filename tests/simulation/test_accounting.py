"""What a simulated task's life costs, reckoned by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.cluster.supply.fault_injector import Faults
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.metrics import SimulationOutcome, quantile
from eva_lab.simulator.run import Setup, Simulation, simulate
from eva_master.model.actions import Reply
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.planning.plan import Hold, PolicyMemory
from eva_master.model.planning.plan import Plan as Decided
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line
from eva_master.model.resources import Resources
from eva_master.model.trace import Interference, Trace, TraceJob, TraceTask
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_master.ports import Policy
from eva_wire.values.errors import InvalidJob, InvalidTrace, SimulationStalled
from eva_wire.values.ids import MILLION, Family, InstanceId, Price, RunId, Workload
from tests.fakes.jobs import Script

HOUR_MS = 3_600_000


def offering(name: str, cpus: int, usd_per_hour: float) -> Offering:
    """One of the family ``c`` that takes 20 s to come up and 100 s to set up."""
    capacity = Resources(0, cpus * 1000, cpus * 2048)
    kind = InstanceType(name, Family("c"), capacity, acquisition_ms=20_000, setup_ms=100_000)
    return Offering(kind, Price(round(usd_per_hour * MILLION)))


SMALL, MEDIUM, LARGE = offering("c.2", 2, 0.36), offering("c.4", 4, 0.72), offering("c.8", 8, 1.44)
CATALOG = (SMALL, MEDIUM, LARGE)
TASK = TraceTask(
    Resources(0, 2000, 1024),
    image="i",
    fetch_ms=5_000,
    build_ms=30_000,
    kill_ms=2_000,
    upload_ms=4_000,
)


def job(
    name: str, at_s: int, duration_s: int, *, tasks: int = 1, cpus: int = 2, workload: str = ""
) -> TraceJob:
    task = replace(TASK, demand=Resources(0, cpus * 1000, 1024))
    return TraceJob(
        name,
        Workload(workload or name),
        at_s * 1000,
        duration_s * 1000,
        (task,) * tasks,
        init_ms=10_000,
    )


def setup(*jobs: TraceJob, policy: Policy | None = None, **options: object) -> Setup:
    policy = policy or NO_PACKING.build(NO_PACKING.config())
    options = {"round_gap_ms": 0, "keep_record": True, **options}
    return Setup(Trace("t", jobs), CATALOG, policy, **options)  # type: ignore[arg-type]


def occupancies(outcome: SimulationOutcome) -> list[tuple[str, str, int, int]]:
    """Copy, instance, and from when to when, in seconds."""
    return [
        (occupancy.run, occupancy.instance, occupancy.from_ms // 1000, occupancy.to_ms // 1000)
        for occupancy in outcome.record.occupancies
    ]


def test_a_task_alone_from_arrival_to_bill() -> None:
    # Arrives at 100 s, is planned for at 300 s. Up at 320 s, registered at 420 s; fetched and
    # built by 455 s, at work from 465 s to 4,065 s. Rounds end its instance at 4,200 s and 1 s.
    it = simulate(setup(job("a", 100, 3600), round_gap_s=300))
    assert occupancies(it) == [("a-1/0", "i00001", 420, 4065)]
    (bill,) = it.record.instances
    assert (bill.type, bill.up_ms, bill.gone_ms) == ("c.2", 320_000, 4_201_000)
    assert it.cost_usd == pytest.approx(0.36 * (4201 - 320) / 3600)
    assert it.jct_mean_h == pytest.approx((4065 - 100) / 3600)
    assert it.idle_mean_h == pytest.approx((455 - 100) / 3600)
    assert (it.norm_throughput_mean, it.migrations_per_job, it.instances_launched) == (1.0, 0, 1)
    assert it.tasks_per_instance == pytest.approx((4065 - 420) / (4201 - 320))
    assert it.allocation_cpu == it.tasks_per_instance
    assert it.allocation_memory == pytest.approx(it.tasks_per_instance / 4)


def test_on_events_and_in_production_accounting_an_instance_goes_at_once() -> None:
    at_once = simulate(setup(job("a", 100, 3600)))
    (bill,) = at_once.record.instances
    assert (bill.requested_ms, bill.up_ms, bill.gone_ms) == (100_000, 120_000, 3_866_000)
    later = simulate(setup(job("a", 100, 3600), round_gap_s=300, accounting=Accounting.PRODUCTION))
    (bill,) = later.record.instances
    assert (bill.requested_ms, bill.gone_ms) == (300_000, 4_066_000)


SHARE = Interference(
    {(Workload("a"), Workload("b")): 500_000, (Workload("b"), Workload("a")): 800_000}
)


def together(**options: object) -> Setup:
    """Two jobs on one instance; the second arrives while the first one is at work."""
    script = Script({RunId("a-1/0"): "box", RunId("b-2/0"): "box"}, {"box": LARGE})
    jobs = job("a", 0, 1000), job("b", 400, 1000)
    return setup(*jobs, policy=script, truth=SHARE, **options)


def test_tasks_slow_each_other_down_from_the_start_of_their_programs() -> None:
    # a works from 165 s on. b's image is another matter: the same one is there already, so its
    # program starts 5 s after 400 s, and works from 415 s on; a is at half its pace since 405 s.
    it = simulate(together())
    a_left, b_start = 1000 - (405 - 165), 415
    a_end = 405 + a_left / 0.5
    b_done = (a_end - b_start) * 0.8
    assert b_done > 1000, "b is done first"
    b_end = b_start + 1000 / 0.8
    a_end = b_end + a_left - (b_end - 405) * 0.5
    ends = {run: end for run, _, _, end in occupancies(it)}
    assert ends == {"a-1/0": int(a_end), "b-2/0": int(b_end)}
    expected = (1000 / (a_end - 165) + 0.8) / 2
    assert it.norm_throughput_mean == pytest.approx(expected, abs=1e-5)


def moving(accounting: Accounting) -> SimulationOutcome:
    """a moves to a small instance as soon as b is there to have its plan made."""
    script = Script({RunId("a-1/0"): "box", RunId("b-2/0"): "box"}, {"box": LARGE, "own": SMALL})
    plan = script.plan

    def later(snapshot: Snapshot, memory: PolicyMemory | None) -> object:
        if snapshot.now_ms >= 500_000:
            script.wanted[RunId("a-1/0")] = "own"
        return plan(snapshot, memory)

    script.plan = later  # type: ignore[method-assign]
    jobs = job("a", 0, 1000), job("b", 500, 1000)
    return simulate(setup(*jobs, policy=script, accounting=accounting))


def test_a_move_costs_stop_fetch_build_and_start_one_after_the_other() -> None:
    # Up and registered at 620 s. a stops until 626 s; its image is new there: 661 s, 671 s.
    it = moving(Accounting.COMPAT)
    first, second = (occupancy for occupancy in occupancies(it) if occupancy[0] == "a-1/0")
    assert first == ("a-1/0", "i00001", 120, 626)
    done = 620 - 165
    assert second == ("a-1/0", "i00002", 626, 671 + 1000 - done)
    assert (it.migrations_per_job, it.migrations_per_task) == (0.5, 0.5)


def test_in_production_the_target_is_made_ready_first() -> None:
    # Fetched and built from 620 s to 655 s while a goes on; stopped until 661 s, at work at 671 s.
    it = moving(Accounting.PRODUCTION)
    first, second = (occupancy for occupancy in occupancies(it) if occupancy[0] == "a-1/0")
    assert first == ("a-1/0", "i00001", 120, 661)
    assert second == ("a-1/0", "i00002", 661, 671 + 1000 - (655 - 165))


def test_a_gang_gets_on_once_its_last_member_has_started_and_as_its_slowest_does() -> None:
    wanted = {RunId("g-1/0"): "x", RunId("g-1/1"): "y", RunId("b-2/0"): "y"}
    script = Script(wanted, {"x": MEDIUM, "y": LARGE})
    slow = Interference({(Workload("g"), Workload("b")): 250_000}, default_ppm=MILLION)
    jobs = job("g", 0, 1000, tasks=2), job("b", 0, 1000)
    it = simulate(setup(*jobs, policy=script, truth=slow))
    # b works from 165 s to 1,165 s; by then a quarter of that is done of both members' work.
    assert {run: end for run, _, _, end in occupancies(it)} == {
        "b-2/0": 1165,
        "g-1/0": 1165 + 750,
        "g-1/1": 1165 + 750,
    }


def test_an_image_is_made_once_on_an_instance() -> None:
    script = Script({RunId(f"{name}/0"): "box" for name in ("a-1", "b-2")}, {"box": LARGE})
    it = simulate(setup(job("a", 0, 100), job("b", 0, 200), policy=script))
    # Both wait for the one build, since neither can start before it is done.
    assert {end for _, _, _, end in occupancies(it)} == {265, 365}


def test_the_lower_bound_packs_fractionally_and_knows_no_delays() -> None:
    # Three tasks of two CPUs for 1,000 s: on c.2 at 0.36 $/h each, no packing saves anything.
    jobs = [job(name, 0, 1000) for name in "abc"]
    bound = reference_bound(Trace("t", tuple(jobs)), CATALOG)
    assert bound / MILLION / HOUR_MS == pytest.approx(3 * 0.36 * 1000 / 3600, rel=1e-4)
    # Three CPUs need a c.4 alone; eight thirds of them fill a c.8, at the same price per CPU.
    jobs = [job(name, 0, 1000, cpus=3) for name in "abc"]
    bound = reference_bound(Trace("t", tuple(jobs)), CATALOG)
    half = 1.44 / 2  # two of them on a c.8, or one on a c.4
    assert bound / MILLION / HOUR_MS == pytest.approx(3 * half * 1000 / 3600, rel=1e-4)


def test_machines_that_fail_take_what_was_not_saved_along() -> None:
    faults = Faults(failures_per_hour=2.0, checkpoint_ms=600_000)
    it = simulate(setup(job("a", 0, 7200), faults=faults, seed=1))
    attempts = [occupancy for occupancy in it.record.occupancies if occupancy.run == "a-1/0"]
    assert len(attempts) > 1
    kept = [occupancy.moving_ms // 600_000 * 600_000 for occupancy in attempts[:-1]]
    # The clock of a program's own checkpoints begins with it, 10 s before its work.
    assert attempts[-1].moving_ms == pytest.approx(7_200_000 - sum(kept), abs=10_000 * len(kept))


def test_what_the_cloud_does_not_have_is_learned_from_refusals() -> None:
    it = simulate(setup(job("a", 0, 100), job("b", 0, 100), faults=Faults(stock={"c.2": 1})))
    assert sorted(bill.type for bill in it.record.instances) == ["c.2", "c.4"]


def test_measurements_with_noise_are_not_those_without() -> None:
    exact, rough = simulate(together()), simulate(together(faults=Faults(noise=0.2), seed=3))
    assert exact.cost_usd == rough.cost_usd, "the truth is the same"


class Reluctant:
    """Places nothing, ever: all jobs stand in line for a pool that is not there."""

    name = "reluctant"

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Decided, PolicyMemory | None]:
        holds = tuple(Hold(run.id, "not today") for run in snapshot.runs)
        line = Line(("nowhere",), tuple(job.id for job in snapshot.jobs))
        return Decided(entries=holds, lines=(line,)), memory


def test_a_simulation_that_will_never_end_says_so() -> None:
    """The jobs that wait and what they wait for are named, and when that was."""
    with pytest.raises(SimulationStalled, match="2 of 2 jobs have not ended") as told:
        simulate(
            setup(
                job("a", 0, 100),
                job("b", 0, 100, tasks=2),
                policy=Reluctant(),
                round_gap_s=300,
            )
        )
    assert "after 0h 0m of virtual time" in told.value.message
    assert told.value.hint == "a waits: not today; b (task 0) waits: not today"


def test_when_nothing_will_ever_happen_any_more_the_simulation_says_so_at_once() -> None:
    with pytest.raises(SimulationStalled, match="after 0h 0m of virtual time, and 1 of 1 job has"):
        simulate(setup(job("a", 0, 100), policy=Reluctant()))


def test_a_job_that_is_refused_is_named_at_once() -> None:
    simulation = Simulation(setup(job("a", 0, 1000)))
    refusal = InvalidJob("it has too many tasks", hint="split it")
    simulation.cluster.answers.reply(Reply("submit-a", None, refusal))
    with pytest.raises(InvalidTrace, match=r"job a is refused .*: it has too many tasks") as told:
        simulation.run()
    assert told.value.hint == "split it"


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(InvalidTrace, match="no jobs"):
        simulate(setup())
    with pytest.raises(InvalidTrace, match="two jobs of the trace t are named a"):
        simulate(setup(job("a", 0, 1000), job("a", 10, 100)))
    with pytest.raises(InvalidTrace, match="job big has a task"):
        simulate(setup(job("big", 0, 100, cpus=9)))


def test_quantiles_lie_between_values_in_proportion() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0], 0.95) == 1.0
    assert quantile([0.0, 10.0], 0.95) == pytest.approx(9.5)


def test_instances_that_have_failed_are_charged_until_then() -> None:
    it = simulate(setup(job("a", 0, 36_000), faults=Faults(failures_per_hour=1.0), seed=4))
    # After one that failed before its task ran there is another type for a while.
    price = {offering.type.name: offering.price / MILLION for offering in CATALOG}
    charged = sum(
        price[bill.type] * (bill.gone_ms - bill.up_ms) / HOUR_MS for bill in it.record.instances
    )
    assert len(it.record.instances) > 1
    assert it.cost_usd == pytest.approx(charged)
    assert {bill.id for bill in it.record.instances} == {
        InstanceId(f"i{number:05d}") for number in range(1, len(it.record.instances) + 1)
    }
