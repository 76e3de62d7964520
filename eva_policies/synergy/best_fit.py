"""Which instance a waiting task joins."""

from __future__ import annotations

import numpy as np

from eva_master.packing.bins.task_set_value import Tnrp
from eva_policies.synergy.valued_instances import ValuedInstances
from eva_wire.values.ids import MILLION, RunId

_BOUND_MARGIN = 1 + 1e-9
"""A bound that is made of rounded numbers may be too low by less than this."""


class BestFit:
    """Finds the instance of the largest worth for its price with one more task.

    Tasks of one kind and rows with equal loads are looked at once.

    Args:
        instances: The instances.
        value: Worth of tasks together.
    """

    def __init__(self, instances: ValuedInstances, value: Tnrp) -> None:
        self._instances = instances
        self._value = value
        self._worth: dict[tuple[int, int], int] = {}
        """Worth by the load of a row and the kind of a task that joins it, in millionths."""

    def of(self, run: RunId) -> int | None:
        """The instance with the largest ratio of TNRP to its price; `None` if none is worth that.

        Of equals it is the one whose free resources match the demand best, then the first.

        Args:
            run: A task run that may have neighbours.
        """
        instances = self._instances
        priced = instances.priced(run)
        rows = instances.joinable(priced)
        bounds, aligned = instances.at_most(priced, rows), instances.alignment(priced, rows)
        best, chosen = (0.0, 0.0), None
        for index in np.lexsort((rows, -bounds)).tolist():
            if bounds[index] * _BOUND_MARGIN < best[0]:
                break
            row = int(rows[index])
            worth, price = self._worth_of(run, row), instances.offerings[row].price
            fit = worth / (max(1, price) * MILLION), float(aligned[index])
            if worth >= price * MILLION and (chosen is None or fit > best):
                best, chosen = fit, row
        return chosen

    def _worth_of(self, run: RunId, row: int) -> int:
        """Worth of a row with one task run more."""
        instances = self._instances
        key = instances.load(row), instances.kind(run)
        worth = self._worth.get(key)
        if worth is None:
            worth = self._value.of((*instances.residents[row], run), instances.family(row))
            self._worth[key] = worth
        return worth
