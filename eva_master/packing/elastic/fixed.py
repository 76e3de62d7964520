"""Elastic gangs for policies that know none: each gets one size before it starts, and keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eva_master.model.planning.plan import PolicyMemory, Resize
from eva_master.model.planning.sizes import resizable, with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.claims.asking import KeepsClaims
from eva_master.packing.elastic.room import member_of, most_useful
from eva_master.packing.policy_wrapper import PolicyWrapper
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.ports import Planned, Policy, PolicyKind

_REASON = "so many do most in this cluster, and the policy keeps gangs as they are"


class FixedSizes(PolicyWrapper[Policy]):
    """Shows a policy elastic gangs as gangs of a fixed size.

    The size, chosen while no member has a place, is the one with the most throughput in an empty
    cluster.
    """

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """See `eva_master.ports.Policy.plan`."""
        sizes = fixed_sizes(snapshot)
        seen = with_sizes(snapshot, {entry.job: entry.members for entry in sizes})
        plan, memory = self._inner.plan(seen, memory)
        return (replace(plan, sizes=sizes) if sizes else plan), memory


def fixed_sizes(snapshot: Snapshot) -> tuple[Resize, ...]:
    """New sizes of the gangs that have no place and are not of their best size."""
    if all(job.sharing.elastic is None for job in snapshot.jobs):
        return ()
    placed = {run.job for run in snapshot.runs if run.instance is not None}
    valuation = JobValuation(snapshot.catalog, snapshot.standalone)
    sizes = []
    for job in resizable(snapshot):
        if job.id not in placed:
            rates = valuation.rates(member_of(snapshot, job).task)
            members = most_useful(snapshot, job, rates)
            if members != len(job.runs):
                sizes.append(Resize(job.id, members, _REASON))
    return tuple(sizes)


def built(kind: PolicyKind, config: Any) -> Policy:
    """A policy with its options that keeps to claims, and to sizes unless it chooses these."""
    policy = kind.build(config)
    return KeepsClaims(policy if kind.elastic else FixedSizes(policy))
