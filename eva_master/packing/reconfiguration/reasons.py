"""Why Eva's plan is as it is: values against prices, and what moves save and cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from eva_master.model.catalog import Offering
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Occupant
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.interference.throughput import UNPROFILED, ThroughputModel
from eva_master.packing.problem import Problem
from eva_master.packing.reconfiguration.components import Components
from eva_master.packing.reconfiguration.reconfiguration_cost import disturbed, idle_cost
from eva_master.packing.valuation.migration_cost import launch_cost
from eva_master.packing.valuation.task_classes import TaskClass
from eva_wire.values.ids import MILLION, Family, InstanceId, RunId, micro_usd

_Worths = Mapping[int, tuple[int, int, int]]
"""Reservation price, throughput and TNRP of a task, by class."""


def hostings(problem: Problem, configuration: Configuration) -> tuple[Hosting, ...]:
    """Every instance of a configuration with its worth, live ones first."""
    # Kept while classes have the same numbers, and throughputs are the same.
    key = problem.classes, problem.throughput
    memo = problem.cache.remembered("hostings", key, partial(_LastHostings, *key), limit=1)
    return memo.of(problem, configuration)


class _LastHostings:
    """Hostings of instances in the last round, reused for unchanged instances.

    An instance whose task set is the same object holds the same task runs, see `PresentCluster`.

    Args:
        classes: The classes, by number.
        throughput: Speeds of the classes together.
    """

    def __init__(self, classes: Sequence[TaskClass], throughput: ThroughputModel) -> None:
        self._classes = classes
        self._throughput = throughput
        self._last: dict[Host, tuple[TaskSet, Offering, Hosting]] = {}
        self._known: dict[tuple[Family, frozenset[tuple[int, int]]], _Worths] = {}

    def of(self, problem: Problem, configuration: Configuration) -> tuple[Hosting, ...]:
        """Every instance of a configuration with its worth, live ones first."""
        hostings: dict[Host, tuple[TaskSet, Offering, Hosting]] = {}
        changed: dict[Host, list[RunId]] = {}
        sold = dict[Host, Offering](problem.sold.items())
        sold.update((launch.key, launch.offering) for launch in configuration.launches)
        for host, task_set in configuration.task_sets.items():
            last = self._last.get(host)
            if last is not None and last[0] is task_set and last[1] is sold[host]:
                hostings[host] = last
            else:
                changed[host] = []
        for run, host in configuration.places.items():
            if host in changed:
                changed[host].append(run)
        for host, runs in changed.items():
            hosting = self._hosting(problem, configuration, host, sorted(runs))
            last = self._last.get(host)
            if last is not None and last[2] == hosting:
                hosting = last[2]  # one object, so that it is not sent again
            hostings[host] = configuration.task_sets[host], sold[host], hosting
        self._last = hostings
        order: list[Host] = [*sorted([host for host in hostings if not isinstance(host, int)])]
        order += sorted([host for host in hostings if isinstance(host, int)])
        return tuple([hostings[host][2] for host in order])

    def _hosting(
        self, problem: Problem, configuration: Configuration, host: Host, runs: list[RunId]
    ) -> Hosting:
        """An instance and the task runs on it, sorted."""
        offering = _offering(problem, configuration, host)
        numbers = [problem.class_of[run] for run in runs]
        task_set, family = configuration.task_sets[host], offering.type.family
        profiled = self._classes[numbers[0]].workload == UNPROFILED and len(runs) == 1
        kind = family, frozenset(task_set.items())
        worths = self._known.get(kind)
        if worths is None:
            worths = self._known[kind] = dict(self._worths(task_set, family))
        return Hosting(
            host,
            offering.type.name,
            offering.price,
            _micro(problem.value(task_set, family)),
            tuple(Occupant(c, *worths[n], profiled) for c, n in zip(runs, numbers, strict=True)),
        )

    def _worths(
        self, task_set: TaskSet, family: Family
    ) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Reservation price, throughput and TNRP of a task of each class of an instance."""
        workloads = {n: self._throughput.index[self._classes[n].workload] for n in task_set}
        tasks: defaultdict[int, int] = defaultdict(int)
        for number, count in task_set.items():
            tasks[workloads[number]] += count
        throughputs = self._throughput.by_workload(tuple(sorted(tasks.items())))
        for number, workload in workloads.items():
            task_class, ppm = self._classes[number], throughputs[workload]
            price, charge = task_class.price_on(family), task_class.charge_on(family)
            yield number, (price, ppm, _micro(price * MILLION - (MILLION - ppm) * charge))


