"""Tells apart states of a cluster between which it makes a difference what pays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from eva_master.model.catalog import ids_of
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import by_id
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.precedence import precedence


class StateDigest:
    """Digests all that decides whether a reconfiguration pays, but for the time.

    Instances are anonymous: only their offering and their tasks matter; empty ones do not count.
    The remaining work is a matter of time and left out.

    Args:
        snapshot: The cluster.
        known: Other inputs of the decision: learned values, and the policy's options.
    """

    def __init__(self, snapshot: Snapshot, known: str) -> None:
        self._runs = snapshot.runs
        views = snapshot.instances
        sold = ids_of(view.offering for view in views)
        self._offerings: dict[Host | None, str] = dict(zip(by_id(views), sold, strict=True))
        self._begun = hashlib.sha256(known.encode())
        for part in (_market(snapshot), *_jobs(snapshot), _claims(snapshot, self._offerings)):
            self._begun.update(f"\n\n{[*part]}".encode())

    def of(self, configuration: Configuration | None = None) -> str:
        """The digest for some places.

        Args:
            configuration: The planned places; `None` for the present ones.
        """
        digest = self._begun.copy()
        digest.update(f"\n\n{self._places(configuration)}".encode())
        return digest.hexdigest()[:32]

    def _places(self, configuration: Configuration | None) -> tuple[object, ...]:
        """The number of each task run's instance, -1 without a place, and the instances' offerings.

        Instances have numbers in the order of the first task run on each.
        """
        offerings = {**self._offerings}
        if configuration is None:
            hosts: Iterable[Host | None] = (run.instance for run in self._runs)
        else:
            offerings |= {launch.key: launch.offering.id for launch in configuration.launches}
            hosts = map(configuration.places.get, (run.id for run in self._runs))
        numbers: dict[Host | None, int] = {}
        places = [
            numbers.setdefault(host, len(numbers)) if host in offerings else -1 for host in hosts
        ]
        return places, [offerings[host] for host in numbers]


def _market(snapshot: Snapshot) -> Iterator[object]:
    now = snapshot.now_ms
    for sold in sorted(snapshot.catalog, key=lambda offering: offering.id):
        yield sold.id, sold.price, sold.limit, sold.available(now), sold.interruptions_ppm


def _jobs(snapshot: Snapshot) -> Iterator[Iterable[object]]:
    for name in ("id", "priority", "delays.checkpoint_ms", "delays.launch_ms"):
        yield map(attrgetter(name), snapshot.jobs)
    yield (len(job.runs) for job in snapshot.jobs)
    yield map(attrgetter("id"), snapshot.runs)
    yield (run.id for run in snapshot.runs if run.pinned)
    ahead = [job for job in snapshot.jobs if job.urgency.ahead is not None]
    yield (job.id for job in sorted(ahead, key=precedence))


def _claims(snapshot: Snapshot, offerings: Mapping[Host | None, str]) -> Iterator[object]:
    """Room that is kept, and for which task runs; when it is complete is a matter of time."""
    for claim in snapshot.claims:
        kept = sorted(offerings.get(name, "") for name in claim.instances)
        yield claim.runs, claim.priority, claim.equals, kept, claim.slots
