"""The compiled search: `kernel.c`, which decides what `reference` decides, bit for bit."""

from __future__ import annotations

import ctypes
from array import array
from ctypes import byref
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from eva_master.packing.compiled.library import WORK, Input, Output
from eva_master.packing.local_search.kernel_loads import LARGEST, KernelLoads
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.reference import MOST_DISMANTLED
from eva_master.packing.local_search.search_start import SearchResult, SearchStart
from eva_wire.values.ids import MILLION

_AT_NO_TIME = (1 << 63) - 1
_UNLIMITED = -1
_WORD = 64


class KernelSearch:
    """Searches by the compiled kernel.

    Args:
        library: See `compiled.library`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._known: WeakKeyDictionary[LoadCache, KernelLoads] = WeakKeyDictionary()

    def __call__(
        self, start: SearchStart, cache: LoadCache, draws: NDArray[np.float64]
    ) -> SearchResult:
        """Improve a configuration, see `reference.search`.

        Raises:
            MemoryError: The search had too little memory.
        """
        memory = self._known.get(cache)
        if memory is None or (memory.full and memory.round != cache.round):
            memory = self._known[cache] = KernelLoads(self._library, cache)
        try:
            return self._search(start, cache, memory, draws)
        except MemoryError:
            del self._known[cache]  # its loads may be incomplete
            raise

    def _search(
        self,
        start: SearchStart,
        cache: LoadCache,
        memory: KernelLoads,
        draws: NDArray[np.float64],
    ) -> SearchResult:
        memory.follow()
        arrays = _arrays(start, cache, memory)
        draws = np.ascontiguousarray(draws)
        most = len(start.instances) + len(start.ids)
        places, order, loads = (
            array("i", bytes(4 * (size + 1))) for size in (len(start.ids), most, most)
        )
        inputs = Input(
            runs=len(start.ids),
            groups=len(start.charges),
            slots=len(start.instances),
            classes=len(cache.classes),
            families=len(cache.empty),
            offerings=len(cache.offerings),
            buyable=len(cache.buyable),
            iterations=len(draws),
            draws=draws.ctypes.data,
            round=cache.round,
            any_ends=bool(start.ends),
            **{name: values.buffer_info()[0] for name, values in arrays.items()},
        )
        output = Output(
            total=start.total,
            left=cache.budget.left,
            place=places.buffer_info()[0],
            order=order.buffer_info()[0],
            order_load=loads.buffer_info()[0],
            most=most,
        )
        if self._library.search(memory.handle, byref(inputs), byref(output)):
            raise MemoryError("The search for a cheaper configuration had too little memory.")
        for kind, count in zip(WORK, output.done, strict=True):
            cache.budget.spend(kind, count)
        cache.met += output.met
        numbers = {slot: slot for slot in range(len(start.instances))}
        for slot in order[: output.used]:
            numbers.setdefault(slot, len(numbers))
        held = zip(order[: output.used], loads[: output.used], strict=True)
        return SearchResult(
            output.total,
            [numbers[slot] for slot in places[: len(start.ids)]],
            {numbers[slot]: memory.load(load) for slot, load in held},
            output.tried,
            output.kept,
        )


def small_enough(start: SearchStart, cache: LoadCache) -> bool:
    """Whether all costs of a problem fit the kernel's integers.

    A trial is over once it costs more than the configuration before, except for what counts as
    paid: the instances taken apart and one that is bought.
    """
    dearest = max((*start.prices, *(cost for cost, _ in cache.buyable)), default=0)
    lost = sum(map(cache.most_lost.__getitem__, start.classes)) * MILLION
    last_step = dearest + lost + sum(start.charges) * MILLION + sum(start.move_costs)
    return start.total + (MOST_DISMANTLED + 1) * dearest + last_step < LARGEST


def _arrays(start: SearchStart, cache: LoadCache, memory: KernelLoads) -> dict[str, array[int]]:
    """Arrays of a search's input, by name."""
    runs, offerings = range(len(start.ids)), cache.offerings
    movable = array("Q", bytes(8 * (len(start.ids) // _WORD + 1)))
    for run, leaves in enumerate(start.movable):
        if leaves:
            movable[run // _WORD] |= 1 << run % _WORD
    families = {family: number for number, family in enumerate(cache.empty)}
    whole = {
        "ends": [start.ends.get(run, _AT_NO_TIME) for run in runs],
        "share": start.shares,
        "move_cost": start.move_costs,
        "charge": start.charges,
        "price": start.prices,
        "limit": [start.limits.get(number, _UNLIMITED) for number in range(len(offerings))],
        "new_cost": cache.new_costs,
        "weights": WORK,
        "boot_ms": [offering.type.boot_ms for offering in offerings],
        "buyable_cost": [cost for cost, _ in cache.buyable],
    }
    numbers = {
        "class_": start.classes,
        "group": start.groups,
        "home": start.homes,
        "place": start.places,
        "offering": start.offerings,
        "buyable_number": [number for _, number in cache.buyable],
        "load": memory.numbers(start.loads),
        "staying": memory.numbers(start.staying),
        "family_of": [families[offering.type.family] for offering in offerings],
    }
    return (
        {"movable": movable}
        | {name: array("q", values) for name, values in whole.items()}
        | {name: array("i", values) for name, values in numbers.items()}
    )
