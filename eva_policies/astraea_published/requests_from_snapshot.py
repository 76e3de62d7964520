"""Makes requests, servers and quotas of what a snapshot has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.tenants.tenancy import ANY_FAMILY
from eva_master.packing.fleet.allotted import SizeRange
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.valuation.job_worth import worth_of
from eva_policies.astraea_published.calendar import CalendarServer
from eva_policies.astraea_published.config import Config
from eva_policies.astraea_published.requests import Lengths, Request
from eva_policies.astraea_published.rounds import TypeQuota
from eva_wire.values.ids import MILLION, Family, InstanceId

EVERYBODY = ""
"""The owner of the whole fleet where no tenant has a quota."""


def servers_of(snapshot: Snapshot, fleet: Fleet) -> dict[Family, list[CalendarServer]]:
    """The machines of each type, existing ones first."""
    servers: dict[Family, list[CalendarServer]] = {}
    unlaunched = {family: dict(sizes) for family, sizes in fleet.machines.items()}
    for view in sorted(snapshot.instances, key=lambda it: it.id):
        if view.id in fleet.live:
            machine = view.offering.type
            servers.setdefault(machine.family, []).append(CalendarServer(view.id, machine.capacity))
            unlaunched[machine.family][machine.capacity] -= 1
    for family, sizes in unlaunched.items():
        for capacity, count in sorted(sizes.items()):
            servers.setdefault(family, []).extend([CalendarServer(None, capacity)] * max(0, count))
    return servers


def quotas_of(
    snapshot: Snapshot, servers: Mapping[Family, Sequence[CalendarServer]], ps_per_server: int
) -> dict[str, dict[Family, TypeQuota]]:
    """The quota of each tenant on each type.

    Parameter servers are a tenant's in proportion to its GPUs, but one at least where it has any.
    """
    gpus = {
        family: sum(server.capacity.gpus for server in machines)
        for family, machines in servers.items()
    }
    all_ps = {family: ps_per_server * len(machines) for family, machines in servers.items()}
    if not snapshot.tenants:
        return {EVERYBODY: {family: TypeQuota(gpus[family], all_ps[family]) for family in servers}}
    quotas: dict[str, dict[Family, TypeQuota]] = {}
    for tenant in snapshot.tenants:
        own = dict(tenant.quota)
        mine = {}
        for family in servers:
            count = own.get(family, 0) + own.get(ANY_FAMILY, 0)
            part = all_ps[family] * count // max(1, gpus[family])
            mine[family] = TypeQuota(count, max(part, 1) if count and all_ps[family] else 0)
        quotas[tenant.name] = mine
    return quotas


def tenant_of(one: Contender, snapshot: Snapshot) -> str:
    """The tenant whose quota a contender may use."""
    return one.job.spec.tenant if snapshot.tenants else EVERYBODY


def lengths_of(claim: SizeRange, slot_ms: int) -> Lengths:
    """Number of slots that a contender takes, by type and members, its start included."""
    contender, elastic = claim.one, claim.one.job.sharing.elastic

    def lengths(family: Family, members: int, apart: bool) -> int:
        if elastic is None or not claim.elastic:
            rest_ms = contender.alone_ms[family]
        else:
            rest_ms = (
                contender.member_ms[family] * MILLION / elastic.speed_ppm(members, apart=apart)
            )
        # An excess of less than a millionth is a rounding error.
        return max(1, ceil((rest_ms + contender.job.delays.launch_ms) / slot_ms - 1e-6))

    return lengths


def need_of(claim: SizeRange, fleet: Fleet) -> dict[Family, Resources]:
    """Demand of a member, by type; for a gang of different tasks, the maximum of each resource."""
    demands = {}
    types = fleet.machines if claim.elastic else claim.one.types
    for family in types:
        needs = [run.task.demand_on(family) for run in claim.one.runs]
        defined = [need for need in needs if need is not None]
        if len(defined) == len(needs) and family in claim.one.member_ms:
            demands[family] = _most(defined)
    return demands


def request_of(
    claim: SizeRange, snapshot: Snapshot, fleet: Fleet, slots: int, config: Config
) -> Request:
    """A contender's request to a round, without its shortest time.

    Args:
        claim: The contender's claim.
        snapshot: The cluster.
        fleet: The fleet.
        slots: The length of the round.
        config: Settings.
    """
    job, size = claim.one.job, len(claim.one.runs)
    least, most = (claim.least, claim.most) if claim.elastic else (size, size)
    trains = config.ps_per_server > 0 and job.spec.training.ps is not None
    return Request(
        claim.id,
        tenant_of(claim.one, snapshot),
        need_of(claim, fleet),
        least,
        most,
        lengths_of(claim, 1000 * config.slot_s),
        tuple(worth_at(claim.one, 1000 * config.slot_s * (number + 1)) for number in range(slots)),
        claim.came,
        trains,
    )


def worth_at(one: Contender, elapsed_ms: int) -> int:
    """Worth of a contender if it is done so long after its round has begun."""
    job = one.job
    # Where users state no worth, a snapshot has the assumed one.
    worth = worth_of(job.tenancy.worth, MILLION, round(one.left_ms))
    if worth is None:
        return 0
    tasks = job.array.size if job.sharing.elastic is None and len(one.runs) < job.array.size else 1
    return worth.after(elapsed_ms) // max(1, tasks)


def busy(
    snapshot: Snapshot, claims: Iterable[SizeRange]
) -> list[tuple[SizeRange, Family, dict[InstanceId, Resources]]]:
    """Contenders with room in the fleet now: the type, and the room on each machine."""
    families = {view.id: view.offering.type.family for view in snapshot.instances}
    uses = []
    for claim in claims:
        by_machine: dict[InstanceId, Resources] = {}
        for run in claim.one.runs:
            if run.instance is not None and run.instance in families:
                need = run.task.demand_on(families[run.instance]) or NOTHING
                by_machine[run.instance] = by_machine.get(run.instance, NOTHING) + need
        if by_machine:
            uses.append((claim, families[min(by_machine)], by_machine))
    return uses


def _most(needs: Sequence[Resources]) -> Resources:
    return Resources(
        max(need.gpus for need in needs),
        max(need.milli_cpus for need in needs),
        max(need.memory_mib for need in needs),
        max(need.disk_mib for need in needs),
    )
