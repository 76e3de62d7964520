"""Jobs that used more of a fleet than their tenant had brought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eva_lab.simulator.results.metrics import Record
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


def borrowers(record: Record, trace: Trace) -> frozenset[str]:
    """The jobs that ever ran on GPUs beyond their tenant's quota; who came later borrows.

    Args:
        record: Record of a run of the trace.
        trace: Of gangs whose members take one GPU each; tenants without a quota never borrow.
    """
    quotas = {one.name: sum(count for _, count in one.quota) for one in trace.tenants}
    tenants = {job.name: job.tenant for job in record.jobs}
    held: dict[str, list[_Held]] = {}
    for one in _attempts(record):
        held.setdefault(tenants[one.job], []).append(one)
    found: set[str] = set()
    for tenant, attempts in held.items():
        if tenant in quotas:
            found.update(_beyond(attempts, quotas[tenant]))
    return frozenset(found)


def _attempts(record: Record) -> Iterator[_Held]:
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
    there: list[_Held] = []
    for one in ordered:
        there = [it for it in there if it.to_ms > one.from_ms]
        there.append(one)
        if sum(it.gpus for it in there) > quota:
            yield one.job
