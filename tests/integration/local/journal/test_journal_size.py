"""What a small job file adds to the journal and to memory, counted in bytes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.changes import Changes
from eva_master.model.events import JobSubmitted, PlanReady
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.planning.standing import Line
from eva_master.model.records import Job, TaskRun, untouched
from eva_master.model.values import replace
from eva_wire.values.ids import JobId, Millis

CATALOG = load_catalog()
NOW = Millis(1_700_000_000_000)
MEGABYTE = 1_000_000
TASKS = 10_000
HEAD = "name: big\nkind: array\nresources: {cpus: 1, memory: 1GiB}\n"
FILLING = f"run: 'echo {'x' * 29_000}'\nenvs: {{LONG: {'y' * 29_000}}}\n"


def repeated() -> str:
    return f"{HEAD}{FILLING}tasks: {TASKS}\n"


def named() -> str:
    """A list of tasks that differ in their names alone: each has the job's program."""
    tasks = "".join(f"- {{name: t{index}}}\n" for index in range(1_500))
    return f"{HEAD}run: 'echo {'x' * 29_000}'\ntasks:\n{tasks}"


FILES: list[Callable[[], str]] = [repeated, named]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{path}") as opened:
        yield opened


def parsed(text: str) -> JobSpec:
    return parse_job(text, file_name="big.yaml", owner="ann", catalog=CATALOG, workdir=None)


def submitted(spec: JobSpec) -> Machine:
    """A control loop that has just taken a job in."""
    machine = Machine(State(CATALOG), Settings())
    actions = machine.handle([JobSubmitted("c1", spec)], NOW)
    assert any(isinstance(action, RequestPlan) for action in actions)
    return machine


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_60_kb_adds_less_than_a_megabyte(
    file: Callable[[], str], journal: SqlJournal, path: Path
) -> None:
    text = file()
    assert len(text) < 61_000
    before = size(path.parent)
    journal.commit(submitted(parsed(text)).take_changes())
    assert size(path.parent) - before < MEGABYTE


@pytest.mark.parametrize("kind", ["array", "gang"])
def test_a_submission_takes_less_than_a_megabyte_of_memory(kind: str) -> None:
    """Of ten thousand tasks to which nothing has happened there is no record."""
    spec = parsed(repeated().replace("array", kind))
    machine = Machine(State(CATALOG), Settings())
    machine.handle([], NOW)
    machine.published()
    gc.collect()
    tracemalloc.start()
    try:
        state = machine.state
        state.put_job(Job(JobId("big-1"), spec, NOW, (("pending", NOW),)))
        changes = machine.take_changes()
        model = machine.published()
        gc.collect()
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(changes.jobs), len(changes.runs)) == (1, 0)
    assert len(model.runs) == TASKS
    assert held < MEGABYTE
    assert most < MEGABYTE


@pytest.mark.parametrize("file", FILES)
def test_a_spec_takes_less_than_a_megabyte_of_memory_also_after_a_restart(
    file: Callable[[], str], journal: SqlJournal
) -> None:
    text = file()
    journal.commit(Changes(jobs=submitted(parsed(text)).take_changes().jobs))
    held = []
    tracemalloc.start()
    try:
        for make in (lambda: parsed(text), lambda: journal.load().jobs[0].spec):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            spec = make()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0] - before)
            del spec
    finally:
        tracemalloc.stop()
    assert max(held) < MEGABYTE


def test_why_ten_thousand_tasks_wait_is_not_written(journal: SqlJournal, path: Path) -> None:
    machine = submitted(parsed(repeated()))
    journal.commit(machine.take_changes())
    before = size(path.parent)
    holds = tuple(Hold(run, "no room " * 10) for run in machine.state.runs)
    # A job that stands in a line is not given a place for being alone.
    plan = Plan(entries=holds, lines=(Line(("nowhere",), tuple(machine.state.jobs)),))
    machine.handle([PlanReady(1, plan, None)], Millis(NOW + 1))
    changes = machine.take_changes()
    (job,) = changes.explained
    assert changes.runs == ()
    assert {run.waiting_for for run in machine.state.members(job)} == {"no room " * 10}
    journal.commit(changes)
    assert size(path.parent) - before < MEGABYTE
    assert journal.load().runs == ()


def runs_of(journal: SqlJournal) -> list[TaskRun]:
    """As they are after a restart."""
    return list(State.restored(CATALOG, journal.load()).runs.values())


def test_task_runs_without_a_row_are_there_after_a_restart(journal: SqlJournal, path: Path) -> None:
    machine = submitted(parsed(f"{HEAD}run: x\ntasks: 3\n"))
    changes = machine.take_changes()
    journal.commit(changes)
    assert changes.runs == journal.load().runs == ()
    first = tuple(untouched(changes.jobs[0], index) for index in range(3))
    assert runs_of(journal) == list(first)
    moved = replace(first[1], target="i00001")
    journal.commit(Changes(runs=(moved,)))
    assert [run.target for run in runs_of(journal)] == [None, "i00001", None]
    # What has a row is written when it is as it was at first once more, also after a restart.
    for after_restart in (False, True):
        if after_restart:
            journal.close()
            journal = SqlJournal.open(f"sqlite:///{path}")
            journal.load()
            journal.commit(Changes(runs=(moved,)))
        journal.commit(Changes(runs=(first[1],)))
        assert journal.load().runs == (first[1],)
    record = SqlArchive(journal.engine).records_of_jobs([JobId("big-1")])[JobId("big-1")]
    assert record.runs == first
    journal.close()


def test_equal_tasks_are_one_object_after_a_restart(journal: SqlJournal) -> None:
    spec = parsed(f"{HEAD}{FILLING}tasks: 100\n")
    machine = submitted(spec)
    journal.commit(machine.take_changes())
    loaded = journal.load().jobs[0].spec
    assert loaded == spec
    assert len({id(task) for task in loaded.tasks}) == 1
    tasks = "".join(f"- {{name: t{index}, envs: {{N: {index}}}}}\n" for index in range(50))
    several = parsed(f"{HEAD}{FILLING}tasks:\n{tasks}".replace("big", "other"))
    machine.handle([JobSubmitted("c2", several)], NOW)
    journal.commit(machine.take_changes())
    loaded = journal.load().jobs[1].spec
    assert loaded == several
    assert len({id(task.program.run) for task in loaded.tasks}) == 1
    assert len({id(dict(task.program.env)["LONG"]) for task in loaded.tasks}) == 1
