"""Small worlds in which two features meet, one for each pair of sixteen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from random import Random

from tests.worlds.drawing import Draft
from tests.worlds.world import Job, Kind, Order, World

REFUSED = frozenset({"AE", "AF", "ER", "EF", "RF"})
"""Pairs that no job file may have."""
_NEED = {"cpus": 4, "memory": "4GiB"}


def _main(draft: Draft, more: Mapping[str, object], **values: object) -> None:
    draft.change(draft.jobs[0], more=more, **values)


def array(draft: Draft) -> None:
    """An array of which two tasks may have a place at a time."""
    _main(draft, {"kind": "array", "tasks": 4, "concurrency": 2})


def elastic(draft: Draft) -> None:
    """A gang of one to three members."""
    _main(draft, {"tasks": {"least": 1, "most": 3}})


def chain(draft: Draft) -> None:
    """Two jobs, one after another."""
    for name, before in (("next", "main"), ("last", "next")):
        keys = {"resources": _NEED, "after": [before], "duration": "60000ms"}
        draft.jobs.append(Job(name, 2.5 + len(draft.jobs) / 2, (60.0,), keys))


def suspended(draft: Draft) -> None:
    """A user who suspends jobs, one of them for a second."""
    draft.orders += [Order(130, "suspend", "main"), Order(131, "resume", "main")]
    draft.orders += [Order(150, "suspend", "other"), Order(220, "resume", "other")]


def secrets(draft: Draft) -> None:
    """A job whose secret is not set at first, and is away for a while later."""
    _main(draft, {"secrets": ["TOKEN"]})
    draft.orders += [Order(0, "unset", "main"), Order(60, "set", "main")]
    draft.orders += [Order(160, "unset", "main"), Order(300, "set", "main")]


def stragglers(draft: Draft) -> None:
    """An array with a task that takes much longer in its own run."""
    seconds = (60.0, 60.0, 60.0, 60.0, 600.0)
    tasks = draft.jobs[0].keys["tasks"] if draft.jobs[0].elastic else 5
    more = {"kind": "array", "tasks": tasks, "stragglers": "duplicate", "duration": "60000ms"}
    _main(draft, more, seconds=seconds)


def forks(draft: Draft) -> None:
    """A job that may train twice at once, on machines that stay."""
    more = {"forks": 2, "total_steps": 3000, "merge": {"every": "30s"}}
    _main(draft, more, seconds=(300.0,))
    owned(draft)


def deadlines(draft: Draft) -> None:
    """Jobs on the spot market, one with a deadline; an instance there is taken back."""
    draft.settings["local"] = {"spot": {"discount": "60%", "expected_life": "7d"}}
    _main(draft, {"spot": "allowed"})
    draft.change(draft.jobs[1], more={"spot": "allowed", "deadline": {"within": "5000s"}})
    draft.orders.append(Order(160, "interrupt", "0"))


def shorts(draft: Draft) -> None:
    """Jobs that take no longer than short ones may."""
    for number in range(2):
        keys = {"resources": {"cpus": 2, "memory": "2GiB"}, "duration": "20000ms"}
        draft.jobs.append(Job(f"short{number}", 2.0 + 60 * number, (20.0,), keys))


def pilots(draft: Draft) -> None:
    """An array of which one task runs first."""
    if draft.jobs[0].array:
        _main(draft, {"pilots": 1})
        return
    keys = {"resources": {"cpus": 2, "memory": "2GiB"}, "kind": "array", "tasks": 4, "pilots": 1}
    draft.jobs.append(Job("scan", 4.0, (50.0,), keys))


def partitions(draft: Draft) -> None:
    """Two partitions, and a job that moves from one to the other."""
    draft.settings["partitions"] = {"a": {"default": True}, "b": {}}
    draft.change(draft.jobs[1], more={"partition": "b"})
    draft.orders.append(Order(140, "move", "main", "b"))


def tenants(draft: Draft) -> None:
    """Tenants with quotas of GPUs."""
    draft.kinds = [replace(kind, gpus=kind.cpus // 4) for kind in draft.kinds]
    draft.nodes = {name: replace(it, gpus=it.cpus // 4) for name, it in draft.nodes.items()}
    for job in list(draft.jobs):
        draft.change(job, more={"resources": {**job.keys["resources"], "gpus": 1}})
    families = {"box": 2, **({"rack": 1} if draft.nodes else {})}
    draft.settings["tenants"] = {
        name: {"owners": [name], "quota": families} for name in ("ana", "ben")
    }


def owned(draft: Draft) -> None:
    """Two machines of the operator's own."""
    for name in ("n0", "n1"):
        draft.nodes[name] = Kind("rack.4", 4, 8, 0, 0, 0)


