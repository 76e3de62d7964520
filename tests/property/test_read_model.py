"""What readers see is what the control loop knows, and what left its memory stays in the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.simulated_cluster import Answers
from eva_master.control.measure import ledger
from eva_master.control.measure.throughput import normalised
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.readside.model import ClusterModel
from eva_master.control.readside.preview import copied
from eva_master.control.state.store import State
from eva_master.model.accounting.months import MonthCharge
from eva_master.model.accounting.splits import CostSplit, SplitKind
from eva_master.model.accounting.totals import CostTotals, PartitionTotals, TenantTotals, Totals
from eva_master.model.changes import Changes, InstanceAccount, JobAccount
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Job, untouched
from eva_master.packing.valuation.job_valuation import Reservation
from eva_master.ports.reading import ReadModel
from eva_master.testing.job_views import changed
from eva_wire.values.ids import Exact, InstanceId, JobId, Millis
from eva_wire.values.states import TERMINAL_JOB
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property.test_control_loop import CHAOS_MS, QUICK, Story, _world, stories


class Audience(Answers):
    """Reads every model that is published."""

    def __init__(self, replies: dict[str, Any]) -> None:
        super().__init__()
        self.replies = replies
        self.model: ClusterModel | None = None

    def publish(self, changes: Changes, model: Callable[[], ReadModel]) -> None:
        made = model()
        assert isinstance(made, ClusterModel)
        self.model = made


def seen(model: ClusterModel, now: Millis) -> dict[str, Any]:
    """All that a model says."""
    cost = model.cost(now)
    return {
        "jobs": dict(model.jobs),
        "runs": dict(model.runs),
        "instances": dict(model.instances),
        "active": list(model.active.items()),
        "live": list(model.live.items()),
        "newest": [job.id for job in model.newest()],
        "sessions": dict(model.sessions),
        "records": {job: model.record(job, now).account for job in model.jobs},
        "billed": {it: model.billed(it, now).account for it in model.instances},
        "members": {job: list(model.members(job)) for job in model.jobs},
        "occupants": {it: model.occupants(it) for it in model.live},
        "used": {it: model.hosted(it)[it].used for it in model.live},
        "normalised": {run.id: model.normalised(run) for run in model.runs.values()},
        "prices": {run.id: worth(model.reservation(run)) for run in model.runs.values()},
        "found": {
            job.spec.name: model.find(job.spec.owner, job.spec.name) for job in model.jobs.values()
        },
        "names": dict(model.names),
        "sharing": {
            (owner, job.spec.name): [it.id for it in model.active_named(job.spec.name, owner)]
            for job in model.jobs.values()
            for owner in (job.spec.owner, "")
        },
        "cost": (cost.charged, cost.idle, cost.alone, model.charged(now)),
        "tenants": (
            sum(sums.charged for sums in model.of_tenants(now).values()),
            sum(sums.alone for sums in model.of_tenants(now).values()),
        ),
        "types": _sums(model.costs(CostSplit(SplitKind.TYPE), now).values()),
        "owners": _sums(model.costs(CostSplit(SplitKind.OWNER), now).values()),
        "seen": without_times(snapshot(copied(model), now, model.settings)),
    }


def from_scratch(world: ChaoticWorld, totals: Totals, now: Millis) -> dict[str, Any]:
    """The same, worked out from the state and from sums that were made otherwise."""
    state = world.state
    bill = ledger.bill(state, now)
    booked = (state.instance_accounts.values(), state.job_accounts.values())
    charged = totals.charged + bill.charged - sum(account.charged for account in booked[0])
    idle = totals.idle + bill.idle - sum(account.idle for account in booked[0])
    alone = totals.alone + bill.alone - sum(account.alone for account in booked[1])
    jobs = state.jobs
    return {
        "jobs": jobs,
        "runs": state.runs,
        "instances": state.instances,
        "active": [(job, jobs[job]) for job in state.active],
        "live": [(it, state.instances[it]) for it in state.live],
        "newest": list(reversed(state.active)),
        "sessions": state.sessions,
        "records": {job: ledger.job_account(state, job, now) for job in jobs},
        "billed": {it: bill.instances.get(it) for it in state.instances},
        "members": {job: list(state.members(job)) for job in jobs},
        "occupants": {it: state.occupants(it) for it in state.live},
        "used": {
            it: state.demand(state.occupants(it), on=state.instances[it]) for it in state.live
        },
        "normalised": {run.id: normalised(state, run) for run in state.runs.values()},
        "prices": {run.id: worth(state.reservation(run)) for run in state.runs.values()},
        "found": {job.spec.name: job for job in jobs.values()},
        "names": {(job.spec.owner, job.spec.name): job.id for job in jobs.values()},
        "sharing": {
            (owner, job.spec.name): [
                it
                for it in reversed(state.active)
                if jobs[it].spec.name == job.spec.name and owner in (jobs[it].spec.owner, "")
            ]
            for job in jobs.values()
            for owner in (job.spec.owner, "")
        },
        "cost": (charged, idle, alone, charged),
        "tenants": (charged - idle, alone),
        "types": (charged, idle, 0),
        "owners": (charged - idle, 0, alone),
        "seen": without_times(snapshot(state, now, world.machine.settings)),
    }


def without_times(seen: Snapshot) -> Snapshot:
    """The control loop's snapshots keep what they said of the work left until that is far off."""
    runs = tuple(replace(run, remaining=None, ran=None) for run in seen.runs)
    jobs = tuple(changed(job, steps_left=None) for job in seen.jobs)
    return replace(seen, jobs=jobs, runs=runs)


