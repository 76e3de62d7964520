"""An array of short tasks with real processes, of whose spot members one is taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from eva_master.adapters.local.interruptions import interrupt
from eva_wire.values.ids import InstanceId
from tests.e2e.accounts import check_accounts
from tests.e2e.cluster import SETTINGS, Cluster, until
from tests.e2e.conftest import Clusters

EXAMPLE = Path(__file__).parents[3] / "examples" / "short_tasks"
SIZE: dict[str, Any] = {"cpus": 4, "memory": "8GiB", "price": "$0.10/h"}
TYPES = {"e2e.box": SIZE, "e2e.crate": SIZE}
"""No more than half of the spot money goes to one type, so there are two."""
SLOT = {"cpus": 1, "memory": "1GiB"}
TASKS = 200
"""Many still wait when both spot members are there and one is lost."""
PUBLISHED = {
    "clear_within_s": 4,
    "threshold_ppm": 100_000,
    "slot_milli_cpus": 1_000,
    "slot_memory_mib": 1_024,
}
"""Two slots that a long task holds are enough for as many spot members as the money buys."""

RUN = """
exec 9>>"{record}/$EVA_TASK_INDEX.lock"
flock -n 9 || echo "overlap $EVA_TASK_INDEX $EVA_HOST" >>"{record}/events"
echo "start $EVA_TASK_INDEX $EVA_HOST" >>"{record}/events"
{run}
echo "end $EVA_TASK_INDEX $EVA_HOST" >>"{record}/events"
"""
"""The kernel frees the lock when everything of a task is dead."""

NEXT = {
    "name": "next",
    "kind": "array",
    "tasks": 1,
    "duration": "3h",
    "latency": "short",
    "run": "true",
    "resources": SLOT,
    "reports_steps": False,
}


@dataclass(frozen=True)
class Event:
    """What a task wrote down: ``start``, ``overlap`` or ``end``, and where it ran."""

    kind: str
    index: int
    member: str


class Short:
    """The cluster of the example, on machines of this test."""

    def __init__(self, make_cluster: Clusters, name: str, notice: str, **options: Any) -> None:
        settings = yaml.safe_load((EXAMPLE / "master.yaml").read_text())
        settings["policy"]["short"]["name"] = name
        settings["policy"]["short"]["options"] |= options
        settings["local"] |= SETTINGS["local"]
        settings["local"]["spot"]["notice"] = notice
        self.cluster: Cluster = make_cluster(
            settings=settings, catalog={"types": TYPES, "only": ["e2e"]}
        )
        self._record = self.cluster.home / "record"

    def submit(self, tasks: int) -> str:
        """The example, each task of which writes down that it runs; its id."""
        document = yaml.safe_load((EXAMPLE / "echoes.yaml").read_text())
        run = RUN.format(record=self._record, run=document["run"])
        text = yaml.safe_dump({**document, "run": run, "tasks": tasks})
        return self.cluster.client.submit(text, file_name="echoes.yaml").job_id

    def events(self, kind: str = "") -> list[Event]:
        """What tasks wrote down so far, all or one kind."""
        file = self._record / "events"
        lines = file.read_text().splitlines() if file.exists() else []
        split = (line.split(maxsplit=2) for line in lines)
        found = [Event(kind, int(index), host.partition("@")[0]) for kind, index, host in split]
        return [it for it in found if kind in ("", it.kind)]

    def members(self, pool: str, *, busy: bool = False) -> list[str]:
        """Instances that stand in a pool, all or those with tasks."""
        live = self.cluster.client.describe().instances
        standing = [it for it in live if it.pool == pool and not it.draining]
        return [it.id for it in standing if it.state == "ready" and (it.tasks or not busy)]

    def first_busy(self, members: list[str]) -> str | None:
        """The one of some members on which a task began to run first."""
        return next((it.member for it in self.events("start") if it.member in members), None)

    def pools(self) -> str:
        """What users are told of pools."""
        return " ".join(self.cluster.eva("explain", "pools").stdout.split())

    def until_gone(self, member: str) -> str:
        """Wait until an instance is gone; why it is."""
        until(lambda: self.cluster.instances()[member].state == "gone", "the member is gone")
        return self.cluster.instances()[member].reason


def check_each_ran_once(short: Short, taken: str, tasks: int) -> set[int]:
    """No task is lost, none ran twice at a time, and only who was on the member ran again.

    Args:
        short: The cluster.
        taken: The member that was taken back.
        tasks: How many there were.

    Returns:
        Those that ran again.
    """
    assert short.events("overlap") == []
    starts = short.events("start")
    assert {it.index for it in starts} == set(range(tasks)), "none was lost"
    assert {it.index for it in short.events("end")} == set(range(tasks)), "all came to their end"
    by_index = sorted(starts, key=lambda it: it.index)  # stable: each task's in their order
    places = {key: [it.member for it in of] for key, of in groupby(by_index, lambda it: it.index)}
    again = {index: there for index, there in places.items() if len(there) > 1}
    # On a busy machine the member's tasks may have ended in the moment before it was taken back.
    assert len(again) <= SIZE["cpus"], "those that ran on the member, and no others"
    assert all(there[0] == taken and taken not in there[1:] for there in again.values())
    return set(again)


def check_first_again(short: Short, again: set[int], tasks: int) -> None:
    """Tasks that were stopped began again before most of those that had waited all the time."""
    order = [it.index for it in short.events("start")]
    for index in again:
        first = order.index(index)
        second = order.index(index, first + 1)
        assert len(set(order[first:second]) - again) <= tasks // 3


def check_bought(cluster: Cluster, taken: str) -> None:
    """Spot instances cost a third of the others, and the parts of the bill add up."""
    prices = {(it.purchase.value, it.price) for it in cluster.records().values()}
    assert prices == {("on-demand", 100_000), ("spot", 33_000)}
    assert cluster.records()[taken].purchase == "spot"
    check_accounts(cluster)


@pytest.mark.waits
@pytest.mark.explore
def test_short_tasks_lose_a_spot_member_and_go_first_again(make_cluster: Clusters) -> None:
    short = Short(make_cluster, "cloudcoaster", "30s")
    cluster = short.cluster
    job = short.submit(TASKS)
    long = cluster.submit("long", resources={"cpus": 2, "memory": "1GiB"})
    until(lambda: len(short.events("end")) >= 20, "twenty tasks are done")
    until(lambda: len(short.members("short.transient", busy=True)) == 2, "both spot members run")
    (steady,) = short.members("short.steady")
    taken = short.members("short.transient")[0]
    done = cluster.eva("interrupt", taken)
    assert done.stdout == f"{taken} is taken back\n", done.stderr

    waits = "in line for room in pools short.steady, short.transient"
    assert waits in cluster.eva("status", job).stdout
    told = " ".join(cluster.eva("explain", job).stdout.split())
    assert "it counts as short: its tasks are expected to take 2 s, and short ones take" in told
    assert short.until_gone(taken).startswith("spot interruption")
    until(lambda: len(short.members("short.transient")) == 2, "another one is bought")
    shown = json.loads(cluster.eva("nodes", "--json").stdout)["instances"]
    pools = sorted(it["pool"] or "" for it in shown)
    assert pools == ["", "short.steady", "short.transient", "short.transient"]
    room = "room for short tasks at spot prices: 2 instances"
    # A round says so; the last may have been before the second was bought.
    until(lambda: room in short.pools(), "the pool is explained")
    assert "that no cloud takes back: 1 instance for $0.1000 per hour" in short.pools()
    cluster.until_running(long)
    assert cluster.task(long).instance == next(it["id"] for it in shown if not it["pool"])
    cluster.until_ended(job)
    assert cluster.job(job).failures == 0
    again = check_each_ran_once(short, taken, TASKS)
    check_first_again(short, again, TASKS)

    # The pool stays for the next; it goes when it is told to, or with the cluster.
    assert short.members("short.steady") == [steady]
    answer = cluster.client.submit(yaml.safe_dump(NEXT), file_name="next.yaml")
    (note,) = answer.notes
    assert note.startswith("it counts as short, since its job file says so; its tasks are expected")
    cluster.until_ended(answer.job_id)
    cluster.finish(long)
    cluster.until_ended(long)
    cluster.stop()
    check_bought(cluster, taken)


@pytest.mark.long
@pytest.mark.waits
def test_queues_at_servers_lose_one_of_these_without_notice(make_cluster: Clusters) -> None:
    short = Short(make_cluster, "cloudcoaster:published", "0s", **PUBLISHED)
    cluster = short.cluster
    long = cluster.submit("long", resources={"cpus": 2, "memory": "1GiB"})
    cluster.until_running(long)
    # What is there when a job comes is what it asks.
    until(lambda: len(short.members("short.transient")) == 2, "both spot members are there")
    until(lambda: len(short.members("short.steady")) == 1, "so is that on demand")
    assert "long tasks hold 2 of" in short.pools()
    job = short.submit(40)
    transient = short.members("short.transient")
    taken = until(lambda: short.first_busy(transient), "one runs a task")
    interrupt(cluster.state_dir / "cloud", InstanceId(taken))
    waits = [it.waiting_for for it in cluster.job(job).tasks if it.state == "waiting"]
    assert "in line for room in pool" in waits[-1]
    assert short.until_gone(taken) == "spot interruption"
    cluster.until_ended(job)
    assert cluster.job(job).failures == 0
    check_each_ran_once(short, taken, 40)
    cluster.finish(long)
    cluster.until_ended(long)
    cluster.stop()
    check_bought(cluster, taken)
