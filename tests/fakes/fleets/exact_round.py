"""The most utility that one round of a fleet can have, by an integer programme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highspy


@dataclass(frozen=True)
class Gang:
    """A gang that may get its GPUs in this round.

    Attributes:
        gpus: All of them or none, of any types.
        gain: Worth of running it at the pace of a type.
        rates: How fast it is on each type; the slowest of those that it has sets its pace.
    """

    gpus: int
    gain: Mapping[str, float]
    rates: Mapping[str, float]


def most_utility(gangs: Sequence[Gang], fleet: Mapping[str, int]) -> float:
    """Find it; who shares a server with whom costs nothing.

    Args:
        gangs: Gangs of the round.
        fleet: GPUs of each type.
    """
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("random_seed", 1)
    model.setOptionValue("mip_rel_gap", 1e-6)
    whole = highspy.HighsVarType.kInteger
    used: dict[str, list[highspy.highs.highs_var]] = {name: [] for name in fleet}
    for gang in gangs:
        had = {name: model.addVariable(0, gang.gpus, 0, type=whole) for name in fleet}
        pace = {name: model.addVariable(0, 1, gang.gain[name], type=whole) for name in fleet}
        model.addConstr(sum(pace.values()) <= 1)
        model.addConstr(sum(had.values()) == gang.gpus * sum(pace.values()))
        for name in fleet:
            slower = [pace[it] for it in fleet if gang.rates[it] <= gang.rates[name]]
            if len(slower) < len(fleet):
                model.addConstr(had[name] <= gang.gpus * sum(slower))
            used[name].append(had[name])
    for name, number in fleet.items():
        model.addConstr(sum(used[name]) <= number)
    model.changeObjectiveSense(highspy.ObjSense.kMaximize)
    model.run()
    return float(model.getObjectiveValue())
