"""Policies that change the sizes of elastic gangs at will."""

from __future__ import annotations

import random
from collections.abc import Mapping

from eva_master.model.catalog import Offering
from eva_master.model.planning.plan import (
    Assign,
    NewInstance,
    Plan,
    PlanEntry,
    PolicyMemory,
    Resize,
)
from eva_master.model.planning.sizes import resizable, with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Policy
from eva_wire.values.ids import InstanceId


class Sized:
    """Gives every member of every job an instance of its own, and elastic gangs the sizes told.

    Attributes:
        sizes: By the name before the job's number.
        offering: Offering to buy.
    """

    name = "sized"

    def __init__(self, offering: Offering, sizes: Mapping[str, int]) -> None:
        self.offering = offering
        self.sizes = dict(sizes)

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        sizes = tuple(
            Resize(job.id, size, f"somebody wants {size}")
            for job in resizable(snapshot)
            if (size := self.sizes.get(job.id.rpartition("-")[0], len(job.runs))) != len(job.runs)
        )
        seen = with_sizes(snapshot, {entry.job: entry.members for entry in sizes})
        launches: list[NewInstance] = []
        entries: list[PlanEntry] = []
        free: list[InstanceId] = [
            view.id
            for view in seen.instances
            if not any(run.instance == view.id for run in seen.runs)
        ]
        for run in seen.runs:
            if run.instance is None and not run.pinned:
                if free:
                    entries.append(Assign(run.id, free.pop()))
                    continue
                launches.append(NewInstance(len(launches), self.offering))
                entries.append(Assign(run.id, launches[-1].key))
        return Plan(tuple(launches), tuple(entries), sizes=sizes), memory


class Fickle:
    """Changes sizes at random over another policy, until a time has come.

    Args:
        inner: Places what is to be placed.
        seed: Of the sizes.
        until_ms: From then on gangs keep their sizes.
        share: Of the rounds in which a gang's size changes.
    """

    name = "fickle"

    def __init__(self, inner: Policy, seed: int, until_ms: int, share: float = 0.3) -> None:
        self._inner = inner
        self._seed = seed
        self._until_ms = until_ms
        self._share = share

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        rng = random.Random(f"sizes {self._seed}/{snapshot.now_ms}")
        sizes = []
        for job in resizable(snapshot):
            assert job.sharing.elastic is not None
            size = rng.randint(job.sharing.elastic.least, job.sharing.elastic.most)
            if (
                snapshot.now_ms < self._until_ms
                and rng.random() < self._share
                and size != len(job.runs)
            ):
                sizes.append(Resize(job.id, size, "a whim"))
        seen = with_sizes(snapshot, {entry.job: entry.members for entry in sizes})
        plan, memory = self._inner.plan(seen, memory)
        return Plan(plan.launches, plan.entries, sizes=tuple(sizes)), memory
