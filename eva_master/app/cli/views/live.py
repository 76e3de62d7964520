"""The live view of the cluster for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eva_master.app.cli.views import bills, job_tasks, tables
from eva_master.app.cli.views.words import count, plain, price

if TYPE_CHECKING:
    from eva_master.adapters.rpc.messages import Bill, ClusterState, Job, Task

MOST_ROWS = 40
_OVER = ("succeeded", "failed", "cancelled")


def render(state: ClusterState, jobs: Sequence[Job], bill: Bill) -> RenderableType:
    """Draw the cluster: instances with their tasks, and costs.

    Args:
        state: As `Client.describe` returns it; its `now_ms` is the time of the snapshot.
        jobs: As `Client.jobs` returns them.
        bill: As `Client.cost` returns it.
    """
    title = Text.assemble(
        (plain(state.cluster), "bold"),
        f"  policy {plain(state.policy)}  round {state.rounds}  "
        f"{count(len(state.instances), 'instance')}  {_states(state)}",
    )
    paused = [tables.pause(state, state.now_ms)] if state.HasField("pause") else []
    return Group(
        title,
        *paused,
        Text(),
        _instances(state),
        Text(),
        _tasks(jobs),
        Text(),
        _footer(state, bill),
    )


def _states(state: ClusterState) -> str:
    return "  ".join(f"{number} {name}" for name, number in sorted(state.jobs_by_state.items()))


def _instances(state: ClusterState) -> Table:
    table = tables.grid(
        *("NODE", "TYPE", "STATE", "PRICE", "UPTIME", "CPUS", "PACKED"),
        right=("PRICE", "UPTIME", "CPUS"),
    )
    for one in state.instances[:MOST_ROWS]:
        table.add_row(
            one.id,
            one.type,
            tables.state(one.state),
            price(one.price_micro_usd_per_hour),
            tables.uptime(one, state.now_ms),
            f"{one.used.milli_cpus / 1000:g}/{one.capacity.milli_cpus / 1000:g}",
            ", ".join(one.tasks) or "-",
        )
    _more(table, len(state.instances))
    return table


def _tasks(jobs: Sequence[Job]) -> Table:
    table = tables.grid(
        *("TASK", "STATE", "WHERE", "PROGRESS", "STEPS", "IT/S", "NORMALISED", "MOVES", "NOTE"),
        right=("STEPS", "IT/S", "NORMALISED", "MOVES"),
    )
    rows = list(_lines(jobs))
    # Jobs in progress come first, otherwise in the master's order.
    rows.sort(key=lambda row: row[1].state in _OVER)
    for name, task in rows[:MOST_ROWS]:
        table.add_row(
            name,
            tables.state(task.state),
            tables.where(task),
            ProgressBar(task.total_steps or 1, min(task.steps, task.total_steps), width=16),
            tables.steps(task),
            tables.rate(task),
            tables.normalised(task),
            str(task.moves),
            plain(task.waiting_for),
        )
    hidden = sum(job_tasks.number(job) - job_tasks.shown(job) for job in jobs)
    _more(table, len(rows) + hidden)
    return table


def _lines(jobs: Sequence[Job]) -> Iterator[tuple[str, Task]]:
    for job in jobs:
        for task in job.tasks:
            yield f"{job.id}/{tables.number(task)}", task


def _more(table: Table, rows: int) -> None:
    if rows > MOST_ROWS:
        table.add_row(f"... and {rows - MOST_ROWS:,} more")


def _footer(state: ClusterState, bill: Bill) -> RenderableType:
    hourly = Text(
        f"now  {price(state.price_micro_usd_per_hour)}; one instance per task would be "
        f"{price(state.no_packing_micro_usd_per_hour)}"
    )
    return Group(bills.totals(bill), hourly)
