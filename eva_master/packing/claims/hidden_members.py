"""Members of pools that a policy does not see, since their room is kept for somebody else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.model.planning.standing import Pool
from eva_wire.values.ids import InstanceId


def hidden_members(whole: Snapshot, seen: Snapshot) -> tuple[InstanceView, ...]:
    """Members of pools that are in a snapshot but not in the policy's view of it."""
    if whole.instances is seen.instances:
        return ()
    seen_ids = {view.id for view in seen.instances}
    return tuple(view for view in whole.instances if view.pool and view.id not in seen_ids)


def with_hidden(pools: Iterable[Pool], members: Iterable[InstanceView]) -> tuple[Pool, ...]:
    """A plan's pools with the members that the policy did not see: they take no tasks for now."""
    hidden: defaultdict[str, list[InstanceId]] = defaultdict(list)
    for view in members:
        hidden[view.pool].append(view.id)
    completed = []
    for pool in pools:
        more = tuple(hidden.pop(pool.name, ()))
        completed.append(
            replace(pool, members=(*pool.members, *more), closed=(*pool.closed, *more))
        )
    why = "its room is kept for a job of a higher priority"
    completed += [Pool(name, tuple(more), why, tuple(more)) for name, more in hidden.items()]
    return tuple(completed)
