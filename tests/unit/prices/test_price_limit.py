"""Nothing is bought for many times what its tasks are worth; the tasks wait, and say for what."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from eva_lab.simulator.cluster.supply.fault_injector import Faults
from eva_lab.simulator.run import Setup, simulate
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.control.machine import Machine
from eva_master.control.rounds.rules.price_limit import PriceLimit
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, RequestPlan
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.catalog import Catalog, Offering, Purchase, spot_family
from eva_master.model.events import ClocksMoved, JobSubmitted, LaunchFailed, PlanReady
from eva_master.model.job import Deadline, JobSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Instance
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_master.packing.valuation.on_demand import OnDemandPrices
from eva_master.policies.eva import POLICY as EVA
from eva_master.ports import Policy
from eva_master.testing.snapshots import Cluster as Snapshots
from eva_master.testing.snapshots import offer
from eva_master.testing.snapshots import task as snapshot_task
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import JobId, Millis, Price, Workload, run_id
from tests.fakes.jobs import LARGE, MEDIUM, SMALL, job, offering, task

HUGE = offering(192, 9_600_000)
"""96 times the smallest type."""
REFUSED_MS = 60_000
SETTINGS = Settings(round_gap_ms=0, profile=False)


def refused(*offerings: Offering, until: int = REFUSED_MS) -> Catalog:
    """Offerings of which the cloud has none at present."""
    return tuple(
        replace(it, unavailable_until=Millis(until), why_unavailable="no capacity here")
        for it in offerings
    )


class Cluster:
    """A master whose planner is a policy, and whose cloud is the test."""

    def __init__(self, catalog: Catalog, policy: Policy, settings: Settings = SETTINGS) -> None:
        self.machine = Machine(State(catalog), settings)
        self.policy = policy
        self.now = 0

    def handle(self, *events: object, at: int) -> None:
        """Hand events in, and have every plan made that is asked for."""
        self.now = max(self.now, at)
        actions = self.machine.handle(list(events), Millis(self.now))  # type: ignore[arg-type]
        for _ in range(20):
            request = next((it for it in actions if isinstance(it, RequestPlan)), None)
            if request is None:
                return
            plan, memory = self.policy.plan(request.snapshot, request.memory)
            self.now += 1
            actions = self._answer(PlanReady(request.round, plan, memory))
        raise AssertionError("one plan after the other is asked for")

    def _answer(self, event: PlanReady) -> list[Action]:
        return self.machine.handle([event], Millis(self.now))

    def submit(self, spec: JobSpec, at: int = 0) -> None:
        self.handle(JobSubmitted(spec.name, spec), at=at)

    @property
    def bought(self) -> list[Instance]:
        return list(self.machine.state.instances.values())

    def why(self, run: str) -> str:
        return self.machine.state.runs[run].waiting_for  # type: ignore[index]


class Fixed:
    """A policy that puts every task that waits on one new instance of an offering."""

    name = "fixed"

    def __init__(self, on: Offering) -> None:
        self.on = on

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Buy one for all."""
        waiting = [it.id for it in snapshot.runs if it.instance is None]
        if not waiting or not all(it.available(snapshot.now_ms) for it in snapshot.catalog[-1:]):
            return Plan(), memory
        places = tuple(Assign(run, 0) for run in waiting)
        return Plan((NewInstance(0, self.on),), places), memory


def eva() -> Policy:
    """The default policy."""
    policy: Policy = EVA.build(EVA.config())
    return policy


ALL = sorted(policies())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("array", [False, True])
def test_no_policy_buys_what_costs_many_times_what_its_tasks_are_worth(
    name: str, array: bool
) -> None:
    kind = policies()[name]
    cluster = Cluster((*refused(SMALL, MEDIUM, LARGE), HUGE), kind.build(kind.config()))
    cluster.submit(job("a", 2, 2, array=array))
    assert cluster.bought == []
    assert "price_limit" in cluster.why("a-1/0")
    assert "c.2, c.4, c.8" in cluster.why("a-1/0")
    assert "refused until 00:01:00 UTC: no capacity here" in cluster.why("a-1/0")
    cluster.machine.state.set_unavailable([SMALL.id], None, "")
    cluster.submit(job("b", 2), at=REFUSED_MS - 1_000)
    assert cluster.bought
    assert {it.offering.id for it in cluster.bought} == {SMALL.id}


