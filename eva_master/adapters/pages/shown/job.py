"""The page of a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from urllib.parse import quote

from rich.console import Group

from eva_client.cli.views import explanation, job_tasks, tables
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import is_in, money, share
from eva_master.adapters.pages.shown import plots
from eva_master.adapters.pages.shown.colours import Colour, colour_of
from eva_master.adapters.pages.shown.feed import EventRow, row
from eva_master.adapters.pages.shown.jobs import ENDED
from eva_master.adapters.pages.shown.tables import PagePart, facts, parts
from eva_master.model.arithmetic.money import next_cap
from eva_wire.rpc.messages import Explanation, FeedEvent, Job, StoredFile, Task
from eva_wire.values.durations import span
from eva_wire.values.states import JobState, RunState

_MOST_FILES = 200
_KIB = 1_024


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of a job.

    Attributes:
        number: Of the task in its job, with that of an extra run behind a plus.
        href: Path of the instance's page; empty for a task without one.
        percent: Work done, from 0 to 100; `None` if unknown.
        pace: Throughput against that alone, in words; ``-`` if unknown.
    """

    number: str
    name: str
    state: str
    where: str
    instance: str
    steps: str
    percent: int | None
    eta: str
    rate: str
    pace: str
    attempt: str
    note: str
    index: int
    replica: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """A stored file of a job.

    Attributes:
        href: Path from which it is downloaded.
    """

    path: str
    size: str
    href: str


@dataclass(frozen=True, slots=True)
class JobPage:
    """Contents of the page.

    Attributes:
        sentence: Its state, as `eva explain` says it.
        percent: Work done, from 0 to 100; `None` if unknown.
        eta: In how long it is expected to end; empty if unknown.
        facts: Labels and values, as `eva status` has them.
        saved: Cost against that alone, in words; empty without either.
        hidden: How many tasks are not shown, in words; empty for none.
        plots: Figures over time.
        why: Output of `eva explain`.
        may_change: Whether the viewer may change the job.
        suspends: Whether it can be suspended.
        resumes: Whether it can be resumed.
        next_cap: The cap to suggest for it in dollars; empty if it has none that can be raised.
        cancels: Whether it can be cancelled.
        retries: Whether it can be done again.
    """

    id: str
    name: str
    owner: str
    colour: Colour
    state: str
    sentence: str
    percent: int | None
    eta: str
    cost: str
    alone: str
    saved: str
    cap: str
    cap_percent: int | None
    facts: tuple[tuple[str, str], ...]
    tasks: tuple[TaskRow, ...]
    hidden: str
    events: tuple[EventRow, ...]
    plots: tuple[plots.SmallPlot, ...]
    why: tuple[PagePart, ...]
    files: tuple[FileRow, ...]
    more_files: bool
    labels: tuple[tuple[str, str], ...]
    may_change: bool
    suspends: bool
    resumes: bool
    next_cap: str
    cancels: bool
    retries: bool
    failed: bool
    age: str


@dataclass(frozen=True, slots=True)
class JobViews:
    """Answers of the services about a job.

    Attributes:
        explained: `None` where no reasons are kept.
        files: Stored files that the viewer may see.
    """

    job: Job
    events: Sequence[FeedEvent]
    explained: Explanation | None
    files: Sequence[StoredFile]


def job(views: JobViews, now: int, *, may_change: bool) -> JobPage:
    """The page.

    Args:
        views: The answers.
        now: The time.
        may_change: Whether the viewer may change the job.
    """
    message = views.job
    done, ended = job_tasks.share_done(message), message.state in ENDED
    resting = message.HasField("suspension")
    saved = message.no_packing_micro_usd - message.cost_micro_usd
    cap = message.max_cost_micro_usd
    files = sorted(islice(views.files, _MOST_FILES + 1), key=_by_path)
    return JobPage(
        id=message.id,
        name=message.name,
        owner=message.owner,
        colour=colour_of(message.id),
        state=message.state,
        sentence=sentence(message),
        percent=None if done is None else round(100 * done),
        eta="" if ended else tables.eta(message, now).replace("-", ""),
        cost=money(message.cost_micro_usd),
        alone=money(message.no_packing_micro_usd),
        saved=_saved(saved, message.no_packing_micro_usd),
        cap=money(cap) if cap else "",
        cap_percent=min(100, round(100 * message.cost_micro_usd / cap)) if cap else None,
        facts=_facts(message, now),
        tasks=tuple(_task(message, task, now) for task in message.tasks),
        hidden=_hidden(message),
        events=tuple(row(event, now) for event in sorted(views.events, key=_newest)),
        plots=tuple(_plots(message)),
        why=() if views.explained is None else parts(explanation.explain(views.explained)),
        files=tuple(_file(message.id, file) for file in files[:_MOST_FILES]),
        more_files=len(files) > _MOST_FILES,
        labels=tuple(sorted(message.labels.items())),
        may_change=may_change,
        suspends=not ended and not resting and message.state != "ending",
        resumes=not ended and resting and message.suspension.by in ("user", "cost"),
        next_cap=str(next_cap(cap)) if cap and _can_be_raised(message) else "",
        cancels=not ended,
        retries=ended,
        failed=any(task.state == "failed" for task in message.tasks) and ended,
        age=span(now - message.submitted_ms),
    )