def exchanges(
    problem: Problem,
    present: Configuration,
    keep: Configuration,
    chosen: Configuration,
    moves: Sequence[RunView],
) -> tuple[Exchange, ...]:
    """The moves of a configuration in groups that hang together.

    Instances hang together if a task run is on one of them in one configuration and on another in
    the other, or if members of a gang that stops are on them. Savings and costs are sums over
    instances and task runs, so those of the groups add up to those of the whole change.

    Args:
        problem: The snapshot's.
        present: Where everything is now.
        keep: Where it would be if nothing moved; waiting tasks may be on new instances.
        chosen: Where it is to be.
        moves: The task runs that move for that.
    """
    if not moves:
        return ()
    stopped = [run for run in disturbed(problem, moves) if run.id in chosen.places]
    changed = {run: host for run, host in chosen.places.items() if keep.places.get(run) != host}
    group = _groups(keep, chosen, changed, stopped)
    saved: defaultdict[Node, int] = defaultdict(int)
    cost: defaultdict[Node, int] = defaultdict(int)
    for sign, new, configuration in ((1, True, chosen), (-1, False, keep)):
        for host, task_set in configuration.task_sets.items():
            # Others are the same in both.
            if (node := _node(host, new=new)) in group:
                offering = _offering(problem, configuration, host)
                worth = problem.value(task_set, offering.type.family)
                saved[group[node]] += sign * (worth - offering.price * MILLION)
        for launch in configuration.launches:
            cost[group[_node(launch.key, new=new)]] += sign * launch_cost(launch.offering)
    idle = {run.id: idle_cost(problem, present, chosen, run) for run in stopped}
    for run in stopped:
        cost[group[_node(chosen.places[run.id], new=True)]] += idle[run.id]
    members: defaultdict[Node, list[Move]] = defaultdict(list)
    for run in moves:
        target = chosen.places[run.id]
        assert run.instance is not None
        move = Move(run.id, run.instance, target, micro_usd(idle[run.id]))
        members[group[_node(target, new=True)]].append(move)
    return tuple(
        Exchange(tuple(some), _micro(saved[name]), micro_usd(cost[name]))
        for name, some in members.items()
    )


Node = tuple[str, Host]
"""An instance of either configuration: live ones are in both, new ones in one."""


def _node(host: Host, *, new: bool) -> Node:
    return ("live" if not isinstance(host, int) else "new" if new else "kept", host)


def _groups(
    keep: Configuration,
    chosen: Configuration,
    changed: Mapping[RunId, Host],
    stopped: Iterable[RunView],
) -> Mapping[Node, Node]:
    """Name the groups of instances that hang together; those that nothing happens to are in none.

    Args:
        keep: Where everything would be if nothing moved.
        chosen: Where it is to be.
        changed: Task runs that are elsewhere in the two, and where they are to be.
        stopped: Task runs that stop, wherever they are.
    """
    joined = Components[Node]()
    for new, configuration in ((True, chosen), (False, keep)):
        for launch in configuration.launches:
            joined.leader(_node(launch.key, new=new))
    for run, host in changed.items():
        place = joined.leader(_node(host, new=True))
        if run in keep.places:
            joined.join(_node(keep.places[run], new=False), place)
    for run, host in keep.places.items():
        # New instances are never the same, whatever their keys.
        if isinstance(host, int) and run in chosen.places:
            joined.join(_node(host, new=False), _node(chosen.places[run], new=True))
    first: dict[str, Node] = {}
    for view in stopped:
        place = _node(chosen.places[view.id], new=True)
        joined.join(first.setdefault(view.job, place), place)
    return {name: joined.leader(name) for name in joined}


def _offering(problem: Problem, configuration: Configuration, host: Host) -> Offering:
    if isinstance(host, int):
        return configuration.launches[host].offering
    return problem.offering_of(InstanceId(host))


def _micro(millionths: int) -> int:
    """Round millionths of micro-dollars to micro-dollars, half up."""
    return (millionths + MILLION // 2) // MILLION
