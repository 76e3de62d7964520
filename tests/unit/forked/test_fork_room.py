"""Which room forks get: what a policy leaves idle, and only as long as nobody needs it."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.planning.validate_plan import reconcile
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.plan import Assign, ExtraRun, Plan, Retire, Suspend
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.extra_runs import forks
from eva_master.packing.plan_effect import PlanEffect
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload

FAST, SLOW = Family("fast"), Family("slow")
NEED = Resources(1, 1_000, 1_024)
TASK = TaskSpec(
    Workload("w"),
    Program("true"),
    ((FAST, NEED), (SLOW, NEED)),
    ((FAST, 10_000_000), (SLOW, 2_000_000)),
)
A, B = JobId("a-1"), JobId("b-2")
N1, N2, N3 = InstanceId("n-1"), InstanceId("n-2"), InstanceId("n-3")


def _box(family: Family, purchase: Purchase = Purchase.OWNED) -> Offering:
    kind = InstanceType(f"{family}.1", family, Resources(1, 2_000, 4_096))
    return Offering(kind, Price(1), purchase=purchase)


def _run(name: str, on: InstanceId | None, **changes: object) -> RunView:
    number = int(name.partition("+")[2] or 0)
    view = RunView(
        RunId(name),
        JobId(name.rpartition("/")[0]),
        TASK,
        on,
        pinned=number > 0,
        running=on is not None,
        replica=number,
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def _snapshot(
    *runs: RunView,
    left: int = 4,
    purchase: Purchase = Purchase.OWNED,
    forked: frozenset[JobId] = frozenset({A}),
) -> Snapshot:
    jobs = tuple(
        job_view(
            name=job,
            kind=JobKind.ARRAY,
            runs=tuple(run.id for run in runs if run.job == job),
            submitted_ms=Millis(0),
            priority=0,
            checkpoint_ms=0,
            launch_ms=0,
            forks=left if job in forked else None,
        )
        for job in sorted({run.job for run in runs})
    )
    families = {N1: FAST, N2: SLOW, N3: FAST}
    instances = tuple(
        InstanceView(
            name,
            _box(family, purchase),
            tuple(run.id for run in runs if run.instance == name),
            ready=True,
        )
        for name, family in families.items()
    )
    return Snapshot(Millis(0), (), jobs, runs, instances)


def _completed(now: Snapshot, *entries: Assign | Suspend) -> PlanEffect:
    return forks.completed(PlanEffect(now, Plan(entries=entries)))


def _begun(effect: PlanEffect) -> list[ExtraRun]:
    """The forks that begin with a plan."""
    return [entry for entry in effect.plan.entries if isinstance(entry, ExtraRun)]


def test_policies_see_no_fork_but_the_first() -> None:
    now = _snapshot(_run("a-1/0", N1), _run("a-1/0+1", N2), _run("b-2/0", None))
    seen = forks.hidden(now)
    assert [run.id for run in seen.runs] == ["a-1/0", "b-2/0"]
    assert seen.jobs[0].runs == ("a-1/0",)
    assert [view.residents for view in seen.instances] == [("a-1/0",), (), ()]
    plain = _snapshot(_run("b-2/0", N1))
    assert forks.hidden(plain) is plain


def test_idle_nodes_go_to_forks_the_fastest_first() -> None:
    plan = _completed(_snapshot(_run("a-1/0", N1), left=1))
    assert [it.on for it in _begun(plan)] == [N3]
    plan = _completed(_snapshot(_run("a-1/0", N1)))
    assert [it.on for it in _begun(plan)] == [N3, N2]


def test_the_job_with_the_fewest_runs_comes_first() -> None:
    both = frozenset({A, B})
    now = _snapshot(_run("a-1/0", N1), _run("b-2/0", N2), forked=both)
    assert [(it.run, it.on) for it in _begun(_completed(now))] == [("a-1/0", N3)]
    now = _snapshot(_run("a-1/0", N1), _run("a-1/0+1", N2), _run("b-2/0", None), forked=both)
    plan = _completed(now, Assign(RunId("b-2/0"), N2))
    assert [it.run for it in plan.plan.entries if isinstance(it, Retire)] == ["a-1/0+1"]
    assert [(it.run, it.on) for it in _begun(plan)] == [("b-2/0", N3)]


def test_nothing_is_kept_for_forks_that_somebody_pays_for() -> None:
    assert not _begun(_completed(_snapshot(_run("a-1/0", N1), purchase=Purchase.ON_DEMAND)))


def test_no_fork_begins_where_somebody_waits_or_without_fork_0() -> None:
    assert not _begun(_completed(_snapshot(_run("a-1/0", N1), _run("b-2/0", None))))
    assert not _begun(_completed(_snapshot(_run("a-1/0", None))))


def test_a_fork_makes_room_in_the_same_plan() -> None:
    now = _snapshot(
        _run("a-1/0", N1), _run("a-1/0+1", N2), _run("a-1/0+2", N3), _run("b-2/0", None)
    )
    placed = Assign(RunId("b-2/0"), N3)
    decision = reconcile(now, _completed(now, placed).plan)
    assert decision.places == ((RunId("b-2/0"), N3),)
    assert [it.run for it in decision.retires] == ["a-1/0+2"]
    # Whoever stands in a line is placed by no plan, and gets room all the same.
    plan = _completed(now)
    assert [it.run for it in plan.plan.entries if isinstance(it, Retire)] == ["a-1/0+1"]


def test_forks_end_with_the_place_of_fork_0() -> None:
    now = _snapshot(_run("a-1/0", N1), _run("a-1/0+1", N2))
    plan = _completed(now, Suspend(RunId("a-1/0"), "its turn is over"))
    assert [it.run for it in plan.plan.entries if isinstance(it, Retire)] == ["a-1/0+1"]
    assert not _begun(plan)
    moved = _completed(now, Assign(RunId("a-1/0"), N2))
    assert [it.run for it in moved.plan.entries if isinstance(it, Retire)] == ["a-1/0+1"]


def test_forks_that_no_longer_hold_are_dropped() -> None:
    now = _snapshot(_run("a-1/0", N1), _run("b-2/0", N3), left=1)
    own, other = RunId("a-1/0"), RunId("b-2/0")
    wished = (ExtraRun(own, N1, "beside itself"), ExtraRun(own, N3, "taken"))
    decision = reconcile(now, Plan(entries=(*wished, ExtraRun(other, N2, "has none"))))
    assert (decision.extras, decision.dropped) == ((), (other,)), "fork 0 is where it was"
    lawful = (ExtraRun(own, N2, "free"), ExtraRun(own, N2, "twice"))
    assert reconcile(now, Plan(entries=lawful)).extras == lawful[:1]
    assert not reconcile(now, Plan((), (ExtraRun(own, 0, "bought"),))).extras


def test_a_fork_beyond_the_limit_takes_no_place_from_fork_0() -> None:
    now = _snapshot(_run("a-1/0", None), left=1)
    own = RunId("a-1/0")
    entries = (Assign(own, N1), ExtraRun(own, N2, "one"), ExtraRun(own, N3, "one too many"))
    decision = reconcile(now, Plan(entries=entries))
    assert decision.places == ((own, N1),)
    assert decision.extras == entries[1:2]
    assert not decision.dropped
