"""The parts of a change that pay before the tasks have ended that they concern.

A search compares what configurations cost per hour, as if they lasted. Where the end of all tasks
is in sight, a saving lasts no longer than the tasks that make it: two that share an instance are
cheap until one of them ends, and then the other one holds the instance alone or moves once more. So
what a search has found is looked at again, part by part: each instance is paid for until the last
of its tasks has ended, or the rest has moved on. A part is made of instances that exchange tasks.
One that costs more than to leave its tasks where they would be without it is left out. A part with
a task that is known to outlast the horizon is not looked at: others come to the room that is left
beside it. A part in which no end is known is not looked at either: no later plan is made only since
time has passed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import KeysView, Mapping, Sequence, Set

from eva_master.model.planning.plan import NewInstance
from eva_master.packing.configuration.build import Configuration, Host, rearranged
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.problem import Problem
from eva_master.packing.reconfiguration.components import Components
from eva_master.packing.reconfiguration.costs_to_the_end import (
    CostsToTheEnd,
    Stay,
    sold_as,
)
from eva_wire.values.ids import RunId

_Place = tuple[bool, Host]
"""An instance in one of two configurations: a new one is in that one alone, a live one in both."""
_MOST_TASKS = 32
"""A part with more tasks is not looked at: its room is of use to others, and rounds stay short."""
_MOST_ENDS = 6
"""A change counts as undone after one of so many ends, if that is cheapest."""


def lasting(
    problem: Problem, terms: CostWeights, before: Configuration, after: Configuration
) -> Configuration:
    """A change without the parts of it that cost more than they save.

    Args:
        problem: The snapshot's.
        terms: What counts how much.
        before: The configuration without the change.
        after: The same with it; whatever `before` places has a place here.

    Returns:
        `after` itself if all parts pay, or if limits allow no mixture of both.
    """
    if after is before:
        return after
    costs = CostsToTheEnd(problem, terms)
    left_out: set[RunId] = set()
    for part in _parts(problem, before, after):
        if len(part) > _MOST_TASKS:
            continue
        works = (problem.runs[run].remaining for run in part)
        ends = [work.goes_on_ms(problem.snapshot.now_ms) for work in works if work is not None]
        if not ends or max(ends) >= terms.horizon_ms or not before.places.keys() >= part:
            continue
        if not _pays(costs, before, after, part):
            left_out.update(part)
    if not left_out:
        return after
    mixed = _mixed(problem, before, after, left_out)
    return mixed if _within_limits(problem, mixed) else after


def _parts(problem: Problem, before: Configuration, after: Configuration) -> list[KeysView[RunId]]:
    """Task runs on instances that change, in groups that have no instance in common.

    Each group is in the order of the places, whatever Python's hashes are.
    """
    joined = Components[_Place | str]()
    changed: list[_Place] = []
    for run, host in after.places.items():
        earlier, new = before.places.get(run), isinstance(host, int)
        if earlier != host or new:
            changed.append((new, host))
            if earlier is not None:
                # Keys of new instances mean other ones before.
                joined.join((False, earlier), (new, host))
    if not changed:
        return []
    for job in problem.gangs:
        for run in job.runs:
            if run in after.places:
                host = after.places[run]
                joined.join(job.id, (isinstance(host, int), host))
    affected = {joined.leader(place) for place in changed}
    part_of = {
        place[1]: first
        for place in joined
        if isinstance(place, tuple)
        and place[0] == isinstance(place[1], int)
        and (first := joined.leader(place)) in affected
    }
    parts: defaultdict[_Place | str, dict[RunId, None]] = defaultdict(dict)
    for run, host in after.places.items():
        if host in part_of:
            parts[part_of[host]][run] = None
    return [part.keys() for part in parts.values()]


def _pays(
    costs: CostsToTheEnd, before: Configuration, after: Configuration, runs: Set[RunId]
) -> bool:
    """Whether a change costs no more than to leave all as it was; it may be undone later.

    Args:
        costs: What parts of configurations cost.
        before: The configuration without the change.
        after: The same with it.
        runs: All that are on the instances that it changes, in either.
    """
    without, changed = costs.stays(before, runs), costs.stays(after, runs)
    least, moves = costs.since(before, without, 0), costs.moves(after, runs)
    if moves + costs.since(after, changed, 0) <= least:
        return True
    ends = sorted({stay.until_ms for residents in changed.values() for stay in residents})
    for end in ends[:_MOST_ENDS]:
        so_far = moves + costs.until(after, changed, end)
        if so_far > least:
            break  # as at all later ends
        back = so_far + _undone(costs, before, after, (without, changed), end)
        if back <= least and back + costs.since(before, without, end) <= least:
            return True
    return False


def _undone(
    costs: CostsToTheEnd,
    before: Configuration,
    after: Configuration,
    stays: tuple[Mapping[Host, Sequence[Stay]], Mapping[Host, Sequence[Stay]]],
    now_ms: int,
) -> int:
    """Cost of going back from a change: of moves, and of boots of instances that have gone."""
    without, changed = stays
    cost = 0
    for host, residents in without.items():
        if residents[-1].until_ms <= now_ms:
            continue
        new = isinstance(host, int)
        if new or host not in changed or changed[host][-1].until_ms <= now_ms:
            offering = sold_as(costs.problem, before, host)
            cost += offering.price * offering.type.boot_ms
        runs = (stay.run for stay in residents if stay.until_ms > now_ms)
        cost += sum(costs.move(run) for run in runs if new or after.places[run.id] != host)
    return cost


def _mixed(
    problem: Problem, before: Configuration, after: Configuration, left_out: Set[RunId]
) -> Configuration:
    """A configuration with some task runs as in one and all others as in another."""
    launches: list[NewInstance] = []
    names: dict[tuple[bool, int], int] = {}
    places: dict[RunId, Host] = {}
    for run, changed in after.places.items():
        if run not in left_out and not isinstance(changed, int):
            continue
        source = before if run in left_out else after
        host = source.places[run]
        if isinstance(host, int):
            key = run in left_out, host
            if key not in names:
                names[key] = len(launches)
                launches.append(NewInstance(len(launches), sold_as(problem, source, host)))
            host = names[key]
        places[run] = host
    return rearranged(problem, after, places, tuple(launches), after.unplaced)


def _within_limits(problem: Problem, configuration: Configuration) -> bool:
    """Whether no offering is beyond its limit."""
    new = Counter(launch.offering.id for launch in configuration.launches)
    live = Counter(problem.sold_as.values())
    limits = ((problem.by_id[name].limit, many + live[name]) for name, many in new.items())
    return all(limit is None or many <= limit for limit, many in limits)
