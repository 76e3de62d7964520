"""The page Cluster: each instance as a box to scale by price, with its tasks inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eva_client.cli.views import instance_words
from eva_client.cli.views.words import amount, count, price
from eva_master.adapters.pages.shown import boxes
from eva_master.adapters.pages.shown.colours import Colour, colour_of
from eva_wire.rpc.messages import ClusterState, Instance, PlacedTask, Resources
from eva_wire.text.escapes import visible
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION
from eva_wire.values.states import InstanceState, RunState

MOST_BOXES = 300
"""Above this an instance is a bar for each resource."""
_MOST_JOBS = 60
_MOST_MOVES = 30
_MOST_NAMED = 3
_FRESH_MS = 4_000
_OWNED, _SPOT = "owned", "spot"
_CHARACTER_EM = 0.46
_NAMED_EM = 1.25
"""Least height of a lane with a name in it."""
_PACED_EM = 2.7
"""Least height of a lane with a name and a pace below it."""
_FREE_EM = 7.5
"""Least width of free room with the use of a lane in it."""
_PACE_EM = 3.4
"""Least width of a pace."""


@dataclass(frozen=True, slots=True)
class TaskBox:
    """A task on an instance.

    Attributes:
        id: ``JOB/INDEX``.
        name: Of its job, with the task's own.
        state: Of the task run, or ``moving`` while it is to run elsewhere.
        amounts: Its share of the instance, in words.
        pace: Its throughput against that alone, in words; empty if unknown.
        pace_percent: Pace as a number from 0 to 100; `None` if unknown.
        note: State and pace, in words.
        to: The instance that it moves to; empty if it stays.
        path: Outline of its ribbon.
        label: Room for its name.
        text: As much of its name as there is room for; empty if there is none.
        paced: Whether there is room for its pace.
        fresh: Whether it started a moment ago.
    """

    id: str
    job: str
    name: str
    colour: Colour
    state: str
    amounts: str
    pace: str
    pace_percent: int | None
    note: str
    to: str
    path: str
    label: boxes.Label
    text: str
    paced: bool
    fresh: bool


class Use(NamedTuple):
    """Use of a resource of an instance.

    Attributes:
        used: How much of it is used, such as ``3 of 4 GPUs``.
        percent: Part of it that is used, from 0 to 100.
    """

    name: str
    used: str
    percent: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A resource of an instance, as it is drawn.

    Attributes:
        used: How much of it is used, such as ``3 of 4 GPUs``.
        percent: Part of it that is used, from 0 to 100.
        top: In thousandths of the box's height.
        height: In thousandths of the box's height.
        text: Its use, where there is room for it on the right.
        middle: Per cent of the box's height.
    """

    name: str
    used: str
    percent: int
    top: int
    height: int
    text: str
    middle: float


@dataclass(frozen=True, slots=True)
class InstanceBox:
    """An instance.

    Attributes:
        price: In words.
        width: In em. height: In em.
        names: Names of tasks without room for them inside, the first few; empty for none.
        note: Remarks on its state; empty for none.
        silent: Whether its worker should be connected, and is not.
    """

    id: str
    type: str
    state: str
    price: str
    uptime: str
    spot: bool
    owned: bool
    names: str
    note: str
    silent: bool
    width: float
    height: float
    lanes: tuple[Lane, ...]
    tasks: tuple[TaskBox, ...]
    fresh: bool


class InstanceBar(NamedTuple):
    """An instance of a cluster with too many for boxes.

    Attributes:
        words: Its id, type, price and use, for readers of the page aloud.
        gpus: Per cent of them in use; 0 if it has none. The others are alike.
        silent: Whether its worker should be connected, and is not.
    """

    id: str
    words: str
    gpus: int
    cpus: int
    memory: int
    silent: bool


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances that belong together: a pool, a partition, or the operator's own nodes.

    Attributes:
        boxes: Its instances; empty if there are too many.
        bars: Its instances, if there are too many for boxes.
    """

    id: str
    title: str
    price: str
    boxes: tuple[InstanceBox, ...]
    bars: tuple[InstanceBar, ...]


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A job that has tasks on instances.

    Attributes:
        tasks: How many, in words.
    """

    job: str
    name: str
    colour: Colour
    tasks: str


@dataclass(frozen=True, slots=True)
class MovingTask:
    """A task on its way from one instance to another."""

    id: str
    job: str
    name: str
    colour: Colour
    source: str
    target: str
    state: str


@dataclass(frozen=True, slots=True)
class FleetPage:
    """Contents of the page.

    Attributes:
        compact: Whether there are too many instances for boxes.
        square: Side of a square that stands for a dollar an hour, in em; 0 without boxes.
        saving: The present price beside that of no packing, in words.
        more_jobs: How many jobs the legend leaves out.
    """

    groups: tuple[InstanceGroup, ...]
    legend: tuple[LegendEntry, ...]
    more_jobs: int
    moves: tuple[MovingTask, ...]
    compact: bool
    square: float
    instances: str
    tasks: str
    price: str
    no_packing: str
    saving: str
    less: bool
    waiting: str


