"""Shows answers of the master as tables. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.views import instance_words, isolation, job_tasks, lending, shared_limits
from eva_client.cli.views.grid import Grid, facts
from eva_client.cli.views.words import ago, count, money, plain, price, share
from eva_wire.rpc import job_fields
from eva_wire.values import states
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from eva_wire.rpc.messages import (
        ClusterState,
        Instance,
        Job,
        Node,
        PlanResponse,
        RunTimeEstimate,
        Task,
    )

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
    "suspended": "yellow",
}
_KEPT = {
    "on_demand": "off spot instances, since there is no time to lose one",
    "apart": "apart from others, since it would be late in company",
    "alone": "alone and off spot instances, since it would be late otherwise",
    "stays": "where it is and alone, since it would be late otherwise",
}
"""Measures for a job that would be late otherwise."""


def state(name: str) -> Text:
    """A state as text in its colour."""
    return Text(name, style=_STYLES.get(name, "cyan"))


def jobs(messages: Iterable[Job], now: int) -> RenderableType:
    """A table with one row per job, and why nothing goes on if that is so."""
    messages = list(messages)
    tenants = any(message.tenant not in ("", DEFAULT_TENANT) for message in messages)
    parts = any(message.partition for message in messages)
    one_owner = len({message.owner for message in messages}) <= 1
    table = Grid(
        *("JOB", "OWNER", *(("TENANT",) if tenants else ()), *(("PARTITION",) if parts else ())),
        *("STATE", "TASKS", "WHERE"),
        *("PROGRESS", "ETA", "COST", "ALONE", "AGE", "NOTE"),
        right=("TASKS", "PROGRESS", "ETA", "COST", "ALONE"),
        drop=(
            *(("OWNER",) if one_owner else ()),
            *("TASKS", "ALONE", "WHERE", "AGE", "TENANT", "PARTITION", "PROGRESS", "ETA", "OWNER"),
        ),
    )
    for message in messages:
        table.add_row(
            message.id,
            plain(message.owner),
            *((plain(message.tenant),) if tenants else ()),
            *((plain(message.partition),) if parts else ()),
            state(message.state),
            f"{job_tasks.counted(message).get('running', 0)}/{job_tasks.number(message)}",
            where_of(message.tasks),
            _progress(message),
            eta(message, now),
            money(message.cost_micro_usd),
            money(message.no_packing_micro_usd),
            span(now - message.submitted_ms),
            plain(note_of(message)),
        )
    paused = next((message for message in messages if message.HasField("pause")), None)
    return table if paused is None else Group(table, Text(), pause(paused, now))


def priority(message: Job) -> str:
    """The priority that a job has at present, and the job from which it has that."""
    if not message.handed_by:
        return f"{message.priority:,}"
    return f"{message.handed_priority:,}, handed on by {message.handed_by}"


def job(message: Job, now: int) -> RenderableType:
    """All details of one job as a table."""
    rows: list[tuple[str, str | Text]] = [
        ("job", message.id),
        ("owner", plain(message.owner)),
        *(
            (("tenant", plain(message.tenant)),)
            if message.tenant not in ("", DEFAULT_TENANT)
            else ()
        ),
        *((("partition", plain(message.partition)),) if message.partition else ()),
        *((name, plain(words)) for name, words in job_fields.lines(message)),
        ("state", state(message.state)),
        *((("priority", priority(message)),) if message.priority or message.handed_by else ()),
        ("submitted", ago(message.submitted_ms, now)),
        ("started", ago(message.started_ms, now)),
    ]
    if message.retry_of:
        rows.append(("retry of", message.retry_of))
    if message.after:
        ended = set(message.only_ended)
        names = [f"{name} (ended)" if name in ended else name for name in message.after]
        rows.append(("after", plain(_some(names))))
    if message.waits_for:
        rows.append(("waits for", plain(_some(message.waits_for))))
    if message.reason:
        rows.append(("reason", plain(message.reason)))
    if message.HasField("suspension"):
        suspension = message.suspension
        rows.append(("suspended", f"{ago(suspension.since_ms, now)}: {plain(suspension.reason)}"))
    if message.HasField("pause"):
        rows.append(("paused", pause(message, now)))
    if message.finished_ms:
        took = span(message.finished_ms - message.submitted_ms)
        rows.append(("finished", f"{ago(message.finished_ms, now)}, after {took}"))
    if message.HasField("eta_ms"):
        rows.append(("eta", f"in {_eta_at_length(message, now)}, at the present pace"))
    elif message.HasField("remaining_ms"):
        rest = span(message.remaining_ms)
        rows.append(("eta", f"unknown; {rest} of standalone run time are left"))
    rows += [(label, plain(line)) for label, line in run_time(message)]
    rows += _buying(message, now)
    rows += _markets(message)
    if message.HasField("exit_code"):
        rows.append(("exit code", states.exit_text(message.exit_code)))
    if message.failures:
        rows.append(("failures", str(message.failures)))
    rows += _all_tasks(message)
    rows.append(("cost", _cost(message)))
    return Group(facts(rows), Text(), tasks(message.tasks, now), *_hidden(message))


def _all_tasks(message: Job) -> list[tuple[str, str | Text]]:
    """Counts of a job's tasks, and why hidden ones wait."""
    total = job_tasks.number(message)
    rows: list[tuple[str, str | Text]] = []
    if total > 1:
        rows.append(("tasks", job_tasks.in_words(message)))
    if total > job_tasks.shown(message):
        rows += [("tasks wait", plain(why)) for why in message.waiting_for]
    return rows


