"""Tells apart states of a cluster between which it makes a difference what pays."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import Configuration
from eva_master.packing.precedence import precedence
from eva_wire.values.ids import RunId


def state_digest(snapshot: Snapshot, known: str, configuration: Configuration | None = None) -> str:
    """Digest all that decides whether a reconfiguration pays, but for the time.

    Instances are anonymous: only their offering and their tasks matter; empty ones do not count.
    The remaining work is a matter of time and left out.

    Args:
        snapshot: The cluster.
        known: Other inputs of the decision: learned values, and the policy's options.
        configuration: The planned places; `None` for the present ones.
    """
    digest = hashlib.sha256(known.encode())
    parts: list[Iterable[object]] = [
        _market(snapshot),
        _jobs(snapshot),
        _places(snapshot, configuration),
    ]
    if snapshot.claims:
        parts.append(_claims(snapshot))
    for part in parts:
        for line in part:
            digest.update(f"\n{line}".encode())
        digest.update(b"\n\n")
    return digest.hexdigest()[:32]


def _market(snapshot: Snapshot) -> Iterator[object]:
    now = snapshot.now_ms
    for sold in sorted(snapshot.catalog, key=lambda offering: offering.id):
        yield sold.id, sold.price, sold.limit, sold.available(now), sold.interruptions_ppm


def _jobs(snapshot: Snapshot) -> Iterator[object]:
    for job in snapshot.jobs:
        yield job.id, len(job.runs), job.priority, job.delays.checkpoint_ms, job.delays.launch_ms
    yield [run.id for run in snapshot.runs if run.pinned]
    if ahead := [job for job in snapshot.jobs if job.urgency.ahead is not None]:
        yield [job.id for job in sorted(ahead, key=precedence)]


def _claims(snapshot: Snapshot) -> Iterator[object]:
    """Room that is kept, and for which task runs; when it is complete is a matter of time."""
    offerings = {view.id: view.offering.id for view in snapshot.instances}
    for claim in snapshot.claims:
        kept = sorted(offerings.get(name, "") for name in claim.instances)
        yield claim.runs, claim.priority, claim.equals, kept, claim.slots


def _places(snapshot: Snapshot, configuration: Configuration | None) -> list[str]:
    residents: dict[object, list[RunId]] = defaultdict(list)
    offerings: dict[object, str] = {each.id: each.offering.id for each in snapshot.instances}
    if configuration is None:
        for run in snapshot.runs:
            if run.instance in offerings:
                residents[run.instance].append(run.id)
    else:
        offerings |= {launch.key: launch.offering.id for launch in configuration.launches}
        for placed, host in configuration.places.items():
            residents[host].append(placed)
    return sorted(f"{offerings[host]} {sorted(runs)}" for host, runs in residents.items())
