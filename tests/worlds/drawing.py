"""Draws small worlds from seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from random import Random
from typing import Any

from tests.worlds.world import Job, Kind, Order, World

SIZES = (2, 4, 8, 16)
_SPREAD = 0.15
"""By how much the price of a type differs from its size's at most."""


@dataclass
class Draft:
    """A world that is being drawn.

    Attributes:
        rng: Draws it.
        keys: More keys of each job, in order.
    """

    rng: Random
    kinds: list[Kind] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Kind] = field(default_factory=dict)
    shared: float = 1.0
    minimum_s: int = 0

    def one_in(self, number: int) -> bool:
        """Whether something rare happens."""
        return self.rng.randrange(number) == 0

    def some(self) -> Job:
        """Any of the jobs."""
        return self.rng.choice(self.jobs)

    def change(self, job: Job, *, more: Mapping[str, Any] | None = None, **values: Any) -> Job:
        """Put a job in the place of another one; `more` is added to its file."""
        changed = replace(job, keys={**job.keys, **(more or {})}, **values)
        self.jobs[self.jobs.index(job)] = changed
        return changed


Feature = Callable[[Draft], None]


def draw(seed: int, flavour: str = "mixed") -> World:
    """Draw a world; the same one for the same seed and flavour."""
    draft = Draft(Random(f"{flavour}/{seed}"))
    features = FLAVOURS[flavour]
    if "mixed" in flavour:
        features = (*_mixture(draft.rng), *features)
    _draw_kinds(draft)
    _draw_jobs(draft)
    for feature in features:
        feature(draft)
    _state_what_is_known(draft)
    return World(
        seed=seed,
        flavour=flavour,
        kinds=tuple(draft.kinds),
        jobs=tuple(sorted(draft.jobs, key=lambda job: job.at_s)),
        orders=tuple(sorted(draft.orders, key=lambda order: order.at_s)),
        settings=draft.settings,
        nodes=draft.nodes,
        shared=draft.shared,
        minimum_s=draft.minimum_s,
    )


def _draw_kinds(draft: Draft) -> None:
    rng = draft.rng
    sizes = sorted(rng.sample(SIZES[:3], rng.randint(1, 3)))
    acquisition, setup = rng.randint(5, 20), rng.randint(20, 140)
    for size in sizes:
        price = round(50_000 * size * rng.uniform(1 - _SPREAD, 1 + _SPREAD))
        draft.kinds.append(
            Kind(
                f"box.{size}",
                size,
                2 * size,
                price,
                acquisition + rng.randint(0, 5),
                setup + rng.randint(0, 20),
            )
        )
    if draft.one_in(3):
        draft.shared = rng.choice([0.95, 0.9, 0.8])
    if draft.one_in(3):
        draft.minimum_s = 60
    draft.settings["profile"] = draft.one_in(2)


def _draw_jobs(draft: Draft) -> None:
    rng = draft.rng
    largest = max(kind.cpus for kind in draft.kinds)
    at, number = 0.0, rng.randint(3, 10)
    while len(draft.jobs) < number:
        for _ in range(min(rng.choice([1, 1, 2, 3, 5]), number - len(draft.jobs))):
            cpus = rng.choice([it for it in (1, 2, 2, 4, 4, 8) if it <= largest])
            draft.jobs.append(
                Job(
                    f"j{len(draft.jobs)}",
                    round(at, 1),
                    (_seconds(rng),),
                    {"resources": {"cpus": cpus, "memory": f"{cpus}GiB"}},
                    owner=rng.choice(["ana", "ana", "ben"]),
                )
            )
            at += rng.choice([0.0, 0.3, 2.0, 7.0])
        at += rng.uniform(20, 500)


def _seconds(rng: Random, least: float = 25, most: float = 900) -> float:
    return round(exp(rng.uniform(log(least), log(most))), 1)


