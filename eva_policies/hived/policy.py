"""The rounds of the policy `hived`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.fleet.allotted import Allotted, SizeRange
from eva_master.packing.fleet.capacity import Fleet
from eva_master.ports import Planned, PolicyKind
from eva_policies.hived.config import NAME, Config
from eva_wire.values.ids import RunId

_WHY = "its tenant's quota is in use, and so is what others leave"


class HiveD:
    """Gives each tenant a private cluster of the size of its quota.

    Jobs are served by arrival in it. Jobs that find no room there run opportunistically on unused
    room of others, and give way when its owners want it.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._allotted = Allotted(config.lease_s)

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Seat guaranteed jobs, then the others."""
        allot = partial(_members, snapshot, self._config)
        plan = self._allotted.plan(snapshot, allot, _WHY, explained=self._config.explained)
        return plan, memory


def _members(
    snapshot: Snapshot, config: Config, fleet: Fleet, claims: Sequence[SizeRange]
) -> Mapping[RunId, int]:
    """Number of members of each contender that run: guaranteed ones first."""
    total = sum(capacity.gpus for capacity in fleet.capacity().values())
    quotas = {tenant.name: sum(count for _, count in tenant.quota) for tenant in snapshot.tenants}
    rest = dict(quotas)
    order = sorted(claims, key=lambda it: (not it.keeps, it.came))
    kept, members = 0, dict[RunId, int]()
    for claim in order:
        if claim.keeps:
            members[claim.id] = claim.now
            kept += claim.now * claim.gpus
            rest[claim.tenant] = rest.get(claim.tenant, 0) - claim.now * claim.gpus
    waiting = []
    guaranteed = 0
    for claim in order:
        if claim.keeps:
            continue
        count = _fitting(claim, rest.get(claim.tenant, 0)) if claim.tenant in quotas else 0
        if count:
            members[claim.id] = count
            rest[claim.tenant] -= count * claim.gpus
            guaranteed += count * claim.gpus
        else:
            waiting.append(claim)
    free = total - kept - guaranteed
    if config.opportunistic == "idle" and quotas:
        present = {claim.tenant for claim in claims}
        free = min(free, sum(gpus for name, gpus in quotas.items() if name not in present))
    for claim in waiting:
        if claim.one.job.tenancy.unlent and quotas:
            continue
        count = _fitting(claim, free)
        if count:
            members[claim.id] = count
            free -= count * claim.gpus
    return members


def _fitting(claim: SizeRange, gpus: int) -> int:
    """With how many members a contender fits into some GPUs; 0 if with none."""
    count = claim.most if not claim.gpus else min(claim.most, gpus // claim.gpus)
    return count if count >= claim.least else 0


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=HiveD,
    time_shares=True,
    elastic=True,
    lends=True,
    reads=reads_none,
)
