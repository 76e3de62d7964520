"""The rounds of the policy `gandiva_fair`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.fleet.allotted import Allotted, SizeRange
from eva_master.packing.fleet.capacity import Fleet
from eva_master.ports import Planned, PolicyKind
from eva_policies.gandiva_fair.config import NAME, Config
from eva_policies.gandiva_fair.shares import divided, within
from eva_wire.values.ids import RunId

_WHY = "others have had less GPU time"


class GandivaFair:
    """Divides the fleet's GPU time by tickets, of which each tenant has as many as its quota.

    A tenant's jobs divide its part evenly. Other tenants use the rest of a part, by their tickets.
    Jobs that do not all fit at once take turns.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._allotted = Allotted(config.lease_s)

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Divide the fleet anew, except for leased places."""
        allot = partial(_members, snapshot)
        plan = self._allotted.plan(snapshot, allot, _WHY, explained=self._config.explained)
        return plan, memory


def _members(snapshot: Snapshot, fleet: Fleet, claims: Sequence[SizeRange]) -> Mapping[RunId, int]:
    """Number of members of each contender that run."""
    total = sum(capacity.gpus for capacity in fleet.capacity().values())
    quotas = {tenant.name: sum(count for _, count in tenant.quota) for tenant in snapshot.tenants}
    running = {claim.id: claim.now for claim in claims if claim.keeps}
    kept: dict[str, int] = {}
    open_to: dict[str, list[SizeRange]] = {}
    for claim in claims:
        if claim.keeps:
            kept[claim.tenant] = kept.get(claim.tenant, 0) + claim.now * claim.gpus
        else:
            open_to.setdefault(claim.tenant, []).append(claim)
    present = {claim.tenant for claim in claims}
    tickets = {tenant: max(1, quotas.get(tenant, 1)) for tenant in present}
    most = {
        tenant: kept.get(tenant, 0)
        + sum(claim.most * claim.gpus for claim in open_to.get(tenant, ()))
        for tenant in present
    }
    parts = divided(total, tickets, most)
    free = total - sum(kept.values())
    for name in sorted(open_to, key=lambda it: (kept.get(it, 0) - parts[it], it)):
        given = within(open_to[name], min(free, parts[name] - kept.get(name, 0)), snapshot.now_ms)
        running |= given
        free -= _gpus(given, open_to[name])
    rest = [claim for of in open_to.values() for claim in of if claim.id not in running]
    more = within(sorted(rest, key=lambda it: it.came), free, snapshot.now_ms)
    return running | more


def _gpus(members: Mapping[RunId, int], claims: Sequence[SizeRange]) -> int:
    return sum(members.get(claim.id, 0) * claim.gpus for claim in claims)


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=GandivaFair,
    time_shares=True,
    elastic=True,
    lends=True,
    reads=reads_none,
)