def _state_what_is_known(draft: Draft) -> None:
    """Have users say how long their jobs take, in one way or another, or not."""
    rng = draft.rng
    for job in list(draft.jobs):
        if "duration" in job.keys or "total_steps" in job.keys:
            continue
        if len(set(job.seconds)) > 1 and draft.one_in(2):
            continue
        how = rng.choice(["duration", "duration", "duration", "rate", "nothing"])
        if job.failures or job.keys.get("concurrency"):
            how = "duration"
        if job.speeds:
            how = rng.choice(["duration", "rate"])
        more: dict[str, Any] = {}
        there = (*draft.kinds, *draft.nodes.values())
        speeds = {kind.family: job.speeds.get(kind.family, 1.0) for kind in there}
        mean = sum(job.seconds) / len(job.seconds)
        if job.speeds or how == "rate":
            more["throughput"] = {name: round(job.rate * it, 6) for name, it in speeds.items()}
        if how == "rate":
            more["total_steps"] = max(1, round(mean * job.rate))
        if how == "duration":
            more["duration"] = f"{round(mean / speeds[_usual(draft, job, speeds)] * 1000)}ms"
        if draft.one_in(3) and how != "rate":
            job = draft.change(job, tells_steps=False)  # noqa: PLW2901 - the same job
            more["reports_steps"] = False
        draft.change(job, more=more)


def _usual(draft: Draft, job: Job, speeds: Mapping[str, float]) -> str:
    """The family on which the work of a task costs least."""
    need = job.keys["resources"]["cpus"]
    gpus = job.keys["resources"].get("gpus", 0)
    fits = [it for it in draft.kinds if it.cpus >= need and it.gpus >= gpus]
    fits = [it for it in fits if it.disk_gib >= job.disk_gib]
    fits = fits or list(draft.nodes.values())
    return min(fits, key=lambda kind: kind.price / speeds[kind.family]).family


# -- features --------------------------------------------------------------------------------------


def limits(draft: Draft) -> None:
    """Little can be bought of some types, or in all."""
    rng = draft.rng
    draft.kinds = [
        replace(kind, limit=rng.randint(1, 3)) if rng.random() < 0.7 else kind
        for kind in draft.kinds
    ]
    if draft.one_in(5):
        draft.settings["limits"] = {
            rng.choice(["instances", "instances_per_user"]): rng.randint(1, 3)
        }
    elif all(kind.limit is None for kind in draft.kinds):
        draft.kinds[-1] = replace(draft.kinds[-1], limit=1)


def one_at_a_time(draft: Draft) -> None:
    """All jobs are alike, and one type of limit 1 serves them."""
    rng = draft.rng
    draft.kinds = [replace(draft.kinds[-1], limit=1)]
    cpus = draft.kinds[0].cpus
    for job in list(draft.jobs):
        draft.change(job, more={"resources": {"cpus": cpus, "memory": f"{cpus}GiB"}})
    if draft.one_in(2):
        seconds = _seconds(rng)
        for job in list(draft.jobs):
            draft.change(job, seconds=(seconds,))


def chains(draft: Draft) -> None:
    """Jobs run after others."""
    rng = draft.rng
    jobs = list(draft.jobs)
    for number, job in enumerate(jobs):
        if number and rng.random() < 0.6:
            before = rng.sample(jobs[:number], min(number, rng.choice([1, 1, 1, 2])))
            mine = [it.name for it in before if it.owner == job.owner]
            if mine:
                draft.change(job, more={"after": mine})


def arrays(draft: Draft) -> None:
    """Jobs have several independent tasks."""
    rng = draft.rng
    for job in list(draft.jobs):
        if rng.random() < 0.5 and _plain(job):
            tasks = rng.randint(2, 5)
            more: dict[str, Any] = {"kind": "array", "tasks": tasks}
            if rng.random() < 0.5:
                more["concurrency"] = rng.randint(1, 2)
            seconds = job.seconds
            if rng.random() < 0.4:
                seconds = tuple(
                    round(job.seconds[0] * rng.uniform(0.5, 1.5), 1) for _ in range(tasks)
                )
            draft.change(job, more=more, seconds=seconds)


