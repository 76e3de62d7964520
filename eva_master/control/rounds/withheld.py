"""Jobs for which no room is kept for a while, since they could not use it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from eva_master.control.context import Context
from eva_master.control.planning.allowance import allowance
from eva_master.control.rounds.rules.cluster_limits import Usage
from eva_master.model.accounting.per_hour import counted_per_hour
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Instance
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.ids import InstanceId, JobId, Millis


@dataclass(slots=True)
class Withheld:
    """Jobs for which a partition keeps no room for a while; a restart forgets them.

    Attributes:
        limited: Jobs that limits kept from starting, with the time.
        lapsed: Jobs that their policy placed nowhere though room was kept for them, likewise.
    """

    limited: dict[JobId, Millis] = field(default_factory=dict)
    lapsed: dict[JobId, Millis] = field(default_factory=dict)
    _unused: frozenset[JobId] = frozenset()
    """Jobs that the last plan placed nowhere though room was kept for them."""

    def forget(self, before: int) -> None:
        """Keep room again for those that were noted at a time or before, in milliseconds."""
        self.limited = {job: at for job, at in self.limited.items() if at > before}
        self.lapsed = {job: at for job, at in self.lapsed.items() if at > before}

    def note_unused(self, unused: frozenset[JobId], held: Collection[JobId], now: Millis) -> bool:
        """Note whose policy had no use for room that was kept for them.

        A policy may look for an instance of its own for a task that waits for the first time, and
        have it share one in the next round. So the job lapses only if it goes on to wait.

        Args:
            unused: Jobs that a plan placed nowhere though room was kept for them.
            held: Jobs that waited before that plan.
            now: The time.

        Returns:
            Whether room that was kept is others' from now on.
        """
        news = bool(unused - self.lapsed.keys())
        again = unused & self._unused.union(held)
        self._unused = unused
        self.lapsed.update(dict.fromkeys(again, now))
        return news


def withheld(
    context: Context,
    partition: Partition,
    effect: PlanEffect,
    cut: PlanEffect,
    whole: Snapshot,
) -> set[JobId]:
    """The jobs whose cut part exceeds limits even if all other jobs make room.

    Room that is kept for such a job stands idle for ever, unless the job can start once the
    partition has fewer instances. Instances of the job's user elsewhere count: no other user can
    give them back.

    Args:
        context: Context of the control loop.
        partition: The partition of the plan.
        effect: The plan before limits cut it.
        cut: The plan after limits cut it.
        whole: The cluster as it is.
    """
    if effect is cut:
        return set()
    kept = cut.assigned
    stays = {instance.id: instance for instance in _staying(context, partition)}
    ours = [instance for instance in stays.values() if instance.partition == partition.name]
    allowed = replace(
        allowance(context.state, context.state.tally.partitions.totals(), partition, context.now),
        instances=len(ours),
        per_hour=counted_per_hour(ours),
    )
    prices: dict[InstanceId | int, int] = {
        view.id: context.state.instances[view.id].offering.price for view in whole.instances
    }
    prices.update((key, offering.price) for key, offering in effect.launched.items())

    def owner_of(job: JobId) -> str:
        return context.state.jobs[job].spec.owner

    usage, jobs = Usage(whole, context.settings.limits, owner_of, 0), set()
    for unit in effect.units:
        if all(entry.run in kept for entry in unit.entries):
            continue
        places = unit.places - stays.keys()
        price = sum(prices.get(place, 0) for place in places)
        live = len(stays) + sum(not isinstance(place, int) for place in places)
        if allowed.refusal(len(places), price) or usage.excess(unit, live):
            jobs.add(unit.job.id)
    return jobs


def _staying(context: Context, partition: Partition) -> Iterator[Instance]:
    """The instances that stay though they are empty, and those of other partitions."""
    for instance in map(context.state.instances.__getitem__, context.state.live):
        if instance.owned or instance.stands or instance.partition != partition.name:
            yield instance
