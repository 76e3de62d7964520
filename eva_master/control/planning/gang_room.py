"""Whether a gang could ever run together, where only so many instances may exist."""

from __future__ import annotations

from collections import Counter

from eva_master.control.context import Context
from eva_master.control.settings import Settings
from eva_master.control.state.records import Records
from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.errors import Unplaceable
from eva_master.model.fleet.partitions import Partition
from eva_master.model.job import JobKind, JobSpec, TaskSpec
from eva_master.model.values import replace


def refusal(context: Context, spec: JobSpec, partition: Partition | None) -> Unplaceable | None:
    """Why a gang is larger than all instances together that may ever be had.

    It would wait for ever. Each kind of its tasks is looked at by itself, so not every gang that
    cannot run is found, and none that can is refused.

    Args:
        context: Of the turn.
        spec: The job.
        partition: Where it is to run; `None` if the cluster is not divided.

    Returns:
        The reason, with the largest room that there is; `None` if there is none.
    """
    if spec.kind is not JobKind.GANG:
        return None
    catalog = sold(context.state, context.settings, partition)
    where = f"partition {partition.name}" if partition else "the cluster"
    for demand, count in Counter(it.demand for it in spec.tasks[: spec.least]).items():
        task = next(it for it in spec.tasks if it.demand == demand)
        room = _room(task, catalog)
        if room is None or sum(room.values()) >= count:
            continue
        parts = ", ".join(f"{there} on {type_}" for type_, there in room.items())
        tasks = f"{count:,} tasks" + (" at least" if spec.least is not None else "")
        return Unplaceable(
            f"the gang has {tasks} that run together, and {where} has room for"
            f" {sum(room.values()):,} of them when it is empty: {parts}",
            hint="state fewer tasks, or less for each; see: eva catalog, eva nodes",
        )
    return None


def sold(state: Records, settings: Settings, partition: Partition | None) -> Catalog:
    """Offerings that a partition may have: of owned nodes those that are its own.

    Args:
        state: With the catalog.
        settings: With the nodes.
        partition: Which; `None` if the cluster is not divided.
    """
    if partition is None:
        return state.catalog
    nodes = Counter(
        node.offering.id
        for name, node in settings.nodes.items()
        if settings.partitions.of_node(name) is partition
    )
    return tuple(
        replace(it, limit=nodes[it.id]) if it.purchase is Purchase.OWNED else it
        for it in partition.sold(state.catalog)
    )


def _room(task: TaskSpec, catalog: Catalog) -> dict[str, int] | None:
    """How many tasks like one run at a time, by type; `None` for any number, or not known."""
    found: Counter[str] = Counter()
    for offering in catalog:
        need = task.demand_on(offering.type.family)
        if need is None or offering.limit == 0 or not need.fits(offering.type.capacity):
            continue
        each = need.times_in(offering.type.capacity)
        if offering.limit is None or each is None:
            return None
        found[offering.type.name] += each * offering.limit
    return dict(sorted(found.items())) or None
