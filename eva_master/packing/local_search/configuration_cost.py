"""The cost of a configuration, worked out from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.local_search.cost_model import CostWeights, MoveCosts, gang_loss
from eva_master.packing.local_search.load_cache import Load, LoadCache
from eva_master.packing.problem import Problem
from eva_wire.values.ids import MILLION, Millis, RunId


def evaluate(
    problem: Problem,
    terms: CostWeights,
    configuration: Configuration,
    latest: Mapping[RunId, Millis] | None = None,
    apart: Collection[str] = (),
    *,
    cache: LoadCache | None = None,
) -> int:
    """The cost of a configuration, computed from scratch.

    Args:
        problem: The packing problem of the snapshot.
        terms: Weights of the costs.
        configuration: The planned places.
        latest: Time of each task run's last move.
        apart: Gangs of several whose own losses are left out.
        cache: Prices of loads for the problem and the terms, if they are at hand.

    Returns:
        Cost in millionths of micro-dollars per hour.
    """
    cache = cache or LoadCache(problem, terms)
    launched = {launch.key: launch.offering for launch in configuration.launches}
    progress: dict[str, int] = {}
    charges: dict[str, int] = {}
    loads: dict[Host, Load] = {}
    total = 0
    for host, contents in configuration.task_sets.items():
        new = isinstance(host, int)
        offering = launched[host] if isinstance(host, int) else problem.offering_of(host)
        classes = Counter(
            {cache.number(problem.classes[n]): count for n, count in contents.items()}
        )
        load = cache.load(cache.empty[offering.type.family], classes.elements())
        loads[host] = load
        total += offering.price * MILLION + cache.lost(load)
        total += cache.launch_costs[cache.number_of[offering.id]] if new else 0
    for run, host in configuration.places.items():
        task_class = problem.classes[problem.class_of[run]]
        job = problem.runs[run].job
        if task_class.charge > task_class.price and job not in apart:
            counted = loads[host].progress[cache.number(task_class)]
            progress[job] = min(progress.get(job, MILLION), counted)
            charges[job] = task_class.charge
    total += sum(gang_loss(charges[job], slowest) for job, slowest in progress.items())
    return total + MoveCosts(problem, terms, latest).total(configuration.places)


def beside_others(
    problem: Problem, cache: LoadCache, configuration: Configuration, members: Collection[RunId]
) -> int:
    """Progress of a gang in its places, without interference between its members.

    Args:
        problem: The packing problem of the snapshot.
        cache: Prices of loads for the problem.
        configuration: The planned places.
        members: Members of the gang, all with places.

    Returns:
        Millionths, for the member of least progress; see `CostWeights.counted`.
    """
    launched = {launch.key: launch.offering for launch in configuration.launches}
    own: dict[Host, Counter[int]] = {}
    for run in members:
        own.setdefault(configuration.places[run], Counter())[problem.class_of[run]] += 1
    slowest = MILLION
    for host, own_classes in own.items():
        offering = launched[host] if isinstance(host, int) else problem.offering_of(host)
        others = Counter(configuration.task_sets[host]) - own_classes
        for number in own_classes:
            together = others + Counter({number: 1})
            classes = Counter(
                {cache.number(problem.classes[n]): count for n, count in together.items()}
            )
            load = cache.load(cache.empty[offering.type.family], classes.elements())
            cache.lost(load)  # fills in `load.progress`
            counted = load.progress.get(cache.number(problem.classes[number]), MILLION)
            slowest = min(slowest, counted)
    return slowest