def _hidden(message: Job) -> list[Text]:
    """Notes on tasks that are not shown, if there are any."""
    total, shown = job_tasks.number(message), job_tasks.shown(message)
    if shown >= total:
        return []
    return [
        Text(),
        Text(
            f"{shown:,} of {total:,} tasks are shown: those that failed, ended last, have a place "
            f"or wait though they began. `eva status {message.id} --tasks A-B` shows others, "
            f"`--failed` all that have failed."
        ),
    ]


def task(message: Job, one: Task, now: int) -> RenderableType:
    """All details of one task as a table."""
    rows: list[tuple[str, str | Text]] = [
        ("task", f"{message.id}/{number(one)} {plain(one.name)}".strip()),
        ("job", state(message.state)),
        ("state", state(one.state)),
        ("where", where(one)),
        ("attempt", str(one.attempt)),
    ]
    if one.waiting_for:
        rows.append(("waits for", plain(one.waiting_for)))
    if one.failures:
        rows.append(("failures", str(one.failures)))
    if one.reason:
        rows.append(("failed last", plain(one.reason)))
    if one.HasField("exit_code"):
        rows.append(("exit code", states.exit_text(one.exit_code)))
    if one.moves:
        rows.append(("moves", str(one.moves)))
    if one.generation:
        rows.append(("checkpoint", str(one.generation)))
    if one.not_stored:
        rows.append(("not stored", plain(one.not_stored)))
    if one.steps or one.total_steps:
        rows.append(("steps", steps(one)))
    if one.outputs_of:
        rows.append(("outputs", f"those of {one.index}+{one.outputs_of}"))
    if one.why:
        rows.append(("why", plain(one.why)))
    rows += [("it/s", rate(one)), ("normalised", normalised(one))] if one.rate else []
    if one.HasField("remaining_ms"):
        rows.append(("eta", eta(one, now)))
    rows += [(plain(name), f"{value:g}") for name, value in one.metrics.items()]
    return facts(rows)


def _cost(message: Job) -> str:
    alone = money(message.no_packing_micro_usd)
    text = f"{money(message.cost_micro_usd)} ({alone} on instances of its own)"
    if extra := message.replicas_micro_usd:
        text += f", {money(extra)} of it for extra runs"
    cap = message.max_cost_micro_usd
    return f"{text}; it may cost {money(cap)}" if cap else text


def pause(message: Job | ClusterState, now: int) -> Text:
    """Since when the master stands still, why, and what to do about it."""
    standstill = message.pause
    return Text(
        f"the master stands still since {ago(standstill.since_ms, now)}, and tasks run on: "
        f"{plain(standstill.reason)}; {plain(standstill.hint)}",
        style="red",
    )


def _eta_at_length(message: Job, now: int) -> str:
    if not message.HasField("eta_latest_ms"):
        return eta(message, now)
    least, most = message.eta_earliest_ms - now, message.eta_latest_ms - now
    return f"~{span(message.eta_ms - now)} ({span(least)} to {span(most)}, 68 %)"


def tasks(messages: Iterable[Task], now: int) -> Grid:
    """A table with one row per task."""
    table = Grid(
        *("TASK", "STATE", "WHERE", "STEPS", "ETA", "IT/S", "NORMALISED", "ATTEMPT", "MOVES"),
        "NOTE",
        right=("STEPS", "ETA", "IT/S", "NORMALISED", "ATTEMPT", "MOVES"),
        drop=("MOVES", "ATTEMPT", "NORMALISED", "IT/S", "ETA", "STEPS", "WHERE"),
    )
    for message in messages:
        figures = ", ".join(f"{plain(name)}={value:g}" for name, value in message.metrics.items())
        table.add_row(
            f"{number(message)} {message.name}".strip(),
            state(message.state),
            where(message),
            steps(message),
            eta(message, now),
            rate(message),
            normalised(message),
            str(message.attempt),
            str(message.moves),
            note_of_task(message) or figures,
        )
    return table


