"""Shows answers of the master as tables. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eva_master.app.cli.views.words import ago, count, money, plain, price, share, span
from eva_master.model import states

if TYPE_CHECKING:
    from eva_master.adapters.rpc.messages import (
        Bill,
        ClusterState,
        Instance,
        Job,
        PlanResponse,
        Task,
        Token,
    )

_WRAPPED = ("NOTE", "PACKED")
"""Columns that are wrapped if the terminal is too narrow."""
_NAMED = 20
"""Jobs that one job waits for are named, up to so many."""
_STYLES = {
    "running": "green",
    "ready": "green",
    "succeeded": "green dim",
    "failed": "red",
    "cancelled": "dim",
    "gone": "dim",
    "terminating": "yellow",
    "stopping": "yellow",
    "ending": "yellow",
}


def state(name: str) -> Text:
    """A state as text in its colour."""
    return Text(name, style=_STYLES.get(name, "cyan"))


def grid(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table without lines, its columns `right` aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column, justify="right" if column in right else "left", no_wrap=column not in _WRAPPED
        )
    return table


def jobs(messages: Iterable[Job], now: int) -> RenderableType:
    """A table with one row per job, and why nothing goes on if that is so."""
    messages = list(messages)
    table = grid(
        *("JOB", "OWNER", "STATE", "TASKS", "WHERE", "PROGRESS", "ETA", "COST", "ALONE", "AGE"),
        "NOTE",
        right=("TASKS", "PROGRESS", "ETA", "COST", "ALONE"),
    )
    for one in messages:
        running = sum(task.state == "running" for task in one.tasks)
        table.add_row(
            one.id,
            plain(one.owner),
            state(one.state),
            f"{running}/{len(one.tasks)}",
            _where(one.tasks),
            _progress(one),
            eta(one, now),
            money(one.cost_micro_usd),
            money(one.no_packing_micro_usd),
            span(now - one.submitted_ms),
            plain(one.reason or _waiting(one)),
        )
    paused = next((one for one in messages if one.HasField("pause")), None)
    return table if paused is None else Group(table, Text(), pause(paused, now))


def job(message: Job, now: int) -> RenderableType:
    """All details of one job as a table."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    rows: list[tuple[str, RenderableType]] = [
        ("job", message.id),
        ("owner", plain(message.owner)),
        ("state", state(message.state)),
        ("submitted", ago(message.submitted_ms, now)),
        ("started", ago(message.started_ms, now)),
    ]
    if message.after:
        rows.append(("after", plain(_some(message.after))))
    if message.waits_for:
        rows.append(("waits for", plain(_some(message.waits_for))))
    if message.reason:
        rows.append(("reason", plain(message.reason)))
    if message.HasField("pause"):
        rows.append(("paused", pause(message, now)))
    if message.finished_ms:
        took = span(message.finished_ms - message.submitted_ms)
        rows.append(("finished", f"{ago(message.finished_ms, now)}, after {took}"))
    if message.HasField("eta_ms"):
        rows.append(("eta", f"in {eta(message, now)}, at the present pace"))
    elif message.HasField("remaining_ms"):
        rows.append(
            ("eta", f"unknown; {span(message.remaining_ms)} of standalone run time are left")
        )
    if message.HasField("exit_code"):
        rows.append(("exit code", states.exit_text(message.exit_code)))
    if message.failures:
        rows.append(("failures", str(message.failures)))
    alone = money(message.no_packing_micro_usd)
    rows.append(("cost", f"{money(message.cost_micro_usd)} ({alone} on instances of its own)"))
    for label, value in rows:
        facts.add_row(Text(label, style="bold"), value)
    return Group(facts, Text(), _tasks(message.tasks, now))


def pause(message: Job | ClusterState, now: int) -> Text:
    """Since when the master stands still, why, and what to do about it."""
    told = message.pause
    return Text(
        f"the master stands still since {ago(told.since_ms, now)}, and tasks run on: "
        f"{plain(told.reason)}; {plain(told.hint)}",
        style="red",
    )