def worth(reservation: Reservation) -> tuple[int, object]:
    """What of a reservation does not depend on what is in stock."""
    return reservation.price, reservation.speeds


def journalled(world: ChaoticWorld) -> Totals:
    """Sums over everything that the journal holds."""
    held = world.journal.load()
    # A task that was never touched is nowhere on record.
    runs = {
        run.id: run
        for job in held.jobs
        for run in (untouched(job, at) for at, _ in enumerate(job.spec.tasks))
    }
    runs.update({run.id: run for run in held.runs})
    return Totals(
        charged=sum(account.charged for account in held.instance_accounts),
        idle=sum(account.idle for account in held.instance_accounts),
        alone=sum(account.alone for account in held.job_accounts),
        migrations=sum(run.moves for run in held.runs),
        jobs=dict(Counter(job.state for job in held.jobs)),
        runs=dict(Counter(run.state for run in runs.values())),
        tenants={tenant: _of_tenant(held, tenant) for tenant in {_tenant(it) for it in held.jobs}},
        partitions={"": _of_the_whole(held)} if held.jobs else {},
        types=_of_types(held),
        owners=_of_jobs(held, lambda job: [job.spec.owner]),
        workloads=_of_jobs(held, lambda job: [job.spec.tasks[0].workload]),
        labels=_of_jobs(held, lambda job: [f"{key}={value}" for key, value in job.spec.labels]),
        days=_of_days(held),
        owner_months={
            owner: MonthCharge(Millis(0), of.charged)  # no story outlasts its first month
            for owner, of in _of_jobs(held, lambda job: [job.spec.owner]).items()
            if of.charged
        },
    )


def _sums(of: Collection[CostTotals]) -> tuple[int, int, int]:
    return sum(it.charged for it in of), sum(it.idle for it in of), sum(it.alone for it in of)


def _of_types(held: Changes) -> dict[str, CostTotals]:
    """What the journal's own rows of the instances of each type come to."""
    types = {it.id: it.offering.type.name for it in held.instances}
    found: dict[str, list[InstanceAccount]] = {}
    for account in held.instance_accounts:
        found.setdefault(types[account.instance], []).append(account)
    return {
        name: CostTotals(Exact(sum(it.charged for it in of)), Exact(sum(it.idle for it in of)))
        for name, of in found.items()
    }


def _of_days(held: Changes) -> dict[str, CostTotals]:
    """The costs of everything: no story outlasts its first day."""
    charged = sum(account.charged for account in held.instance_accounts)
    idle = sum(account.idle for account in held.instance_accounts)
    alone = sum(account.alone for account in held.job_accounts)
    if not (charged or alone):
        return {}
    return {"1970-01-01": CostTotals(Exact(charged), Exact(idle), Exact(alone))}


def _of_jobs(held: Changes, names: Callable[[Job], list[str]]) -> dict[str, CostTotals]:
    """Sums over the jobs of each name."""
    by_id = {it.id: names(it) for it in held.jobs}
    found: dict[str, list[JobAccount]] = {}
    for account in held.job_accounts:
        for name in by_id[account.job]:
            found.setdefault(name, []).append(account)
    return {
        name: CostTotals(
            Exact(sum(it.charged for it in of)), alone=Exact(sum(it.alone for it in of))
        )
        for name, of in found.items()
    }


