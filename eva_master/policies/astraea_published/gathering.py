"""Makes requests, servers and quotas of what a snapshot has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from eva_master.model.ids import MILLION, Family, InstanceId
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.tenancy import ANY_FAMILY
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.fleet.allotted import Claim
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.valuation.job_worth import worth_of
from eva_master.policies.astraea_published.calendar import Server
from eva_master.policies.astraea_published.config import Config
from eva_master.policies.astraea_published.requests import Lengths, Request
from eva_master.policies.astraea_published.rounds import Quota

EVERYBODY = ""
"""Whose quota all of the fleet is where nobody has one."""


def servers_of(snapshot: Snapshot, fleet: Fleet) -> dict[Family, list[Server]]:
    """The machines of each type, those that are there first."""
    found: dict[Family, list[Server]] = {}
    left = {family: dict(sizes) for family, sizes in fleet.machines.items()}
    for view in sorted(snapshot.instances, key=lambda it: it.id):
        if view.id in fleet.live:
            machine = view.offering.type
            found.setdefault(machine.family, []).append(Server(view.id, machine.capacity))
            left[machine.family][machine.capacity] -= 1
    for family, sizes in left.items():
        for capacity, count in sorted(sizes.items()):
            found.setdefault(family, []).extend([Server(None, capacity)] * max(0, count))
    return found


def quotas_of(
    snapshot: Snapshot, servers: Mapping[Family, Sequence[Server]], ps_per_server: int
) -> dict[str, dict[Family, Quota]]:
    """What each tenant brought of each type.

    Parameter servers are a tenant's in proportion to its GPUs, but one at least where it has any.
    """
    gpus = {family: sum(it.capacity.gpus for it in there) for family, there in servers.items()}
    all_ps = {family: ps_per_server * len(there) for family, there in servers.items()}
    if not snapshot.tenants:
        return {EVERYBODY: {it: Quota(gpus[it], all_ps[it]) for it in servers}}
    found: dict[str, dict[Family, Quota]] = {}
    for tenant in snapshot.tenants:
        own = dict(tenant.quota)
        mine = {}
        for family in servers:
            count = own.get(family, 0) + own.get(ANY_FAMILY, 0)
            part = all_ps[family] * count // max(1, gpus[family])
            mine[family] = Quota(count, max(part, 1) if count and all_ps[family] else 0)
        found[tenant.name] = mine
    return found


def tenant_of(one: Contender, snapshot: Snapshot) -> str:
    """Whose quota a contender may use."""
    return one.job.tenant if snapshot.tenants else EVERYBODY


def lengths_of(claim: Claim, slot_ms: int) -> Lengths:
    """How many slots a contender takes, by type and members; a start is part of it."""
    one, elastic = claim.one, claim.one.job.elastic

    def lengths(family: Family, members: int, apart: bool) -> int:
        if elastic is None or not claim.elastic:
            left = one.alone_ms[family]
        else:
            left = one.member_ms[family] * MILLION / elastic.speed_ppm(members, apart=apart)
        # What is a part of a millionth too long is an error of rounding.
        return max(1, ceil((left + one.job.launch_ms) / slot_ms - 1e-6))

    return lengths


def need_of(claim: Claim, fleet: Fleet) -> dict[Family, Resources]:
    """What a member needs, by type; of a gang whose tasks differ, the most of each."""
    found = {}
    types = fleet.machines if claim.elastic else claim.one.types
    for family in types:
        needs = [run.task.demand_on(family) for run in claim.one.runs]
        known = [need for need in needs if need is not None]
        if len(known) == len(needs) and family in claim.one.member_ms:
            found[family] = _most(known)
    return found


def request_of(
    claim: Claim, snapshot: Snapshot, fleet: Fleet, slots: int, config: Config
) -> Request:
    """What a contender asks of a round, but for its shortest time.

    Args:
        claim: The contender's.
        snapshot: The cluster.
        fleet: What there is.
        slots: The length of the round.
        config: Settings.
    """
    job, size = claim.one.job, len(claim.one.runs)
    least, most = (claim.least, claim.most) if claim.elastic else (size, size)
    trains = config.ps_per_server > 0 and job.ps is not None
    return Request(
        claim.id,
        tenant_of(claim.one, snapshot),
        need_of(claim, fleet),
        least,
        most,
        lengths_of(claim, 1000 * config.slot_s),
        tuple(worth_at(claim.one, 1000 * config.slot_s * (it + 1)) for it in range(slots)),
        claim.came,
        trains,
    )


def worth_at(one: Contender, elapsed_ms: int) -> int:
    """What a contender is worth if it is done so long after its round has begun."""
    job = one.job
    # A snapshot has what jobs are worth of which nobody says so.
    worth = worth_of(job.worth, MILLION, round(one.left_ms))
    if worth is None:
        return 0
    tasks = job.tasks if job.elastic is None and len(one.runs) < job.tasks else 1
    return worth.after(elapsed_ms) // max(1, tasks)


def busy(
    snapshot: Snapshot, claims: Iterable[Claim]
) -> list[tuple[Claim, Family, dict[InstanceId, Resources]]]:
    """Who has room of the fleet now, on which type, and how much on each machine."""
    families = {view.id: view.offering.type.family for view in snapshot.instances}
    found = []
    for claim in claims:
        there: dict[InstanceId, Resources] = {}
        for run in claim.one.runs:
            if run.instance is not None and run.instance in families:
                need = run.task.demand_on(families[run.instance]) or NOTHING
                there[run.instance] = there.get(run.instance, NOTHING) + need
        if there:
            found.append((claim, families[min(there)], there))
    return found


def _most(needs: Sequence[Resources]) -> Resources:
    return Resources(
        max(it.gpus for it in needs),
        max(it.milli_cpus for it in needs),
        max(it.memory_mib for it in needs),
    )