def fleet(state: ClusterState) -> FleetPage:
    """The instances that are not gone, with the tasks on them."""
    compact = len(state.instances) > MOST_BOXES
    scale = 0.0 if compact else boxes.scale_of(map(_drawn_price, state.instances))
    members: dict[tuple[str, str], list[Instance]] = {}
    for instance in state.instances:
        members.setdefault(_group_of(instance), []).append(instance)
    tasks = [task for instance in state.instances for task in instance.placed]
    placed = sum(len(instance.tasks) for instance in state.instances)
    alone, paid = state.no_packing_micro_usd_per_hour, state.price_micro_usd_per_hour
    legend = _legend(tasks)
    waiting = state.tasks_by_state.get(RunState.WAITING.value, 0)
    return FleetPage(
        groups=tuple(_group(key, members[key], scale, state.now_ms) for key in sorted(members)),
        legend=tuple(legend[:_MOST_JOBS]),
        more_jobs=max(0, len(legend) - _MOST_JOBS),
        moves=tuple(_moves(state.instances)),
        compact=compact,
        square=round(float(scale**0.5), 2),
        instances=count(len(state.instances), "instance"),
        tasks=count(placed, "task"),
        price=price(paid),
        no_packing=price(alone),
        saving=saving(paid, alone),
        less=paid <= alone,
        waiting=f"{count(waiting, 'task')} wait{'s' if waiting == 1 else ''}" if waiting else "",
    )


def saving(paid: int, alone: int) -> str:
    """The present price against that of no packing, such as ``31 % less than no packing``."""
    if not alone:
        return ""
    percent = round(100 * (alone - paid) / alone)
    return f"{abs(percent)} % {'less' if percent >= 0 else 'more'} than no packing"


def _drawn_price(instance: Instance) -> int:
    capacity = instance.capacity
    price_now = instance.price_micro_usd_per_hour
    return boxes.nominal_price(price_now, capacity.gpus, capacity.milli_cpus)


def _group_of(instance: Instance) -> tuple[str, str]:
    """Key and title of the group that an instance belongs to; keys sort as groups are shown."""
    parts = [f"Partition {instance.partition}"] if instance.partition else []
    owned = instance.purchase == _OWNED
    if owned:
        parts.append("own nodes" if parts else "Own nodes")
    elif instance.pool:
        parts.append(f"pool {instance.pool}" if parts else f"Pool {instance.pool}")
    kind = "2" if owned else f"1{instance.pool}" if instance.pool else "0"
    return f"{instance.partition}/{kind}", visible(" · ".join(parts) or "Instances")


def _group(
    name: tuple[str, str], members: Iterable[Instance], scale: float, now: int
) -> InstanceGroup:
    """Instances of a group, the largest first; as bars if there is no scale."""
    key, title = name
    listed = sorted(members, key=_dearest_first)
    paid = sum(member.price_micro_usd_per_hour for member in listed if member.up_ms)
    return InstanceGroup(
        id="group-" + "".join(char if char.isascii() and char.isalnum() else "-" for char in key),
        title=title,
        price=f"{count(len(listed), 'instance')}, {price(paid)}",
        boxes=tuple(_box(member, scale, now) for member in listed) if scale else (),
        bars=() if scale else tuple(map(_bar, listed)),
    )


def _dearest_first(instance: Instance) -> tuple[int, int, str, int]:
    hourly = instance.price_micro_usd_per_hour
    return -_drawn_price(instance), -hourly, instance.type, len(instance.id)


def _bar(instance: Instance) -> InstanceBar:
    """An instance without its tasks."""
    words = f"{instance.id} {instance.type} {price(instance.price_micro_usd_per_hour)}"
    parts = {}
    for name, used, percent in _uses(instance.capacity, instance.used):
        words += f", {used}"
        parts[name] = percent
    return InstanceBar(
        instance.id,
        words,
        parts.get("GPUs", 0),
        parts.get("CPUs", 0),
        parts.get("memory", 0),
        _is_silent(instance),
    )


def _is_silent(instance: Instance) -> bool:
    return instance.state == InstanceState.READY.value and not instance.connected


def _box(instance: Instance, scale: float, now: int) -> InstanceBox:
    """An instance with its tasks."""
    size = boxes.size_of(_drawn_price(instance), scale)
    capacity = _amounts(instance.capacity)
    chosen = [number for number, most in enumerate(capacity) if most]
    demands = [[_amounts(task.share)[number] for number in chosen] for task in instance.placed]
    placed = boxes.spans(demands, [capacity[number] for number in chosen])
    tops = boxes.lane_tops(len(chosen))
    drawn = tuple(
        Lane(
            *use,
            top,
            high,
            use.used if size[0] * (100 - use.percent) / 100 >= _FREE_EM else "",
            round((top + high / 2) / 10, 1),
        )
        for use, (top, high) in zip(_uses(instance.capacity, instance.used), tops, strict=True)
    )
    tasks = tuple(
        _task(instance.id, task, _Ribbon(boxes.ribbon(spans), boxes.label_of(spans, *size)), now)
        for task, spans in zip(instance.placed, placed, strict=True)
        if chosen
    )
    return InstanceBox(
        id=instance.id,
        type=instance.type,
        state=instance.state,
        price=price(instance.price_micro_usd_per_hour),
        uptime="" if not instance.up_ms else span((instance.gone_ms or now) - instance.up_ms),
        spot=instance.purchase == _SPOT,
        owned=instance.purchase == _OWNED,
        names=_some([task.name for task in tasks if not task.text]),
        note=visible(instance_words.note(instance, now)),
        silent=_is_silent(instance),
        width=size[0],
        height=size[1],
        lanes=drawn,
        tasks=tasks,
        fresh=now - instance.requested_ms < _FRESH_MS,
    )


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _amounts(of: Resources) -> tuple[int, int, int]:
    return of.gpus, of.milli_cpus, of.memory_mib


