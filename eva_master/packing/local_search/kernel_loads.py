"""Loads as the kernel knows them: it prices them itself, as `LoadCache` does."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from ctypes import byref, c_int32
from typing import Any
from weakref import finalize, ref

from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.compiled.library import SizedTold
from eva_master.packing.incremental.view import changes
from eva_master.packing.interference.throughput import ThroughputModel
from eva_master.packing.local_search.load_cache import Load, LoadCache
from eva_master.packing.valuation.vectors import IMPOSSIBLE, WIDTH
from eva_wire.values.ids import Workload

NEVER = 1 << 61
"""A cost above every other one, as the kernel knows it."""
LARGEST = 1 << 60
"""Problems whose costs may come to more than this are not for the kernel."""
REMEMBERED = 400_000
"""Loads that the kernel remembers from round to round."""
_WORD = 64
_GONE = -1


class KernelLoads:
    """The kernel's memory of loads, as long as their cache lives.

    Args:
        library: See `compiled.library`.
        cache: Source of prices, classes and throughput.

    Attributes:
        handle: The kernel's memory.
        round: The cache's round in which it was asked last.
    """

    def __init__(self, library: ctypes.CDLL, cache: LoadCache) -> None:
        self._library, self._cache = library, ref(cache)
        self._loads: dict[int, Load] = {}
        self._numbers: dict[Load, int] = {}
        self._families = {family: number for number, family in enumerate(cache.empty)}
        self._classes = 0
        self._workloads: dict[Workload, int] = {}
        self._table = ThroughputTable()
        self._model: ThroughputModel | None = None
        self._ranks = array("i")
        self.round = 0
        offerings = [
            SizedTold(number, sized.number, min(sized.new_cost, NEVER), sized.capacity)
            for family, number in self._families.items()
            for sized in cache.sized(family)
        ]
        self.handle = library.loads_new(
            *(-(-len(cache.offerings) // _WORD), len(cache.empty)),
            *((SizedTold * len(offerings))(*offerings), len(offerings)),
            *(cache.terms.lost_ppm, cache.terms.gang_lost_ppm),
        )
        _check(self.handle is not None)
        finalize(self, library.loads_free, self.handle)

    @property
    def full(self) -> bool:
        """Whether it remembers more than it should from round to round."""
        count: int = self._library.loads_count(self.handle)
        return count > REMEMBERED

    def follow(self) -> None:
        """Take up new classes, and what the table of throughput says now."""
        cache = self._source
        self.round = cache.round
        count = len(self._workloads)
        for number in range(self._classes, len(cache.classes)):
            self._take_class(number)
        self._classes = len(cache.classes)
        gone, new = changes(self._table.observed, cache.table.observed)
        self._table = cache.table
        for entry, ppm in [(entry, _GONE) for entry, _ in gone] + new:
            names = tuple(sorted((entry[0], *entry[1])))
            if len(names) != 2:
                workload = self._number(entry[0])
                failed = self._library.loads_observed(self.handle, *self._set(names), workload, ppm)
                _check(not failed)
        for names in {tuple(sorted((entry[0], *entry[1]))) for entry, _ in gone + new}:
            if self._workloads.keys() >= set(names):
                _check(not self._library.loads_forget(self.handle, *self._set(names)))
        if self._model is not cache.throughput or count < len(self._workloads):
            self._model, index = cache.throughput, cache.throughput.index
            self._ranks = array("i", [index[name] for name in self._workloads])
            pairs = self._model.pairs
            self._library.loads_pairs(
                self.handle, pairs.ctypes.data, len(pairs), self._ranks.buffer_info()[0]
            )

    def numbers(self, loads: Iterable[Load]) -> list[int]:
        """Numbers of loads, which it remembers from now on."""
        numbers = self._numbers
        return [numbers[load] if load in numbers else self._found(load) for load in loads]

    def load(self, number: int) -> Load:
        """The load of a number."""
        load = self._loads.get(number)
        if load is None:
            size = c_int32()
            classes = self._library.loads_classes(self.handle, number, byref(size))
            family = self._library.loads_family(self.handle, number)
            cache = self._source
            load = cache.load(tuple(cache.empty.values())[family], classes[: size.value])
            self._loads[number], self._numbers[load] = load, number
        return load

    @property
    def _source(self) -> LoadCache:
        cache = self._cache()
        assert cache is not None, "a search is over before its cache"
        return cache

    def _found(self, load: Load) -> int:
        classes = array("i", load.classes)
        number: int = self._library.loads_find(
            *(self.handle, self._families[self._source.family(load)]),
            *(classes.buffer_info()[0], len(classes)),
        )
        _check(number >= 0)
        self._loads[number], self._numbers[load] = load, number
        return number

    def _take_class(self, number: int) -> None:
        cache, figures = self._source, array("q")
        for family in self._families:
            need = cache.need(family, number)
            parts = cache.figures_on(family, number)
            figures.extend([-1] * WIDTH if need is None else (min(n, IMPOSSIBLE) for n in need))
            # A class that is worth more is never in a search of the kernel.
            figures.extend(min(figure, LARGEST) for figure in parts[1:])
        workload = self._number(cache.classes[number].workload)
        _check(not self._library.loads_class(self.handle, workload, figures.buffer_info()[0]))

    def _number(self, workload: Workload) -> int:
        return self._workloads.setdefault(workload, len(self._workloads))

    def _set(self, names: Sequence[Workload]) -> tuple[Any, int]:
        """Numbers of workloads, ascending, and how many they are."""
        numbers = sorted(self._number(name) for name in names)
        return (c_int32 * len(numbers))(*numbers), len(numbers)


def _check(fine: bool) -> None:
    if not fine:
        raise MemoryError("The search for a cheaper configuration had too little memory.")
