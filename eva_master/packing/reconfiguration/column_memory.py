"""The configuration LP's columns from round to round, in the journal's form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from eva_master.model.planning.plan import Json
from eva_master.packing.lp.optimizer import Seed
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.task_classes import TaskClass
from eva_wire.values.ids import OfferingId

KEPT = 400
"""At most so many columns are carried on: some 20 bytes each."""
MOST_DUALS = 1_000
"""At most so many duals are: some 25 bytes each."""


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """Columns whose classes and offerings are named such that another round finds them.

    Attributes:
        offerings: That the columns are on.
        classes: Digests of the classes in them.
        rows: A column each: the number of its offering, then number of a class and how many
            of its tasks, in turn.
    """

    offerings: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()

    def seeds(self, problem: Problem) -> list[Seed]:
        """The columns of which every class and offering is still there."""
        if not self.rows:
            return []
        numbers = {_digest(problem, c): number for number, c in enumerate(problem.classes)}
        seeds = []
        for offering, *pairs in self.rows:
            task_set = [
                (numbers.get(self.classes[name], -1), count)
                for name, count in zip(pairs[::2], pairs[1::2], strict=True)
            ]
            if all(number >= 0 for number, _ in task_set):
                name = OfferingId(self.offerings[offering])
                seeds.append(Seed(name, tuple(sorted(task_set))))
        return seeds

    @classmethod
    def of(cls, problem: Problem, seeds: Sequence[Seed]) -> NamedColumns:
        """Name the classes of columns."""
        offerings = {seed.offering: 0 for seed in seeds}
        offerings = {name: number for number, name in enumerate(sorted(offerings))}
        used = sorted({number for seed in seeds for number, _ in seed.task_set})
        place = {number: row for row, number in enumerate(used)}
        rows = tuple(
            (
                offerings[seed.offering],
                *(value for number, count in seed.task_set for value in (place[number], count)),
            )
            for seed in seeds
        )
        digests = tuple(_digest(problem, problem.classes[number]) for number in used)
        return cls(tuple(offerings), digests, rows)

    def to_json(self) -> Json:
        """The form in which the journal keeps it."""
        return {
            "offerings": list(self.offerings),
            "classes": list(self.classes),
            "rows": [list(row) for row in self.rows],
        }

    @classmethod
    def from_json(cls, data: Json) -> NamedColumns:
        """Read the journal's form; what is not of this form counts as nothing."""
        match data:
            case {"offerings": list(offerings), "classes": list(classes), "rows": list(rows)}:
                return cls(
                    tuple(map(str, offerings)),
                    tuple(map(str, classes)),
                    tuple(
                        tuple(value for value in row if isinstance(value, int))
                        for row in rows
                        if isinstance(row, list)
                    ),
                )
        return cls()


@dataclass(frozen=True, slots=True)
class Duals:
    """Cost of covering a task of each class in the configuration LP.

    Attributes:
        costs: By digest of the class, in micro-dollars per hour.
    """

    costs: Mapping[str, int] = field(default_factory=dict)

    def known(self, problem: Problem) -> dict[int, int]:
        """Costs of the classes that still exist, by number."""
        if not self.costs:
            return {}
        digests = (_digest(problem, task_class) for task_class in problem.classes)
        return {n: self.costs[name] for n, name in enumerate(digests) if name in self.costs}

    @classmethod
    def of(cls, problem: Problem, duals: Mapping[int, int]) -> Duals:
        """Keep duals under lasting names of their classes."""
        kept = sorted(duals.items())[:MOST_DUALS]
        return cls({_digest(problem, problem.classes[number]): cost for number, cost in kept})

    def to_json(self) -> Json:
        """The form in which the journal keeps it."""
        return dict(self.costs)

    @classmethod
    def from_json(cls, data: Json) -> Duals:
        """Read the journal's form; data of another form counts as nothing."""
        if not isinstance(data, dict):
            return cls()
        return cls({name: cost for name, cost in data.items() if isinstance(cost, int)})


def _digest(problem: Problem, task_class: TaskClass) -> str:
    return problem.cache.remembered("class digests", task_class, partial(_name, task_class))


def _name(task_class: TaskClass) -> str:
    """Name a class by what does not change with prices."""
    gang = task_class.charge * 1000 // max(task_class.price, 1)
    split = ("split",) if task_class.split else ()
    text = repr((task_class.demand, task_class.workload, gang, *task_class.speeds, *split))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
