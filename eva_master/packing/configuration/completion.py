"""Places what still waits in the room that a configuration itself makes.

A configuration is packed in steps: what waits, then what moves. A later step may make room that an
earlier one did not have: it frees an instance of an offering whose limit was reached, or buys one
that has room to spare. A configuration is complete if the round after it, with nothing else
changed, would place no task run more. So a plan that was carried out is followed by none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from eva_master.model.planning.plan import NewInstance
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.packing.configuration.build import Configuration, Host, configure, waiting
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.problem import Problem
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, OfferingId, RunId


def completed(problem: Problem, configuration: Configuration) -> Configuration:
    """Add whatever waiting task runs find a place once the configuration has come about.

    Args:
        problem: The snapshot's.
        configuration: Where everything is to be.

    Returns:
        The configuration itself if it is complete.
    """
    while configuration.unplaced and _changes_something(problem, configuration):
        larger = _with_more(problem, configuration)
        if larger is configuration:
            break
        configuration = larger
    return configuration


def squeezed(problem: Problem, configuration: Configuration) -> Configuration:
    """Add gangs that find room if their members share instances, at whatever loss of speed.

    With limited instances a gang could otherwise wait for ever for more of them than exist, though
    all of them are empty.

    Args:
        problem: The packing problem of the snapshot.
        configuration: The places of all other task runs.

    Returns:
        The configuration itself if it leaves no gang waiting, or none finds room.
    """
    unplaced = {problem.runs[run].job for run in configuration.unplaced}
    gangs = {job for job in unplaced if problem.jobs[job].spec.kind is JobKind.GANG}
    if not gangs or not problem.valuation.interference:
        return configuration
    freed = [each for each in problem.snapshot.instances if each.id not in configuration.task_sets]
    careless = replace(problem.valuation, interference=False)
    after = Problem(_after(problem, configuration, freed), careless, problem.cache)
    more = configure(after, [run for run in waiting(after) if run.job in gangs])
    if configuration.unplaced.keys().isdisjoint(more.places):
        return configuration
    still = {run: why for run, why in configuration.unplaced.items() if run not in more.places}
    return replace(_joined(problem, configuration, more), unplaced=still)


def _changes_something(problem: Problem, configuration: Configuration) -> bool:
    # An unchanged configuration was packed with all the room that there will be.
    present = problem.placed.instances
    return any(host != present[run] for run, host in configuration.places.items())


def _with_more(problem: Problem, configuration: Configuration) -> Configuration:
    """The configuration with at least one more task run, or itself if there is room for none."""
    freed = [each for each in problem.snapshot.instances if each.id not in configuration.task_sets]
    # Freed instances may be used again even if no others can be bought. They are gone in the next
    # round.
    for kept in (freed, []) if freed else ([],):
        after = Problem(_after(problem, configuration, kept), problem.valuation, problem.cache)
        more = configure(after, waiting(after))
        if more.unplaced.keys() < configuration.unplaced.keys():
            return _joined(problem, configuration, more)
    return configuration


def _name(host: Host) -> InstanceId:
    return InstanceId(f"new {host:06}") if isinstance(host, int) else host


def _after(problem: Problem, configuration: Configuration, freed: list[InstanceView]) -> Snapshot:
    """The cluster once the configuration has come about.

    Args:
        problem: The snapshot's.
        configuration: Where everything is to be.
        freed: Empty instances that are still there.
    """
    residents: dict[Host, list[RunId]] = defaultdict(list)
    for run, host in configuration.places.items():
        residents[host].append(run)
    live = problem.instances
    launched = {launch.key: launch.offering for launch in configuration.launches}
    instances = [
        InstanceView(_name(host), launched[host], tuple(sorted(runs)), ready=False)
        if isinstance(host, int)
        else replace(live[host], residents=tuple(sorted(runs)))
        for host, runs in residents.items()
    ]
    names = {run: _name(host) for run, host in configuration.places.items()}
    runs = tuple(
        run if names.get(run.id) == run.instance else replace(run, instance=names.get(run.id))
        for run in problem.snapshot.runs
    )
    instances = sorted([*instances, *freed], key=lambda instance: instance.id)
    return replace(problem.snapshot, runs=runs, instances=tuple(instances))


def _joined(problem: Problem, configuration: Configuration, more: Configuration) -> Configuration:
    """A configuration merged with the placements made on top of it."""
    hosts: dict[Host, Host] = {_name(host): host for host in configuration.task_sets}
    launches = list(configuration.launches)
    free: dict[OfferingId, list[InstanceId]] = defaultdict(list)
    used = configuration.task_sets.keys() | more.task_sets.keys()
    for instance in sorted(problem.snapshot.instances, key=lambda each: (not each.ready, each.id)):
        if instance.id not in used:
            free[instance.offering.id].append(instance.id)
    for launch in more.launches:
        # A launch precedes the release of another instance of its offering, so that instance is
        # reused.
        if spare := free[launch.offering.id]:
            hosts[launch.key] = spare.pop(0)
        else:
            key = max((launch.key for launch in launches), default=-1) + 1
            launches.append(NewInstance(key, launch.offering))
            hosts[launch.key] = key
    places = {run: hosts.get(host, host) for run, host in more.places.items()}
    return Configuration(places, _task_sets(problem, places), tuple(launches), more.unplaced)


def _task_sets(problem: Problem, places: Mapping[RunId, Host]) -> dict[Host, TaskSet]:
    sets: dict[Host, Counter[int]] = defaultdict(Counter)
    for run, host in places.items():
        sets[host][problem.class_of[run]] += 1
    return dict(sets)
