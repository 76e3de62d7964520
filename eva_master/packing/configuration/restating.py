"""A configuration that was found at other prices, told at those of a problem."""

from __future__ import annotations

from collections import Counter

from eva_master.model.values import replace
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.problem import Problem


def restated(problem: Problem, configuration: Configuration) -> Configuration:
    """The configuration with equal places, in the problem's task classes and at its prices."""
    task_sets: dict[Host, Counter[int]] = {host: Counter() for host in configuration.task_sets}
    for run, host in configuration.places.items():
        task_sets[host][problem.class_of[run]] += 1
    launches = tuple(
        replace(launch, offering=problem.by_id[launch.offering.id])
        for launch in configuration.launches
    )
    return replace(
        configuration,
        task_sets={host: dict(tasks) for host, tasks in task_sets.items()},
        launches=launches,
    )
