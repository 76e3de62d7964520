"""The guarantee: twins and settlements, carried from round to round in the policy's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.ids import Family, JobId, Millis, micro_usd
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.model.planning.tenancy import Quota, TenantView, Transfer
from eva_master.model.resources import Resources
from eva_master.policies.astraea.asks import Ask
from eva_master.policies.astraea.config import NAME, Config
from eva_master.policies.astraea.settling import Position, settle
from eva_master.policies.astraea.twins import NO_SHARES, TwinJob, advance, fits

VERSION = 1
MOST_JOBS = 10_000
"""No more jobs are followed in twins; those of the least worth are left out first."""


class Guarantee:
    """Follows the twins through one round, and settles when that is due.

    Args:
        config: Settings.
        snapshot: The cluster.
        memory: Of the round before.

    Attributes:
        closed: Tenants that are owed something and lend nothing until they have it.
        transfers: What is to be paid now.
        positions: How tenants stand.
        uncovered: What tenants are owed, in micro-dollars.
    """

    def __init__(self, config: Config, snapshot: Snapshot, memory: PolicyMemory | None) -> None:
        self._snapshot = snapshot
        self._on = config.guarantee and bool(snapshot.tenants)
        self._rounds = config.round_gap_s is not None
        self._every_ms = 1000 * config.settle_s
        known = memory is not None and (memory.policy, memory.version) == (NAME, VERSION)
        data: Mapping[str, Any] = memory.data if known and memory is not None else {}
        now = snapshot.now_ms
        self._at: int = data.get("at", now)
        self._next: int = data.get("next", (now // self._every_ms + 1) * self._every_ms)
        self._jobs = {name: TwinJob(**told) for name, told in data.get("jobs", {}).items()}
        self._twin: dict[str, int] = dict(data.get("twin", {}))
        # Older memories have what was booked to tenants in all.
        self._real: dict[str, int] = dict(data.get("real", data.get("value", {})))
        self.uncovered: dict[str, int] = dict(data.get("uncovered", {}))
        self._quotas: Mapping[str, Quota] = {}
        self._capacity: Mapping[Family, Resources] = NO_SHARES
        self.transfers: tuple[Transfer, ...] = ()
        self.positions: dict[str, Position] = {}

    @property
    def closed(self) -> frozenset[str]:
        """Tenants that lend nothing until they have what they are owed."""
        return frozenset(self.uncovered) if self._on else frozenset()

    @property
    def next_ms(self) -> Millis | None:
        """When to settle next; `None` if nothing is ever settled."""
        return Millis(self._next) if self._on else None

    def advance(
        self, asks: Iterable[Ask], capacity: Mapping[Family, Resources] = NO_SHARES
    ) -> None:
        """Let the twins go on until now, take in what has come and gone, settle if it is time.

        Args:
            asks: Of all jobs that may be given a place.
            capacity: What there is of each type.
        """
        if not self._on:
            return
        now = self._snapshot.now_ms
        self._quotas = {it.name: it.quota for it in self._snapshot.tenants}
        self._capacity = capacity
        ended = {it.job: it for tenant in self._snapshot.tenants for it in tenant.ended}
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
        self.positions = {it.name: self._position(it) for it in self._snapshot.tenants}
        if now >= self._next or not self._jobs:
            self._settle()

    def memory(self, before: PolicyMemory | None) -> PolicyMemory | None:
        """What is to be remembered."""
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
        held = {job.id: None if job.waits_for_spot else job.held_ms for job in self._snapshot.jobs}
        elapsed = self._snapshot.now_ms - self._at
        return {
            name: rest
            for name, job in self._jobs.items()
            if not job.ended
            and (JobId(name) in held or JobId(name) not in ended)
            and (rest := job.rests(elapsed, held.get(JobId(name))))
        }

    def _see(self, asks: Iterable[Ask]) -> None:
        """Take in jobs that are new, and what is known better by now of others."""
        by_job: dict[str, list[Ask]] = {}
        for ask in asks:
            by_job.setdefault(ask.job, []).append(ask)
        for job in self._snapshot.jobs:
            if (quota := self._quotas.get(job.tenant)) is None:
                continue
            own, before = by_job.get(job.id, []), self._jobs.get(job.id)
            if before is None or not (before.did or before.done or before.ran or before.own_delay):
                if not own:
                    continue
                array = job.kind is JobKind.ARRAY
                more = job.tasks - job.over - len(own) if array else None
                before = TwinJob.of(own, job.unseen, job.worth, more)
                before.held, before.spoiled = job.held_ms, job.spoiled_ms
                if not fits(before, quota, self._capacity):
                    self._jobs.pop(job.id, None)
                    continue
                self._jobs[job.id] = before
            before.spoil(job.spoiled_ms, one_by_one=job.kind is JobKind.ARRAY)
            if own:
                before.ran = before.ran or any(ask.now for ask in own)
                before.seen(self._attained(job, own[0]))
        if len(self._jobs) > MOST_JOBS:
            dearest = sorted(self._jobs, key=lambda it: (-self._jobs[it].worth_by(self._at), it))
            self._jobs = {name: self._jobs[name] for name in dearest[:MOST_JOBS]}

    def _attained(self, job: JobView, ask: Ask) -> int:
        """For how long one member would have run to do what was done, all types alike."""
        gpus = ask.gpus(ask.types[0]) if ask.types else 1
        return job.attained.at_ms(self._snapshot.now_ms) // max(1, gpus)

    def _gone(self, ended: Mapping[JobId, EndedJob]) -> None:
        """Jobs that succeeded are worth something; those that failed or were cancelled are not.

        The twin of one that did not succeed is dropped with all that it was worth. A job that has
        not ended though no plan is about it may come back: it is suspended, for example.
        """
        there = {job.id for job in self._snapshot.jobs}
        for name, end in ended.items():
            job = self._jobs.get(name)
            if job is None or job.ended or name in there:
                continue
            if not end.succeeded:
                del self._jobs[name]
                continue
            gpus = max(1, min((it for it, _ in job.types.values()), default=1))
            unneeded = job.over(end.at_ms, end.gpu_ms // gpus, end.start_ms)
            self._give_back(job, unneeded * gpus)
            self._real[job.tenant] = self._real.get(job.tenant, 0) + job.worth_by(end.at_ms)
        self._jobs = {it: job for it, job in self._jobs.items() if job.tenant in self._quotas}

    def _give_back(self, of: TwinJob, gpu_ms: int) -> None:
        """Have a tenant's twin do other jobs in the time that it took for what was not to do."""
        for job in sorted(self._jobs.values(), key=lambda it: it.submitted):
            if gpu_ms <= 0:
                return
            if job.tenant != of.tenant or job.done or job.guessed or not job.left:
                continue
            gpus = max(1, min((it for it, _ in job.types.values()), default=1))
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
        own = [it for it in self._jobs.values() if it.tenant == tenant.name]
        told, earned = tenant.standing, micro_usd(tenant.standing.earned)
        money = earned - micro_usd(told.paid) + told.received - told.given
        return Position(
            self._real.get(tenant.name, 0) + money,
            self._twin.get(tenant.name, 0),
            sum(it.value for it in own if it.done and not it.ended and not it.own_delay),
            sum(it.worth_by(self._at) for it in own if it.ended and not it.done),
            max(0, earned - told.received),
        )

    def _settle(self) -> None:
        found = settle(self.positions)
        self.transfers = found.transfers
        self.uncovered = dict(found.uncovered)
        if self._at >= self._next:
            self._next = (self._at // self._every_ms + 1) * self._every_ms
