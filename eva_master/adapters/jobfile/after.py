"""The jobs after which a job is to run: what a file says of them, and in which order to submit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eva_master.adapters.jobfile.schema import JobFile
from eva_master.adapters.text import yamlfile
from eva_master.adapters.text.yamlfile import Document
from eva_master.model.errors import InvalidJob, Problem
from eva_master.model.ids import JobId

KEY = "after"


@dataclass(frozen=True, slots=True)
class Several:
    """Jobs that share the name by which one of them was meant.

    Attributes:
        jobs: Their ids, newest first.
    """

    jobs: Sequence[JobId]

    def __str__(self) -> str:
        """Some of the ids, for a message."""
        more = len(self.jobs) - _LISTED
        return ", ".join(self.jobs[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")


Find = Callable[[Sequence[str]], Mapping[str, JobId | Several]]
"""Returns the jobs that references (ids or names) stand for; what is not there is left out."""

_LISTED = 10

_NAMED_OF_A_CIRCLE = 10


@dataclass(frozen=True, slots=True)
class Predecessors:
    """What a job file says about its place among other jobs.

    Attributes:
        file_name: The file, for messages.
        name: The job's, empty if the file has none.
        problems: Each job that it is to run after, with a complaint that has its place in the file
            and no message yet.
    """

    file_name: str
    name: str
    problems: Mapping[str, Problem] = field(default_factory=dict)

    def refusal(self, reference: str, message: str, hint: str = "") -> InvalidJob:
        """Make the error that complains about one of the jobs that it is to run after."""
        place = self.problems[reference]
        problem = Problem(message, place.key, place.line, place.column, hint)
        return yamlfile.invalid(InvalidJob, self.file_name, [problem])


def predecessors(document: Document, job: JobFile, file_name: str, name: str) -> Predecessors:
    """What a file says that was read and found right."""
    places = {one: document.problem((KEY, at), "") for at, one in reversed([*enumerate(job.after)])}
    return Predecessors(file_name, name, {one: places[one] for one in dict.fromkeys(job.after)})


def self_problems(document: Document, job: JobFile, name: str) -> Iterator[Problem]:
    """Complain about a job that is to run after itself."""
    for at, reference in enumerate(job.after):
        if name and reference == name:
            yield document.problem(
                (KEY, at),
                "a job cannot run after itself",
                "an earlier job of the same name is meant by its id, such as "
                f"{yamlfile.shortened(name)}-3",
            )


def found(
    document: Document, job: JobFile, find: Find | None
) -> tuple[tuple[JobId, ...], tuple[Problem, ...]]:
    """The ids of the jobs that a job is to run after, each once, and what is wrong with them.

    There is neither if nobody can find jobs.
    """
    if find is None or not job.after:
        return (), ()
    known = find(job.after)
    problems = tuple(
        document.problem((KEY, at), *complaint)
        for at, reference in enumerate(job.after)
        if (complaint := _complaint(reference, known.get(reference)))
    )
    jobs = (known.get(reference) for reference in job.after)
    return tuple(dict.fromkeys(it for it in jobs if isinstance(it, str))), problems


def _complaint(reference: str, job: JobId | Several | None) -> tuple[str, str] | None:
    """What is wrong with a reference to a job, and what to do; `None` if it stands for one job."""
    if isinstance(job, Several):
        return (
            f"{reference!r} is the name of {len(job.jobs)} active jobs of yours: {job}",
            "write the id of the one that is meant",
        )
    if job is None:
        return (
            f"you have no job {reference!r}",
            "write the id or the name of a job of yours (`eva ls --all`), or of one in another"
            " file of the same `eva submit`",
        )
    return None


def in_order(files: Sequence[Predecessors]) -> list[int]:
    """The order in which to submit several files, so that each comes after those that it names.

    It is the given one as far as possible.

    Args:
        files: Jobs that may name each other, by the names in their files.

    Raises:
        InvalidJob: They wait for each other in a circle, or a name stands for two of them.
    """
    numbers: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        numbers.setdefault(file.name, []).append(number)
    before = [list(_before(file, numbers)) for file in files]
    order: list[int] = []
    done: set[int] = set()
    for first in range(len(files)):
        # Depth first and without recursion: a path of files, each with those still to look at.
        path = [] if first in done else [(first, iter(before[first]))]
        open_: dict[int, None] = dict.fromkeys(number for number, _ in path)
        while path:
            number, rest = path[-1]
            upcoming = next((it for it in rest if it not in done), None)
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


def _circle(files: Sequence[Predecessors], path: list[int], again: int) -> InvalidJob:
    circle = [*path[path.index(again) :], again]
    names = [files[number].name for number in circle]
    if len(names) > _NAMED_OF_A_CIRCLE:
        left = len(names) - _NAMED_OF_A_CIRCLE
        half = _NAMED_OF_A_CIRCLE // 2
        names = [*names[:half], f"({left} more)", *names[-half:]]
    return files[circle[-2]].refusal(
        files[again].name,
        f"these jobs wait for each other in a circle: {' after '.join(names)}",
        "take one of them out of `after`",
    )
