"""The jobs after which a job is to run: what a file says of them, and in which order to submit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eva_wire.jobfile import elastic, outputs
from eva_wire.jobfile.outputs import TaskNames
from eva_wire.jobfile.schema import JobFile
from eva_wire.text import yamlfile
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.errors import InvalidJob, Problem

KEY = "after"


_NAMED_OF_A_CIRCLE = 10
_ONE = TaskNames(1)


@dataclass(frozen=True, slots=True)
class Predecessors:
    """Names of a job file that order it among other jobs.

    Attributes:
        file_name: The file, for messages.
        name: The job's, empty if the file has none.
        problems: Each job that it is to run after, with a complaint that has its place in the file
            and no message yet.
        tasks: Its own tasks.
        reads: Each task of another job whose outputs it reads: the job, the task, and a complaint
            likewise.
    """

    file_name: str
    name: str
    problems: Mapping[str, Problem] = field(default_factory=dict)
    tasks: TaskNames = _ONE
    reads: Sequence[tuple[str, str, Problem]] = ()

    def refusal(self, reference: str, message: str, hint: str = "") -> InvalidJob:
        """Make the error that complains about one of the jobs that it is to run after."""
        return self.refused(self.problems[reference], message, hint)

    def refused(self, place: Problem, message: str, hint: str = "") -> InvalidJob:
        """Make the error that complains about a place in the file."""
        problem = Problem(message, place.key, place.line, place.column, hint)
        return yamlfile.invalid(InvalidJob, self.file_name, [problem])


def predecessors(document: Document, job: JobFile, file_name: str, name: str) -> Predecessors:
    """Predecessors that a valid file names."""
    problems: dict[str, Problem] = {}
    for path, reference in named(job):
        problems.setdefault(reference, document.problem(path, ""))
    names = tuple(task.name for task in job.tasks) if isinstance(job.tasks, list) else ()
    tasks = TaskNames(len(names) or elastic.most_of(job), names)
    reads = [
        (reference.job, reference.task, document.problem(path, ""))
        for path, _, reference in outputs.references(job.storage.inputs)
        if reference.task
    ]
    return Predecessors(file_name, name, problems, tasks, reads)


def named(job: JobFile) -> list[tuple[Path, str]]:
    """The jobs that a job is to run after, as the file names them, and where it does.

    A job whose outputs are read is one of them.
    """
    entries = [(path, reference) for path, reference, _ in listed(job)]
    read = outputs.references(job.storage.inputs)
    return [*entries, *((path, reference.job) for path, _, reference in read)]


def listed(job: JobFile) -> Iterator[tuple[Path, str, bool]]:
    """The jobs that `after` names: where it does, what it calls them, and if their end is enough.

    The outputs of a job whose end is enough may be read, as far as there are any.
    """
    for at, entry in enumerate(job.after):
        if isinstance(entry, str):
            yield (KEY, at), entry, False
        else:
            yield (KEY, at, "job"), entry.job, entry.when == "ended"


def self_problems(document: Document, job: JobFile, name: str) -> Iterator[Problem]:
    """Complain about a job that is to run after itself."""
    for path, reference in named(job):
        if name and reference == name:
            yield document.problem(
                path,
                "a job cannot run after itself",
                "an earlier job of the same name is meant by its id, such as "
                f"{yamlfile.shortened(name)}-3",
            )


def in_order(files: Sequence[Predecessors]) -> list[int]:
    """The order in which to submit several files, so that each comes after those that it names.

    The given order is kept as far as possible.

    Args:
        files: Jobs that may name each other, by the names in their files.

    Raises:
        InvalidJob: They wait for each other in a circle, a name stands for two of them, or one
            reads outputs of a task that another one does not have.
    """
    numbers: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        numbers.setdefault(file.name, []).append(number)
    before = [list(_before(file, numbers)) for file in files]
    for file in files:
        _check_reads(file, files, numbers)
    order: list[int] = []
    done: set[int] = set()
    for first in range(len(files)):
        # Depth first and without recursion: a path of files, each with those still to look at.
        path = [] if first in done else [(first, iter(before[first]))]
        open_: dict[int, None] = dict.fromkeys(number for number, _ in path)
        while path:
            number, rest = path[-1]
            upcoming = next((other for other in rest if other not in done), None)
            if upcoming is None:
                path.pop()
                del open_[number]
                done.add(number)
                order.append(number)
            elif upcoming in open_:
                raise _circle(files, list(open_), upcoming)
            else:
                open_[upcoming] = None
                path.append((upcoming, iter(before[upcoming])))
    return order


def _before(file: Predecessors, numbers: Mapping[str, Sequence[int]]) -> Iterable[int]:
    for reference in file.problems:
        same = numbers.get(reference, ()) if reference else ()
        if len(same) > 1:
            raise file.refusal(
                reference,
                f"{len(same)} of the files are named {reference!r}",
                "give them different names",
            )
        yield from same


def _check_reads(
    file: Predecessors, files: Sequence[Predecessors], numbers: Mapping[str, Sequence[int]]
) -> None:
    """Check that the tasks are there whose outputs a file reads; raises `InvalidJob`."""
    for job, task, place in file.reads:
        for number in numbers.get(job, ()):
            if files[number].tasks.index(task) is None:
                raise file.refused(place, *files[number].tasks.complaint(job, task))


def _circle(files: Sequence[Predecessors], path: list[int], again: int) -> InvalidJob:
    circle = [*path[path.index(again) :], again]
    names = [files[number].name for number in circle]
    if len(names) > _NAMED_OF_A_CIRCLE:
        more = len(names) - _NAMED_OF_A_CIRCLE
        half = _NAMED_OF_A_CIRCLE // 2
        names = [*names[:half], f"({more} more)", *names[-half:]]
    return files[circle[-2]].refusal(
        files[again].name,
        f"these jobs wait for each other in a circle: {' after '.join(names)}",
        "take one of them out of `after`",
    )