def _of_the_whole(held: Changes) -> PartitionTotals:
    """What a cluster that is not divided comes to, as its one partition."""
    active = [job for job in held.jobs if job.state not in TERMINAL_JOB]
    return PartitionTotals(
        charged=Exact(sum(account.charged for account in held.instance_accounts)),
        idle=Exact(sum(account.idle for account in held.instance_accounts)),
        jobs=len(active),
        tasks=sum(len(job.spec.tasks) for job in active),
    )


def _tenant(job: Job) -> str:
    return job.spec.tenant


def _of_tenant(held: Changes, tenant: str) -> TenantTotals:
    """What the journal's own rows of a tenant's jobs come to."""
    jobs = {job.id: job for job in held.jobs if _tenant(job) == tenant}
    accounts = [account for account in held.job_accounts if account.job in jobs]
    charged = Exact(sum(account.charged for account in accounts))
    return TenantTotals(
        charged=charged,
        alone=Exact(sum(account.alone for account in accounts)),
        jobs=dict(Counter(job.state for job in jobs.values())),
        month_charged=charged,  # no story outlasts its first month
    )


def check(world: ChaoticWorld, audience: Audience) -> None:
    model = audience.model
    if model is None or model.at_ms != world.machine._context.now:
        return  # the master died before it published anything
    totals = journalled(world)
    # Who is suspended follows from the records, and is in none of the sums. What jobs
    # were worth when they succeeded follows from no row.
    tenants = {name: replace(of, value=0) for name, of in model.totals.tenants.items()}
    # The cost of empty instances that stayed for tasks follows from none either.
    assert 0 <= model.totals.kept <= model.totals.idle
    assert replace(model.totals, suspended={}, tenants=tenants, kept=Exact(0)) == totals
    now = Millis(world.timeline.now() + 1234)
    found, expected = seen(model, now), from_scratch(world, totals, now)
    for what in expected:
        assert found[what] == expected[what], what


@drawn(20)
@given(stories, st.sampled_from([120_000, 400_000, 10**15]), st.integers(5, 60))
def test_readers_see_what_the_control_loop_knows(story: Story, kept_ms: int, every: int) -> None:
    world = _world(story, replace(QUICK, history_kept_ms=kept_ms))
    audience = Audience(world.answers.replies)
    world.answers = world.loop._replies = audience
    old: list[tuple[ClusterModel, Millis, dict[str, Any]]] = []
    steps = 0
    while world.timeline.now() < CHAOS_MS or not world.quiet():
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
        assert world.timeline.now() < 20 * CHAOS_MS
        world.step()
        steps += 1
        if steps % every == 0:
            check(world, audience)
            if audience.model is not None and len(old) < 5:
                now = world.timeline.now()
                old.append((audience.model, now, seen(audience.model, now)))
    check(world, audience)
    for model, now, before in old:
        assert seen(model, now) == before, "a model has changed"
    assert audience.model is not None
    machines = world.cloud.bill().values()
    paid = sum(it.offering.price * (it.gone_ms - it.up_ms) for it in machines)
    assert audience.model.charged(world.timeline.now()) == paid


@drawn(12)
@given(stories)
def test_what_is_over_leaves_memory_and_a_restart_does_not_bring_it_back(story: Story) -> None:
    kept_ms = 120_000
    world = _world(story, replace(QUICK, history_kept_ms=kept_ms))
    # A submission that a dying master did not answer comes again, be the rest over by then.
    while (
        world.timeline.now() < CHAOS_MS
        or not world.quiet()
        or len(world.answers.replies) < len(story.arrivals)
    ):
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
        world.step()
        now = world.timeline.now()
        records = [*world.state.jobs.items(), *world.state.instances.items()]
        over = [(name, it) for name, it in records if name not in _alive(world.state)]
        # One turn may take all of this time to come: it has an alarm of its own.
        assert all(it.history[-1][1] + kept_ms >= world.machine._context.now for _, it in over), now
    totals = world.state.totals
    held = world.journal.load()
    world.timeline.sleep_until(Millis(world.timeline.now() + kept_ms + 1))
    world.restart()
    assert not world.state.jobs
    assert not world.state.runs
    assert not world.state.instances
    assert not world.state.job_accounts
    assert world.state.totals == totals
    assert len(held.jobs) == len(story.arrivals)


def _alive(state: State) -> set[JobId | InstanceId]:
    return {*state.active, *state.live}
