"""Members of pools that a policy does not see, since their room is kept for somebody else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from eva_master.model.ids import InstanceId
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.model.planning.standing import Pool


def hidden_members(whole: Snapshot, seen: Snapshot) -> tuple[InstanceView, ...]:
    """Members of pools that are in a snapshot and not in what a policy sees of it."""
    if whole.instances is seen.instances:
        return ()
    left = {view.id for view in seen.instances}
    return tuple(view for view in whole.instances if view.pool and view.id not in left)


def with_hidden(pools: Iterable[Pool], members: Iterable[InstanceView]) -> tuple[Pool, ...]:
    """A plan's pools, with those members whom the policy did not see: they take nobody for now."""
    hidden: defaultdict[str, list[InstanceId]] = defaultdict(list)
    for view in members:
        hidden[view.pool].append(view.id)
    found = []
    for pool in pools:
        more = tuple(hidden.pop(pool.name, ()))
        found.append(replace(pool, members=(*pool.members, *more), closed=(*pool.closed, *more)))
    why = "its room is kept for a job of a higher priority"
    found += [Pool(name, tuple(more), why, tuple(more)) for name, more in hidden.items()]
    return tuple(found)
