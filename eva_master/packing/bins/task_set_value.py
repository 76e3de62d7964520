"""Throughput-normalised reservation prices of few tasks, one instance at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eva_master.model.planning.reasons import Occupant
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.interference.throughput import ExactThroughput, multiset
from eva_wire.values.ids import MILLION, RunId


class Tnrp:
    """Worth of task runs together, by sections 4.3 and 4.4 of the Eva paper.

    The slowdown of one member is charged for its whole gang.

    Args:
        instances: The rows with the task runs.
        throughput: Speeds of tasks together.
    """

    def __init__(self, instances: OpenInstances, throughput: ExactThroughput) -> None:
        self._instances = instances
        self._throughput = throughput

    def of(self, runs: Iterable[RunId], family: int) -> int:
        """TNRP of task runs on one instance, in millionths of micro-dollars per hour.

        Args:
            runs: All task runs on it.
            family: The number of its family.
        """
        return sum(value for _, _, _, value in self._each(list(runs), family))

    def occupants(self, instances: OpenInstances, row: int) -> tuple[Occupant, ...]:
        """Worth of the task runs on a row, by id; a `plan_builder.OccupantsOf`."""
        each = self._each(sorted(instances.residents[row]), instances.family(row))
        return tuple(
            Occupant(run, worth, ppm, (value + MILLION // 2) // MILLION)
            for run, worth, ppm, value in each
        )

    def charge(self, run: RunId, family: int) -> int:
        """Reservation price of all that slow down with a run, in micro-dollars per hour."""
        return self._instances.priced(run).prices[family] + self._instances.others_price(run)

    def _each(self, runs: Sequence[RunId], family: int) -> list[tuple[RunId, int, int, int]]:
        """Each task run's worth alone, its speed in millionths, and its TNRP in millionths."""
        instances = self._instances
        if len(runs) == 1:
            worth = instances.priced(runs[0]).prices[family]
            return [(runs[0], worth, MILLION, worth * MILLION)]
        model = self._throughput
        workloads = [model.number(instances.runs[run].task.workload) for run in runs]
        throughputs = model.by_workload(multiset(workloads))
        values = []
        for run, workload in zip(runs, workloads, strict=True):
            ppm = throughputs[workload]
            worth = instances.priced(run).prices[family]
            value = worth * MILLION - (MILLION - ppm) * self.charge(run, family)
            values.append((run, worth, ppm, value))
        return values
