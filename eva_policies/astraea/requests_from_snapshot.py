"""Makes asks of those who compete for a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.planning.elastic import Elastic, Scaling
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.sizes import resizable
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.contenders import Contender
from eva_policies.astraea.config import Config
from eva_policies.astraea.requests import RoomRequest
from eva_wire.values.ids import Family, InstanceId, JobId

_UNLIMITED = 10**6


@dataclass(frozen=True, slots=True)
class RoomRequests:
    """Asks of a round.

    Attributes:
        asks: One for each contender that may be given a place, by its id.
        contenders: Contenders that may be given a place, by id.
        taken: Room by type of contenders that keep their places and make no ask.
    """

    asks: Mapping[str, RoomRequest]
    contenders: Mapping[str, Contender]
    taken: Mapping[Family, Resources]


def gather(
    snapshot: Snapshot,
    fleet: Fleet,
    contenders: Sequence[Contender],
    instances: OpenInstances,
    config: Config,
) -> RoomRequests:
    """Make the asks of a round.

    Args:
        snapshot: The cluster, see `fleet.allotted.smallest`.
        fleet: The fleet.
        contenders: The contenders for it, without leases.
        instances: Instances of the snapshot, with all tasks where they are.
        config: Settings.
    """
    open_jobs = {job.id for job in resizable(snapshot)}
    families = {view.id: view.offering.type.family for view in snapshot.instances}
    asks: dict[str, RoomRequest] = {}
    taken: dict[Family, Resources] = {}
    for contender in contenders:
        on = _on(contender, families)
        stays = contender.fixed or (
            contender.seated and config.recall == "never" and _runs(contender)
        )
        leased = not stays and _is_leased(snapshot, contender, config)
        if (stays or leased) and (len(on) > 1 or not contender.seated):
            _add(taken, contender, families)
            continue
        if contender.between:
            continue
        elastic = contender.job.sharing.elastic if contender.job.id in open_jobs else None
        ask = _ask(fleet, contender, elastic, _loss(snapshot, contender, instances))
        asks[contender.id] = _standing(ask, contender, on, stays=stays, leased=leased)
    return RoomRequests(asks, {contender.id: contender for contender in contenders}, taken)


def _ask(fleet: Fleet, one: Contender, elastic: Elastic | None, loss: int) -> RoomRequest:
    if elastic is None:
        need = {family: one.demand[family] for family in one.types if family in one.demand}
        least, most, scaling = 1, 1, Scaling()
    else:
        rooms = _rooms(fleet, one, elastic.least)
        need = {family: each for family, (each, _) in rooms.items()}
        largest = max((room for _, room in rooms.values()), default=elastic.least)
        least, most = elastic.least, max(elastic.least, min(elastic.most, largest))
        scaling = elastic.apart if _spreads(fleet, need, most) else elastic.together
    rest_ms = {
        family: max(1, round(one.member_ms[family])) for family in need if family in one.member_ms
    }
    job = one.job
    return RoomRequest(
        one.id,
        job.id,
        job.spec.tenant,
        loss,
        {family: need[family] for family in rest_ms},
        rest_ms,
        (job.submitted_ms, one.id),
        least,
        most,
        scaling,
        job.priority,
        start_ms=job.delays.launch_ms,
        move_ms=one.move_ms,
        guessed=one.guessed,
        elastic=elastic is not None,
        unlent=job.tenancy.unlent,
    )


def _rooms(fleet: Fleet, one: Contender, least: int) -> dict[Family, tuple[Resources, int]]:
    """Demand of a member of an elastic gang on each type, and the number of members with room."""
    rooms = {}
    for family in fleet.machines:
        need = one.runs[0].task.demand_on(family)
        if need is None:
            continue
        room = fleet.seats(family, need)
        room = _UNLIMITED if room is None else room
        if room >= least:
            rooms[family] = need, room
    return rooms


def _standing(
    ask: RoomRequest, one: Contender, on: frozenset[Family], *, stays: bool, leased: bool
) -> RoomRequest:
    if not one.seated:
        return ask
    now = len(one.runs) if ask.elastic else 1
    family = next(iter(on)) if len(on) == 1 else None
    if family is None or family not in ask.need:
        return ask
    began = one.job.progress.lease_ms or one.runs[0].running_since_ms or 0
    return replace(
        ask, now=now, on=family, began_ms=began, fixed=stays, leased=leased, most=max(now, ask.most)
    )


def _loss(snapshot: Snapshot, one: Contender, instances: OpenInstances) -> int:
    """Cost of an hour of waiting, in micro-dollars, as of the time when the job could be done."""
    job = one.job
    if job.tenancy.worth is None:
        return sum(instances.priced(run.id).price for run in one.runs)
    quickest = min(one.member_ms.values(), default=one.left_ms)
    if job.sharing.elastic is not None:
        quickest = (
            quickest * 1_000_000 / job.sharing.elastic.together.speed_ppm(job.sharing.elastic.most)
        )
    loss = job.tenancy.worth.loss_per_hour(snapshot.now_ms - job.submitted_ms + round(quickest))
    tasks = max(1, job.array.size - job.progress.over) if _is_array(job, one) else 1
    return loss // tasks


def _is_array(job: JobView, one: Contender) -> bool:
    return len(one.runs) == 1 and job.array.size > 1 and job.sharing.elastic is None


def _spreads(fleet: Fleet, need: Mapping[Family, Resources], most: int) -> bool:
    """Whether so many members are on several machines."""
    for family, each in need.items():
        for size in fleet.machines[family]:
            room = each.times_in(size)
            if room is None or room >= most:
                return False
    return True


def _on(one: Contender, families: Mapping[InstanceId, Family]) -> frozenset[Family]:
    places = (run.instance for run in one.runs)
    return frozenset(
        families[instance] for instance in places if instance is not None and instance in families
    )


def _runs(one: Contender) -> bool:
    return any(run.running for run in one.runs)


def _is_leased(snapshot: Snapshot, one: Contender, config: Config) -> bool:
    if not one.seated or not _runs(one):
        return False
    began = one.runs[0].running_since_ms if len(one.runs) == 1 else one.job.progress.lease_ms
    began = one.job.progress.lease_ms if began is None else began
    return began is not None and snapshot.now_ms - began < 1000 * config.lease_s


def _add(
    taken: dict[Family, Resources], one: Contender, families: Mapping[InstanceId, Family]
) -> None:
    for run in one.runs:
        if run.instance is not None and (family := families.get(run.instance)) is not None:
            need = run.task.demand_on(family) or NOTHING
            taken[family] = taken.get(family, NOTHING) + need


def sizes_of(asked: RoomRequests, members: Mapping[str, int]) -> dict[JobId, int]:
    """Sizes of elastic gangs that get a place.

    Args:
        asked: The asks of the round.
        members: Number of members with a place, by ask.
    """
    return {
        JobId(ask.job): members[name]
        for name, ask in asked.asks.items()
        if ask.elastic and name in members
    }