def _tasks(messages: Iterable[Task], now: int) -> Table:
    table = grid(
        *("TASK", "STATE", "WHERE", "STEPS", "ETA", "IT/S", "NORMALISED", "ATTEMPT", "MOVES"),
        "NOTE",
        right=("STEPS", "ETA", "IT/S", "NORMALISED", "ATTEMPT", "MOVES"),
    )
    for one in messages:
        figures = ", ".join(f"{plain(name)}={value:g}" for name, value in one.metrics.items())
        table.add_row(
            f"{one.index} {one.name}".strip(),
            state(one.state),
            where(one),
            steps(one),
            eta(one, now),
            rate(one),
            normalised(one),
            str(one.attempt),
            str(one.moves),
            plain(one.waiting_for) or figures,
        )
    return table


def where(task: Task) -> str:
    """The instance that a task runs on, and the one that it moves to."""
    if task.target and task.target != task.instance:
        return f"{task.instance or '-'} -> {task.target}"
    return task.instance or "-"


def steps(task: Task) -> str:
    """The progress of a task in steps."""
    return f"{task.steps:,}/{task.total_steps:,}" if task.total_steps else f"{task.steps:,}"


def eta(message: Job | Task, now: int) -> str:
    """In how long a job or a task is expected to end, ``-`` if unknown.

    For one that does not run it is the standalone run time that it still needs, in parentheses.
    ``~`` says that nothing is known but how long earlier tasks of the workload took.
    """
    about = "~" if message.remaining_estimated else ""
    if message.HasField("eta_ms"):
        return f"{about}{span(message.eta_ms - now)}"
    return f"({about}{span(message.remaining_ms)})" if message.HasField("remaining_ms") else "-"


def rate(task: Task) -> str:
    """Iterations per second, ``-`` if unknown."""
    return f"{task.rate:.3g}" if task.rate else "-"


def normalised(task: Task) -> str:
    """Throughput over standalone throughput; ``-`` if unknown."""
    return f"{task.normalised:.2f}" if task.normalised else "-"