def number(task: Task) -> str:
    """A task's number in its job; of an extra run of it ``3+1``, as in the run's id."""
    return f"{task.index}+{task.replica}" if task.replica else str(task.index)


def note_of_task(task: Task) -> str:
    """Remarks on a task's run."""
    if task.outputs_of:
        return f"its outputs are those of {task.index}+{task.outputs_of}: {plain(task.why)}"
    return plain(task.waiting_for or task.why or _failed(task) or task.not_stored)


def _failed(one: Task) -> str:
    """How a task failed last, if it did and has not succeeded since."""
    return one.reason if one.failures and one.state != "succeeded" else ""


def where(task: Task) -> str:
    """The instance that a task runs on, and the one that it moves to."""
    if task.target and task.target != task.instance:
        return f"{task.instance or '-'} -> {task.target}"
    return task.instance or "-"


def steps(task: Task) -> str:
    """The progress of a task in steps."""
    return f"{task.steps:,}/{task.total_steps:,}" if task.total_steps else f"{task.steps:,}"


def _buying(message: Job, now: int) -> Iterator[tuple[str, str]]:
    """When a job is due, how that compares with its end, and what is bought until then."""
    if not message.HasField("buying"):
        return
    buying = message.buying
    if buying.HasField("due_ms"):
        end = message.finished_ms or (message.eta_ms if message.HasField("eta_ms") else 0)
        ended = bool(message.finished_ms)
        away = buying.due_ms - now
        due = f"in {span(away)}" if away >= 0 else ago(buying.due_ms, now)
        margin = buying.due_ms - end
        kept = "" if not end else f", {span(abs(margin))} {'to spare' if margin >= 0 else 'late'}"
        yield "deadline", (f"{'kept' if margin >= 0 else 'missed'}{kept}" if ended else due + kept)
    if message.finished_ms:
        return
    if buying.what == "spot":
        until = (
            f", for {span(buying.until_ms - now)} at most" if buying.HasField("until_ms") else ""
        )
        yield "waits", f"for a spot instance{until}"
    elif buying.what in _KEPT:
        yield "kept", f"{_KEPT[buying.what]}, {ago(buying.since_ms, now)}"
    if buying.late_ppm:
        yield "late", f"with a chance of {share(buying.late_ppm, MILLION)}"


def _markets(message: Job) -> Iterator[tuple[str, str]]:
    """Where a job has run, and what that cost and saved."""
    if not message.HasField("markets"):
        return
    markets = message.markets
    parts = []
    if markets.spot_ms or markets.spot_micro_usd:
        saved = money(markets.listed_micro_usd - markets.spot_micro_usd)
        parts.append(
            f"{span(markets.spot_ms)} on spot instances for {money(markets.spot_micro_usd)}, "
            f"{saved} less than on demand"
        )
    if markets.other_ms:
        parts.append(f"{span(markets.other_ms)} on others")
    if markets.waiting_ms:
        parts.append(f"{span(markets.waiting_ms)} waiting")
    if markets.interruptions:
        parts.append(count(markets.interruptions, "interruption"))
    if parts:
        yield "so far", "; ".join(parts)


def run_time(message: Job) -> list[tuple[str, str]]:
    """How long a job's longest task runs, where that is estimated, with a label for each line."""
    lines = []
    if message.HasField("contradicted"):
        contradiction = message.contradicted
        took = ", ".join(map(span, contradiction.took_ms))
        lines.append(
            (
                "duration",
                f"{span(contradiction.stated_ms)} is stated and not believed: the last tasks of "
                f"workload {contradiction.workload} took {took}; correct it in the job file",
            )
        )
    if message.HasField("estimate") and message.estimate.source != "stated":
        lines.append(("run time", estimated(message.estimate)))
    return lines


def estimated(known: RunTimeEstimate) -> str:
    """How long a task runs by an estimate, and what that comes from."""
    sources = [count(known.tasks, "finished task")] if known.tasks else []
    sources += ["the owner's earlier jobs"] if known.source != "pilots" else []
    mean = f"~{span(known.mean_ms)}" if known.mean_ms else "not known well enough for a figure:"
    between = f"{span(known.least_ms)} to {span(known.most_ms)} (68 %)"
    each = f"{mean} a task, {between}" if known.mean_ms else f"{mean} a task takes {between}"
    return f"{each}, by {' and '.join(sources)}"


