"""Planning in a process of its own: it answers, it fails, it dies, it never outlives us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from eva_master.adapters.planner.partitioned import PartitionedPlanner
from eva_master.adapters.planner.previews import Previews
from eva_master.adapters.planner.process import ProcessPlanner, RoundTimeout
from eva_master.model.actions import RequestPlan
from eva_master.model.events import PlanFailed, PlanReady
from eva_master.model.planning.plan import Json, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.reconfiguration.greedy_pass import planned_greedily
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.errors import InvalidPlan
from eva_wire.values.ids import Millis
from tests.fakes.rpc.mailbox import DEADLINE_S, Mailbox

SNAPSHOT = Snapshot(Millis(1), (), (), (), ())
BUILD = f"{__name__}:build"


class Puppet:
    """A policy that does what the memory tells it."""

    name = "puppet"

    def __init__(self, options: dict[str, Json]) -> None:
        self._options = options

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        wish = memory.data if memory else {}
        if "fail" in wish:
            raise UnpicklableError(1, 2)
        if "die" in wish:
            os._exit(3)
        if "hang" in wish:
            Path(str(wish["hang"])).touch()
            signal.pause()
        return Plan(figures={"pid": os.getpid(), "options": str(self._options)}), memory


class UnpicklableError(Exception):
    """Cannot be made of its own arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} is not {two}")


def build(name: str, options: dict[str, Json]) -> Puppet:
    """What the child calls."""
    if name != "puppet":
        raise LookupError(f"no policy {name!r}")
    return Puppet(options)


def memory(**data: Json) -> PolicyMemory:
    return PolicyMemory("puppet", 1, dict(data))


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; it must come true."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def planner(mailbox: Mailbox) -> Iterator[ProcessPlanner]:
    planner = ProcessPlanner(mailbox, "puppet", {"list": [1, {"a": 2}]}, BUILD)
    yield planner
    planner.close()


def test_a_plan_is_made_in_another_process_and_posted(
    planner: ProcessPlanner, mailbox: Mailbox
) -> None:
    planner.request(RequestPlan(7, SNAPSHOT, memory(seen=1)))
    ready = mailbox.expect(PlanReady)
    assert (ready.round, ready.memory) == (7, memory(seen=1))
    assert ready.plan.figures["pid"] != os.getpid()
    assert ready.plan.figures["options"] == str({"list": [1, {"a": 2}]})


def test_a_policy_that_raises_fails_the_round_and_not_the_planner(
    planner: ProcessPlanner, mailbox: Mailbox
) -> None:
    planner.request(RequestPlan(1, SNAPSHOT, None))
    pid = mailbox.expect(PlanReady).plan.figures["pid"]
    planner.request(RequestPlan(2, SNAPSHOT, memory(fail=1)))
    assert mailbox.expect(PlanFailed) == PlanFailed(2, "UnpicklableError: 1 is not 2")
    planner.request(RequestPlan(3, SNAPSHOT, None))
    assert mailbox.expect(PlanReady).plan.figures["pid"] == pid


def test_the_death_of_the_child_fails_the_round_and_the_next_one_has_a_new_child(
    planner: ProcessPlanner, mailbox: Mailbox
) -> None:
    planner.request(RequestPlan(1, SNAPSHOT, memory(die=1)))
    assert mailbox.expect(PlanFailed).round == 1
    planner.request(RequestPlan(2, SNAPSHOT, None))
    assert mailbox.expect(PlanReady).round == 2


def test_a_policy_that_cannot_be_built_says_why(mailbox: Mailbox) -> None:
    planner = ProcessPlanner(mailbox, "nope", {}, BUILD)
    planner.request(RequestPlan(1, SNAPSHOT, None))
    assert mailbox.expect(PlanFailed).reason == "LookupError: no policy 'nope'"
    planner.close()


def test_a_request_does_not_wait_for_the_one_before(
    planner: ProcessPlanner, mailbox: Mailbox, tmp_path: Path
) -> None:
    hung = tmp_path / "hung"
    planner.request(RequestPlan(1, SNAPSHOT, memory(hang=str(hung))))
    until(hung.exists)
    planner.request(RequestPlan(2, SNAPSHOT, None))
    planner.close()
    assert {mailbox.expect(PlanFailed).round, mailbox.expect(PlanFailed).round} == {1, 2}


def test_an_interrupt_from_the_terminal_is_the_masters_alone(
    planner: ProcessPlanner, mailbox: Mailbox
) -> None:
    planner.request(RequestPlan(1, SNAPSHOT, None))
    pid = mailbox.expect(PlanReady).plan.figures["pid"]
    os.kill(int(pid), signal.SIGINT)
    planner.request(RequestPlan(2, SNAPSHOT, None))
    assert mailbox.expect(PlanReady).plan.figures["pid"] == pid


