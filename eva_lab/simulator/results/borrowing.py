"""Jobs that used more of a fleet than their tenant had brought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eva_lab.simulator.results.metrics import RunRecord
from eva_master.model.trace import Trace


@dataclass(frozen=True, slots=True)
class _Held:
    """Instances of one attempt of a job.

    Attributes:
        gpus: One for each of its members.
    """

    from_ms: int
    to_ms: int
    job: str
    gpus: int


def borrowers(record: RunRecord, trace: Trace) -> frozenset[str]:
    """The jobs that ever ran on GPUs beyond their tenant's quota; who came later borrows.

    Args:
        record: Record of a run of the trace.
        trace: Of gangs whose members take one GPU each; tenants without a quota never borrow.
    """
    quotas = {tenant.name: sum(count for _, count in tenant.quota) for tenant in trace.tenants}
    tenants = {job.name: job.tenant for job in record.jobs}
    held: dict[str, list[_Held]] = {}
    for attempt in _attempts(record):
        held.setdefault(tenants[attempt.job], []).append(attempt)
    names: set[str] = set()
    for tenant, attempts in held.items():
        if tenant in quotas:
            names.update(_beyond(attempts, quotas[tenant]))
    return frozenset(names)


def _attempts(record: RunRecord) -> Iterator[_Held]:
    names = {job.id: job.name for job in record.jobs}
    members: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for occupancy in record.occupancies:
        key = occupancy.run.rpartition("/")[0], occupancy.attempt
        members.setdefault(key, []).append((occupancy.from_ms, occupancy.to_ms))
    for (job, _), spans in members.items():
        starts, ends = zip(*spans, strict=True)
        yield _Held(min(starts), max(ends), names[job], len(spans))


def _beyond(attempts: list[_Held], quota: int) -> Iterator[str]:
    ordered = sorted(attempts, key=lambda it: (it.from_ms, it.job))
    held: list[_Held] = []
    for attempt in ordered:
        held = [earlier for earlier in held if earlier.to_ms > attempt.from_ms]
        held.append(attempt)
        if sum(holder.gpus for holder in held) > quota:
            yield attempt.job
