"""The live view of the cluster for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from eva_client.cli.views import bills, job_tasks, tables
from eva_client.cli.views.grid import Drawn, Grid
from eva_client.cli.views.words import count, plain, price, share

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

    from eva_wire.rpc.messages import Bill, ClusterState, Job, Task

MOST_ROWS = 40
_OVER = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class _Part:
    """A table of the view.

    Attributes:
        table: Its first rows.
        thing: Object of a row.
        rows: How many rows there are in all.
    """

    table: Grid
    thing: str
    rows: int


class LiveView:
    """The cluster on a screen: the bill first, then as many rows as the screen has room for.

    Args:
        head: The lines at the top.
        parts: The tables below them.
    """

    def __init__(self, head: Sequence[Text], parts: tuple[_Part, _Part]) -> None:
        self._head = head
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw it; see `rich.console.ConsoleRenderable`."""
        width, height = options.max_width, options.height
        head = [line for text in self._head for line in text.wrap(console, width)]
        yield from head
        first, second = (part.table.drawn(console, width) for part in self._parts)
        if height is None:
            lengths: tuple[int | None, int | None] = (None, None)
        else:
            room = max(0, height - len(head) - len(self._parts))
            half = max(room // 2, room - _length(second, self._parts[1]))
            upper = min(_length(first, self._parts[0]), half)
            lengths = upper, room - upper
        for drawn, part, length in zip((first, second), self._parts, lengths, strict=True):
            yield Text()
            yield from _fitted(drawn, part, length)


def render(state: ClusterState, jobs: Sequence[Job], bill: Bill) -> LiveView:
    """Draw the cluster: costs, then instances with their tasks.

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
    hourly = Text(
        f"now  {price(state.price_micro_usd_per_hour)}; one instance per task would be "
        f"{price(state.no_packing_micro_usd_per_hour)}"
    )
    paused = [tables.pause(state, state.now_ms)] if state.HasField("pause") else []
    return LiveView([title, bills.totals(bill), hourly, *paused], (_instances(state), _tasks(jobs)))


def _states(state: ClusterState) -> str:
    return "  ".join(f"{number} {name}" for name, number in sorted(state.jobs_by_state.items()))


def _instances(state: ClusterState) -> _Part:
    table = Grid(
        *("NODE", "TYPE", "STATE", "PRICE", "UPTIME", "CPUS", "PACKED"),
        right=("PRICE", "UPTIME", "CPUS"),
        notes=("PACKED",),
        drop=("UPTIME", "CPUS"),
    )
    for instance in state.instances[:MOST_ROWS]:
        table.add_row(
            instance.id,
            instance.type,
            tables.state(instance.state),
            price(instance.price_micro_usd_per_hour),
            tables.uptime(instance, state.now_ms),
            f"{instance.used.milli_cpus / 1000:g}/{instance.capacity.milli_cpus / 1000:g}",
            ", ".join(instance.tasks) or "-",
        )
    return _Part(table, "instance", len(state.instances))


def _tasks(jobs: Sequence[Job]) -> _Part:
    table = Grid(
        *("TASK", "STATE", "WHERE", "DONE", "STEPS", "IT/S", "NORMALISED", "MOVES", "NOTE"),
        right=("DONE", "STEPS", "IT/S", "NORMALISED", "MOVES"),
        drop=("MOVES", "NORMALISED", "IT/S", "STEPS", "WHERE"),
    )
    rows = list(_lines(jobs))
    # Jobs in progress come first, otherwise in the master's order.
    rows.sort(key=lambda row: row[1].state in _OVER)
    for name, task in rows[:MOST_ROWS]:
        table.add_row(
            name,
            tables.state(task.state),
            tables.where(task),
            share(min(task.steps, task.total_steps), task.total_steps),
            tables.steps(task),
            tables.rate(task),
            tables.normalised(task),
            str(task.moves),
            task.waiting_for,
        )
    hidden = sum(job_tasks.number(job) - job_tasks.shown(job) for job in jobs)
    return _Part(table, "task", len(rows) + hidden)


def _lines(jobs: Sequence[Job]) -> Iterator[tuple[str, Task]]:
    for job in jobs:
        for task in job.tasks:
            yield f"{job.id}/{tables.number(task)}", task


def _length(drawn: Drawn, part: _Part) -> int:
    """How many lines a table takes with all rows that are drawn."""
    rows = sum(map(len, drawn.rows))
    more = part.rows > len(drawn.rows)
    return len(drawn.head) + rows + len(drawn.foot) + more


def _fitted(drawn: Drawn, part: _Part, length: int | None) -> Iterator[Text]:
    """The lines of a table for which there is room, and how many rows are left out."""
    shown = drawn.rows
    if length is not None and _length(drawn, part) > length:
        room, shown = length - len(drawn.head) - len(drawn.foot) - 1, []
        for row in drawn.rows:
            if len(row) > room:
                break
            room -= len(row)
            shown.append(row)
    yield from drawn.head
    for row in shown:
        yield from row
    if more := part.rows - len(shown):
        yield Text(f"... and {more:,} more {part.thing}{'' if more == 1 else 's'}")
    yield from drawn.foot
