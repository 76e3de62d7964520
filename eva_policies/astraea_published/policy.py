"""The plans of the policy `astraea_published`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from eva_master.model.planning.plan import Again, Assign, Hold, Loans, PlanEntry, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.tenants.tenancy import LoanTerms
from eva_master.packing.fleet.allotted import Allotted, SizeRange
from eva_master.packing.fleet.capacity import Fleet
from eva_master.ports import Planned, PolicyKind
from eva_policies.astraea_published.batches import Batches, at_once
from eva_policies.astraea_published.config import NAME, PRESETS, Config
from eva_policies.astraea_published.memory import Memory
from eva_wire.values.ids import JobId, Millis, RunId, job_of

_NEVER_OVER_S = 100 * 365 * 86_400
"""Lease of a place: it lasts until its job is done."""
_BATCH = "waits for its batch"
_NO_ROOM = "the GPUs that it is to have are still in use"
_TURN = "it is scheduled, and its time has not come"


class AstraeaPublished:
    """Schedules jobs in batches that double, at posted prices, and stops nobody.

    A batch is closed when as many slots have passed as all those before it had, and is scheduled in
    rounds: each tenant's jobs in its quota, then what is left on what all tenants leave.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._allotted = Allotted(_NEVER_OVER_S)
        self._known: dict[Hashable, int] = {}

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Schedule the rounds that are due, and start the jobs whose time has come."""
        states: list[tuple[Batches, Memory]] = []

        def allot(fleet: Fleet, claims: Sequence[SizeRange]) -> Mapping[RunId, int]:
            batches = Batches(snapshot, fleet, claims, self._config, self._known)
            after = batches.followed(Memory.read(memory))
            states.append((batches, after))
            return _due(batches, after)

        plan = self._allotted.plan(snapshot, allot, _BATCH, explained=self._config.explained)
        batches, after = states[0]
        placed = {entry.run for entry in plan.entries if isinstance(entry, Assign)}
        plan = replace(
            plan,
            entries=tuple(_told(entry, after, snapshot.now_ms) for entry in plan.entries),
            again=Again(batches.next_ms(after)),
            loans=Loans(_terms(batches, after, placed)),
        )
        return plan, after.written()


def _due(batches: Batches, memory: Memory) -> dict[RunId, int]:
    """Number of members of each contender to run now, the earliest first."""
    now = batches.snapshot.now_ms
    waiting = {
        claim.id: claim for claim in batches.claims if not claim.now and not claim.one.between
    }
    due = [
        (entry.start_ms, name, entry.members)
        for name, entry in memory.entries.items()
        if name in waiting and entry.start_ms <= now
    ]
    # A contender that has a place keeps it.
    running = {claim.id: claim.now for claim in batches.claims if claim.now}
    running.update((claim.id, claim.most) for claim in waiting.values() if at_once(claim))
    for _, name, members in sorted(due):
        claim = waiting[RunId(name)]
        running[claim.id] = members if claim.elastic else 1
    return running


def _told(entry: PlanEntry, memory: Memory, now: Millis) -> PlanEntry:
    """An entry with the reason why a job waits."""
    if not isinstance(entry, Hold) or entry.reason != _BATCH:
        return entry
    jobs = {job_of(RunId(name)): entry for name, entry in memory.entries.items()}
    scheduled = memory.entries.get(entry.run) or jobs.get(job_of(entry.run))
    if scheduled is None:
        return entry
    return Hold(entry.run, _NO_ROOM if scheduled.start_ms <= now else _TURN)


def _terms(batches: Batches, memory: Memory, placed: set[RunId]) -> tuple[LoanTerms, ...]:
    """Terms of jobs that run or begin on room of others."""
    terms: dict[JobId, LoanTerms] = {}
    for claim in batches.claims:
        entry = memory.entries.get(claim.id)
        if entry is None or not entry.gpus or not (claim.now or claim.id in placed):
            continue
        job = claim.one.job.id
        own_terms = LoanTerms(job, entry.gpus, entry.earned, entry.lent)
        terms[job] = own_terms if job not in terms else _together(terms[job], own_terms)
    return tuple(terms[job] for job in sorted(terms))


def _together(first: LoanTerms, second: LoanTerms) -> LoanTerms:
    """The terms of a job of which several tasks borrow."""
    amounts: dict[str, int] = {}
    lent: dict[str, int] = {}
    for part in (first, second):
        for (name, amount), gpus in zip(part.lenders, part.lent, strict=True):
            amounts[name] = amounts.get(name, 0) + amount
            lent[name] = lent.get(name, 0) + gpus
    names = sorted(amounts)
    lenders = tuple((name, amounts[name]) for name in names)
    return LoanTerms(
        first.job, first.gpus + second.gpus, lenders, tuple(lent[name] for name in names)
    )


def _reads(config: Config) -> tuple[str, ...]:
    """The optional keys of job files that it reads."""
    return ("ps", "value") if config.ps_per_server else ("value",)


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=AstraeaPublished,
    presets=PRESETS,
    time_shares=True,
    elastic=True,
    lends=True,
    reads=_reads,
)
"""Policy `astraea_published`: batches that double, rounds, and posted prices."""
