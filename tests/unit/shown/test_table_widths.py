"""Tables at 80, 120 and 200 columns and in a pipe: nothing is cut or left out in silence."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from eva_client.cli.session import console
from eva_client.cli.views import bills, live, tables
from eva_client.cli.views.grid import Grid
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import NOW_MS, sample_bill, sample_jobs, sample_plan, sample_state

WIDTHS = (80, 120, 200)
SNAPSHOTS = Path(__file__).parents[2] / "data" / "tables"
NOTE = (
    "task 0 exited with code 1; failed twice alike soon after its start, so not retried: "
    "ModuleNotFoundError: No module named 'torch'"
)


def _jobs() -> list[pb.Job]:
    jobs = list(sample_jobs().values())
    jobs[0].id = "resnet18-of-the-thesis-3"
    jobs[0].remaining_ms, jobs[0].eta_ms = 3_600_000, NOW_MS + 5_000_000
    jobs[0].eta_earliest_ms, jobs[0].eta_latest_ms = NOW_MS + 4_000_000, NOW_MS + 6_000_000
    jobs[2].reason = NOTE
    return jobs


def _state() -> pb.ClusterState:
    state = sample_state()
    packed = pb.Instance()
    packed.CopyFrom(state.instances[0])
    packed.id, packed.draining, packed.drain_moves = "i-3", "the operator's upgrade", True
    del packed.tasks[:]
    packed.tasks.extend(f"sweep-of-rates-12/{index}" for index in range(9))
    state.instances.append(packed)
    return state


VIEWS: Mapping[str, Callable[[], RenderableType]] = {
    "ls": lambda: tables.jobs(_jobs(), NOW_MS),
    "status": lambda: tables.job(_jobs()[0], NOW_MS),
    "nodes": lambda: tables.nodes(_state(), _state().instances),
    "cost": lambda: bills.bill(sample_bill()),
    "plan": lambda: tables.plan(sample_plan()),
    "cluster": lambda: tables.cluster(_state()),
    "top": lambda: live.render(_state(), _jobs(), sample_bill()),
}


def drawn(view: RenderableType, width: int, height: int = 50) -> str:
    """The text of a view on a terminal."""
    out = io.StringIO()
    screen = Console(
        file=out, width=width, height=height, force_terminal=True, color_system=None, markup=False
    )
    screen.print(view)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def piped(view: RenderableType, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text of a view in a pipe, whatever the terminal's width is."""
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "40")
    console().print(view)
    return out.getvalue()


@pytest.mark.parametrize("name", VIEWS)
def test_views_look_as_they_did(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To accept new looks, delete the file and run the test: it is written again and fails once."""
    parts = [(f"{width} columns", drawn(VIEWS[name](), width)) for width in WIDTHS]
    parts.append(("piped", piped(VIEWS[name](), monkeypatch)))
    text = "\n".join(f"==== {title}\n{content}" for title, content in parts)
    file = SNAPSHOTS / f"{name}.txt"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        pytest.fail(f"{file} is new; look at it")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", VIEWS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert all(len(line) <= width for line in drawn(VIEWS[name](), width).splitlines())


@pytest.mark.parametrize("name", VIEWS)
def test_a_pipe_gets_a_line_a_row_without_blanks_at_the_end(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = piped(VIEWS[name](), monkeypatch).splitlines()
    assert wide == [line.rstrip() for line in wide]
    assert not any("not shown at this width" in line for line in wide)
    if name == "ls":
        assert len(wide) == 1 + len(_jobs())
        assert next(line for line in wide if line.startswith("resnet18-2")).endswith(NOTE)


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120, 200])
def test_money_states_and_notes_are_whole_at_every_width(width: int) -> None:
    text = drawn(VIEWS["ls"](), width)
    words = " ".join(text.split())
    for whole in ("$1.23", "running", "pending", "failed", "p3.2xlarge sold out", NOTE):
        assert whole in words, whole
    assert "…" not in text
    shown = set(text.splitlines()[0].split())
    hidden = re.search(r"not shown at this width: ([^;]*);", words)
    left_out = set(hidden[1].split(", ")) if hidden else set()
    columns = {"JOB", "OWNER", "STATE", "TASKS", "WHERE", "PROGRESS", "COST", "ALONE", "AGE"}
    assert columns <= shown | left_out
    assert not shown & left_out


def test_the_owner_goes_first_where_there_is_one_and_last_where_there_are_more() -> None:
    jobs = _jobs()
    several = drawn(tables.jobs(jobs, NOW_MS), 80)
    assert "OWNER" in several.splitlines()[0]
    assert "not shown at this width: TASKS, ALONE" in several
    for job in jobs:
        job.owner = "ana"
    assert "not shown at this width: OWNER" in drawn(tables.jobs(jobs, NOW_MS), 80)
    assert "OWNER" in drawn(tables.jobs(jobs, NOW_MS), 200).splitlines()[0]


def test_names_that_are_too_long_are_folded_not_cut() -> None:
    table = Grid("JOB", "COST", right=("COST",))
    table.add_row("n" * 100, "$1,234,567.89")
    lines = drawn(table, 40).splitlines()
    assert lines[1].endswith("$1,234,567.89")
    assert sum(line.count("n") for line in lines) == 100


def test_a_column_that_holds_nothing_goes_first_and_is_not_named() -> None:
    table = Grid("JOB", "WORTHY", "EMPTY", "POOR", drop=("POOR", "EMPTY"))
    table.add_row("a", "w" * 10, "-", "p" * 6)
    lines = drawn(table, 25).splitlines()
    assert lines[0].split() == ["JOB", "WORTHY", "POOR"]
    assert len(lines) == 2


def test_hostile_cells_stay_in_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Grid("JOB", "NOTE")
    table.add_row("a", "one\ntwo\x1b[31m\r")
    assert piped(table, monkeypatch).splitlines() == ["JOB  NOTE", "a    one two [31m"]


def _many(instances: int, tasks: int) -> live.LiveView:
    state = sample_state()
    for index in range(instances - len(state.instances)):
        state.instances.add(id=f"i-{index + 10}", type="c7i.large", state="ready")
    job = pb.Job(id="sweep-1", state="running", task_count=tasks)
    for index in range(tasks):
        job.tasks.add(index=index, state="running", instance="i-1")
    return live.render(state, [job], sample_bill())


@pytest.mark.parametrize("height", [12, 24, 40, 60])
def test_top_shows_the_bill_first_and_says_what_does_not_fit(height: int) -> None:
    out = io.StringIO()
    screen = Console(file=out, width=100, height=height, force_terminal=True, color_system=None)
    options = screen.options.update(height=height)
    lines = [
        "".join(piece.text for piece in line)
        for line in screen.render_lines(_many(16, 30), options, pad=False)
    ]
    assert len(lines) <= height
    assert lines[1].startswith("cost $1.50")
    shown = {
        "instance": sum(line.startswith("i-") for line in lines),
        "task": sum(line.startswith("sweep-1/") for line in lines),
    }
    for thing, total in (("instance", 16), ("task", 30)):
        left = total - shown[thing]
        told = [line for line in lines if f"more {thing}" in line]
        assert told == ([f"... and {left} more {thing}s"] if left else [])


def test_a_cell_may_have_a_style(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Grid("STATE", "X")
    table.add_row(Text("failed", style="red"), "1")
    assert piped(table, monkeypatch).splitlines()[1] == "failed  1"
