"""The guarantee: twins and settlements, carried from round to round in the policy's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from eva_master.model.ids import Millis, micro_usd
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.model.planning.tenancy import TenantView, Transfer
from eva_master.policies.astraea.asks import Ask
from eva_master.policies.astraea.config import NAME, Config
from eva_master.policies.astraea.settling import Position, settle
from eva_master.policies.astraea.twins import TwinJob, advance

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
        self._value: dict[str, int] = dict(data.get("value", {}))
        self.uncovered: dict[str, int] = dict(data.get("uncovered", {}))
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

    def advance(self, asks: Iterable[Ask]) -> None:
        """Let the twins go on until now, take in what has come and gone, settle if it is time."""
        if not self._on:
            return
        now = self._snapshot.now_ms
        quotas = {it.name: it.quota for it in self._snapshot.tenants}
        advance(self._jobs, quotas, self._at, now, rounds=self._rounds)
        self._at = now
        self._see(asks)
        self._gone()
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
            "value": dict(sorted(self._value.items())),
            "uncovered": dict(sorted(self.uncovered.items())),
        }
        return PolicyMemory(NAME, VERSION, data)

    def _see(self, asks: Iterable[Ask]) -> None:
        """Take in jobs that are new, and what is known better by now of others."""
        by_job: dict[str, list[Ask]] = {}
        for ask in asks:
            by_job.setdefault(ask.job, []).append(ask)
        tenants = {it.name for it in self._snapshot.tenants}
        for job in self._snapshot.jobs:
            own = by_job.get(job.id, [])
            if not own or job.tenant not in tenants:
                continue
            before = self._jobs.get(job.id)
            if before is None or not (before.did or before.done or before.ran):
                before = self._jobs[job.id] = TwinJob.of(own, job.unseen, job.worth)
            before.ran = before.ran or any(ask.now for ask in own)
            before.seen(self._attained(job, own[0]))
        if len(self._jobs) > MOST_JOBS:
            dearest = sorted(self._jobs, key=lambda it: (-self._jobs[it].worth_by(self._at), it))
            self._jobs = {name: self._jobs[name] for name in dearest[:MOST_JOBS]}

    def _attained(self, job: JobView, ask: Ask) -> int:
        """For how long one member would have run to do what was done, all types alike."""
        gpus = ask.gpus(ask.types[0]) if ask.types else 1
        return job.attained.at_ms(self._snapshot.now_ms) // max(1, gpus)

    def _gone(self) -> None:
        """Jobs that are no longer there have succeeded as far as their tenant's value has grown.

        Others were cancelled or have failed, and count no more; one that comes back is taken in
        anew.
        """
        there = {job.id for job in self._snapshot.jobs}
        gone: dict[str, list[str]] = {}
        for name, job in self._jobs.items():
            if name not in there and not job.ended:
                gone.setdefault(job.tenant, []).append(name)
        for tenant in self._snapshot.tenants:
            grown = tenant.standing.value - self._value.get(tenant.name, 0)
            self._value[tenant.name] = tenant.standing.value
            worth = {it: self._jobs[it].worth_by(self._at) for it in gone.get(tenant.name, ())}
            for name in sorted(worth, key=lambda it: (-worth[it], it)):
                if worth[name] <= grown:
                    grown -= worth[name]
                    self._jobs[name].over(self._at)
                else:
                    del self._jobs[name]
        names = {it.name for it in self._snapshot.tenants}
        self._jobs = {it: job for it, job in self._jobs.items() if job.tenant in names}

    def _close_books(self) -> None:
        """Jobs that both have done, or that are worth nothing any more, are sums from now on."""
        for name, job in list(self._jobs.items()):
            if job.ended and (job.done or not job.worth_by(self._at)):
                self._twin[job.tenant] = self._twin.get(job.tenant, 0) + job.value
                del self._jobs[name]

    def _position(self, tenant: TenantView) -> Position:
        own = [it for it in self._jobs.values() if it.tenant == tenant.name]
        told = tenant.standing
        real = told.value - micro_usd(told.paid) + micro_usd(told.earned)
        return Position(
            real + told.received - told.given,
            self._twin.get(tenant.name, 0) + sum(it.value for it in own if it.done),
            sum(it.worth_by(self._at) for it in own if it.done and not it.ended),
            sum(it.worth_by(self._at) for it in own if it.ended and not it.done),
        )

    def _settle(self) -> None:
        found = settle(self.positions)
        self.transfers = found.transfers
        self.uncovered = dict(found.uncovered)
        if self._at >= self._next:
            self._next = (self._at // self._every_ms + 1) * self._every_ms
