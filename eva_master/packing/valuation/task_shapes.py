"""How packing tells tasks apart: by what they need and how fast they run on each family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eva_master.learning.speeds.type_rates import Sheets
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.incremental.view import IncrementalView, replaced
from eva_master.packing.valuation.gang_pace import GangPart
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Rates,
    compared,
    rates,
)
from eva_wire.values.ids import RunId, Workload

_TASKS_REMEMBERED = 65_536
"""Task runs, kinds of tasks and shapes of which something is remembered from round to round; twice
as many as the largest snapshot has task runs, if that is more."""


class TaskShape:
    """Tasks that need the same and run as fast. Equal ones are the same object.

    Attributes:
        demand: Per family.
        part: How fast they are of use, and whom they hold up.
    """

    __slots__ = ("demand", "part")

    def __init__(self, demand: Demand, part: GangPart) -> None:
        self.demand = demand
        self.part = part


class TaskTraits:
    """Properties of a task that matter to packing. Equal ones are one object, for fast comparison.

    Args:
        task: A task with these traits.
        shapes: The known shapes, by their content.

    Attributes:
        demand: The task's demand, as in `TaskSpec`.
        throughput: Throughput stated by the user.
        workload: The task's workload.
    """

    __slots__ = ("_rated", "_shapes", "demand", "throughput", "workload")

    def __init__(self, task: TaskSpec, shapes: dict[tuple[Demand, GangPart], TaskShape]) -> None:
        self.demand = task.demand
        self.throughput = task.throughput
        self.workload = task.workload
        self._shapes = shapes
        self._rated: tuple[Rates, Sheets, Rates, TaskShape] | None = None

    def rates(self, measured: Rates, on_sheets: Sheets) -> Rates:
        """Its standalone throughput, see `reservation_price.rates`."""
        return self._at(measured, on_sheets)[0]

    def shape(self, measured: Rates, on_sheets: Sheets) -> TaskShape:
        """Its shape as a task of its own, by the measured rates of its workload."""
        return self._at(measured, on_sheets)[1]

    def _at(self, measured: Rates, on_sheets: Sheets) -> tuple[Rates, TaskShape]:
        rated = self._rated
        if rated is None or rated[0] != measured or rated[1] != on_sheets:
            own_rates = rates(self, measured, on_sheets)
            shape = self.as_part(GangPart(compared(own_rates)))
            rated = self._rated = measured, on_sheets, own_rates, shape
        return rated[2:]

    def as_part(self, part: GangPart) -> TaskShape:
        """Its shape as a member of a gang."""
        key = self.demand, part
        return self._shapes.get(key) or self._shapes.setdefault(key, TaskShape(*key))


class TaskShapes:
    """Remembers the traits of tasks from round to round."""

    def __init__(self) -> None:
        self._most = _TASKS_REMEMBERED
        self._forget()

    def of(self, runs: tuple[RunView, ...]) -> Mapping[RunId, TaskTraits]:
        """The traits of each task run's task, by task run."""
        self._most = max(self._most, 2 * len(runs))
        self._trim()
        return self._followed.of(runs)

    def of_run(self, run: RunView) -> TaskTraits:
        """The traits of one task run's task."""
        self._trim()
        return self._of_run(run)

    def _step(
        self,
        before: Mapping[RunId, TaskTraits],
        _: Sequence[RunView],
        gone: Sequence[RunView],
        fresh: Sequence[RunView],
    ) -> Mapping[RunId, TaskTraits]:
        traits = dict(before)
        for run in gone:
            del traits[run.id]
        traits.update((run.id, self._of_run(run)) for run in fresh)
        return traits

    def _trim(self) -> None:
        """Forget everything if it is too much."""
        if max(len(self._by_run), len(self._known), len(self._shapes)) > self._most:
            self._forget()

    def _forget(self) -> None:
        self._by_run: dict[RunId, tuple[TaskSpec, TaskTraits]] = {}
        self._known: dict[tuple[Demand, Rates, Workload], TaskTraits] = {}
        self._shapes: dict[tuple[Demand, GangPart], TaskShape] = {}
        # Traits of one kind are one object only as long as none is forgotten.
        self._followed: IncrementalView[RunView, Mapping[RunId, TaskTraits]]
        self._followed = IncrementalView({}, self._step, replaced)

    def _of_run(self, run: RunView) -> TaskTraits:
        cached, task = self._by_run.get(run.id), run.task
        if cached is not None and cached[0] is task:
            return cached[1]
        key = task.demand, task.throughput, task.workload
        traits = self._known.get(key) or self._known.setdefault(key, TaskTraits(task, self._shapes))
        self._by_run[run.id] = task, traits
        return traits