def eta(message: Job | Task, now: int) -> str:
    """In how long a job or a task is expected to end, ``-`` if unknown.

    For one that does not run it is the standalone run time that it still needs, in parentheses.
    ``~`` says that nothing is known but how long other tasks took; what follows ``±`` is half of
    the time between the ends that are expected in two of three cases.
    """
    about = "~" if message.remaining_estimated else ""
    if message.HasField("eta_ms"):
        words = f"{about}{span(message.eta_ms - now)}"
        if not message.HasField("eta_latest_ms"):
            return words
        return f"{words} ±{span((message.eta_latest_ms - message.eta_earliest_ms) // 2)}"
    return f"({about}{span(message.remaining_ms)})" if message.HasField("remaining_ms") else "-"


def rate(task: Task) -> str:
    """Iterations per second, ``-`` if unknown."""
    return f"{task.rate:.3g}" if task.rate else "-"


def normalised(task: Task) -> str:
    """Throughput over standalone throughput; ``-`` if unknown."""
    return f"{task.normalised:.2f}" if task.normalised else "-"


def cluster(message: ClusterState) -> RenderableType:
    """The cluster in a few lines."""
    hourly = price(message.price_micro_usd_per_hour)
    rows: list[tuple[str, str | Text]] = [
        ("cluster", f"{plain(message.cluster)} (release {message.version})"),
        ("policy", f"{plain(message.policy)}, {count(message.rounds, 'round')}"),
        ("jobs", _counts(message.jobs_by_state)),
        ("tasks", _counts(message.tasks_by_state)),
        ("instances", f"{count(len(message.instances), 'instance')}, {hourly}"),
        ("workers", f"{message.workers_connected} connected"),
        *shared_limits.rows(message),
    ]
    if message.HasField("catalog_listing"):
        rows.append(("catalog", _catalog_listing(message)))
    if message.HasField("pause"):
        rows.append(("paused", pause(message, message.now_ms)))
    if message.planning:
        rows.append(("planning", plain(message.planning)))
    return facts(rows)


def _catalog_listing(message: ClusterState) -> str:
    """When the cloud was asked what it sells, and when it will be."""
    listing, now_ms = message.catalog_listing, message.now_ms
    when = f"asked {ago(listing.asked_ms, now_ms)}" if listing.asked_ms else "not asked yet"
    again = f"again in {span(listing.next_ms - now_ms)}"
    if not listing.error:
        return f"what the cloud sells: {when}, {again}"
    return f"what the cloud sells: {when}; no answer since, {again}: {plain(listing.error)}"


def _counts(by_state: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(by_state.items())) or "none"


def nodes(
    message: ClusterState, instances: Iterable[Instance], absent: Iterable[Node] = ()
) -> RenderableType:
    """One line per instance, and what those that are billed cost now.

    Args:
        message: The cluster.
        instances: Instances of the table.
        absent: Owned nodes that are not here.
    """
    listed, away = list(instances), list(absent)
    # Most clusters have no pools, and are not divided.
    pooled = any(instance.pool for instance in listed)
    parts = any(instance.partition for instance in listed) or any(node.partition for node in away)
    # A spot instance costs more than is billed: interruptions lose work.
    spot = any(instance.HasField("expected_micro_usd_per_hour") for instance in listed)
    disks = any(instance.used.disk_mib for instance in listed)
    table = Grid(
        *("NODE", "TYPE", *(["PARTITION"] if parts else []), "STATE"),
        *(["POOL"] if pooled else []),
        *(
            "PRICE",
            *(["EXPECTED"] if spot else []),
            "UPTIME",
            "CPUS",
            "GPUS",
            "MEMORY",
            *(["DISK"] if disks else []),
            "TASKS",
            "NOTE",
        ),
        right=("PRICE", "EXPECTED", "UPTIME", "CPUS", "GPUS", "MEMORY", "DISK"),
        notes=("TASKS", "NOTE"),
        drop=("GPUS", "MEMORY", "DISK", "UPTIME", "PARTITION", "POOL", "CPUS"),
    )
    for instance in listed:
        used, room = instance.used, instance.capacity
        table.add_row(
            instance.id,
            instance.type if instance.purchase != "spot" else f"{instance.type} (spot)",
            *([plain(instance.partition)] if parts else []),
            state(instance.state),
            *([plain(instance.pool) or "-"] if pooled else []),
            price(instance.price_micro_usd_per_hour),
            *([instance_words.expected(instance)] if spot else []),
            uptime(instance, message.now_ms),
            f"{used.milli_cpus / 1000:g}/{room.milli_cpus / 1000:g}",
            f"{used.gpus}/{room.gpus}",
            f"{used.memory_mib / 1024:.3g}/{room.memory_mib / 1024:.3g} GiB",
            *([f"{used.disk_mib / 1024:g}/{room.disk_mib / 1024:.4g} GiB"] if disks else []),
            ", ".join(instance.tasks) or "-",
            instance_words.note(instance, message.now_ms),
        )
    for node in away:
        table.add_row(*_away(node, parts=parts, pooled=pooled, spot=spot, disks=disks))
    pause_lines = [pause(message, message.now_ms), Text()] if message.HasField("pause") else []
    return Group(
        table,
        Text(),
        *pause_lines,
        *(["PRICE is billed; EXPECTED has expected interruptions in it"] if spot else []),
        f"{price(message.price_micro_usd_per_hour)} now; one instance per task would be "
        f"{price(message.no_packing_micro_usd_per_hour)}",
        *map(Text, isolation.confinements(listed)),
    )


