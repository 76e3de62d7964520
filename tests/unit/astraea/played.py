"""Plays small markets of tenants through the policy, slot by slot, without a control loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.accounting.worth import Worth
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.job_view import GpuTime, JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import InstanceView, RemainingWork, RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import TenantBenefit, TenantView
from eva_master.ports import Policy
from eva_master.testing.job_views import job_view
from eva_master.testing.snapshots import START, carried_out
from eva_policies.astraea import POLICY
from eva_policies.astraea.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import (
    MILLION,
    MILLIS_PER_HOUR,
    Exact,
    Family,
    InstanceId,
    JobId,
    Millis,
    Price,
    RunId,
    Workload,
    run_id,
)

GPU = Family("g")
DAY = 24


@dataclass(frozen=True)
class Work:
    """A job: an elastic gang of members with a GPU each, if `most` is above `least`.

    Attributes:
        hours: Of one member.
        dollars: What it is worth at once.
        loses: Dollars per hour.
        fails: So many attempts fail, each after `fails_after` slots; at once if that is 0.
        backoff: For so many slots it waits after each of them, where it has its place.
        cancelled: In which slot it is cancelled, if it is not done by then.
        told: How long it is said to take against the truth.
        said: How much it is said to be worth, and to lose, against the truth.
        suspended: From which slot to which its owner has it suspended.
        waits_for_spot: Whether it waits for spot instances, of which there are none.
    """

    name: str
    tenant: str
    hours: float
    most: int = 1
    least: int = 1
    dollars: float = 1000
    loses: float = 1
    arrives: int = 0
    launch_s: int = 0
    checkpoint_s: int = 0
    known: bool = True
    unlent: str = ""
    fails: int = 0
    fails_after: int = 1
    backoff: int = 0
    cancelled: int | None = None
    told: float = 1
    said: float = 1
    suspended: tuple[int, int] = (0, 0)
    waits_for_spot: bool = False

    def is_hidden(self, slot: int) -> bool:
        """Whether no plan is about it in a slot."""
        return self.suspended[0] <= slot < self.suspended[1]

    @property
    def worth(self) -> Worth:
        return self.worth_at(self.said)

    def worth_at(self, factor: float) -> Worth:
        """Worth times a factor; the truth is at 1."""
        amount, loses = (round(it * factor * MILLION) for it in (self.dollars, self.loses))
        return Worth(amount, loses_per_hour=loses)


def nodes(sizes: Iterable[int]) -> list[tuple[InstanceId, Offering]]:
    """Owned nodes with so many GPUs each."""
    told = list(sizes)
    found = []
    for number, gpus in enumerate(told):
        kind = InstanceType(f"{GPU}.x{gpus}", GPU, Resources(gpus, 100_000, 1_000_000), 0, 0)
        offering = Offering(kind, Price(0), Purchase.OWNED, limit=told.count(gpus))
        found.append((InstanceId(f"n{number:03}"), offering))
    return found


@dataclass
class Market:
    """A market that is played slot by slot.

    Attributes:
        nodes: GPUs of each node.
        quotas: GPUs of each tenant.
        works: All jobs that ever come.
    """

    nodes: Iterable[int]
    quotas: Mapping[str, int]
    works: Iterable[Work]
    options: dict[str, Any] = field(default_factory=dict)
    slot: int = 0

    def __post_init__(self) -> None:
        options = {"round_gap_s": 3600, **self.options}
        self.policy = self.built(options)
        self.memory: PolicyMemory | None = None
        self.standing = dict.fromkeys(self.quotas, TenantBenefit())
        self.bought = nodes(self.nodes)
        self.left = {work.name: work.hours for work in self.works}
        self.known = {work.name: work for work in self.works}
        self.places: dict[RunId, InstanceId] = {}
        self.sizes: dict[str, int] = {}
        self.began: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.ended: list[EndedJob] = []
        self.had: dict[str, int] = dict.fromkeys(self.known, 0)
        self.failures: dict[str, list[int]] = {name: [] for name in self.known}
        """The slots in which attempts failed."""
        self.plans: list[Plan] = []
        self.snapshot: Snapshot | None = None

    def built(self, options: dict[str, Any]) -> Policy:
        """The policy under test."""
        return POLICY.build(Config(**options))

    @property
    def now(self) -> Millis:
        return Millis(START // MILLIS_PER_HOUR * MILLIS_PER_HOUR + self.slot * MILLIS_PER_HOUR)

    def at(self, slot: int) -> int:
        return self.now + (slot - self.slot) * MILLIS_PER_HOUR

    def play(self, slots: int) -> Market:
        for _ in range(slots):
            self.round()
        return self

    def to_end(self, most: int = 3000) -> Market:
        while any(it not in self.done for it in self.known) and self.slot < most:
            self.round()
        return self

    def seen(self) -> Snapshot:
        """The cluster at the beginning of the slot."""
        works = [
            it
            for it in self.works
            if it.arrives <= self.slot and it.name not in self.done and not it.is_hidden(self.slot)
        ]
        jobs, runs = [], []
        for work in works:
            job, members = self._job(work)
            jobs.append(job)
            runs += members
        on: dict[InstanceId, list[RunId]] = {}
        for run in sorted(runs, key=lambda it: it.id):
            if run.instance is not None:
                on.setdefault(run.instance, []).append(run.id)
        instances = tuple(
            InstanceView(name, it, tuple(on.get(name, ())), True) for name, it in self.bought
        )
        catalog = tuple({it.id: it for _, it in self.bought}.values())
        return Snapshot(
            self.now,
            catalog,
            tuple(sorted(jobs, key=lambda it: it.id)),
            tuple(sorted(runs, key=lambda it: it.id)),
            instances,
            len(jobs),
            len(self.done),
            tenants=tuple(
                TenantView(
                    name,
                    ((GPU, quota),),
                    self.standing[name],
                    tuple(it for it in self.ended if it.tenant == name),
                )
                for name, quota in sorted(self.quotas.items())
            ),
        )

    def _job(self, work: Work) -> tuple[JobView, list[RunView]]:
        name, elastic = JobId(work.name), None
        if work.most > work.least:
            elastic = Elastic(work.least, work.most)
        size = self.sizes.get(work.name, work.least)
        ids = [run_id(name, index) for index in range(size)]
        runs_at = self.began.get(work.name)
        since = None if runs_at is None else self.now
        left = round(self.left[work.name] * MILLIS_PER_HOUR * work.told)
        # Without steps a gang's time is that of the whole.
        if elastic is None:
            left //= work.most
        known = RemainingWork(left, since, MILLION * (size if elastic else 1))
        task = TaskSpec(Workload("w"), Program("true"), ((GPU, Resources(1, 1000, 1)),))
        runs = [
            RunView(
                one,
                name,
                task,
                self.places.get(one),
                False,
                one in self.places,
                remaining=known if work.known else None,
                running_since_ms=None if runs_at is None else Millis(self.at(runs_at)),
            )
            for one in ids
        ]
        job = job_view(
            name,
            JobKind.GANG,
            tuple(ids),
            Millis(self.at(work.arrives)),
            0,
            checkpoint_ms=work.checkpoint_s * 1000,
            launch_ms=work.launch_s * 1000,
            tenant=work.tenant,
            elastic=elastic,
            lease_ms=None if runs_at is None else Millis(self.at(runs_at)),
            worth=work.worth,
            attained=GpuTime(self.had[work.name]),
            held_ms=len(self.failures[work.name]) * work.backoff * MILLIS_PER_HOUR,
            waits_for_spot=work.waits_for_spot,
            spoiled_ms=len(self.failures[work.name]) * work.fails_after * MILLIS_PER_HOUR,
            unlent=work.unlent,
        )
        return job, runs

    def round(self) -> Plan:
        """Plan at the beginning of the slot, and let it pass."""
        for work in self.works:
            if work.cancelled == self.slot and work.name not in self.done:
                self.cancel(work.name)
        snapshot = self.seen()
        plan, self.memory = self.policy.plan(snapshot, self.memory)
        self.plans.append(plan)
        self.ended = []
        self._booked(plan)
        sized = with_sizes(snapshot, {it.job: it.members for it in plan.sizes})
        after = carried_out(sized, plan)
        self.snapshot = after
        self.places = {it.id: it.instance for it in after.runs if it.instance is not None}
        self.sizes = {job.id: len(job.runs) for job in after.jobs}
        moved = {it.job for it in plan.sizes} | {
            it.run.split("/")[0] for it in plan.entries if type(it).__name__ == "Assign"
        }
        members = Counter(run.split("/")[0] for run in self.places)
        for job in after.jobs:
            failed = self.failures[job.id]
            if failed and self.slot < failed[-1] + self.known[job.id].backoff:
                self.began.pop(job.id, None)
                continue
            work = self.known[job.id]
            if members[job.id] and not work.fails_after and len(failed) < work.fails:
                failed.append(self.slot)
                continue
            if members[job.id]:
                if job.id in moved or job.id not in self.began:
                    self.began[job.id] = self.slot
                self.left[job.id] -= members[job.id]
                self.had[job.id] += members[job.id] * MILLIS_PER_HOUR
            else:
                self.began.pop(job.id, None)
        self.slot += 1
        for job in after.jobs:
            work = self.known[job.id]
            began = self.began.get(job.id, self.slot)
            fails = work.fails_after and len(self.failures[job.id]) < work.fails
            if fails and self.slot - began >= work.fails_after:
                self.failures[job.id].append(self.slot)
                self.left[job.id] = work.hours
                self.began.pop(job.id, None)
            elif self.left[job.id] <= 1e-9:
                self._done(job.id)
        return plan

    def _booked(self, plan: Plan) -> None:
        for one in plan.loans.terms:
            owner = self.known[one.job].tenant
            for name, amount in one.lenders:
                paid = amount * MILLIS_PER_HOUR
                self._book(owner, paid=Exact(self.standing[owner].paid + paid))
                self._book(name, earned=Exact(self.standing[name].earned + paid))
        for it in plan.loans.transfers:
            self._book(it.payer, given=self.standing[it.payer].given + it.amount)
            self._book(it.payee, received=self.standing[it.payee].received + it.amount)

    def _book(self, tenant: str, **amounts: Any) -> None:
        self.standing[tenant] = replace(self.standing[tenant], **amounts)

    def _done(self, name: str) -> None:
        work = self.known[name]
        self.done[name] = self.slot
        self._over(work, succeeded=True)
        value = work.worth.after((self.slot - work.arrives) * MILLIS_PER_HOUR)
        self._book(work.tenant, value=self.standing[work.tenant].value + value)
        self.places = {run: at for run, at in self.places.items() if run.split("/")[0] != name}

    def cancel(self, name: str) -> None:
        """Have a job be over that has not succeeded."""
        self.works = [work for work in self.works if work.name != name]
        self.places = {run: at for run, at in self.places.items() if run.split("/")[0] != name}
        self._over(self.known[name], succeeded=False)

    def _over(self, work: Work, *, succeeded: bool) -> None:
        name, had = JobId(work.name), self.had[work.name]
        self.ended.append(EndedJob(name, work.tenant, "", self.now, succeeded, had))

    def truly(self, tenant: str) -> int:
        """True value that a tenant has got, in micro-dollars, whatever it said of its jobs."""
        said = true = 0
        for name, slot in self.done.items():
            work = self.known[name]
            if work.tenant == tenant:
                took = (slot - work.arrives) * MILLIS_PER_HOUR
                said += work.worth.after(took)
                true += work.worth_at(1).after(took)
        return self.net(tenant) - said + true

    def net(self, tenant: str) -> int:
        """What a tenant has got, in micro-dollars."""
        told = self.standing[tenant]
        money = told.value + told.received - told.given
        return money + (told.earned - told.paid) // MILLIS_PER_HOUR

    def members(self, name: str) -> int:
        return sum(run.split("/")[0] == name for run in self.places)


def spent(market: Market, most: int = 200) -> Market:
    """Play a market until all jobs are over, and accounts are settled."""
    while market.slot < most and any(
        it.name not in market.done and (it.cancelled is None or market.slot <= it.cancelled)
        for it in market.works
    ):
        market.round()
    return market.play(2 * DAY)


def alone(tenant: str, quota: int, works: Iterable[Work]) -> int:
    """Value that a tenant has of its quota alone, in micro-dollars."""
    own = [work for work in works if work.tenant == tenant]
    return spent(Market([quota], {tenant: quota}, own)).net(tenant)