async def test_a_preview_returns_the_plan_or_raises_in_a_process_of_its_own(
    planner: ProcessPlanner, mailbox: Mailbox
) -> None:
    previews = Previews()
    assert not previews.running, "it starts with the first preview"
    asked = [previews.preview(planner.source, SNAPSHOT, None) for _ in range(3)]
    plans = await asyncio.gather(*asked)
    (pid,) = {plan.figures["pid"] for plan in plans}
    planner.request(RequestPlan(1, SNAPSHOT, None))
    assert mailbox.expect(PlanReady).plan.figures["pid"] != pid
    with pytest.raises(InvalidPlan, match="1 is not 2"):
        await previews.preview(planner.source, SNAPSHOT, memory(fail=1))
    previews.close()
    with pytest.raises(InvalidPlan, match="closed"):
        await previews.preview(planner.source, SNAPSHOT, None)


async def test_a_preview_waits_for_no_round_and_no_round_for_it(
    planner: ProcessPlanner, mailbox: Mailbox, tmp_path: Path
) -> None:
    hung, previews = tmp_path / "hung", Previews()
    planner.request(RequestPlan(1, SNAPSHOT, memory(hang=str(hung))))
    await asyncio.to_thread(until, hung.exists)
    await previews.preview(planner.source, SNAPSHOT, None)
    planner.close()
    assert mailbox.expect(PlanFailed).round == 1
    previews.close()


async def test_the_process_of_previews_ends_when_it_is_idle_and_starts_again(
    planner: ProcessPlanner,
) -> None:
    previews = Previews(idle_s=0.05)
    first = await previews.preview(planner.source, SNAPSHOT, None)
    await asyncio.to_thread(until, lambda: not previews.running)
    second = await previews.preview(planner.source, SNAPSHOT, None)
    assert first.figures["pid"] != second.figures["pid"]
    previews.close()


async def test_a_preview_that_takes_too_long_is_ended(
    planner: ProcessPlanner, tmp_path: Path
) -> None:
    previews = Previews(longest_s=3.0)
    with pytest.raises(InvalidPlan, match="within 3 s"):
        await previews.preview(planner.source, SNAPSHOT, memory(hang=str(tmp_path / "hung")))
    previews.close()


def waits() -> Snapshot:
    cluster = Cluster(offer("one", (0, 4, 16), 0.2))
    return cluster.job("a", task(any=(0, 2, 8))).snapshot()


@pytest.mark.parametrize("greedy", [True, False])
def test_a_round_that_takes_far_too_long_is_planned_greedily_or_fails(
    mailbox: Mailbox, tmp_path: Path, greedy: bool
) -> None:
    watch = RoundTimeout(slow_s=0.1, longest_s=1.0)
    planner = ProcessPlanner(mailbox, "puppet", {}, BUILD, greedy=greedy, watch=watch)
    hung, snapshot = tmp_path / "hung", waits()
    planner.request(RequestPlan(1, snapshot, memory(hang=str(hung))))
    until(lambda: planner.slow_for_s() is not None)
    if greedy:
        ready = mailbox.expect(PlanReady)
        assert planned_greedily(ready.plan.figures)
        assert [entry.run for entry in ready.plan.entries] == [snapshot.runs[0].id]
        assert ready.memory == memory(hang=str(hung)), "the policy's memory stays"
    else:
        failed = mailbox.expect(PlanFailed)
        assert "found no plan within 1 s" in failed.reason
    assert planner.slow_for_s() is None
    planner.close()


@pytest.mark.parametrize(("name", "where"), [("", ""), ("train", " of partition train")])
def test_a_round_that_takes_long_is_told_with_its_time_and_partition_until_it_is_over(
    mailbox: Mailbox, tmp_path: Path, name: str, where: str
) -> None:
    watch = RoundTimeout(slow_s=0.5, longest_s=2.0)
    slow = ProcessPlanner(mailbox, "puppet", {}, BUILD, watch=watch)
    quick = ProcessPlanner(mailbox, "puppet", {}, BUILD, watch=watch)
    planner = PartitionedPlanner({name: slow, "other": quick})
    assert planner.slow() == ""
    hung = memory(hang=str(tmp_path / "hung"))
    planner.request(RequestPlan(1, SNAPSHOT, hung, partition=name))
    until(lambda: planner.slow() != "")
    told = f"a plan{where} has been under way for "
    assert re.fullmatch(told + r"\d+ s: tasks that wait are placed after it", planner.slow())
    assert mailbox.expect(PlanFailed).round == 1
    until(lambda: planner.slow() == "")
    planner.close()


MASTER = f"""
from {__name__} import *
if __name__ == "__main__":
    mailbox = Mailbox()
    planner = ProcessPlanner(mailbox, "puppet", {{}}, BUILD)
    planner.request(RequestPlan(1, SNAPSHOT, None))
    print(mailbox.expect(PlanReady).plan.figures["pid"], flush=True)
    planner.request(RequestPlan(2, SNAPSHOT, memory(hang=sys.argv[1])))
    signal.pause()
"""


def test_a_killed_master_leaves_no_planner_behind(tmp_path: Path) -> None:
    script, hung = tmp_path / "master.py", tmp_path / "hung"
    script.write_text(MASTER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, script, hung], stdout=subprocess.PIPE, text=True, env=environment
    ) as master:
        assert master.stdout is not None
        told = iter(master.stdout.readline, "")  # a busy machine's warnings among it
        planner = psutil.Process(int(next(line for line in told if line.strip().isdigit())))
        until(hung.exists)
        assert planner.is_running()
        master.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        planner.wait(DEADLINE_S)