def cluster(message: ClusterState) -> RenderableType:
    """The cluster in a few lines."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    hourly = price(message.price_micro_usd_per_hour)
    rows: list[tuple[str, RenderableType]] = [
        ("cluster", f"{plain(message.cluster)} (release {message.version})"),
        ("policy", f"{plain(message.policy)}, {count(message.rounds, 'round')}"),
        ("jobs", _counts(message.jobs_by_state)),
        ("tasks", _counts(message.tasks_by_state)),
        ("instances", f"{count(len(message.instances), 'instance')}, {hourly}"),
        ("workers", f"{message.workers_connected} connected"),
    ]
    if message.HasField("pause"):
        rows.append(("paused", pause(message, message.now_ms)))
    for label, value in rows:
        facts.add_row(Text(label, style="bold"), value)
    return facts


def _counts(by_state: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(by_state.items())) or "none"


def nodes(message: ClusterState, instances: Iterable[Instance]) -> RenderableType:
    """One line per instance, and what those that are billed cost now."""
    table = grid(
        *("NODE", "TYPE", "STATE", "PRICE", "UPTIME", "CPUS", "GPUS", "MEMORY", "TASKS", "NOTE"),
        right=("PRICE", "UPTIME", "CPUS", "GPUS", "MEMORY"),
    )
    for one in instances:
        used, room = one.used, one.capacity
        table.add_row(
            one.id,
            one.type if one.purchase != "spot" else f"{one.type} (spot)",
            state(one.state),
            price(one.price_micro_usd_per_hour),
            uptime(one, message.now_ms),
            f"{used.milli_cpus / 1000:g}/{room.milli_cpus / 1000:g}",
            f"{used.gpus}/{room.gpus}",
            f"{used.memory_mib / 1024:.3g}/{room.memory_mib / 1024:.3g} GiB",
            ", ".join(one.tasks) or "-",
            _instance_note(one),
        )
    told = [pause(message, message.now_ms), Text()] if message.HasField("pause") else []
    return Group(
        table,
        Text(),
        *told,
        f"{price(message.price_micro_usd_per_hour)} now; one instance per task would be "
        f"{price(message.no_packing_micro_usd_per_hour)}",
    )


def uptime(instance: Instance, now: int) -> str:
    """How long an instance has run, and so was billed."""
    return span((instance.gone_ms or now) - instance.up_ms) if instance.up_ms else "-"


def _instance_note(instance: Instance) -> str:
    if instance.state == "ready" and not instance.connected:
        return "its worker is away"
    return plain(instance.reason)


def bill(message: Bill) -> RenderableType:
    """Tables of costs by job and instance, and the costs without packing."""
    by_job = grid("JOB", "COST", "ALONE", "SAVED", right=("COST", "ALONE", "SAVED"))
    for one in message.jobs:
        saved = one.no_packing_micro_usd - one.cost_micro_usd
        by_job.add_row(
            one.id,
            money(one.cost_micro_usd),
            money(one.no_packing_micro_usd),
            share(saved, one.no_packing_micro_usd),
        )
    by_node = grid(
        *("NODE", "TYPE", "PRICE", "BILLED", "COST", "IDLE"),
        right=("PRICE", "BILLED", "COST", "IDLE"),
    )
    for node in message.instances:
        by_node.add_row(
            node.id,
            node.type,
            price(node.price_micro_usd_per_hour),
            span(node.billed_ms),
            money(node.cost_micro_usd),
            money(node.idle_micro_usd),
        )
    return Group(by_job, Text(), by_node, Text(), totals(message))


def totals(message: Bill) -> Text:
    """The bill in two sentences."""
    cost, alone = message.cost_micro_usd, message.no_packing_micro_usd
    verb = "saved" if alone >= cost else "lost"
    return Text.assemble(
        ("cost ", "bold"),
        f"{money(cost)} ({money(message.idle_micro_usd)} idle); ",
        f"without packing {money(alone)}; ",
        (f"{verb} {money(abs(alone - cost))} ({share(abs(alone - cost), alone)})", "bold green"),
        f"; {count(message.migrations, 'migration')}",
    )


def plan(message: PlanResponse) -> RenderableType:
    """The preview of a job's plan as text."""
    table = grid("TASK", "WHERE", "BESIDE", "NOTE")
    for one in message.placements:
        if not one.instance_type:
            place = "waits"
        elif one.instance:
            place = f"{one.instance} ({one.instance_type})"
        else:
            place = f"a new {one.instance_type}"
        table.add_row(str(one.task), place, ", ".join(one.beside) or "-", plain(one.waiting_for))
    more = message.price_after_micro_usd_per_hour - message.price_before_micro_usd_per_hour
    return Group(
        table,
        Text(),
        f"the cluster would go from {price(message.price_before_micro_usd_per_hour)} to "
        f"{price(message.price_after_micro_usd_per_hour)} ({'+' if more >= 0 else '-'}"
        f"{price(abs(more))}); on instances of its own the job would take "
        f"{price(message.alone_micro_usd_per_hour)}; "
        f"{count(message.moves, 'task')} would move",
    )


def tokens(messages: Iterable[Token], now: int) -> Table:
    """A table with one row per token."""
    table = grid("TOKEN", "OWNER", "ROLE", "AGE", "STATE")
    for one in messages:
        table.add_row(
            one.id, plain(one.owner), one.role, span(now - one.created_ms), _validity(one, now)
        )
    return table


def token(message: Token, now: int) -> str:
    """A token's owner, role and validity as text."""
    return (
        f"token {message.id} of {plain(message.owner)} ({message.role}), {_validity(message, now)}"
    )


def _validity(message: Token, now: int) -> str:
    if message.revoked_ms:
        return f"revoked {ago(message.revoked_ms, now)}"
    if not message.expires_ms:
        return "does not expire"
    if message.expires_ms <= now:
        return f"expired {ago(message.expires_ms, now)}"
    return f"expires in {span(message.expires_ms - now)}"


def _where(tasks: Iterable[Task]) -> str:
    places = list(dict.fromkeys(task.instance for task in tasks if task.instance))
    shown = ", ".join(places[:2])
    return f"{shown} +{len(places) - 2}" if len(places) > 2 else shown or "-"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (
        f" and {more:,} more; --json has them all" if more > 0 else ""
    )


def _waiting(message: Job) -> str:
    return next((task.waiting_for for task in message.tasks if task.waiting_for), "")


def _progress(message: Job) -> str:
    total = sum(task.total_steps for task in message.tasks)
    done = sum(task.steps for task in message.tasks)
    return share(min(done, total), total) if total else (f"{done:,}" if done else "-")