def gangs(draft: Draft) -> None:
    """Jobs have several tasks that run together."""
    for job in list(draft.jobs):
        if draft.rng.random() < 0.4 and _plain(job):
            draft.change(job, more={"tasks": draft.rng.randint(2, 3)})


def elastic(draft: Draft) -> None:
    """Jobs have as many members as pay."""
    for job in list(draft.jobs):
        if draft.rng.random() < 0.4 and _plain(job):
            draft.change(job, more={"tasks": {"least": 1, "most": draft.rng.randint(2, 4)}})


def _plain(job: Job) -> bool:
    return "tasks" not in job.keys and not job.speeds


def speeds(draft: Draft) -> None:
    """Another family is faster, and dearer."""
    rng = draft.rng
    size = rng.choice([kind.cpus for kind in draft.kinds])
    price = round(50_000 * size * rng.uniform(1.2, 2.5))
    draft.kinds.append(Kind(f"fast.{size}", size, 2 * size, price, 10, rng.randint(20, 140)))
    for job in list(draft.jobs):
        if rng.random() < 0.7 and "tasks" not in job.keys:
            draft.change(job, speeds={"fast": rng.choice([0.8, 1.5, 2.0, 3.0])})


def priorities(draft: Draft) -> None:
    """Some are more urgent, where little can be bought."""
    rng = draft.rng
    if all(kind.limit is None for kind in draft.kinds):
        limits(draft)
    for job in list(draft.jobs):
        if rng.random() < 0.5:
            draft.change(job, more={"priority": rng.choice([1, 1, 5, 9])})


def preemption(draft: Draft) -> None:
    """The urgent may have others suspended."""
    draft.settings["preemption"] = "suspend"
    draft.settings["limits"] = {**draft.settings.get("limits", {}), "priority": 0}


def nodes(draft: Draft) -> None:
    """Some machines are the operator's own."""
    rng = draft.rng
    size = max(kind.cpus for kind in draft.kinds)
    for number in range(rng.randint(1, 2)):
        draft.nodes[f"n{number}"] = Kind("rack.1", size, 2 * size, 0, 0, 0)


def only_nodes(draft: Draft) -> None:
    """All machines are; nothing that is for sale is large enough for any task."""
    nodes(draft)
    draft.kinds = [Kind("tiny.1", 1, 1, 10_000, 5, 30, limit=0)]


def shorts(draft: Draft) -> None:
    """Most jobs are short."""
    rng = draft.rng
    for job in list(draft.jobs):
        if rng.random() < 0.7:
            more = {"latency": rng.choice(["short", "auto", "auto", "auto"])}
            draft.change(job, seconds=(_seconds(rng, 5, 80),), more=more)
        elif draft.one_in(3):
            draft.change(job, more={"latency": "long"})


def partitions(draft: Draft) -> None:
    """The cluster is divided, and what can be bought is shared."""
    rng = draft.rng
    parts: dict[str, Any] = {"a": {"default": True}, "b": {}}
    if draft.one_in(4):
        parts["b"]["limits"] = {"instances": rng.randint(1, 2)}
    if draft.one_in(6):
        parts["a"]["budget"] = {"usd_per_hour": 1.0}
    draft.settings["partitions"] = parts
    for job in list(draft.jobs):
        if rng.random() < 0.5:
            draft.change(job, more={"partition": "b"})