def test_the_reason_says_what_it_would_cost_and_what_is_allowed() -> None:
    cluster = Cluster((*refused(SMALL), HUGE), eva())
    cluster.submit(job("a", 2))
    assert cluster.why("a-1/0") == (
        "waits for c.2 (refused until 00:01:00 UTC: no capacity here); c.192 for $9.6000/h would"
        " cost 96 times its reservation price, $0.1000/h, and 4 times are allowed (price_limit)"
    )


def test_a_type_within_the_limit_is_bought_in_place_of_one_that_is_refused() -> None:
    cluster = Cluster((*refused(SMALL, MEDIUM), LARGE, HUGE), eva())
    cluster.submit(job("a", 2))
    assert [it.offering.id for it in cluster.bought] == [LARGE.id]


@pytest.mark.parametrize(
    ("tasks", "times", "bought"),
    [(24, 4.0, True), (23, 4.0, False), (1, 96.0, True), (1, 95, False)],
)
def test_the_limit_is_the_sum_of_what_all_tasks_of_an_instance_are_worth(
    tasks: int, times: float, bought: bool
) -> None:
    settings = replace(SETTINGS, price_limit_ppm=round(times * 1_000_000))
    cluster = Cluster((*refused(SMALL, MEDIUM, LARGE), HUGE), Fixed(HUGE), settings)
    cluster.submit(job("a", *[2] * tasks, array=True))
    assert bool(cluster.bought) is bought


def test_no_limit_buys_at_any_price() -> None:
    cluster = Cluster((*refused(SMALL), HUGE), eva(), replace(SETTINGS, price_limit_ppm=None))
    cluster.submit(job("a", 2))
    assert [it.offering.id for it in cluster.bought] == [HUGE.id]


def test_a_type_whose_limit_is_zero_says_nothing_of_what_tasks_are_worth() -> None:
    cluster = Cluster((replace(SMALL, limit=0), HUGE), eva())
    cluster.submit(job("a", 2))
    assert [it.offering.id for it in cluster.bought] == [HUGE.id]


def test_a_type_whose_limit_is_reached_is_waited_for() -> None:
    cluster = Cluster((replace(SMALL, limit=1), HUGE), eva())
    cluster.submit(job("a", 2))
    cluster.submit(job("b", 2), at=1_000)
    assert [it.offering.id for it in cluster.bought] == [SMALL.id]
    assert "c.2 (all that the limit allows are there)" in cluster.why("b-2/0")


def test_a_gang_waits_whole() -> None:
    cluster = Cluster((*refused(SMALL, MEDIUM, LARGE), HUGE), Fixed(HUGE))
    cluster.submit(job("a", 2, 2, 2))
    assert cluster.bought == []
    assert "their reservation prices, $0.3000/h" in cluster.why("a-1/0")


def test_a_spot_instance_is_held_to_the_price_on_demand() -> None:
    def on_spot(it: Offering, price: int) -> Offering:
        machine = replace(it.type, family=spot_family(it.type.family))
        return replace(it, type=machine, price=Price(price), purchase=Purchase.SPOT)

    dear, fair = on_spot(HUGE, 2_000_000), on_spot(LARGE, 300_000)
    spec = job("a", 2)
    (need,) = task(2).demand
    both = (*task(2, "a").demand, (spot_family(need[0]), need[1]))
    spec = replace(spec, tasks=(replace(spec.tasks[0], demand=both),))
    cluster = Cluster((*refused(SMALL, MEDIUM, LARGE, fair), dear), eva())
    cluster.submit(spec)
    assert cluster.bought == []
    assert "c.8 (spot)" in cluster.why("a-1/0")
    cluster = Cluster((*refused(SMALL, MEDIUM, LARGE), fair, dear), eva())
    cluster.submit(spec)
    assert [it.offering.id for it in cluster.bought] == [fair.id]


def test_the_instances_of_a_refusal_in_the_middle_of_the_work_are_not_replaced_by_a_dear_one() -> (
    None
):
    cluster = Cluster((SMALL, HUGE), eva())
    cluster.submit(job("a", 2))
    (instance,) = cluster.bought
    refusal = LaunchFailed(instance.id, Millis(300_000), "no capacity")
    cluster.handle(refusal, at=14_000)
    live = [it for it in cluster.bought if it.id in cluster.machine.state.live]
    assert live == []
    assert "c.2 (refused until 00:05:00 UTC: no capacity)" in cluster.why("a-1/0")