def _can_be_raised(message: Job) -> bool:
    """Whether the cap of a job can be raised: neither its end nor its owner's limit forbids it."""
    over = message.state in ENDED or message.state == "ending"
    return not over and not (message.HasField("suspension") and message.suspension.by == "month")


def sentence(message: Job) -> str:
    """The state of a job in one sentence."""
    why = message.reason or tables.note_of(message)
    place = _place(message) if message.state == JobState.RUNNING.value else ""
    return f"{message.name} {is_in(message.state)}{place}" + (f": {why}" if why else "") + "."


def _place(message: Job) -> str:
    """How many tasks of a job run, or where its only one does and at which pace."""
    running = message.tasks_by_state.get(RunState.RUNNING.value, 0)
    if message.task_count > 1:
        return f" with {running:,} of {message.task_count:,} tasks"
    task = next((task for task in message.tasks if task.state == RunState.RUNNING.value), None)
    if task is None or not task.instance:
        return ""
    pace = f", at {round(100 * task.normalised)} % of its pace alone" if task.normalised else ""
    return f" on {task.instance}{pace}"


def _newest(event: FeedEvent) -> int:
    return -event.number


def _by_path(file: StoredFile) -> tuple[int, int, bool, str]:
    """Outputs of each task come first."""
    return file.task, file.replica, not file.path.startswith("outputs/"), file.path


def _saved(saved: int, alone: int) -> str:
    if not alone or not saved:
        return ""
    word = "less" if saved > 0 else "more"
    return f"{money(abs(saved))} ({share(abs(saved), alone)}) {word} than on instances of its own"


_SAID = frozenset({"job", "owner", "state", "reason", "cost", "labels", "eta"})
"""Facts that stand elsewhere on the page."""


def _facts(message: Job, now: int) -> tuple[tuple[str, str], ...]:
    """Labels and values of `eva status`."""
    shown = tables.job(message, now)
    assert isinstance(shown, Group)
    grid = shown.renderables[0]
    assert isinstance(grid, Grid)
    return tuple((label, value) for label, value in facts(grid) if label not in _SAID)


def _task(message: Job, task: Task, now: int) -> TaskRow:
    over = job_tasks.is_over(message, task)
    percent = None
    if over or task.total_steps:
        percent = 100 if over else min(100, round(100 * task.steps / task.total_steps))
    return TaskRow(
        number=tables.number(task),
        name=task.name,
        state=task.state,
        where=tables.where(task),
        instance=task.instance,
        steps=tables.steps(task) if task.steps or task.total_steps else "-",
        percent=percent,
        eta=tables.eta(task, now),
        rate=tables.rate(task),
        pace=f"{round(100 * task.normalised)} %" if task.normalised else "-",
        attempt=str(task.attempt),
        note=tables.note_of_task(task),
        index=task.index,
        replica=task.replica,
    )


def _hidden(message: Job) -> str:
    shown, total = job_tasks.shown(message), job_tasks.number(message)
    if shown >= total:
        return ""
    return (
        f"{shown:,} of {total:,} tasks are shown: those that failed, ended last, have a place or "
        f"wait though they began ({job_tasks.in_words(message)})."
    )


def _plots(message: Job) -> Iterable[plots.SmallPlot]:
    for curve in message.curves:
        plot = plots.small(curve.name, list(zip(curve.at_ms, curve.values, strict=False)))
        if plot is not None:
            yield plot


def _file(job_id: str, file: StoredFile) -> FileRow:
    number = f"{file.task}+{file.replica}" if file.replica else str(file.task)
    return FileRow(
        f"{number}/{file.path}",
        size(file.size),
        f"/jobs/{job_id}/files/{number}/{quote(file.path)}",
    )


def size(count: int) -> str:
    """A number of bytes in words, such as ``1.5 MiB``."""
    if count < _KIB:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= _KIB
        if value < _KIB:
            return f"{value:.3g} {unit}"
    return f"{value / _KIB:.3g} TiB"
