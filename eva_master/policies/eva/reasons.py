"""Why Eva's plan is as it is: values against prices, and what moves save and cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.sparse import coo_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from eva_master.model.catalog import Offering
from eva_master.model.ids import MILLION, CopyId, Family, InstanceId, micro_usd
from eva_master.model.reasons import Exchange, Hosting, Move, Tenant
from eva_master.packing.configuration import Configuration, Host
from eva_master.packing.problem import Contents, Problem
from eva_master.policies.eva.costs import disturbed, idle_cost, launch_cost, moved


def hostings(problem: Problem, configuration: Configuration) -> tuple[Hosting, ...]:
    """Every instance of a configuration with what it is worth, live ones first."""
    tenants: defaultdict[Host, list[CopyId]] = defaultdict(list)
    for copy, host in configuration.places.items():
        tenants[host].append(copy)
    return tuple(
        _hosting(problem, configuration, host, sorted(tenants[host]))
        for host in sorted(tenants, key=lambda host: (isinstance(host, int), host))
    )


def _hosting(
    problem: Problem, configuration: Configuration, host: Host, copies: Sequence[CopyId]
) -> Hosting:
    offering = _offering(problem, configuration, host)
    contents = configuration.contents[host]
    family = offering.type.family
    by_class = dict(_valued(problem, contents, family))
    return Hosting(
        host,
        offering.type.name,
        offering.price,
        _micro(problem.value(contents, family)),
        tuple(Tenant(copy, *by_class[problem.class_of[copy]]) for copy in copies),
    )


def _valued(
    problem: Problem, contents: Contents, family: Family
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Reservation price, throughput and TNRP of a task of each class of an instance."""
    crowd: defaultdict[int, int] = defaultdict(int)
    for number, count in contents.items():
        crowd[int(problem.workloads[number])] += count
    for number in contents:
        task_class, workload = problem.classes[number], int(problem.workloads[number])
        others = {**crowd, workload: crowd[workload] - 1}
        beside = tuple(sorted((other, count) for other, count in others.items() if count))
        ppm = problem.colocation.throughput(workload, beside)
        price, charge = task_class.price_on(family), task_class.charge_on(family)
        yield number, (price, ppm, _micro(price * MILLION - (MILLION - ppm) * charge))


def exchanges(
    problem: Problem, present: Configuration, keep: Configuration, chosen: Configuration
) -> tuple[Exchange, ...]:
    """The moves of a configuration in groups that hang together.

    Instances hang together if a copy is on one of them in one configuration and on another in
    the other, or if members of a gang that stops are on them. Savings and costs are sums over
    instances and copies, so those of the groups add up to those of the whole change.

    Args:
        problem: The snapshot's.
        present: Where everything is now.
        keep: Where it would be if nothing moved; waiting tasks may be on new instances.
        chosen: Where it is to be.
    """
    moves = moved(problem, chosen)
    if not moves:
        return ()
    stopped = [copy for copy in disturbed(problem, chosen) if copy.id in chosen.places]
    group = _groups(keep, chosen, (copy.id for copy in stopped), problem)
    saved: defaultdict[int, int] = defaultdict(int)
    cost: defaultdict[int, int] = defaultdict(int)
    for sign, new, configuration in ((1, True, chosen), (-1, False, keep)):
        for host, contents in configuration.contents.items():
            offering = _offering(problem, configuration, host)
            worth = problem.value(contents, offering.type.family)
            saved[group[_node(host, new=new)]] += sign * (worth - offering.price * MILLION)
        for launch in configuration.launches:
            cost[group[_node(launch.key, new=new)]] += sign * launch_cost(launch)
    idle = {copy.id: idle_cost(problem, present, chosen, copy) for copy in stopped}
    for copy in stopped:
        cost[group[_node(chosen.places[copy.id], new=True)]] += idle[copy.id]
    members: defaultdict[int, list[Move]] = defaultdict(list)
    for copy in moves:
        target = chosen.places[copy.id]
        assert copy.instance is not None
        move = Move(copy.id, copy.instance, target, micro_usd(idle[copy.id]))
        members[group[_node(target, new=True)]].append(move)
    return tuple(
        Exchange(tuple(some), _micro(saved[number]), micro_usd(cost[number]))
        for number, some in members.items()
    )


Node = tuple[str, Host]
"""An instance of either configuration: live ones are in both, new ones in one."""


def _node(host: Host, *, new: bool) -> Node:
    return ("live" if not isinstance(host, int) else "new" if new else "kept", host)


def _groups(
    keep: Configuration, chosen: Configuration, stopped: Iterable[CopyId], problem: Problem
) -> Mapping[Node, int]:
    """Number the groups of instances that hang together."""
    nodes: dict[Node, int] = {}
    for new, configuration in ((True, chosen), (False, keep)):
        for host in configuration.contents:
            nodes.setdefault(_node(host, new=new), len(nodes))
    edges = [
        (nodes[_node(host, new=True)], nodes[_node(keep.places[copy], new=False)])
        for copy, host in chosen.places.items()
        if copy in keep.places
    ]
    first: dict[str, int] = {}
    for copy in stopped:
        place = nodes[_node(chosen.places[copy], new=True)]
        edges.append((first.setdefault(problem.copies[copy].job, place), place))
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    matrix = coo_array((np.ones(len(edges)), (ends[:, 0], ends[:, 1])), (len(nodes), len(nodes)))
    _, labels = connected_components(matrix, directed=False)
    return {node: int(labels[number]) for node, number in nodes.items()}


def _offering(problem: Problem, configuration: Configuration, host: Host) -> Offering:
    if isinstance(host, int):
        return configuration.launches[host].offering
    return problem.offering_of(InstanceId(host))


def _micro(millionths: int) -> int:
    """Round millionths of micro-dollars to micro-dollars, half up."""
    return (millionths + MILLION // 2) // MILLION