def _uses(capacity: Resources, used: Resources) -> list[Use]:
    """The resources that an instance has, with their use."""
    uses = []
    if most := capacity.gpus:
        uses.append(Use("GPUs", f"{used.gpus} of {count(most, 'GPU')}", _percent(used.gpus, most)))
    if most := capacity.milli_cpus:
        words = f"{used.milli_cpus / 1_000:g} of {amount(most / 1_000, 'CPU')}"
        uses.append(Use("CPUs", words, _percent(used.milli_cpus, most)))
    if most := capacity.memory_mib:
        words = f"{used.memory_mib / 1_024:.4g} of {most / 1_024:.4g} GiB"
        uses.append(Use("memory", words, _percent(used.memory_mib, most)))
    return uses


def _percent(part: int, most: int) -> int:
    return round(100 * part / most)


@dataclass(frozen=True, slots=True)
class _Ribbon:
    path: str
    label: boxes.Label


def _task(instance: str, task: PlacedTask, ribbon: _Ribbon, now: int) -> TaskBox:
    moves = bool(task.target) and task.target != instance
    runs = task.state == RunState.RUNNING.value
    percent = round(100 * task.normalised) if task.normalised and runs else None
    pace = "" if percent is None else f"{percent} %"
    note = f"moves to {task.target}" if moves else task.state
    name, label = full_name(task), ribbon.label
    return TaskBox(
        id=task.task,
        job=job_of(task.task),
        name=name,
        colour=colour_of(job_of(task.task)),
        state="moving" if moves else task.state,
        amounts=amounts(task.share),
        pace=pace,
        pace_percent=None if percent is None else min(100, percent),
        note=f"{note}, at {pace} of its pace alone" if pace else note,
        to=task.target if moves else "",
        path=ribbon.path,
        label=label,
        text=_fitted(name, label.width) if label.height >= _NAMED_EM else "",
        paced=bool(pace) and label.height >= _PACED_EM and label.width >= _PACE_EM,
        fresh=now - task.since_ms < _FRESH_MS,
    )


def job_of(task: str) -> str:
    """The job of a task, by its id."""
    return task.rpartition("/")[0]


def full_name(task: PlacedTask) -> str:
    """The name of a task for people: its job's, and its own where the job has several."""
    return visible(f"{task.name}/{task.part}" if task.part else task.name)


def amounts(demand: Resources) -> str:
    """A demand in words, such as ``1 GPU, 4 CPUs, 16 GiB``."""
    gpus = [count(demand.gpus, "GPU")] if demand.gpus else []
    cpus = amount(demand.milli_cpus / 1_000, "CPU")
    return ", ".join((*gpus, cpus, f"{demand.memory_mib / 1_024:.3g} GiB"))


def _fitted(name: str, width_em: float) -> str:
    """As much of a name as fits; empty where two characters do not."""
    room = int((width_em - 0.6) / _CHARACTER_EM)
    if len(name) <= room:
        return name
    return f"{name[: room - 1]}…" if room >= 3 else ""


def _legend(tasks: Iterable[PlacedTask]) -> list[LegendEntry]:
    """Jobs with tasks on instances, those with most tasks first."""
    names: dict[str, str] = {}
    counts = Counter[str]()
    for task in tasks:
        job = job_of(task.task)
        names[job] = task.name
        counts[job] += 1
    listed = sorted(counts, key=lambda job: (-counts[job], job))
    return [
        LegendEntry(job, visible(names[job]), colour_of(job), count(counts[job], "task"))
        for job in listed
    ]


def _moves(instances: Iterable[Instance]) -> list[MovingTask]:
    """Tasks that leave one instance for another."""
    moving = (
        MovingTask(
            task.task,
            job_of(task.task),
            full_name(task),
            colour_of(job_of(task.task)),
            instance.id,
            task.target,
            task.state,
        )
        for instance in instances
        for task in instance.placed
        if task.target and task.target != instance.id
    )
    return list(moving)[:_MOST_MOVES]


def by_state(counts: Mapping[str, int]) -> str:
    """Counts by state in words, such as ``3 running, 1 pending``."""
    return ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)


def dollars(micro_usd: int) -> float:
    """An amount in dollars, for plots."""
    return micro_usd / MILLION
