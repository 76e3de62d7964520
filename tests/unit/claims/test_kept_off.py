"""The stage that keeps plans off claimed room."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.rounds.rules.claimed_room import kept_off
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Assign, ExtraRun, Hold, NewInstance, Plan, Resize
from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, RunId
from tests.fakes.snapshots import START, Cluster, offer, task

FOUR, ONE = task("w", any=(0, 4, 8)), task("w", any=(0, 1, 2))
BOX = offer("box", (0, 4, 16), 0.4, limit=3)
ONE_BOX, OTHER = InstanceId("i"), InstanceId("k")
TOLD = "room is kept for u, which has a higher priority"


def claim(*instances: InstanceId, slots: int = 0, job: str = "u", **more: object) -> Claim:
    of_box = ((BOX.id, slots),) if slots else ()
    return Claim(JobId(job), (RunId(f"{job}/0"),), 5, instances, of_box, **more)  # type: ignore[arg-type]


def cluster() -> Cluster:
    """Two boxes with a task on each, a job with a claim and another one that wait."""
    made = Cluster(BOX).instance("i", "box").instance("k", "box")
    made.job("a", ONE, on=["i"]).job("b", ONE, on=["k"])
    return made.job("u", FOUR).job("v", ONE)


def to(run: str, where: InstanceId | int) -> Assign:
    return Assign(RunId(run), where)


def new(*keys: int) -> tuple[NewInstance, ...]:
    return tuple(NewInstance(key, BOX) for key in keys)


def kept(plan: Plan, *claims: Claim, snapshot: Snapshot | None = None) -> Plan:
    return kept_off(PlanEffect(snapshot or cluster().snapshot(), plan), claims).plan


def test_a_task_that_waits_does_not_come_and_one_that_runs_stays():
    plan = Plan(entries=(to("b/0", ONE_BOX), to("v/0", ONE_BOX)))
    assert kept(plan, claim(ONE_BOX)).entries == (Hold(RunId("v/0"), TOLD),)
    assert kept(plan, claim(OTHER)) is plan
    # Whatever is there already may stay.
    assert kept(Plan(), claim(ONE_BOX)) == Plan()


def test_a_claim_that_the_plan_serves_keeps_nothing():
    placed = Plan(new(0), (to("u/0", 0), to("v/0", ONE_BOX)))
    assert kept(placed, claim(ONE_BOX)) is placed
    pool = Pool("p", (ONE_BOX,), "stays")
    lined = Plan(entries=(to("v/0", ONE_BOX),), pools=(pool,), lines=(Line(("p",), (JobId("u"),)),))
    assert kept(lined, claim(ONE_BOX)) is lined
    # A claim of a job that has ended meanwhile keeps nothing either.
    gone = Plan(entries=(to("v/0", ONE_BOX),))
    assert kept(gone, claim(ONE_BOX, job="x")) is gone


def test_what_is_more_urgent_may_come_though_nothing_is_kept_for_it():
    snapshot = cluster().snapshot()
    urgent = tuple(replace(it, priority=9 if it.id == "v" else 0) for it in snapshot.jobs)
    above = replace(snapshot, jobs=urgent)
    plan = Plan(entries=(to("v/0", ONE_BOX),))
    assert kept(plan, claim(ONE_BOX), snapshot=above) is plan
    bought = Plan(new(0), (to("v/0", 0),))
    assert kept(bought, claim(slots=1), snapshot=above) is bought
    equal = tuple(replace(it, priority=5 if it.id == "v" else 0) for it in snapshot.jobs)
    same = replace(snapshot, jobs=equal)
    assert kept(plan, claim(ONE_BOX), snapshot=same).entries == (Hold(RunId("v/0"), TOLD),)


def test_slots_that_are_kept_are_launched_by_no_other():
    plan = Plan(new(0), (to("v/0", 0),))
    held = kept(plan, claim(slots=1))
    assert held.entries == (Hold(RunId("v/0"), TOLD),)
    roomy = replace(cluster().snapshot(), catalog=(replace(BOX, limit=4),))
    assert kept(plan, claim(slots=1), snapshot=roomy) is plan
    # A launch by a claimant is its own, whatever else comes along.
    shared = Plan(new(0), (to("v/0", 0), to("u/0", 0)))
    assert kept(shared, claim(slots=1), claim(job="x", slots=1)) is shared


def test_a_pool_gets_no_new_member_in_a_slot_that_is_kept():
    plan = Plan(new(0), pools=(Pool("p", (OTHER, 0), "for short jobs"),))
    held = kept(plan, claim(slots=1))
    assert (held.launches, held.pools[0].members) == ((), (OTHER,))


def test_no_extra_run_of_a_late_task_begins_there():
    plan = Plan(entries=(ExtraRun(RunId("b/0"), ONE_BOX, "it is late"),))
    assert kept(plan, claim(ONE_BOX)).entries == ()
    assert kept(plan, claim(OTHER)) is plan


def test_an_elastic_gang_does_not_grow_there():
    gang = cluster().job("g", ONE, on=["k"], kind=JobKind.GANG)
    snapshot = gang.job("g2", ONE).snapshot()
    runs = tuple(
        replace(run, id=RunId("g/1"), job=JobId("g")) if run.job == "g2" else run
        for run in snapshot.runs
    )
    jobs = tuple(
        replace(job, runs=(RunId("g/0"), RunId("g/1"))) if job.id == "g" else job
        for job in snapshot.jobs
        if job.id != "g2"
    )
    plan = Plan(entries=(to("g/1", ONE_BOX),), sizes=(Resize(JobId("g"), 2, "room stands idle"),))
    grown = replace(snapshot, runs=runs, jobs=jobs)
    cut = kept(plan, claim(ONE_BOX), snapshot=grown)
    assert (cut.sizes, [it for it in cut.entries if isinstance(it, Assign)]) == ((), [])
    assert kept(plan, claim(OTHER), snapshot=grown) is plan


def test_a_claim_that_comes_first_goes_before_the_later_ones():
    snapshot = cluster().job("t", ONE).snapshot()
    both = claim(ONE_BOX), claim(ONE_BOX, job="t")
    later = Plan(entries=(to("t/0", ONE_BOX),))
    assert kept(later, *both, snapshot=snapshot).entries == (Hold(RunId("t/0"), TOLD),)
    first = Plan(entries=(to("u/0", ONE_BOX),))
    assert kept(first, *both, snapshot=snapshot) is first


def test_tasks_that_are_known_to_end_before_the_room_is_complete_may_use_it():
    snapshot = cluster().snapshot()
    work = RemainingWork(60_000)
    runs = tuple(replace(run, remaining=work) if run.job == "v" else run for run in snapshot.runs)
    short, plan = replace(snapshot, runs=runs), Plan(entries=(to("v/0", ONE_BOX),))
    (launch_ms,) = {job.delays.launch_ms for job in snapshot.jobs if job.id == "v"}
    due = START + launch_ms + 60_000
    assert kept(plan, claim(ONE_BOX, complete_ms=due), snapshot=short) is plan
    assert kept(plan, claim(ONE_BOX, complete_ms=due - 1), snapshot=short) is not plan
    assert kept(plan, claim(ONE_BOX, complete_ms=due)) is not plan, "nothing is known of it"
