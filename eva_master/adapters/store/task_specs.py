"""The tasks of a job as one document in which every part that is repeated stands once.

The tasks of an array are mostly equal, and those that differ share their program, their variables
or their demand. Written out, a job file of 60 kB comes to 600 MB; here it stays 60 kB. Values read
back share their parts too, so that memory holds each of them once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from eva_master.model.job import Build, JobOutputs, Program, TaskSpec, different
from eva_master.model.resources import Resources
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import Family, Workload

Part = TypeVar("Part", bound=Hashable)
Demand = tuple[tuple[Family, Resources], ...]
Rates = tuple[tuple[Family, int], ...]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Program:
    """A program whose texts are places in the list of texts."""

    run: int
    env: tuple[Pair, ...] = ()
    workdir: str | None = None
    inputs: tuple[Pair, ...] = ()
    image: str = ""
    build: Build | None = None
    outputs: tuple[JobOutputs, ...] = ()


@dataclass(frozen=True, slots=True)
class _Task:
    """A task whose parts are places in the lists of parts."""

    workload: int
    program: int
    demand: int
    rates: int
    name: str = ""
    reports_steps: bool = True


@dataclass(frozen=True, slots=True)
class _Document:
    """All tasks of a job.

    Attributes:
        order: The tasks one after the other: a place in the list `tasks`, and how many in a row.
    """

    texts: tuple[str, ...]
    programs: tuple[_Program, ...]
    demands: tuple[Demand, ...]
    rates: tuple[Rates, ...]
    tasks: tuple[_Task, ...]
    order: tuple[Pair, ...]


_DOCUMENT = TypeAdapter(_Document)


class _Listed(Generic[Part]):
    """A list of different values, and the place of each."""

    def __init__(self) -> None:
        self._places: dict[Part, int] = {}

    def place(self, value: Part) -> int:
        """The place of a value, which is added if it is not there yet."""
        return self._places.setdefault(value, len(self._places))

    def all(self) -> tuple[Part, ...]:
        """The values by their places."""
        return tuple(self._places)


class _Writer:
    """Takes tasks apart."""

    def __init__(self) -> None:
        self.texts = _Listed[str]()
        self.programs = _Listed[_Program]()
        self.demands = _Listed[Demand]()
        self.rates = _Listed[Rates]()
        self.tasks = _Listed[_Task]()

    def task(self, task: TaskSpec) -> int:
        """The place of a task in the list of different ones."""
        return self.tasks.place(
            _Task(
                self.texts.place(task.workload),
                self.programs.place(self._program(task.program)),
                self.demands.place(task.demand),
                self.rates.place(task.throughput),
                task.name,
                task.reports_steps,
            )
        )

    def _program(self, program: Program) -> _Program:
        return _Program(
            self.texts.place(program.run),
            self._pairs(program.env),
            program.workdir,
            self._pairs(program.inputs),
            program.image,
            program.build,
            program.outputs,
        )

    def _pairs(self, pairs: Iterable[tuple[str, str]]) -> tuple[Pair, ...]:
        return tuple((self.texts.place(key), self.texts.place(value)) for key, value in pairs)


def encode(tasks: Sequence[TaskSpec]) -> str:
    """The tasks of a job as one JSON document."""
    writer = _Writer()
    # Equal tasks in a row are mostly one object: it is looked at once.
    if len(different(tasks)) == 1:
        order = [(writer.task(tasks[0]), len(tasks))]
    else:
        counted = ((next(same), 1 + sum(1 for _ in same)) for _, same in groupby(tasks, key=id))
        order = [(writer.task(task), count) for task, count in counted]
    document = _Document(
        writer.texts.all(),
        writer.programs.all(),
        writer.demands.all(),
        writer.rates.all(),
        writer.tasks.all(),
        tuple((place, sum(n for _, n in run)) for place, run in groupby(order, itemgetter(0))),
    )
    return _DOCUMENT.dump_json(document).decode()


def decode(text: str) -> tuple[TaskSpec, ...]:
    """The inverse of `encode`; equal tasks are one object.

    Raises:
        StorageError: The document is damaged.
    """
    try:
        document = _DOCUMENT.validate_json(text)
        programs = [_program(program, document.texts) for program in document.programs]
        tasks = [_task(task, document, programs) for task in document.tasks]
        return tuple(_in_order(tasks, document.order))
    except (ValidationError, IndexError) as error:
        raise StorageError(
            "the journal holds a damaged record: the tasks of a job cannot be read",
            hint="restore the journal from a backup",
        ) from error


def _in_order(tasks: Sequence[TaskSpec], order: Iterable[Pair]) -> Iterator[TaskSpec]:
    for place, count in order:
        yield from (tasks[place],) * count


def _program(stored: _Program, texts: Sequence[str]) -> Program:
    return Program(
        texts[stored.run],
        tuple((texts[key], texts[value]) for key, value in stored.env),
        stored.workdir,
        tuple((texts[key], texts[value]) for key, value in stored.inputs),
        stored.image,
        stored.build,
        stored.outputs,
    )


def _task(stored: _Task, document: _Document, programs: Sequence[Program]) -> TaskSpec:
    return TaskSpec(
        Workload(document.texts[stored.workload]),
        programs[stored.program],
        document.demands[stored.demand],
        document.rates[stored.rates],
        stored.name,
        stored.reports_steps,
    )
