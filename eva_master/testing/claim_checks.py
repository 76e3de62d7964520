"""Checks of plans against the claims of their snapshots."""

from __future__ import annotations

from collections import Counter

from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_wire.values.ids import Millis, OfferingId, RunId, job_of


def check_claims(snapshot: Snapshot, plan: Plan) -> None:
    """Check that a plan gives claimed room to its claimants alone.

    A claim that the plan serves keeps nothing, and one that comes first goes before those after it.
    Task runs that are known to end before the room is complete may use it.

    Args:
        snapshot: With claims.
        plan: As it is carried out.

    Raises:
        AssertionError: Another task run takes claimed room.
    """
    placed = {entry.run: entry.on for entry in plan.entries if isinstance(entry, Assign)}
    lined = {job for line in plan.lines for job in line.jobs}
    runs = {run.id: run for run in snapshot.runs}
    before: set[RunId] = set()
    kept: Counter[OfferingId] = Counter()
    every = {run for claim in snapshot.claims for run in claim.runs}
    for claim in snapshot.claims:
        before.update(claim.runs)
        served = all(run in placed or job_of(run) in lined for run in claim.runs if run in runs)
        if served:
            continue
        kept.update(dict(claim.slots))
        for run, where in placed.items():
            if where in claim.instances and runs[run].instance != where and run not in before:
                assert _over_by(claim, snapshot, runs[run]), f"{run} takes the room of {claim}"
    offerings = {launch.key: launch.offering for launch in plan.launches}
    ours = {placed[run] for run in every & placed.keys()}
    used = Counter(view.offering.id for view in snapshot.instances)
    used.update(offering.id for key, offering in offerings.items() if key not in ours)
    for offering in offerings.values():
        if offering.limit is not None and kept[offering.id]:
            others = {
                key for key, launched in offerings.items() if launched.id == offering.id
            } - ours
            free = used[offering.id] + kept[offering.id] <= offering.limit
            assert free or not others, f"{offering.id} is launched in slots that are kept"


def _over_by(claim: Claim, snapshot: Snapshot, run: RunView) -> bool:
    """Whether a waiting task run is known to end before the room of a claim is complete."""
    work, complete = run.remaining, claim.complete_ms
    if work is None or work.estimated or complete is None:
        return False
    (launch_ms,) = (job.delays.launch_ms for job in snapshot.jobs if job.id == run.job)
    return Millis(snapshot.now_ms + launch_ms + work.at_since_ms) <= complete
