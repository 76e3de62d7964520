"""The rounds of the policy CloudCoaster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.plan import Again, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Pool
from eva_master.packing.toolkit import (
    OpenInstances,
    PlacementGroup,
    PlannerCache,
    PricedShape,
    UnplacedGroup,
    build_plan,
    open_instances,
    place,
    waiting,
    with_current_estimates,
    without_interference,
)
from eva_master.ports import Planned, PolicyKind
from eva_policies.cloudcoaster.config import PRESETS, Config
from eva_policies.cloudcoaster.filling import RowFilling, holds_short
from eva_policies.cloudcoaster.lines import STEADY, TRANSIENT, ProbeTargets, at_servers, one_line
from eva_policies.cloudcoaster.market import is_spot, slots_of
from eva_policies.cloudcoaster.memory import NAME, Memory, Needs
from eva_policies.cloudcoaster.order import first_served, task_ms
from eva_policies.cloudcoaster.probes import Where
from eva_policies.cloudcoaster.resizing import resized, staying, within_budget
from eva_policies.cloudcoaster.sizing import needed
from eva_wire.values.ids import MILLION, Millis, Workload

_NO_SPOT = "no spot instances are on sale"


class CloudCoaster:
    """Keeps room for short tasks: some of it on demand, the rest on spot instances.

    Tasks that find no room stand in one line for what becomes free. The pools grow with the work
    that waits, as far as the money goes. Members on demand stay up to their share once they are
    there; others leave when there has been no need for a while and nobody is on them.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Fill the existing room, add members as needed, and put the rest in line."""
        config, snapshot = self._config, with_current_estimates(snapshot)
        instances = open_instances(snapshot, self._cache)
        unknown_ms = config.clear_within_s * 1000
        order = first_served(snapshot.runs, snapshot.now_ms, unknown_ms, config.age_cap)
        filling = RowFilling(config, snapshot, instances, order)
        groups = waiting(snapshot)
        unplaced = place(
            instances, [group for group in groups if not _lines_up(group)], filling.place_each
        )
        waits = filling.place(
            [group for group in groups if _lines_up(group)], at_once=not config.probes
        )
        unit = self._unit(snapshot)
        if unit is not None:
            filling.fill_up(unit)
        occupants = without_interference if config.explained else None
        plan = build_plan(snapshot, instances, (*unplaced, *waits), occupants)
        before = Memory.read(memory)
        needs = before.needs.after(snapshot.now_ms, filling.needed, config.hold_s * 1000)
        kept = self._staying(snapshot, instances, needs.most) | set(filling.taken)
        rule, finishing = None, set[int]()
        if config.resize == "published" and unit is not None:
            names = enumerate(view.id for view in snapshot.instances)
            going = {row for row, name in names if name in before.released}
            rule = resized(config, snapshot, instances, filling.rows, unit, released=going)
            kept = {row for row in kept if not is_spot(instances.offerings[row])} | rule.kept
            queued = before.asked_by(unplaced.group.job.id for unplaced in waits)
            live = (row for row in filling.rows if row < instances.live)
            leaving = [row for row in live if row not in kept and is_spot(instances.offerings[row])]
            finishing = {row for row in leaving if snapshot.instances[row].id in queued}
            kept |= finishing
        if unit is not None:
            kept = within_budget(config, snapshot, instances, kept, unit)
        kept = _with_hosts(kept, filling, instances, waits)
        bought = [instances.offerings[row] for row in filling.added]
        bought += () if rule is None else rule.bought
        stated = _Stated(instances, kept, bought, plan)
        backlog = self._backlog(waits)
        if config.transient_share_ppm and not any(map(is_spot, snapshot.catalog)):
            backlog += f"; {_NO_SPOT}"
        pools = stated.pools(backlog, "" if rule is None else f"; {rule.reason}", config.slots)
        released = frozenset(snapshot.instances[row].id for row in finishing & {*kept})
        if config.probes:
            servers = ProbeTargets(snapshot, stated.members, filling.shared, released)
            lines = at_servers(snapshot, waits, servers, before, config)
        else:
            lines = one_line(waits, filling, pools, config)
        plan = replace(
            plan,
            launches=stated.launches,
            pools=(*pools, *lines.pools),
            lines=lines.lines,
            again=Again(self._again_ms(snapshot.now_ms, needs, waits)),
        )
        return plan, Memory(needs, lines.probes, snapshot.now_ms, released).written()

    def _again_ms(self, now: Millis, needs: Needs, waits: Sequence[UnplacedGroup]) -> Millis | None:
        """When the size of the pools may have to be another though nobody has come."""
        config, soon = self._config, Millis(now + self._config.clear_within_s * 500)
        by_long = config.resize == "published" and config.transient_share_ppm
        if by_long or (waits and not config.probes):
            return soon
        return Millis(needs.peaks[0][0] + config.hold_s * 1000) if needs.peaks else None

    def _unit(self, snapshot: Snapshot) -> TaskSpec | None:
        """A task that takes one slot; `None` while the size of a slot is unknown."""
        slot = self._config.slot
        if slot is None:
            return next((run.task for run in snapshot.runs), None)
        families = dict.fromkeys(offering.type.family for offering in snapshot.catalog)
        demand = tuple((family, slot) for family in sorted(families))
        return TaskSpec(Workload("slot"), Program("true"), demand)

    def _staying(self, snapshot: Snapshot, instances: OpenInstances, wanted: int) -> Set[int]:
        """The rows of the members that stay.

        On-demand members stay up to their share. Of the others as many stay as are wanted; the rest
        finish their tasks and go.
        """
        steady, others, share_left = set[int](), dict[int, int](), self._config.steady_slots
        for row in range(len(instances)):
            stood = row < instances.live and bool(snapshot.instances[row].pool)
            if not stood and not holds_short(instances, row):
                continue
            slots = self._slots(instances, row)
            if share_left > 0 and not is_spot(instances.offerings[row]):
                steady.add(row)
                share_left -= slots
            else:
                others[row] = slots
        return steady | staying(snapshot, instances, others, wanted)

    def _backlog(self, waits: Sequence[UnplacedGroup]) -> str:
        """Description of the work that waits for more room than exists, or than the budget buys."""
        within_ms = self._config.clear_within_s * 1000
        tasks, work_ms = (
            len(waits),
            sum(task_ms(unplaced.group.job, within_ms) for unplaced in waits),
        )
        for job in {unplaced.group.job.id: unplaced.group.job for unplaced in waits}.values():
            tasks += job.array.unseen
            work_ms += job.array.unseen * task_ms(job, within_ms)
        if not tasks:
            return ""
        waiting = f"{tasks} tasks wait" if tasks > 1 else "one task waits"
        more = needed(work_ms, 0, within_ms, tasks)
        slots = f"{more} slots" if more > 1 else "one slot"
        summary = f"{waiting}, {work_ms // 1000} s of work"
        return f"; {summary}, which {slots} would clear in {self._config.clear_within_s} s"

    def _slots(self, instances: OpenInstances, row: int) -> int:
        """Number of tasks that a member holds, of the kind that is on it; one if it is empty."""
        resident = next(iter(instances.residents[row]), None)
        if resident is None:
            return 1
        return max(1, slots_of(instances.offerings[row], instances.runs[resident].task))


def _with_hosts(
    kept: Set[int], filling: RowFilling, instances: OpenInstances, waits: Sequence[UnplacedGroup]
) -> Set[int]:
    """The members that stay, with one more for each kind of task that fits none of these.

    Otherwise such a member would be bought for that task, and released, again and again.
    """
    stay, seen = {*kept, *filling.added}, set[PricedShape]()
    for unplaced in waits:
        shape = instances.priced(unplaced.run.id)
        if shape not in seen:
            seen.add(shape)
            hosts = filling.hosts(unplaced.run.id)
            if hosts and stay.isdisjoint(hosts):
                stay.add(hosts[0])
    return stay - set(filling.added)


def _lines_up(group: PlacementGroup) -> bool:
    """Whether a line gives a group its place: not to gangs, nor to who is on a lost instance."""
    return group.job.stands_in_line and group.runs[0].instance is None


class _Stated:
    """The pools of a plan, with the instances that are bought for them.

    Args:
        instances: All instances.
        kept: The rows of the members.
        bought: Offerings bought beside those that the plan buys for task runs.
        plan: The plan without pools.

    Attributes:
        launches: Purchases of the plan, those for pools included.
        members: Members of the pools, with their offerings.
    """

    def __init__(
        self, instances: OpenInstances, kept: Set[int], bought: Sequence[Offering], plan: Plan
    ) -> None:
        _, _, names = instances.placements()
        named = ((name, row) for row, name in enumerate(names) if name is not None and row in kept)
        members = [(name, instances.offerings[row]) for name, row in named]
        keys = range(len(plan.launches), len(plan.launches) + len(bought))
        fresh = tuple(map(NewInstance, keys, bought))
        self.launches = (*plan.launches, *fresh)
        self.members = [*members, *((launch.key, launch.offering) for launch in fresh)]

    def pools(self, backlog: str, rule: str, slots: int) -> tuple[Pool, ...]:
        """Pools with members, described by the backlog and the rule for transient ones.

        Args:
            backlog: Description of the waiting work.
            rule: Description of the rule for transient instances.
            slots: Number of tasks for which the operator pays.
        """
        steady = [member for member in self.members if not is_spot(member[1])]
        spot = [member for member in self.members if is_spot(member[1])]
        parts = (
            (STEADY, steady, "room for short tasks that no cloud takes back", backlog),
            (TRANSIENT, spot, "room for short tasks at spot prices", rule + backlog),
        )
        return tuple(
            Pool(
                name,
                tuple(name for name, _ in listed),
                f"{what}: {_cost(listed)}{more}",
                room_for=slots,
            )
            for name, listed, what, more in parts
            if listed
        )


def _cost(members: Sequence[tuple[Where, Offering]]) -> str:
    price = sum(offering.price for _, offering in members) / MILLION
    return f"{len(members)} instance{'s' if len(members) > 1 else ''} for ${price:.4f} per hour"


def _doubts(config: Config, catalog: Catalog) -> Iterator[str]:
    """Remarks on settings that an operator may not have meant, given the catalog."""
    if config.transient_share_ppm and not any(map(is_spot, catalog)):
        yield (
            f"{_NO_SPOT}: short jobs have {config.slots} slots on demand at most; have "
            "transient_share_ppm: 0, or spot instances"
        )
    budget, prices = (
        config.budget,
        [offering.price for offering in catalog if is_spot(offering)],
    )
    if budget is not None and prices and budget < min(prices):
        yield (
            f"budget_usd_per_hour: {config.budget_usd_per_hour:g} buys no spot instance: the "
            f"cheapest costs {min(prices) / MILLION:g} dollars per hour"
        )
    stays = any(offering.purchase is Purchase.OWNED for offering in catalog)
    if config.resize == "published" and not stays:
        yield (
            "resize: published goes by the share of slots that long tasks hold, which is near "
            "1 all the time where empty instances go: there are as many spot instances as the "
            "money buys; have resize: need"
        )


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=CloudCoaster,
    presets=PRESETS,
    shares=True,
    gives_lines=True,
    reads=reads_none,
    doubts=_doubts,
)