class Stubborn:
    """A policy that buys the dearest that is on sale for one job, and the cheapest for others."""

    name = "stubborn"

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Put all that waits on the dearest instance together."""
        sold = [it for it in snapshot.catalog if it.available(snapshot.now_ms)]
        waiting = [it.id for it in snapshot.runs if it.instance is None]
        if not sold or not waiting:
            return Plan(), memory
        dearest = max(sold, key=lambda it: it.price)
        return Plan((NewInstance(0, dearest),), tuple(Assign(it, 0) for it in waiting)), memory


def test_a_policy_that_chose_what_is_too_dear_is_asked_again_without_it() -> None:
    cluster = Cluster((SMALL, LARGE, HUGE), Stubborn())
    cluster.submit(job("alone", 2))
    assert [it.offering.id for it in cluster.bought] == [SMALL.id], "placed whatever it is worth"
    cluster.submit(job("a", 2))
    assert [it.offering.id for it in cluster.bought] == [SMALL.id, LARGE.id]
    assert Fraction(LARGE.price, SMALL.price) <= 4


def test_a_policy_that_insists_on_what_is_too_dear_is_not_asked_for_ever() -> None:
    class Insists(Stubborn):
        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            """Buy the same, whatever is on sale."""
            waiting = [it.id for it in snapshot.runs if it.instance is None]
            return Plan((NewInstance(0, HUGE),), tuple(Assign(it, 0) for it in waiting)), memory

    cluster = Cluster((SMALL, HUGE), Insists())
    cluster.submit(job("alone", 2))
    cluster.submit(job("a", 2))
    assert [it.offering.id for it in cluster.bought] == [SMALL.id]
    assert "96 times its reservation price" in cluster.why("a-2/0")


def due(name: str, *cpus: int, within_ms: int, minutes: float = 10) -> JobSpec:
    """A job with a deadline."""
    return job(name, *cpus, minutes=minutes, deadline=Deadline(within_ms=within_ms))


def test_a_deadline_exceeds_the_limit_by_what_it_needs() -> None:
    middle = offering(64, 3_200_000)
    cluster = Cluster((*refused(SMALL), middle, HUGE), eva())
    cluster.submit(due("a", 2, within_ms=13 * 60_000))
    (instance,) = cluster.bought
    assert instance.offering.id == middle.id
    assert "the deadline of a-1 leaves no time to wait" in instance.reason
    assert "32.0 times" in instance.reason
    cluster = Cluster((*refused(SMALL), middle, HUGE), Stubborn())
    cluster.submit(due("a", 2, within_ms=13 * 60_000))
    assert [it.offering.id for it in cluster.bought] == [middle.id]


def test_a_deadline_with_time_to_lose_waits_until_it_has_none() -> None:
    cluster = Cluster((*refused(SMALL, until=10**9), HUGE), eva())
    cluster.submit(due("a", 2, within_ms=60 * 60_000))
    assert cluster.bought == []
    at = cluster.machine.next_alarm()
    for _ in range(50):
        if cluster.bought or at is None:
            break
        cluster.handle(at=at)
        at = cluster.machine.next_alarm()
    assert [it.offering.id for it in cluster.bought] == [HUGE.id]
    # 10 minutes of work, with one and a half times what a start is assumed to take.
    assert 40 * 60_000 < cluster.now < 50 * 60_000


def test_a_job_that_is_late_anyhow_pays_no_more_for_it() -> None:
    cluster = Cluster((*refused(SMALL, until=10**9), HUGE), eva())
    spec = due("a", 2, within_ms=60 * 60_000)
    cluster.submit(spec)
    cluster.handle(at=61 * 60_000)
    assert cluster.bought == []


@pytest.mark.parametrize("policy", ["eva", "fifo", "no_packing"])
def test_what_one_job_is_not_worth_is_not_withheld_from_another_that_comes_meanwhile(
    policy: str,
) -> None:
    entry = policies()[policy]
    cluster = Cluster((*refused(SMALL, until=10**9), HUGE), entry.build(entry.config()))
    machine = cluster.machine
    # The gang's small member is not worth an instance of the large type, so the gang waits.
    actions = machine.handle([JobSubmitted("g", job("g", 192, 2))], Millis(0))
    (request,) = [it for it in actions if isinstance(it, RequestPlan)]
    plan, memory = cluster.policy.plan(request.snapshot, request.memory)
    assert len(plan.launches) == 2
    cluster.handle(JobSubmitted("m", job("m", 192)), PlanReady(request.round, plan, memory), at=1)
    assert [it.offering.id for it in cluster.bought] == [HUGE.id]
    assert machine.state.runs[run_id(JobId("m-2"), 0)].target is not None


def test_deadlines_and_reasons_are_by_the_wall_clock() -> None:
    cluster = Cluster((*refused(SMALL, until=10**9), HUGE), eva())
    cluster.submit(job("a", 2, minutes=10, deadline=Deadline(at_ms=60 * 60_000)))
    cluster.handle(ClocksMoved(WallClock(ahead_ms=3 * 3_600_000)), at=60_000)
    cluster.submit(job("b", 2), at=61_000)
    # The wall clock shows 03:01, so it is late and pays no more for it.
    assert cluster.bought == []
    # The refusal ends 277 h 46 min 40 s after midnight by the loop, 3 hours later by the clock.
    assert "refused until 16:46:40 UTC" in cluster.why("b-2/0")


def test_a_restart_forgets_nothing_that_the_limit_goes_by() -> None:
    cluster = Cluster((*refused(SMALL), HUGE), eva())
    cluster.submit(job("a", 2))
    again = Machine(cluster.machine.state, SETTINGS)
    cluster.machine = again
    actions = again.recover(Millis(2_000))
    assert any(isinstance(it, RequestPlan) for it in actions)
    cluster.now = 2_000
    request = next(it for it in actions if isinstance(it, RequestPlan))
    plan, memory = cluster.policy.plan(request.snapshot, request.memory)
    cluster.handle(PlanReady(request.round, plan, memory), at=2_100)
    assert cluster.bought == []
    assert "price_limit" in cluster.why("a-1/0")


@pytest.mark.parametrize(("written", "ppm"), [("4", 4_000_000), ("2.5", 2_500_000), ("null", None)])
def test_the_operator_states_the_limit(written: str, ppm: int | None, tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(f"state_dir: {tmp_path}\nprice_limit: {written}\n")
    config = load_master_config(policies=policies(), file=file)
    assert control_settings(config).price_limit_ppm == ppm


def test_a_limit_below_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("price_limit: 0.5\n")
    with pytest.raises(InvalidConfig, match="price_limit"):
        load_master_config(policies=policies(), file=file)


def test_the_limit_is_four_where_nothing_is_said(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(f"state_dir: {tmp_path}\n")
    config = load_master_config(policies=policies(), file=file)
    assert control_settings(config).price_limit_ppm == Settings().price_limit_ppm == 4_000_000


@pytest.mark.parametrize("policy", ["eva", "stratus", "no_packing", "synergy"])
def test_a_simulation_whose_cloud_runs_out_of_small_types_buys_no_large_one(policy: str) -> None:
    kind = policies()[policy]
    jobs = tuple(
        TraceJob(
            id=f"j{number}",
            workload=Workload("w"),
            arrival_ms=Millis(number),
            duration_ms=60_000,
            init_ms=0,
            steps_per_s=1_000_000,
            total_steps=60,
            tasks=(TraceTask(Resources(0, 2_000, 1_024)),),
        )
        for number in range(3)
    )
    outcome = simulate(
        Setup(
            Trace("three", jobs),
            (SMALL, HUGE),
            kind.build(kind.config()),
            faults=Faults(stock={"c.2": 1}),
            keep_record=True,
        )
    )
    assert {it.type for it in outcome.record.instances} == {"c.2"}


@pytest.mark.parametrize("left", [0, 1])
def test_what_is_dear_is_hidden_at_once_where_a_quota_leaves_nothing_else(left: int) -> None:
    small, huge = offer("small", (0, 2, 4), 0.1), offer("huge", (0, 192, 768), 9.6)
    seen = Snapshots(small, huge).job("job", snapshot_task("w", any=(0, 2, 4))).snapshot()
    limit = PriceLimit(4_000_000, OnDemandPrices(seen.catalog, seen.standalone))
    assert limit.shown(seen, pools=False).offerings == {}
    # The operator's prices stay those of all that is sold.
    lowered = replace(seen, catalog=(replace(small, limit=left), huge))
    assert limit.shown(lowered, pools=False).offerings.keys() == {huge.id}
