"""Tells apart states of a cluster between which it makes a difference what pays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.incremental.view import replaced
from eva_master.packing.interference.digest import digest_view, mark
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.precedence import precedence
from eva_wire.values.ids import InstanceId, OfferingId, RunId


class StateDigest:
    """Digests all that decides whether a reconfiguration pays, but for the time.

    Instances are anonymous: only their offering and their tasks matter; empty ones do not count.
    The remaining work is a matter of time and left out.

    Args:
        snapshot: The cluster.
        known: Other inputs of the decision: learned values, and the policy's options.
        cache: Source of what has not changed since the last snapshot.
    """

    def __init__(self, snapshot: Snapshot, known: str, cache: PlannerCache | None = None) -> None:
        cache = cache or PlannerCache()
        self._marks = cache.remembered("marks", None, _Marks, limit=1)
        self._placed, self._sold = cache.placed(snapshot), cache.sold_as(snapshot)
        self._begun = hashlib.sha256(known.encode())
        total = self._marks.jobs.of(snapshot.jobs), self._marks.runs.of(snapshot.runs)
        parts = (_market(snapshot), total, _ahead(snapshot), _claims(snapshot, self._sold))
        for part in parts:
            self._begun.update(f"\n\n{[*part]}".encode())
        self._present = self._marks.instances(self._placed.residents, self._sold)

    def of(self, configuration: Configuration | None = None) -> str:
        """The digest for some places.

        Args:
            configuration: The planned places; `None` for the present ones.
        """
        total = sum(self._present.values())
        if configuration is not None:
            total += self._changed(configuration)
        digest = self._begun.copy()
        digest.update(f"\n\n{total}".encode())
        return digest.hexdigest()[:32]

    def _changed(self, configuration: Configuration) -> int:
        """By how much the sum of instances' marks differs from the present one."""
        offerings = dict[Host, OfferingId](self._sold.items())
        offerings |= {launch.key: launch.offering.id for launch in configuration.launches}
        places, residents = configuration.places, self._placed.residents
        changed: dict[Host, set[RunId]] = {}

        def holds(host: Host) -> set[RunId]:
            here = () if isinstance(host, int) else residents.get(host, ())
            return changed[host] if host in changed else changed.setdefault(host, set(here))

        for run, instance in self._placed.instances.items():
            before = instance if instance in self._sold else None
            after = places.get(run)
            if after == before:
                continue
            if before is not None:
                holds(before).remove(run)
            if after is not None:
                holds(after).add(run)
        return sum(
            (mark((offerings[host], sorted(runs))) if runs else 0)
            - (0 if isinstance(host, int) else self._present.get(host, 0))
            for host, runs in changed.items()
        )


class _Marks:
    """Marks of the last state, of which those stand that nothing has changed for.

    Attributes:
        jobs: The sum of the marks of jobs.
        runs: The sum of the marks of task runs.
    """

    def __init__(self) -> None:
        self.jobs = digest_view(_of_job, replaced)
        self.runs = digest_view(_of_run, replaced)
        self._last: dict[InstanceId, tuple[OfferingId, Sequence[RunId], int]] = {}

    def instances(
        self,
        residents: Mapping[InstanceId, Sequence[RunId]],
        sold: Mapping[InstanceId, OfferingId],
    ) -> Mapping[InstanceId, int]:
        """The mark of each instance that holds something.

        Args:
            residents: The task runs of each instance, sorted.
            sold: Offering of each live instance.
        """
        marks = dict[InstanceId, tuple[OfferingId, Sequence[RunId], int]]()
        for host, offering in sold.items():
            runs = residents.get(host)
            if runs is None:
                continue
            last = self._last.get(host)
            if last is None or last[1] is not runs or last[0] != offering:
                last = offering, runs, mark((offering, [*runs]))
            marks[host] = last
        self._last = marks
        return {host: number for host, (_, _, number) in marks.items()}


def _of_job(job: JobView) -> object:
    return job.id, job.priority, job.delays.checkpoint_ms, job.delays.launch_ms, len(job.runs)


def _of_run(run: RunView) -> object:
    return run.id, run.pinned


def _market(snapshot: Snapshot) -> Iterator[object]:
    now = snapshot.now_ms
    for sold in sorted(snapshot.catalog, key=lambda offering: offering.id):
        yield sold.id, sold.price, sold.limit, sold.available(now), sold.interruptions_ppm


def _ahead(snapshot: Snapshot) -> Iterator[object]:
    ahead = [job for job in snapshot.jobs if job.urgency.ahead is not None]
    yield from (job.id for job in sorted(ahead, key=precedence))


def _claims(snapshot: Snapshot, offerings: Mapping[InstanceId, OfferingId]) -> Iterator[object]:
    """Room that is kept, and for which task runs; when it is complete is a matter of time."""
    for claim in snapshot.claims:
        kept = sorted(offerings.get(name, "") for name in claim.instances)
        yield claim.runs, claim.priority, claim.equals, kept, claim.slots