def _away(node: Node, *, parts: bool, pooled: bool, spot: bool, disks: bool) -> Iterator[str]:
    """The cells of an owned node that is not here."""
    room = node.capacity
    yield from (node.name, node.type)
    if parts:
        yield plain(node.partition)
    yield "away" if node.joined else "declared"
    if pooled:
        yield "-"
    yield price(node.price_micro_usd_per_hour)
    if spot:
        yield "-"
    sizes = f"0/{room.milli_cpus / 1000:g}", f"0/{room.gpus}", f"0/{room.memory_mib / 1024:.3g} GiB"
    yield from ("-", *sizes, *(["-"] if disks else []), "-")
    yield "its worker is away" if node.joined else f"join it: eva node token {node.name}"


def uptime(instance: Instance, now: int) -> str:
    """How long an instance has run, and so was billed."""
    return span((instance.gone_ms or now) - instance.up_ms) if instance.up_ms else "-"


def plan(message: PlanResponse) -> RenderableType:
    """The preview of a job's plan as text."""
    table = Grid("TASK", "WHERE", "BESIDE", "NOTE", notes=("BESIDE", "NOTE"))
    for placement in message.placements:
        if not placement.instance_type:
            place = "waits"
        elif placement.instance:
            place = f"{placement.instance} ({placement.instance_type})"
        else:
            place = f"a new {placement.instance_type}"
        beside = ", ".join(placement.beside) or "-"
        table.add_row(str(placement.task), place, beside, plain(placement.waiting_for))
    preempted = [
        Text(f"{task.task} on {task.instance} would be suspended: it {plain(task.reason)}")
        for task in message.suspended
    ]
    more = message.price_after_micro_usd_per_hour - message.price_before_micro_usd_per_hour
    estimate = message.estimate
    by_estimate = message.HasField("estimate") and estimate.source != "stated"
    return Group(
        table,
        Text(),
        *preempted,
        *instance_words.standing(message.standing),
        *([f"run time: {estimated(estimate)}"] if by_estimate else []),
        *([lending.worth(message.worth)] if message.HasField("worth") else []),
        f"the cluster would go from {price(message.price_before_micro_usd_per_hour)} to "
        f"{price(message.price_after_micro_usd_per_hour)} ({'+' if more >= 0 else '-'}"
        f"{price(abs(more))}); on instances of its own the job would take "
        f"{price(message.alone_micro_usd_per_hour)}; "
        f"{count(message.moves, 'task')} would move",
    )


def where_of(tasks: Iterable[Task]) -> str:
    """The instances that tasks are on: two by name, and how many more."""
    places = list(dict.fromkeys(task.instance for task in tasks if task.instance))
    shown = ", ".join(places[:2])
    return f"{shown} +{len(places) - 2}" if len(places) > 2 else shown or "-"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (
        f" and {more:,} more; --json has them all" if more > 0 else ""
    )


def note_of(message: Job) -> str:
    """The reason of a job's state, or what it waits for; empty for neither."""
    if message.reason:
        return message.reason
    if message.HasField("suspension"):
        return message.suspension.reason
    return job_tasks.why_waiting(message)


def _progress(message: Job) -> str:
    if job_tasks.number(message) > job_tasks.shown(message):
        return share(job_tasks.count_over(message), job_tasks.number(message))
    best = job_tasks.foremost(message)
    total = sum(task.total_steps for task in best)
    done = sum(
        task.total_steps if job_tasks.is_over(message, task) else task.steps for task in best
    )
    return share(min(done, total), total) if total else (f"{done:,}" if done else "-")
