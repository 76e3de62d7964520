"""Whatever goes wrong, nobody is outside of their partition, and its limits and books hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.lines.memory import LineMemory
from eva_master.control.measure import ledger
from eva_master.control.measure.partition_sums import of_partitions
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.events import DrainRequested, MoveRequested
from eva_master.model.fleet.partitions import Offers, Partition, PartitionLimits, Rule, with_nodes
from eva_master.model.records import Instance
from eva_master.ports import Policy
from eva_wire.values.states import TERMINAL_JOB, JobState
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.fakes.pools.policy import CapriciousLines
from tests.property.fleet.test_owned_nodes import NODES, _Stays
from tests.property.standing.test_lines import _check_bound, _check_lines, drains
from tests.property.test_control_loop import (
    CATALOG,
    CHAOS_MS,
    QUICK,
    Story,
    _check_end,
    _check_now,
    _stuck,
    _world,
    stories,
    times,
)

SCARCE = tuple(replace(it, zone="b", limit=3) for it in CATALOG[1:])
RACK, _, BOX = NODES
PARTS = with_nodes(
    (
        Partition(
            "vision",
            offers=Offers(zones=frozenset({"b"})),
            nodes=frozenset({RACK.name}),
            rule=Rule(tenants=frozenset({"vision"})),
        ),
        Partition(
            "speech",
            limits=PartitionLimits(instances=3),
            rule=Rule(tenants=frozenset({"speech"})),
        ),
        Partition(
            "closed",
            rule=Rule(owners=OwnerPatterns(("me",))),
            submitters=OwnerPatterns(("you",)),
        ),
        Partition("main", offers=Offers(zones=frozenset({"local"})), default=True),
    ),
    {node.name: node.offering.id for node in (RACK, BOX)},
)
DIVIDED = replace(QUICK, partitions=PARTS, nodes={node.name: node for node in (RACK, BOX)})
NAMES = ["vision", "speech", "main", "closed"]


@dataclass(frozen=True)
class PartStory:
    """What happens to partitions beside all the rest."""

    story: Story
    moves: list[tuple[int, int, str]]
    drains: list[tuple[int, int, bool]]
    cuts: list[tuple[int, int, int]]
    pooled: set[str]


part_stories = st.builds(
    PartStory,
    stories,
    st.lists(st.tuples(times, st.integers(0, 5), st.sampled_from(NAMES)), max_size=4),
    drains,
    st.lists(st.tuples(times, st.integers(0, 1), st.integers(0, 400_000)), max_size=2),
    # Whose policies state pools and lines: of the same names in each.
    st.sets(st.sampled_from(NAMES)),
)


def _policies(story: PartStory) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    for number, name in enumerate(NAMES):
        whims = CapriciousPolicy(story.story.seed + number, CHAOS_MS)
        lines = CapriciousLines(story.story.seed + number, CHAOS_MS, whims)
        found[name] = lines if name in story.pooled else whims
    return found


def _divided(story: PartStory) -> ChaoticWorld:
    world = _world(story.story, DIVIDED, _policies(story), (*CATALOG, *SCARCE))

    def move(number: int, job: int, partition: str) -> None:
        reply = world.answers.replies.get(f"submit-{job}")
        if reply is not None and reply.job is not None:
            world.inbox.post(MoveRequested(f"move-{number}", reply.job, partition, "me"))

    def drain(index: int, *, moves: bool) -> None:
        live = sorted(world.state.live)
        if live:
            command = f"drain-{world.timeline.now()}"
            world.inbox.post(DrainRequested(command, live[index % len(live)], moves, "ops"))

    for number, (at, job, partition) in enumerate(story.moves):
        world.timeline.after(at, partial(move, number, job, partition))
    for at, index, moves in story.drains:
        world.timeline.after(at, partial(drain, index, moves=moves))
    for at, index, span in story.cuts:
        world.timeline.after(at, partial(world.workers.cut, (RACK, BOX)[index].name, span))
    return world


def _check_parts(world: ChaoticWorld) -> None:
    state = world.state
    live = [state.instances[name] for name in state.live]
    for instance in live:
        home = PARTS.home(instance.partition)
        assert home.name == instance.partition
        assert home.sells(instance.offering), f"{instance.id} is not sold to {home.name}"
    for run in state.runs.values():
        job = state.jobs[run.job]
        if run.target is not None and job.state not in TERMINAL_JOB:
            ours = state.instances[run.target].partition
            assert job.partition == ours, f"{run.id} of {job.partition} is to run in {ours}"
    for name, standing in world.machine._context.memory(LineMemory).standings.items():
        for member in {it for pool in standing.pools for it in pool.members}:
            assert state.instances[member].partition == name, f"{member} is in a pool of {name}"
    usable = Counter(it.offering.id for it in live if state.can_place(it.id))
    for offering in SCARCE:
        assert usable[offering.id] <= 3, f"{usable[offering.id]} of {offering.id}"
    assert sum(it.partition == "speech" for it in live) <= 3
    assert not any(it.partition == "closed" for it in live if not _stands(world, it))


def _stands(world: ChaoticWorld, instance: Instance) -> bool:
    return instance.pool != "" or instance.drain is not None


def _check_books(world: ChaoticWorld, stays: _Stays) -> None:
    state, now = world.state, world.timeline.now()
    charged: Counter[str] = Counter()
    for name in DIVIDED.nodes:
        if name in state.instances:
            charged[state.instances[name].partition] += stays.charged(world, name)
    for name, machine in world.cloud.bill().items():
        paid = machine.offering.price * (machine.gone_ms - machine.up_ms)
        charged[state.instances[name].partition] += paid
    sums = of_partitions(state, state.totals.partitions, PARTS, now)
    assert {name: int(it.charged) for name, it in sums.items() if it.charged} == +charged
    bill = ledger.bill(state, now)
    assert sum(it.charged for it in sums.values()) == bill.charged
    assert sum(it.idle for it in sums.values()) == bill.idle
    assert not any(it.jobs or it.tasks for it in sums.values())
    whole = state.counters
    named = [it for name, it in sums.items() if name != "main"]
    assert sum(it.arrivals for it in named) <= whole.arrivals
    assert whole.arrivals == whole.completions


def _live_divided(world: ChaoticWorld, story: PartStory) -> _Stays:
    stays = _Stays()
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.story.arrivals) and world.quiet():
                return stays
        assert world.timeline.now() < 20 * CHAOS_MS, _stuck(world)
        world.step()
        _check_now(world)
        _check_bound(world)
        _check_lines(world)
        _check_parts(world)
        stays.look(world)


@pytest.mark.long
@drawn(6)
@given(part_stories)
def test_partitions_are_kept_apart(story: PartStory) -> None:
    world = _divided(story)
    stays = _live_divided(world, story)
    _check_end(world, story.story)
    _check_books(world, stays)
    for name, reply in world.answers.replies.items():
        if name.startswith("move-") and reply.error is None and reply.job is not None:
            job = world.state.jobs[reply.job]
            assert job.partition != "closed" or job.state is JobState.CANCELLED


@drawn(2)
@given(part_stories)
@pytest.mark.explore
def test_a_divided_cluster_replays_alike(story: PartStory) -> None:
    def history() -> list[object]:
        world = _divided(story)
        _live_divided(world, story)
        return [
            world.history.starts,
            [job.history for job in world.state.jobs.values()],
            [(it.partition, it.history) for it in world.state.instances.values()],
        ]

    assert history() == history()
