"""The guarantee: twins and settlements, carried from round to round in the policy's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import Quota, TenantView, Transfer
from eva_policies.astraea.config import NAME, Config
from eva_policies.astraea.requests import RoomRequest
from eva_policies.astraea.settling import Position, settle
from eva_policies.astraea.standalone_shadow import NO_SHARES, TwinJob, advance, fits
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, micro_usd

VERSION = 1
MOST_JOBS = 10_000
"""No more jobs are followed in twins; those of the least worth are left out first."""


class Guarantee:
    """Follows the twins through one round, and settles when that is due.

    Args:
        config: Settings.
        snapshot: The cluster.
        memory: Memory of the round before.

    Attributes:
        closed: Tenants that are owed money, and lend nothing until they have it.
        transfers: Payments due now.
        positions: Positions of tenants against their twins.
        uncovered: Debts to tenants, in micro-dollars.
    """

    def __init__(self, config: Config, snapshot: Snapshot, memory: PolicyMemory | None) -> None:
        self._snapshot = snapshot
        self._on = config.guarantee and bool(snapshot.tenants)
        self._rounds = config.round_gap_s is not None
        self._every_ms = 1000 * config.settle_s
        readable = memory is not None and (memory.policy, memory.version) == (NAME, VERSION)
        data: Mapping[str, Any] = memory.data if readable and memory is not None else {}
        now = snapshot.now_ms
        self._at: int = data.get("at", now)
        self._next: int = data.get("next", (now // self._every_ms + 1) * self._every_ms)
        self._jobs = {
            name: TwinJob(**fields_of) for name, fields_of in data.get("jobs", {}).items()
        }
        self._twin: dict[str, int] = dict(data.get("twin", {}))
        # Older memories have the totals booked to tenants.
        self._real: dict[str, int] = dict(data.get("real", data.get("value", {})))
        self.uncovered: dict[str, int] = dict(data.get("uncovered", {}))
        self._quotas: Mapping[str, Quota] = {}
        self._capacity: Mapping[Family, Resources] = NO_SHARES
        self.transfers: tuple[Transfer, ...] = ()
        self.positions: dict[str, Position] = {}

    @property
    def closed(self) -> frozenset[str]:
        """Tenants that lend nothing until their debts are paid."""
        return frozenset(self.uncovered) if self._on else frozenset()

    @property
    def next_ms(self) -> Millis | None:
        """When to settle next; `None` for never."""
        return Millis(self._next) if self._on else None

    def advance(
        self, asks: Iterable[RoomRequest], capacity: Mapping[Family, Resources] = NO_SHARES
    ) -> None:
        """Advance the twins to now, record arrivals and ends, and settle if it is time.

        Args:
            asks: Asks of all jobs that may be given a place.
            capacity: Capacity of each type.
        """
        if not self._on:
            return
        now = self._snapshot.now_ms
        self._quotas = {tenant.name: tenant.quota for tenant in self._snapshot.tenants}
        self._capacity = capacity
        ended = {end.job: end for tenant in self._snapshot.tenants for end in tenant.ended}
        rests = self._rests(ended)
        advance(
            self._jobs,
            self._quotas,
            self._at,
            now,
            rounds=self._rounds,
            rests=rests,
            each=capacity,
        )
        self._at = now
        self._see(asks)
        self._gone(ended)
        self._close_books()
        self.positions = {tenant.name: self._position(tenant) for tenant in self._snapshot.tenants}
        if now >= self._next or not self._jobs:
            self._settle()

    def memory(self, before: PolicyMemory | None) -> PolicyMemory | None:
        """Memory for the next round."""
        if not self._on:
            return before
        # JSON-able by construction.
        data: dict[str, Any] = {
            "at": self._at,
            "next": self._next,
            "jobs": {name: asdict(job) for name, job in sorted(self._jobs.items())},
            "twin": dict(sorted(self._twin.items())),
            "real": dict(sorted(self._real.items())),
            "uncovered": dict(sorted(self.uncovered.items())),
        }
        return PolicyMemory(NAME, VERSION, data)

    def _rests(self, ended: Mapping[JobId, EndedJob]) -> dict[str, int]:
        """For how long jobs rest in their twins, since the real ones could not run anyway."""
        held = {
            job.id: None if job.urgency.waits_for_spot else job.tenancy.held_ms
            for job in self._snapshot.jobs
        }
        elapsed = self._snapshot.now_ms - self._at
        return {
            name: rest
            for name, job in self._jobs.items()
            if not job.ended
            and (JobId(name) in held or JobId(name) not in ended)
            and (rest := job.rests(elapsed, held.get(JobId(name))))
        }

    def _see(self, asks: Iterable[RoomRequest]) -> None:
        """Take in jobs that are new, and what is known better by now of others."""
        by_job: dict[str, list[RoomRequest]] = {}
        for ask in asks:
            by_job.setdefault(ask.job, []).append(ask)
        for job in self._snapshot.jobs:
            if (quota := self._quotas.get(job.spec.tenant)) is None:
                continue
            own, before = by_job.get(job.id, []), self._jobs.get(job.id)
            if before is None or not (before.did or before.done or before.ran or before.own_delay):
                if not own:
                    continue
                array = job.spec.kind is JobKind.ARRAY
                more = job.array.size - job.progress.over - len(own) if array else None
                before = TwinJob.of(own, job.array.unseen, job.tenancy.worth, more)
                before.held, before.spoiled = job.tenancy.held_ms, job.tenancy.spoiled_ms
                if not fits(before, quota, self._capacity):
                    self._jobs.pop(job.id, None)
                    continue
                self._jobs[job.id] = before
            before.spoil(job.tenancy.spoiled_ms, one_by_one=job.spec.kind is JobKind.ARRAY)
            if own:
                before.ran = before.ran or any(ask.now for ask in own)
                before.seen(self._attained(job, own[0]))
        if len(self._jobs) > MOST_JOBS:
            dearest = sorted(self._jobs, key=lambda it: (-self._jobs[it].worth_by(self._at), it))
            self._jobs = {name: self._jobs[name] for name in dearest[:MOST_JOBS]}

    def _attained(self, job: JobView, ask: RoomRequest) -> int:
        """For how long one member would have run to do what was done, all types alike."""
        gpus = ask.gpus(ask.types[0]) if ask.types else 1
        return job.progress.attained.at_ms(self._snapshot.now_ms) // max(1, gpus)

    def _gone(self, ended: Mapping[JobId, EndedJob]) -> None:
        """Jobs that succeeded have a worth; jobs that failed or were cancelled have none.

        The twin of an unsuccessful job is dropped with all of its worth. A job that has not ended
        though no plan sees it may come back: it is suspended, for example.
        """
        present = {job.id for job in self._snapshot.jobs}
        for name, end in ended.items():
            job = self._jobs.get(name)
            if job is None or job.ended or name in present:
                continue
            if not end.succeeded:
                del self._jobs[name]
                continue
            gpus = max(1, min((count for count, _ in job.types.values()), default=1))
            unneeded = job.over(end.at_ms, end.gpu_ms // gpus, end.start_ms)
            self._give_back(job, unneeded * gpus)
            self._real[job.tenant] = self._real.get(job.tenant, 0) + job.worth_by(end.at_ms)
        self._jobs = {name: job for name, job in self._jobs.items() if job.tenant in self._quotas}

    def _give_back(self, of: TwinJob, gpu_ms: int) -> None:
        """Let a tenant's twin spend unneeded time of one job on its other jobs."""
        for job in sorted(self._jobs.values(), key=lambda it: it.submitted):
            if gpu_ms <= 0:
                return
            if job.tenant != of.tenant or job.done or job.guessed or not job.left:
                continue
            gpus = max(1, min((count for count, _ in job.types.values()), default=1))
            more = min(job.left - 1, gpu_ms // gpus)
            job.left, job.did = job.left - more, job.did + more
            gpu_ms -= more * gpus

    def _close_books(self) -> None:
        """Jobs that both have done, or that are worth nothing any more, are sums from now on."""
        for name, job in list(self._jobs.items()):
            if (job.done and job.left) or (not job.done and job.worth_by(self._at)):
                continue
            if job.ended:
                self._twin[job.tenant] = self._twin.get(job.tenant, 0) + job.value
                del self._jobs[name]
            elif job.away and not job.worth_by(self._at):
                del self._jobs[name]  # One that comes back is taken in anew.

    def _position(self, tenant: TenantView) -> Position:
        own = [twin_jobs for twin_jobs in self._jobs.values() if twin_jobs.tenant == tenant.name]
        standing, earned = tenant.standing, micro_usd(tenant.standing.earned)
        money = earned - micro_usd(standing.paid) + standing.received - standing.given
        return Position(
            self._real.get(tenant.name, 0) + money,
            self._twin.get(tenant.name, 0),
            sum(job.value for job in own if job.done and not job.ended and not job.own_delay),
            sum(job.worth_by(self._at) for job in own if job.ended and not job.done),
            max(0, earned - standing.received),
        )

    def _settle(self) -> None:
        settlement = settle(self.positions)
        self.transfers = settlement.transfers
        self.uncovered = dict(settlement.uncovered)
        if self._at >= self._next:
            self._next = (self._at // self._every_ms + 1) * self._every_ms
