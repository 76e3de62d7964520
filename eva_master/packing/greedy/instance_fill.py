"""One instance being filled, task by task: the inner loop of every packing algorithm here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import InstanceType
from eva_master.packing.compiled.library import library
from eva_master.packing.greedy.compiled_fill import CompiledFill
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.problem import ClassValues, Money, Problem
from eva_wire.values.ids import MILLION

_COMPILED_FROM_CANDIDATES = 1_000
"""With fewer candidates numpy is as fast as compiled code."""


class InstanceFill:
    """An instance, its tasks, and the choice of the next task to join.

    The next task is the fitting one that raises the instance's TNRP most. Ties go to the better
    aligned demand: the dot product of demand and remaining room, both divided by the instance's
    capacity and rounded down to millionths; then to the lower class number.

    Args:
        problem: The packing problem, with its classes.
        values: Values of the classes.
        machine: The instance's type.
        candidates: Classes that may join, ascending.
        residents: Tasks already on the instance: count by class.

    Attributes:
        added: Tasks that have joined: count by class.
        value: TNRP gained by the tasks that joined, in millionths of micro-dollars per hour.
    """

    def __init__(
        self,
        problem: Problem,
        values: ClassValues,
        machine: InstanceType,
        candidates: Ints,
        residents: TaskSet | None = None,
    ) -> None:
        self._problem = problem
        self._prices = values.prices[machine.family]
        self._values = values.charges[machine.family]
        self._machine = machine
        self._need = problem.need[machine.family]
        self._capacity = problem.capacity(machine)
        self._room = self._capacity.copy()
        self._tasks: dict[int, int] = {}
        self._charges: dict[int, int] = {}
        self._lost = 0
        self.value = 0
        self.added: dict[int, int] = {}
        for number, count in (residents or {}).items():
            self._take(number, count)
        self._candidates = candidates
        self._compiled = self._compiled_fill(values)
        if self._compiled is None:
            # One row per resource, since the resources are gone through one by one.
            needs = self._need[candidates, : problem.width]
            self._columns = np.ascontiguousarray(needs.T)
            if residents:
                self._keep(self._fitting())
        if self._candidates.size:
            self._lost = self._loss()

    def best(self, left: Ints) -> tuple[int, int] | None:
        """Find the task that should join next.

        Args:
            left: Number of tasks that could still join, per class.

        Returns:
            Its class and its gain in TNRP, `None` if no task fits or each of them would lower the
            TNRP.
        """
        if self._compiled is not None:
            return self._compiled.best(left, *self._losses(), self._room)
        # A class that does not fit now will not fit later; a used-up class does not come back.
        self._keep(self._fitting() & (left[self._candidates] > 0))
        candidates = self._candidates
        if not candidates.size:
            return None
        gains = self._gains(candidates)
        most = gains.max()
        if most < 0:
            return None
        tied = candidates[gains == most]
        chosen = tied[0] if tied.size == 1 else tied[np.argmax(self._alignment(tied))]
        return int(chosen), int(most)

    def add(self, number: int, gain: int) -> None:
        """Let a task of the class join; `gain` as returned by `best`."""
        self._take(number, 1)
        # The gain is the task's worth alone, less all further losses.
        self._lost += int(self._prices[number]) * MILLION - gain
        self.value += gain
        self.added[number] = self.added.get(number, 0) + 1

    def _compiled_fill(self, values: ClassValues) -> CompiledFill | None:
        """The compiled choice, where there are many candidates."""
        problem, machine, candidates = self._problem, self._machine, self._candidates
        figures = {"prices": self._prices, "charges": self._values}
        if candidates.size < _COMPILED_FROM_CANDIDATES or (opened := library()) is None:
            return None
        if any(array.dtype != np.int64 for array in figures.values()):
            return None
        # Candidates in order of worth, the most valuable first; the array is rearranged.
        wanted = np.zeros(len(self._prices), dtype=np.bool_)
        wanted[candidates] = True
        dearest = values.dearest(machine.family)
        figures |= {"need": self._need, "workloads": problem.workloads}
        figures |= {"shares": problem.shares(machine), "capacity": self._capacity}
        labels = len(problem.throughput.index)
        return CompiledFill(opened, dearest[wanted[dearest]], figures, labels)

    def _fitting(self) -> npt.NDArray[np.bool_]:
        fits: npt.NDArray[np.bool_] = self._columns[0] <= self._room[0]
        for number in range(1, len(self._columns)):
            fits &= self._columns[number] <= self._room[number]
        return fits

    def _keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        if not wanted.all():
            kept = np.flatnonzero(wanted)
            self._candidates = self._candidates[kept]
            self._columns = self._columns.take(kept, axis=1)

    def _take(self, number: int, count: int) -> None:
        workload = int(self._problem.workloads[number])
        self._room = self._room - count * self._need[number]
        self._tasks[workload] = self._tasks.get(workload, 0) + count
        charge = count * int(self._values[number])
        self._charges[workload] = self._charges.get(workload, 0) + charge

    def _loss(self) -> int:
        """Total loss of the tasks on the instance to one another."""
        model = self._problem.throughput
        if model.harmless:
            return 0
        task_set = tuple(sorted(self._tasks.items()))
        return sum(
            (MILLION - ppm) * self._charges[workload]
            for (workload, _), ppm in zip(task_set, model.exact(task_set), strict=True)
        )

    def _losses(self) -> tuple[Ints, Money]:
        """Loss of a newcomer, in millionths, and the total further loss of the tasks present.

        Both are arrays by the newcomer's workload.
        """
        model = self._problem.throughput
        if model.harmless:
            nothing = np.zeros(len(model.index), dtype=np.int64)
            return nothing, nothing
        task_set = tuple(sorted(self._tasks.items()))
        newcomer, members = model.after_join(task_set)
        if not task_set:
            return newcomer, np.zeros_like(newcomer)
        held = np.array(
            [self._charges[workload] for workload, _ in task_set], dtype=self._values.dtype
        )
        losses: Money = (members * held[:, np.newaxis]).sum(axis=0) - self._lost
        return newcomer, losses

    def _gains(self, candidates: Ints) -> Money:
        if self._problem.throughput.harmless:
            alone: Money = self._prices[candidates] * MILLION
            return alone
        newcomer, dropped = self._losses()
        workloads = self._problem.workloads[candidates]
        lost: Money = newcomer[workloads] * self._values[candidates] + dropped[workloads]
        gains: Money = self._prices[candidates] * MILLION - lost
        return gains

    def _spare(self) -> Ints:
        """Free part of each resource, in millionths of the capacity."""
        # A dimension that the type lacks has neither demand nor room.
        spare: Ints = self._room * MILLION // np.maximum(self._capacity, 1)
        return spare

    def _alignment(self, candidates: Ints) -> Ints:
        shares = self._problem.shares(self._machine)
        aligned: Ints = self._spare() @ shares.take(candidates, axis=1)
        return aligned