def tenants(draft: Draft) -> None:
    """Tenants have quotas of GPUs."""
    rng = draft.rng
    draft.kinds = [replace(kind, gpus=kind.cpus // 2) for kind in draft.kinds]
    draft.nodes = {name: replace(it, gpus=it.cpus // 2) for name, it in draft.nodes.items()}
    if sum(it.gpus for it in draft.nodes.values()) == 1:
        # Each of two tenants has one at least.
        draft.nodes = {name: replace(it, gpus=2 * it.gpus) for name, it in draft.nodes.items()}
    largest = max([1, *(it.gpus for it in (*draft.kinds, *draft.nodes.values()))])
    for job in list(draft.jobs):
        needs = dict(job.keys["resources"])
        needs["gpus"] = max(1, min(largest, needs["cpus"] // 2))
        draft.change(job, more={"resources": needs})
    families = sorted({it.family for it in (*draft.kinds, *draft.nodes.values()) if it.gpus})
    draft.settings["tenants"] = {
        name: {
            "owners": [name],
            "quota": {family: rng.randint(largest, 2 * largest) for family in families},
        }
        for name in ("ana", "ben")
    }
    for name, kind in list(zip([it.name for it in draft.kinds], draft.kinds, strict=True)):
        if kind.limit is not None:
            # Quotas are of what there is.
            draft.kinds[[it.name for it in draft.kinds].index(name)] = replace(kind, limit=None)
    if draft.nodes:
        fleet = sum(it.gpus for it in draft.nodes.values())
        for section in draft.settings["tenants"].values():
            if "rack" in section["quota"]:
                section["quota"]["rack"] = max(1, fleet // 2)


def spot(draft: Draft) -> None:
    """Some instances are sold on the spot market, and taken back."""
    rng = draft.rng
    draft.settings["local"] = {
        "spot": {"discount": "60%", "expected_life": rng.choice(["1h", "7d"])}
    }
    for job in list(draft.jobs):
        if rng.random() < 0.7:
            more: dict[str, Any] = {"spot": rng.choice(["allowed", "allowed", "only"])}
            if more["spot"] == "allowed" and draft.one_in(4):
                more["spot_wait"] = "3m"
            draft.change(job, more=more)
    for _ in range(rng.randint(0, 3)):
        draft.orders.append(Order(_moment(draft), "interrupt", str(rng.randrange(4))))
    if draft.one_in(3):
        draft.orders.append(Order(_moment(draft), "sold-out", to=str(rng.randint(30, 400))))


def deadlines(draft: Draft) -> None:
    """Some jobs are due at a time."""
    rng = draft.rng
    for job in list(draft.jobs):
        if rng.random() < 0.5 and len(job.seconds) == 1:
            total = job.seconds[0] * (1 if job.elastic else job.size) * 2
            within = round(rng.choice([2.0, 4.0, 10.0]) * (total + 300))
            draft.change(job, more={"deadline": {"within": f"{within}s"}})


def rests(draft: Draft) -> None:
    """Users suspend and resume, operators drain, and the master dies."""
    rng = draft.rng
    for _ in range(rng.randint(1, 3)):
        job, at = draft.some(), _moment(draft)
        draft.orders.append(Order(at, "suspend", job.name))
        draft.orders.append(Order(round(at + rng.choice([1, 5, 40, 200]), 1), "resume", job.name))
    for verb in ("drain", "restart", "cancel"):
        if draft.one_in(3):
            subject = draft.some().name if verb == "cancel" else str(rng.randrange(4))
            to = "moves" if verb == "drain" and draft.one_in(2) else ""
            draft.orders.append(
                Order(_moment(draft), verb, "" if verb == "restart" else subject, to)
            )


def moves(draft: Draft) -> None:
    """Users move jobs to the other partition, and back."""
    if "partitions" not in draft.settings:
        partitions(draft)
    for _ in range(draft.rng.randint(1, 3)):
        job, at = draft.some(), _moment(draft)
        draft.orders.append(Order(at, "move", job.name, "b"))
        draft.orders.append(
            Order(round(at + draft.rng.choice([1, 30, 200]), 1), "move", job.name, "a")
        )


def retries(draft: Draft) -> None:
    """Some attempts fail."""
    for job in list(draft.jobs):
        if draft.rng.random() < 0.4:
            draft.change(job, failures=draft.rng.randint(1, 2))


def wrong(draft: Draft) -> None:
    """Users do not know how long their jobs take."""
    for job in list(draft.jobs):
        if draft.rng.random() < 0.5 and len(job.seconds) == 1:
            stated = round(job.seconds[0] * draft.rng.choice([0.4, 0.7, 1.5, 3.0]) * 1000)
            draft.change(job, more={"duration": f"{stated}ms"})


def disks(draft: Draft) -> None:
    """Some tasks need disk: as much as instances get at launch, or of what these have."""
    rng = draft.rng
    sized = rng.random() < 0.6
    each = rng.choice([10, 20, 40])

    def with_disk(kind: Kind) -> Kind:
        disk = rng.choice([400, 16_000]) if sized else each * kind.cpus
        return replace(kind, disk_gib=disk, sized_disk=sized)

    draft.kinds = [with_disk(kind) for kind in draft.kinds]
    draft.nodes = {
        name: replace(kind, disk_gib=each * kind.cpus) for name, kind in draft.nodes.items()
    }
    there = (*draft.kinds, *draft.nodes.values())
    for job in list(draft.jobs):
        needs = job.keys["resources"]
        room = [
            kind.disk_gib
            for kind in there
            if kind.cpus >= needs["cpus"] and kind.gpus >= needs.get("gpus", 0)
        ]
        if room and rng.random() < 0.5:
            disk = min(rng.choice([5, 20, 50, 120, 200]), *room)
            draft.change(job, more={"resources": {**needs, "disk": f"{disk}GiB"}})


def secrets(draft: Draft) -> None:
    """Jobs use a secret of their owner, which is not always set."""
    rng = draft.rng
    for job in list(draft.jobs):
        if rng.random() < 0.5:
            draft.change(job, more={"secrets": ["TOKEN"]})
    users = {job.owner: job.name for job in draft.jobs if "secrets" in job.keys}
    for _, name in sorted(users.items()):
        at = 0.0 if rng.random() < 0.5 else rng.uniform(10, 300)
        draft.orders.append(Order(round(at, 1), "set", name))
        for _ in range(rng.randint(0, 2)):
            at += rng.uniform(5, 400)
            draft.orders.append(Order(round(at, 1), "unset", name))
            at += rng.choice([1, 20, 90, 300])
            draft.orders.append(Order(round(at, 1), "set", name))


def _moment(draft: Draft) -> float:
    """Any time while jobs are likely to be there."""
    last = max(job.at_s for job in draft.jobs)
    return round(draft.rng.uniform(5, last + 400), 1)


FLAVOURS: Mapping[str, Sequence[Feature]] = {
    "plain": (),
    "limits": (limits,),
    "single": (one_at_a_time,),
    "chains": (chains,),
    "arrays": (arrays,),
    "gangs": (gangs,),
    "elastic": (elastic,),
    "speeds": (speeds,),
    "priorities": (limits, priorities),
    "preemption": (limits, priorities, preemption),
    "nodes": (nodes,),
    "only-nodes": (arrays, gangs, only_nodes),
    "node-priorities": (arrays, priorities, only_nodes),
    "short": (shorts,),
    "short-limits": (shorts, limits),
    "short-priorities": (shorts, limits, priorities),
    "partitions": (limits, partitions),
    "moves": (partitions, moves),
    "tenants": (tenants,),
    "spot": (spot,),
    "deadlines": (deadlines,),
    "spot-deadlines": (spot, deadlines),
    "rests": (rests,),
    "limit-rests": (limits, rests),
    "retries": (retries, chains),
    "wrong": (wrong,),
    "disks": (disks,),
    "disk-limits": (limits, arrays, gangs, disks),
    "disk-nodes": (nodes, elastic, disks),
    "disk-short": (shorts, disks),
    "secrets": (secrets,),
    "secret-rests": (arrays, gangs, rests, secrets),
    "mixed": (),
    "mixed-needs": (disks, secrets),
}
"""Features that are drawn into the worlds of each flavour, in this order."""
_MIXED: Sequence[Feature] = (
    limits, chains, arrays, gangs, elastic, speeds, priorities, nodes, shorts, partitions,
    moves, tenants, spot, deadlines, rests, retries, wrong,
)  # fmt: skip


def _mixture(rng: Random) -> Sequence[Feature]:
    """Three to ten features, in the order in which they can be drawn."""
    chosen = set(rng.sample(range(len(_MIXED)), rng.randint(3, 10)))
    return [feature for number, feature in enumerate(_MIXED) if number in chosen]
