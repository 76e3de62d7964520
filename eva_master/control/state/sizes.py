"""How much memory instances of a type have for tasks: as listed, and as workers measure it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eva_master.model.catalog import Catalog, Offering
from eva_master.model.states import JobState

if TYPE_CHECKING:
    from eva_master.control.state.store import State

_LEAST_PERCENT, _MOST_PERCENT = 80, 111
"""What is measured counts as far as it is between these shares of what is listed."""
_NEWS_PERCENT = 1
"""Machines differ by a few pages. Only what is so much more than before is another size."""


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Mebibytes that tasks may use, by instance type.

    Attributes:
        listed: As the catalog has it.
        measured: As workers have measured it: the least of them, until machines have more.
    """

    listed: Mapping[str, int]
    measured: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog) -> MemorySizes:
        """Sizes of which only the catalog is known."""
        return cls({it.type.name: it.type.capacity.memory_mib for it in catalog})

    def restored(self, measured: object) -> MemorySizes:
        """The same sizes with what was measured, as the journal has it."""
        if not isinstance(measured, dict):
            return self
        return replace(self, measured={name: int(str(it)) for name, it in measured.items()})

    def wanted(self, machine: str) -> int | None:
        """What instances of a type are to have; `None` if it is not in the catalog."""
        listed = self.listed.get(machine)
        if listed is None or machine not in self.measured:
            return listed
        within = min(self.measured[machine], listed * _MOST_PERCENT // 100)
        return max(within, listed * _LEAST_PERCENT // 100)

    def heard(self, machine: str, mib: int) -> MemorySizes | None:
        """The sizes after a worker has registered with so much; `None` if that is no news."""
        known = self.measured.get(machine)
        before = self.listed.get(machine) if known is None else known
        if before is None or mib <= 0 or before <= mib <= before * (100 + _NEWS_PERCENT) // 100:
            return None
        return replace(self, measured={**self.measured, machine: mib})


def fit(state: State) -> None:
    """Give offerings and live instances the sizes that they are to have.

    No type becomes smaller than what tasks take, or are about to take, of an instance of it, nor
    than a task of a job that was submitted when it was larger: a task that runs could have no place
    then, not even its own.
    """
    least = _taken(state)
    for machine, mib in _promised(state):
        least[machine] = max(least[machine], mib)
    sizes = {
        machine: max(state.sizes.wanted(machine) or 0, least[machine])
        for machine in state.sizes.listed
    }
    catalog = tuple(_sized(offering, sizes) for offering in state.catalog)
    if catalog != state.catalog:
        state.set_catalog(catalog)
    for name in tuple(state.live):
        instance = state.instances[name]
        offering = _sized(instance.offering, sizes)
        if offering is not instance.offering:
            state.put_instance(replace(instance, offering=offering))


def _taken(state: State) -> defaultdict[str, int]:
    """What tasks take at most of one instance of a type."""
    taken: defaultdict[str, int] = defaultdict(int)
    for name in state.live:
        instance = state.instances[name]
        machine = instance.offering.type.name
        runs = {run.id: run for run in (*state.occupants(name), *state.targeting(name))}
        demand = state.demand(runs.values(), instance).memory_mib
        taken[machine] = max(taken[machine], demand)
    return taken


def _promised(state: State) -> Iterator[tuple[str, int]]:
    """Types that are smaller than listed, and tasks that only what is listed could hold."""
    for machine in {offering.type for offering in state.catalog}:
        listed, now = state.sizes.listed[machine.name], state.sizes.wanted(machine.name)
        if now is None or now >= listed:
            continue
        jobs = (state.jobs[job] for job in state.active)
        for job in (job for job in jobs if job.state is not JobState.ENDING):
            for task in job.spec.tasks:
                need = task.demand_on(machine.family)
                if need is not None and now < need.memory_mib <= listed:
                    yield machine.name, need.memory_mib


def _sized(offering: Offering, sizes: Mapping[str, int]) -> Offering:
    capacity = offering.type.capacity
    mib = sizes.get(offering.type.name, capacity.memory_mib)
    if mib == capacity.memory_mib:
        return offering
    machine = replace(offering.type, capacity=replace(capacity, memory_mib=mib))
    return replace(offering, type=machine)
