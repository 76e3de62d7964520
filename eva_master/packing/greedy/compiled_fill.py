"""The compiled choice of the next task, `best.c`."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64

from eva_master.packing.compiled.library import FillingInput
from eva_master.packing.interference.throughput import Ints


class CompiledFill:
    """Candidates for one machine, and the choice among them.

    Args:
        opened: The library.
        candidates: Classes, the most valuable first, equal ones ascending; they are rearranged.
        figures: Arrays of the fields of `FillingInput`, by name.
        labels: How many workloads have numbers.
    """

    def __init__(
        self, opened: ctypes.CDLL, candidates: Ints, figures: dict[str, Ints], labels: int
    ) -> None:
        self._library, self._candidates = opened, candidates
        self._figures = figures  # which have to stay in memory
        pointers = {name: values.ctypes.data for name, values in figures.items()}
        self._input = FillingInput(**pointers, classes=len(figures["prices"]), labels=labels)
        self._chosen = (c_int64 * 2)()

    def best(self, left: Ints, newcomer: Ints, dropped: Ints, room: Ints) -> tuple[int, int] | None:
        """Find the task that should join next, see `InstanceFill.best`.

        Args:
            left: Number of tasks that could still join, per class.
            newcomer: Loss of a newcomer to the tasks present, by its workload; in millionths.
            dropped: Loss of the tasks present to it, by its workload.
            room: Free room of the instance.
        """
        candidates = self._candidates
        gone = self._library.best_to_join(
            *(byref(self._input), candidates.ctypes.data, len(candidates), left.ctypes.data),
            *(newcomer.ctypes.data, dropped.ctypes.data, room.ctypes.data, self._chosen),
        )
        self._candidates = candidates[gone:]
        number, gain = self._chosen
        return None if number < 0 else (number, gain)
