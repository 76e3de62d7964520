"""The epochs of forked jobs under random deaths, and messages that are lost, doubled and late."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.features.forks import tracker
from eva_master.control.features.forks.tracker import Done, Runner
from eva_master.model.forks.merging import NOT_BEGUN, GivenWeights, MergeRule, Merging, PartFate
from eva_wire.values.ids import Millis
from tests.drawing import drawn

RULE = MergeRule(check="loss", tolerance_ppm=20_000)


@dataclass
class Program:
    """One attempt of a fork, as its worker has it: it knows only what it was told."""

    fork: int
    attempt: int
    epoch: int = 0
    done: int = 0
    given: GivenWeights | None = None


@dataclass
class World:
    """A job's forks, the master's record, and the messages under way."""

    rng: random.Random
    total: int
    forks: int
    record: Merging = NOT_BEGUN
    programs: dict[int, Program] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    post: list[tuple[str, object]] = field(default_factory=list)
    closed: dict[int, int] = field(default_factory=dict)
    counted: list[tuple[int, int, int]] = field(default_factory=list)
    """Each part that counts: its epoch, its fork and its steps."""
    now: int = 0

    def runners(self) -> list[Runner]:
        speeds = {it: 1.0 + it for it in range(self.forks)}
        return [Runner(it.fork, it.attempt, speeds[it.fork]) for it in self.programs.values()]

    def settle(self) -> None:
        """What the control loop does after each event, be it the first of a new master."""
        there = {(it.fork, it.attempt) for it in self.runners()}
        self.record = tracker.without(self.record, there)
        self.record = tracker.led(self.record, self.runners(), Millis(self.now))
        left = self.total - self.record.steps
        self.record = tracker.opened(self.record, left, self.runners(), Millis(self.now))

    def tell(self, program: Program) -> None:
        """What a fork is told reaches it, and it goes on."""
        told = tracker.instructions(self.record, program.fork, program.attempt, self.total)
        if told.finished:
            return
        if told.quota and told.epoch > program.epoch and not told.average:
            # It starts from the merge before, which must be the last one.
            assert told.epoch == self.record.merged + 1
            assert told.steps == sum(self.closed.values())
            program.epoch, program.done, program.given = told.epoch, 0, None
        if program.given is None and told.epoch == program.epoch and told.quota:
            more = self.rng.randrange(1, told.quota + 1)  # a part of no steps does not count
            program.done = min(told.quota, program.done + more)
            if told.give or program.done == told.quota or self.rng.random() < 0.3:
                claim = program.done + (self.rng.random() < 0.05)
                made = f"{program.epoch} {program.attempt}"
                program.given = GivenWeights(program.fork, program.attempt, claim, made)
        if program.given is not None and program.epoch == told.epoch and not told.average:
            self.send("part", (program.epoch, program.given))
        if told.average:
            # A leader may have to leave some out: their weights may be no numbers.
            kept = tuple(
                PartFate(it.fork, self.rng.random() < 0.8, "" if self.rng.random() < 0.5 else "NaN")
                for it in told.parts
            )
            figures = self.rng.choice([(None, None), (1.0, 1.0), (1.5, 1.0)])
            done = Done(told.epoch, program.fork, program.attempt, kept, *figures)
            self.send("done", done)

    def send(self, kind: str, message: object) -> None:
        """A message may be lost, come twice, and late."""
        copies = self.rng.choice([0, 1, 1, 1, 2])
        self.post += [(kind, message)] * copies

    def deliver(self) -> None:
        if not self.post:
            return
        kind, message = self.post.pop(self.rng.randrange(len(self.post)))
        before = self.record
        if kind == "part":
            epoch, part = message  # type: ignore[misc]
            self.record = tracker.gave(before, epoch, part)
            if len(self.record.parts) > len(before.parts):
                # Made in this epoch, by the attempt whose share it is.
                share = before.share_of(part.fork)
                assert share is not None
                assert part.digest == f"{before.epoch} {share.attempt}"
        else:
            assert isinstance(message, Done)
            self.record = tracker.merged(before, message, RULE, Millis(self.now))
        if self.record.merged != before.merged:
            assert self.record.merged == before.merged + 1
            assert self.record.merged not in self.closed  # one merge per epoch
            assert isinstance(message, Done)
            assert message.epoch == self.record.merged  # of the parts of this epoch
            self.closed[self.record.merged] = self.record.steps - before.steps
            kept = {it.fork for it in message.kept if it.kept}  # type: ignore[union-attr]
            self.counted += [
                (self.record.merged, it.fork, it.steps) for it in before.parts if it.fork in kept
            ]

    def event(self) -> None:
        self.now += self.rng.randrange(1, 60_000)
        dead = [it for it in range(self.forks) if it not in self.programs]
        what = self.rng.choices(
            ["tell", "deliver", "die", "start", "ask", "late", "depose"],
            [10, 10, 1, 2, 1, 0.3, 0.3],
        )[0]
        if what == "tell" and self.programs:
            self.tell(self.rng.choice(list(self.programs.values())))
        elif what == "deliver":
            self.deliver()
        elif what == "die" and self.programs:
            self.programs.pop(self.rng.choice(list(self.programs)))
        elif what == "start" and dead:
            fork = self.rng.choice(dead)
            self.attempts[fork] = self.attempts.get(fork, 0) + 1
            self.programs[fork] = Program(fork, self.attempts[fork])
        elif what == "ask":
            self.record = tracker.asked(self.record, Millis(self.now))
        elif what == "late" and self.record.told_to_give:
            self.record = tracker.overdue(self.record)
        elif what == "depose":
            self.record = tracker.deposed(self.record)
        self.settle()
        self.check()

    def check(self) -> None:
        record = self.record
        assert record.steps == sum(self.closed.values()) == sum(it for *_, it in self.counted)
        promised = sum(it.steps for it in (*record.shares, *record.parts))
        assert record.steps + promised <= self.total
        pairs = [(epoch, fork) for epoch, fork, _ in self.counted]
        assert len(pairs) == len(set(pairs))  # no fork's steps twice in one epoch
        forks = [it.fork for it in record.shares] + [it.fork for it in record.parts]
        assert len(forks) == len(set(forks))
        assert all(it.steps > 0 for it in record.shares)


@drawn(60)
@given(st.integers(0, 2**32), st.integers(1, 5_000), st.integers(1, 6))
def test_every_step_counts_once_whatever_dies(seed: int, total: int, forks: int) -> None:
    world = World(random.Random(seed), total, forks)
    for _ in range(300):
        world.event()
    # Once nothing dies any more all steps are done, unless the job goes on unforked.
    world.programs = {it: Program(it, 1_000) for it in range(forks)}
    world.post.clear()
    world.settle()
    for _ in range(4_000):
        if world.record.steps == total or world.record.unforked:
            break
        for program in list(world.programs.values()):
            world.tell(program)
        while world.post:
            world.deliver()
        world.record = tracker.asked(world.record, Millis(world.now))
        world.settle()
        world.check()
    assert world.record.steps == total or world.record.unforked


@drawn(100)
@given(
    st.integers(0, 10**12),
    st.lists(st.floats(1e-6, 1e6, allow_nan=False), min_size=1, max_size=64),
)
def test_a_split_gives_away_each_step_once(steps: int, speeds: list[float]) -> None:
    parts = tracker.split(steps, speeds)
    assert sum(parts) == steps
    assert all(part >= 0 for part in parts)
    whole = sum(speeds)
    for part, speed in zip(parts, speeds, strict=True):
        assert abs(part - steps * speed / whole) <= 1 + steps * 1e-9
