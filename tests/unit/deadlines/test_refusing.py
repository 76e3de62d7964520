"""Deadlines that cannot be kept are refused, by all that is known of the job in its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from eva_master.adapters.rpc.server.shown.deadlines import notes_on
from eva_master.control.features.deadlines.refusing import refusal
from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import Catalog, Offering, Purchase, spot_family
from eva_master.model.events import JobSubmitted, PlanReady
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits, Partitions
from eva_master.model.job import Deadline, JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, RunId, Workload
from tests.fakes.jobs import CPU, SMALL, job, offering, task
from tests.fakes.models import model_of
from tests.fakes.snapshots import previewed

MINUTE = 60_000
BOOT_MS = 70_000
SERIAL = (replace(offering(2, 100_000), limit=1),)
BY_USER = Suspension(Suspender.USER, Millis(0))


def due(spec: JobSpec, minutes: float, **more: object) -> JobSpec:
    """A job that is to be done so long after its submission, and starts at once."""
    deadline = Deadline(within_ms=round(minutes * MINUTE))
    return with_values(spec, {"deadline": deadline, "launch_ms": 0, **more})


def machine(catalog: Catalog = (SMALL,), *before: JobSpec, **settings: object) -> Machine:
    """A control loop with some jobs."""
    of = replace(Settings(round_gap_ms=0), **settings)  # type: ignore[arg-type]
    made = Machine(State(catalog), of)
    for number, spec in enumerate(before):
        made.handle([JobSubmitted(f"c{number}", spec)], Millis(0))
        assert len(made.state.jobs) == number + 1
    return made


def least_minutes(of: Machine, spec: JobSpec, now: int = 0) -> float:
    """The least time, in minutes, within which a job is accepted, to a second."""
    low, high = 0, 100_000_000
    while low + 1_000 < high:
        middle = (low + high) // 2
        asked = with_values(spec, {"deadline": Deadline(within_ms=middle), "launch_ms": 0})
        refused = refusal(of.state, asked, Millis(now), of.settings) is not None
        low, high = (middle, high) if refused else (low, middle)
    return high / MINUTE


BOOT = BOOT_MS / MINUTE
SECOND = 1 / 60


def test_an_array_counts_as_many_tasks_at_a_time_as_it_asks_for() -> None:
    array = job("a", *[1] * 6, array=True)
    error = refusal(machine().state, due(array, 30, concurrency=1), Millis(0), Settings())
    assert error is not None
    assert "the deadline is in 30m 0s, and on demand the job takes 1h 2m" in error.message
    assert "1 of its 6 tasks run at a time" in error.message
    assert "within: 62m" in error.hint
    assert least_minutes(
        machine(), replace(array, array=replace(array.array, concurrency=2))
    ) == pytest.approx(30 + BOOT, abs=SECOND)
    assert least_minutes(machine(), array) == pytest.approx(10 + BOOT, abs=SECOND)
    assert refusal(machine().state, due(array, 62, concurrency=1), Millis(0), Settings()) is None


def test_predecessors_count_with_what_they_still_need() -> None:
    first = job("first", 1, minutes=30, launch_ms=0)
    second = job("second", 1, minutes=5, depends_on=(JobId("first-1"),), launch_ms=0)
    it = machine((SMALL,), first, second)
    third = job("third", 1, minutes=5, depends_on=(JobId("second-2"), JobId("first-1")))
    error = refusal(it.state, due(third, 20), Millis(0), Settings())
    assert error is not None
    assert "second-2, after which it runs, takes 36m 10s" in error.message
    assert least_minutes(it, third) == pytest.approx(40 + BOOT, abs=SECOND)
    of_ends = replace(
        third, stage=replace(third.stage, only_ended=(JobId("second-2"), JobId("first-1")))
    )
    assert least_minutes(it, of_ends) == pytest.approx(5 + BOOT, abs=SECOND), (
        "they may fail at once"
    )


def test_an_unknown_job_after_a_long_one_is_refused_for_that_one() -> None:
    it = machine((SMALL,), job("first", 1, minutes=30, launch_ms=0))
    unknown = job("b", 1, duration_ms=None, depends_on=(JobId("first-1"),))
    assert least_minutes(it, unknown) == pytest.approx(30 + BOOT, abs=SECOND)
    assert refusal(
        it.state,
        due(replace(unknown, stage=replace(unknown.stage, depends_on=())), 0.1),
        Millis(0),
        it.settings,
    )


def test_predecessors_that_share_one_instance_run_in_turn() -> None:
    one, two = (job(it, 2, minutes=10, launch_ms=0) for it in ("one", "two"))
    it = machine(SERIAL, one, two)
    last = job("last", 2, minutes=10, depends_on=(JobId("one-1"), JobId("two-2")))
    assert least_minutes(it, last) == pytest.approx(30, abs=SECOND)
    assert least_minutes(machine((SMALL,), one, two), last) == pytest.approx(20 + BOOT, abs=SECOND)


def test_a_chain_of_thousands_is_looked_at_in_part() -> None:
    chain = [
        job(
            f"j{number}",
            1,
            minutes=1,
            launch_ms=0,
            depends_on=() if number == 0 else (JobId(f"j{number - 1}-{number}"),),
        )
        for number in range(1_500)
    ]
    it = machine((SMALL,), *chain)
    last = job("last", 1, minutes=1, depends_on=(JobId("j1499-1500"),))
    assert 900 < least_minutes(it, last) < 1_300


def test_an_elastic_gang_counts_as_fast_as_it_may_become() -> None:
    scaling = ((1, 1_000_000), (2, 1_900_000), (4, 3_750_000))
    gang = job("g", 1, 1, 1, 1, minutes=10, least=1, scaling=scaling)
    assert least_minutes(machine(), gang) == pytest.approx(160 / 60 + BOOT, abs=SECOND)
    two = job("g", 2, 2, 2, 2, minutes=10, least=1, scaling=scaling)
    pair = (replace(SMALL, limit=2),)
    assert least_minutes(machine(pair), two) == pytest.approx(10 / 1.9 + BOOT, abs=SECOND)
    unknown = replace(gang, elastic=replace(gang.elastic, scaling=()))
    assert least_minutes(machine(), unknown) <= 2.5 + BOOT + SECOND, "it may scale perfectly"


def parted(**more: PartitionLimits | Budget) -> Partitions:
    return Partitions((Partition("p", default=True, **more),))  # type: ignore[arg-type]


TEN = job("a", *[2] * 10, array=True)


@pytest.mark.parametrize(
    ("catalog", "settings", "turns"),
    [
        (SERIAL, {}, 10),
        ((replace(SMALL, limit=3),), {}, 4),
        ((SMALL,), {"limits": Limits(instances=1)}, 10),
        ((SMALL,), {"limits": Limits(instances_per_user=2)}, 5),
        ((SMALL,), {"limits": Limits(instances_per_job=4)}, 3),
        ((SMALL, offering(4, 190_000)), {"limits": Limits(instances_per_job=2)}, 3),
        ((SMALL,), {"partitions": parted(limits=PartitionLimits(instances=1))}, 10),
        ((SMALL,), {"partitions": parted(budget=Budget(per_hour=250_000))}, 5),
        ((replace(SMALL, purchase=Purchase.OWNED, limit=2),), {}, 5),
        ((SMALL,), {}, 1),
    ],
)
def test_limits_count(catalog: Catalog, settings: Mapping[str, object], turns: int) -> None:
    of = machine(catalog, **settings)
    spec = replace(TEN, partition="p") if "partitions" in settings else TEN
    assert least_minutes(of, spec) == pytest.approx(10 * turns + BOOT, abs=SECOND)


def test_the_quota_of_its_tenant_counts() -> None:
    gpu = replace(SMALL, type=replace(SMALL.type, capacity=replace(SMALL.type.capacity, gpus=1)))
    need = ((CPU, Resources(1, 1000, 1024)),)
    tasks = (replace(task(1), demand=need),) * 4
    spec = JobSpec("a", "me", tasks, kind=JobKind.ARRAY, duration_ms=10 * MINUTE, tenant="t")
    of = machine((gpu,), tenancy=Tenancy(quotas={"t": ((CPU, 2),)}))
    assert least_minutes(of, spec) == pytest.approx(20 + BOOT, abs=SECOND)


def test_forks_share_the_work() -> None:
    spec = job("a", 1, minutes=30, array=True, forks=3)
    assert least_minutes(machine(), spec) == pytest.approx(10 + BOOT, abs=SECOND)
    assert least_minutes(
        machine(SERIAL), replace(TEN, tasks=TEN.tasks[:1], forking=replace(TEN.forking, forks=3))
    ) == (pytest.approx(10 + BOOT, abs=SECOND))


def test_tasks_of_several_kinds_count_each_with_its_own_time() -> None:
    def kind(name: str, steps_per_s: int) -> TaskSpec:
        return replace(task(2, name, rate_ppm=steps_per_s * 1_000_000))

    quick, slow = kind("quick", 10), kind("slow", 1)
    spec = JobSpec("a", "me", (quick, quick, slow), kind=JobKind.ARRAY, total_steps=600)
    assert least_minutes(machine(), spec) == pytest.approx(10 + BOOT, abs=SECOND)
    assert least_minutes(machine(SERIAL), spec) == pytest.approx(12 + BOOT, abs=SECOND)


def test_the_fastest_type_that_fits_counts() -> None:
    fast = Family("f")
    type_ = replace(SMALL.type, name="f.2", family=fast)
    catalog = (SMALL, Offering(type_, SMALL.price * 5))  # type: ignore[arg-type]
    need = Resources(0, 1000, 1024)
    rates = ((CPU, 1_000_000), (fast, 4_000_000))
    either = TaskSpec(Workload("w"), Program("x"), ((CPU, need), (fast, need)), rates)
    spec = JobSpec("a", "me", (either,), duration_ms=40 * MINUTE)
    assert least_minutes(machine(catalog), spec) <= 10 + BOOT + SECOND


def test_an_instance_that_is_there_need_not_boot() -> None:
    it = machine((SMALL,), job("first", 1, launch_ms=0))
    plan = Plan((NewInstance(0, SMALL),), (Assign(RunId("first-1/0"), 0),))
    it.handle([PlanReady(1, plan, None)], Millis(100))
    assert it.state.live
    assert least_minutes(it, job("b", 1)) == pytest.approx(10, abs=SECOND)


def test_a_preview_is_refused_like_the_submission() -> None:
    it = machine(SERIAL)
    hopeless = due(TEN, 90)
    preview = previewed(it.state, hopeless, Millis(0), it.settings)
    error = refusal(it.state, hopeless, Millis(0), it.settings)
    assert error is not None
    assert preview.refused is not None
    assert preview.refused.message == error.message
    fine = previewed(it.state, due(TEN, 120), Millis(0), it.settings)
    assert fine.refused is None


def test_a_partition_that_sells_spot_instances_alone_is_told() -> None:
    spot = replace(
        SMALL,
        purchase=Purchase.SPOT,
        type=replace(SMALL.type, family=spot_family(CPU)),
    )
    need = Resources(0, 1000, 1024)
    either = replace(task(1), demand=((CPU, need), (spot_family(CPU), need)))
    spec = due(job("a", 1, tasks=(either,)), 60)
    assert notes_on(spec, (SMALL, spot)) == ()
    (note,) = notes_on(spec, (spot,))
    assert "nothing keeps the deadline" in note
    assert notes_on(spec, (replace(SMALL, limit=0), spot)) == (note,)
    assert notes_on(replace(spec, deadline=None), (spot,)) == ()


def warned(of: Machine, spec: JobSpec, job_id: str | None = None) -> str:
    known = None if job_id is None else JobId(job_id)
    return model_of(of.state, of.settings).behind_others(spec, known, Millis(0))


def test_others_that_are_due_before_it_at_the_same_limit_are_told_and_refuse_nothing() -> None:
    others = [due(job(name, 2, minutes=10), 15 + number) for number, name in enumerate("abc")]
    it = machine(SERIAL, *others)
    last = due(job("last", 2, minutes=10), 30)
    assert refusal(it.state, last, Millis(0), it.settings) is None
    assert warned(it, last) == (
        "3 jobs that are due before it wait for the same limit: it may be late"
    )
    assert warned(it, due(last, 60)) == "", "it can wait for all of them"
    assert warned(it, replace(last, deadline=None)) == ""
    assert warned(machine((SMALL,), *others), last) == "", "nothing is limited"
    assert warned(machine(SERIAL, *(replace(one, deadline=None) for one in others)), last) == ""
    assert warned(it, due(others[0], 15), "a-1") == "", "none is due before the first"
    assert warned(it, others[1], "b-2") == (
        "a job that is due before it waits for the same limit: it may be late"
    )
    for resting in ({"missing_secrets": ("TOKEN",)}, {"suspension": BY_USER}):
        state = it.state
        for number, name in enumerate("abc", start=1):
            known = state.jobs[JobId(f"{name}-{number}")]
            state.put_job(replace(known, **resting))
        assert warned(it, last) == "", "jobs that wait for their users are before nobody"
        for number, name in enumerate("abc", start=1):
            known = state.jobs[JobId(f"{name}-{number}")]
            state.put_job(replace(known, missing_secrets=(), suspension=None))
    assert warned(it, replace(last, priority=1)) == "", "a higher priority goes before them"
