"""Gavel's rounds: who has had least of what is due to it goes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.lp.least_time import Need
from eva_policies.gavel.allocation import Divide
from eva_policies.gavel.memory import Division, Received, in_millionths, sizes
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, Millis, RunId


def divided(
    contenders: Sequence[Contender],
    capacity: Mapping[Family, Resources],
    divide: Divide,
    now: Millis,
) -> Division:
    """Divide a fleet among contenders that have received nothing so far.

    A contender that takes nothing of a type gets all of its time there. A contender that fits on no
    single type gets no part.

    Args:
        contenders: The contenders.
        capacity: Capacity of the fleet, by type.
        divide: Function for the goal of the division.
        now: The time.
    """
    alike: dict[object, list[Contender]] = {}
    for contender in contenders:
        if contender.types and NOTHING not in contender.demand.values():
            key = (
                contender.types,
                tuple(contender.demand.items()),
                tuple(contender.alone_ms.items()),
            )
            alike.setdefault(key, []).append(contender)
    groups = list(alike.values())
    divisions = divide([_need(group) for group in groups], capacity)
    parts = {
        contender.id: in_millionths(each)
        for group, each in zip(groups, divisions, strict=True)
        for contender in group
    }
    free = {contender.id: dict.fromkeys(contender.types, MILLION) for contender in contenders}
    return Division(now, sizes(capacity), free | parts)


def _need(alike: Sequence[Contender]) -> Need:
    """Demand of a group of equal contenders."""
    example, count = alike[0], sum(1 + contender.unseen for contender in alike)
    return Need(
        example.demand,
        {family: max(1.0, example.alone_ms[family]) for family in example.types},
        count,
    )


def received(
    snapshot: Snapshot, contenders: Sequence[Contender], since: Millis
) -> dict[RunId, Received]:
    """Time for which each contender has been running on its present type.

    Args:
        snapshot: The cluster.
        contenders: The contenders.
        since: Time before which nothing counts.
    """
    types = {view.id: view.offering.type.family for view in snapshot.instances}
    return {
        contender.id: _received(contender, types, snapshot.now_ms, since)
        for contender in contenders
    }


def _received(
    one: Contender, types: Mapping[InstanceId, Family], now: Millis, since: Millis
) -> Received:
    began = (
        one.job.progress.lease_ms
        if one.job.spec.kind is JobKind.GANG
        else one.runs[0].running_since_ms
    )
    on = {None if run.instance is None else types.get(run.instance) for run in one.runs}
    family = on.pop()
    if began is None or on or family is None:
        return {}
    return {family: max(0, now - max(began, since))}


@dataclass(frozen=True, slots=True)
class TypedClaim:
    """A contender on one of the types where it can run.

    Attributes:
        due: Its part of its time there over the leases that it has received there.
    """

    one: Contender
    family: Family
    due: float


def claims(contenders: Sequence[Contender], division: Division, lease_ms: int) -> list[TypedClaim]:
    """All claims in order: by priority, then by the least received part of the share due.

    Half a lease counts as received from the beginning, so that no division is by zero. Among
    contenders with nothing due, the one that loses least on the type goes first.

    Args:
        contenders: The contenders.
        division: The shares due.
        lease_ms: The length of a lease.
    """
    ranked = []
    for contender in contenders:
        had = division.received.get(contender.id, {})
        best = min((contender.alone_ms[family] for family in contender.types), default=0.0)
        for family in contender.types:
            part = division.part(contender.id, family)
            due = part / (had.get(family, 0) / lease_ms + 0.5)
            rank = (
                -contender.job.priority,
                -due,
                -part,
                -best / contender.alone_ms[family],
                contender.job.submitted_ms,
            )
            ranked.append(((*rank, contender.id, family), TypedClaim(contender, family, due)))
    return [claim for _, claim in sorted(ranked, key=lambda it: it[0])]
