"""Gavel's rounds: who has had least of what is due to it goes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.ids import MILLION, Family, InstanceId, Millis, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.lp.least_time import Need
from eva_master.policies.gavel.allocation import Divide
from eva_master.policies.gavel.memory import Division, Received, in_millionths, sizes


def divided(
    contenders: Sequence[Contender],
    capacity: Mapping[Family, Resources],
    divide: Divide,
    now: Millis,
) -> Division:
    """Divide a fleet among contenders, who have received nothing so far.

    Who takes nothing of a type is to have all of its time there. Who can run on no type alone has
    no part.

    Args:
        contenders: Who competes.
        capacity: All that there is, by type.
        divide: Says what the division is best for.
        now: When this is.
    """
    alike: dict[object, list[Contender]] = {}
    for one in contenders:
        if one.types and NOTHING not in one.demand.values():
            key = one.types, tuple(one.demand.items()), tuple(one.alone_ms.items())
            alike.setdefault(key, []).append(one)
    groups = list(alike.values())
    found = divide([_need(group) for group in groups], capacity)
    parts = {
        one.id: in_millionths(each)
        for group, each in zip(groups, found, strict=True)
        for one in group
    }
    free = {it.id: dict.fromkeys(it.types, MILLION) for it in contenders}
    return Division(now, sizes(capacity), free | parts)


def _need(alike: Sequence[Contender]) -> Need:
    """What contenders that are alike need."""
    one, count = alike[0], sum(1 + it.unseen for it in alike)
    return Need(one.demand, {it: max(1.0, one.alone_ms[it]) for it in one.types}, count)


def received(
    snapshot: Snapshot, contenders: Sequence[Contender], since: Millis
) -> dict[RunId, Received]:
    """For how long each contender has been running on the type where it is.

    Args:
        snapshot: The cluster.
        contenders: Who competes.
        since: Only time from then on counts.
    """
    types = {view.id: view.offering.type.family for view in snapshot.instances}
    return {one.id: _received(one, types, snapshot.now_ms, since) for one in contenders}


def _received(
    one: Contender, types: Mapping[InstanceId, Family], now: Millis, since: Millis
) -> Received:
    began = one.job.lease_ms if one.job.kind is JobKind.GANG else one.runs[0].running_since_ms
    on = {None if it.instance is None else types.get(it.instance) for it in one.runs}
    family = on.pop()
    if began is None or on or family is None:
        return {}
    return {family: max(0, now - max(began, since))}


@dataclass(frozen=True, slots=True)
class Claim:
    """A contender on one of the types where it can run.

    Attributes:
        due: Its part of its time there over the leases that it has received there.
    """

    one: Contender
    family: Family
    due: float


def claims(contenders: Sequence[Contender], division: Division, lease_ms: int) -> list[Claim]:
    """All claims in their order: by priority, then who has had least of what is due to it.

    Half a lease counts as received from the beginning, so that no division is by nothing. Of those
    to whom nothing is due, whoever loses least there goes first.

    Args:
        contenders: Who competes.
        division: What is due.
        lease_ms: The length of a lease.
    """
    found = []
    for one in contenders:
        had = division.received.get(one.id, {})
        best = min((one.alone_ms[family] for family in one.types), default=0.0)
        for family in one.types:
            part = division.part(one.id, family)
            due = part / (had.get(family, 0) / lease_ms + 0.5)
            rank = (
                -one.job.priority,
                -due,
                -part,
                -best / one.alone_ms[family],
                one.job.submitted_ms,
            )
            found.append(((*rank, one.id, family), Claim(one, family, due)))
    return [claim for _, claim in sorted(found, key=lambda it: it[0])]