def priorities(draft: Draft) -> None:
    """Little can be bought, and one is more urgent, which may have others suspended."""
    draft.kinds = [replace(kind, limit=3 if kind.cpus == 4 else 1) for kind in draft.kinds]
    draft.settings |= {"preemption": "suspend", "limits": {"priority": 0}}
    draft.change(draft.jobs[2], more={"priority": 5})


def quits(draft: Draft) -> None:
    """An instance that is drained, attempts that fail, and a limit of running time."""
    _main(draft, {"max_duration": "2h"})
    draft.change(draft.jobs[1], failures=1)
    draft.orders.append(Order(145, "drain", "0"))


def disks(draft: Draft) -> None:
    """Tasks that need disk, which instances get at launch; that of owned machines is fixed."""
    draft.kinds = [replace(kind, disk_gib=1_000, sized_disk=True) for kind in draft.kinds]
    draft.nodes = {name: replace(kind, disk_gib=200) for name, kind in draft.nodes.items()}
    needs = {"main": 120, "other": 60, "short0": 20, "scan": 30, "last": 150}
    for job in list(draft.jobs):
        if job.name in needs:
            disk = {"disk": f"{needs[job.name]}GiB"}
            draft.change(job, more={"resources": {**job.keys["resources"], **disk}})


FEATURES: Mapping[str, Callable[[Draft], None]] = {
    "A": array, "E": elastic, "R": stragglers, "F": forks, "D": chain, "S": suspended,
    "X": deadlines, "L": shorts, "P": pilots, "N": partitions, "O": owned, "H": priorities,
    "Q": quits, "T": tenants, "K": secrets, "V": disks,
}  # fmt: skip
"""Each by its letter, in the order in which they are put into a world."""
PAIRS = tuple(map("".join, combinations("AEDSRFXLPNTOHQKV", 2)))


def world(letters: str) -> World:
    """A world in which some features meet."""
    draft = Draft(Random(0))
    draft.kinds = [
        Kind("box.4", 4, 8, 200_000, 10, 60),
        Kind("box.8", 8, 16, 390_000, 10, 60),
    ]
    draft.settings["profile"] = False
    for at, name, owner, seconds in (
        (0.0, "main", "ana", 120.0),
        (1.0, "other", "ana", 150.0),
        (8.0, "late", "ben", 90.0),
    ):
        keys = {"resources": _NEED, "duration": f"{seconds * 1000:.0f}ms"}
        draft.jobs.append(Job(name, at, (seconds,), keys, owner=owner))
    for letter, feature in FEATURES.items():
        if letter in letters:
            feature(draft)
    return World(
        seed=0,
        flavour=letters,
        kinds=tuple(draft.kinds),
        jobs=tuple(sorted(draft.jobs, key=lambda job: job.at_s)),
        orders=tuple(sorted(draft.orders, key=lambda order: order.at_s)),
        settings=draft.settings,
        nodes=draft.nodes,
    )


def policy(letters: str) -> str:
    """The policy under which they meet."""
    if "L" in letters:
        return "cloudcoaster+slearn" if "P" in letters else "cloudcoaster+eva"
    if "P" in letters:
        return "slearn" if "O" in letters or "F" in letters else "slearn/eva"
    return "eva"
