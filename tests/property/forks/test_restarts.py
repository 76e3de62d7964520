"""A forked job whose forks begin anew at every message: the job goes on, and steps count once.

The master's decisions (`tracker`), the agents' (`ForkMerges`) and the program's (`next_turn`) are
the real ones; store, directories and messages are values. No time passes, so neither an overdue
part nor an overdue merge gets a job on here: each schedule must end by its messages alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from eva_iterator._forks.link import ForkLink, ForkRound
from eva_iterator._forks.turns import Done, ForkStep, There, next_turn
from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.features.forks import tracker
from eva_master.control.features.forks.tracker import Runner
from eva_master.model.forks.merging import NOT_BEGUN, MergeRule, Merging, PartFate
from eva_master.model.forks.merging import GivenWeights as GivenPart
from eva_wire.values.ids import Millis
from eva_worker.errors import Missing
from eva_worker.forks.merges import ForkMerges
from eva_worker.orders import KeptPart, MergeNews, MergeRound, Part, PartGiven, PartsMerged, TaskKey
from tests.drawing import drawn

RULE = MergeRule()
TOTAL = 12
_TURNS = 8
"""Turns of the event loop in which an agent does all that it can."""
PER_TURN = 2
"""Steps that a program makes between two looks."""
WAYS = ("attempt", "agent", "stop", "master")
"""Restarts of a fork's attempt without a word, of its agent alone, of its attempt after it gave its
steps, and of the master, which forgets to whom it has said what."""


@dataclass(frozen=True)
class Trained:
    """Weights: the merge that they began from and the steps since then."""

    base: str
    steps: int


@dataclass(frozen=True)
class Averaged:
    """The weights of a merge."""

    epoch: int
    parts: tuple[Trained, ...]

    @property
    def name(self) -> str:
        return f"{self.epoch}:" + "+".join(f"{it.steps}@{it.base}" for it in self.parts)


@dataclass
class Directories:
    """``$EVA_MERGE_DIR`` of one attempt, with the store that all forks share."""

    fork: int
    store: dict[tuple[str, int, object], Any]
    here: dict[tuple[str, int], Any] = field(default_factory=dict)

    def has(self, kind: str, epoch: int) -> bool:
        return (kind, epoch) in self.here

    async def store_part(self, epoch: int, fork: int) -> tuple[int, str]:
        part = self.here["given", epoch]
        self.store["part", epoch, fork] = part
        return part.steps, repr(part)

    async def store_merge(self, epoch: int) -> SimpleNamespace:
        merge, forks = self.here["merged", epoch]
        self.store["merged", epoch, merge.name] = merge
        kept = tuple(KeptPart(it, kept=True, reason="") for it in forks)
        return SimpleNamespace(digest=merge.name, kept=kept, check_merged=None, check_best=None)

    async def fetch_merge(self, epoch: int, digest: str) -> None:
        if ("merged", epoch, digest) not in self.store:
            raise Missing(f"no merge {digest}")
        self.here["merged", epoch] = self.store["merged", epoch, digest], ()

    async def fetch_parts(self, epoch: int, parts: Sequence[Part]) -> None:
        stored = {it.fork: self.store["part", epoch, it.fork] for it in parts}
        self.here["parts", epoch] = {
            it.fork: stored[it.fork] for it in parts if repr(stored[it.fork]) == it.digest
        }


class Program:
    """Work of `eva_iterator` between two steps, with a trail in place of weights."""

    def __init__(self, files: Directories) -> None:
        self.files = files
        self.link = ForkLink()
        self.done = Done()
        self.weights = ""
        self.ended = False

    def turn(self, answer: MergeRound) -> None:
        """Hear the agent, and do what comes next."""
        names = ("epoch", "base_steps", "quota", "average", "give", "finished", "forks", "best")
        self.link.enter(ForkRound(**{name: getattr(answer, name) for name in names}))
        heard = self.link.round
        epoch = 0 if heard is None else heard.epoch
        has = self.files.has
        there = There(has("parts", epoch), has("merged", epoch), has("merged", epoch - 1))
        turn, epoch = next_turn(heard, self.done, there)
        if turn is ForkStep.TRAIN:
            assert heard is not None
            steps = self.done.steps_in(epoch)
            most = heard.quota or steps + PER_TURN
            self.done = self.done._replace(epoch=epoch, steps=min(most, steps + PER_TURN))
        elif turn is ForkStep.GIVE:
            self.give(epoch)
        elif turn is ForkStep.AVERAGE:
            parts = self.files.here["parts", epoch]
            merge = Averaged(epoch, tuple(parts[it] for it in sorted(parts)))
            self.files.here["merged", epoch] = merge, tuple(sorted(parts))
            self._holds(merge, epoch)
        elif turn is ForkStep.LOAD:
            self._holds(self.files.here["merged", epoch][0], epoch)
        self.ended = turn is ForkStep.END

    def give(self, epoch: int) -> None:
        part = Trained(self.weights, self.done.steps_in(epoch))
        self.files.here["given", epoch] = part
        self.done = self.done._replace(given=epoch)

    def leave(self) -> None:
        """A stop in the middle of an epoch: give what was done of it."""
        heard = self.link.round
        if heard is None or heard.finished or self.done.epoch != heard.epoch:
            return
        if self.done.steps and self.done.given < heard.epoch == self.done.merged + 1:
            self.give(heard.epoch)

    def _holds(self, merge: Averaged, epoch: int) -> None:
        self.weights = merge.name
        self.done = self.done._replace(merged=epoch)


class Fork:
    """One fork: its present attempt, agent and program."""

    def __init__(self, number: int, store: dict[tuple[str, int, object], Any]) -> None:
        self.number = number
        self.attempt = 0
        self.store = store
        self.news: list[tuple[int, MergeNews]] = []
        self.away = 0
        self.begin()

    def begin(self) -> None:
        """Begin the next attempt, with empty directories."""
        self.attempt += 1
        self.files = Directories(self.number, self.store)
        self.program = Program(self.files)
        self.agent()

    def agent(self) -> None:
        """Begin the agent anew, which keeps nothing of merges but the directories."""
        run = "j-1/0" if self.number == 0 else f"j-1/0+{self.number}"
        attempt = self.attempt
        self.merges = ForkMerges(
            TaskKey(run, attempt),
            self.number,
            self.files,  # type: ignore[arg-type]
            say=lambda news: self.news.append((attempt, news)),
            tell=lambda line: None,
        )
        self.merges.start()

    async def end(self) -> None:
        """End the agent's work without a word, as a kill does."""
        work = self.merges._work
        assert work is not None
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


class World:
    """A master and its forks; messages go round from fork to fork."""

    def __init__(self, forks: int, faults: dict[int, tuple[str, int]], downtime: int) -> None:
        self.record: Merging = NOT_BEGUN
        self.store: dict[tuple[str, int, object], Any] = {}
        self.forks = [Fork(it, self.store) for it in range(forks)]
        self.faults = faults
        self.downtime = downtime
        self.messages = 0
        self.accepted: dict[tuple[int, int], int] = {}
        """Steps of each part that the master has taken, by epoch and fork."""

    async def run(self, *, patience: int = 60) -> None:
        """Let messages go round until all steps are done; fails once nothing comes of them."""
        idle = 0
        while self.record.steps < TOTAL:
            before = self.record, [it.program.done for it in self.forks]
            for fork in self.forks:
                for act in (self._tell, self._turn, self._hear):
                    await self._message(fork, act)
            if self.messages % 8 < 3:
                self._change(tracker.asked(self.record, Millis(0)))
            moved = before != (self.record, [it.program.done for it in self.forks])
            idle = 0 if moved or any(it.away for it in self.forks) else idle + 1
            assert idle < patience, f"stands still: {self.record}"
            assert not self.record.unforked
        self._check_steps()

    async def close(self) -> None:
        for fork in self.forks:
            await fork.end()

    async def _message(self, fork: Fork, act: Callable[[Fork], None]) -> None:
        self.messages += 1
        if fault := self.faults.get(self.messages):
            await self._restart(*fault)
        fork.away = max(0, fork.away - 1)
        if not fork.away:
            act(fork)
            await _settled()
        self._settle()

    async def _restart(self, way: str, number: int) -> None:
        fork = self.forks[number]
        if way == "master":
            for it in self.forks:
                it.news.clear()
            return
        if way == "stop":
            fork.program.leave()
            await fork.merges.close()
            self._hear(fork)
        else:
            await fork.end()
        if way == "agent":
            fork.agent()
        else:
            fork.begin()
            fork.away = self.downtime

    def _tell(self, fork: Fork) -> None:
        order = tracker.instructions(self.record, fork.number, fork.attempt, TOTAL)
        parts = tuple(Part(it.fork, it.steps, it.digest) for it in order.parts)
        fork.merges.receive(
            MergeRound(
                order.epoch,
                order.steps,
                order.quota,
                order.forks,
                order.average,
                order.give,
                order.finished,
                parts,
                order.whole,
                order.best,
                order.merge,
            )
        )

    def _turn(self, fork: Fork) -> None:
        fork.program.turn(fork.merges.answer)
        fork.merges.heard(fork.program.done.given, fork.program.done.merged)

    def _hear(self, fork: Fork) -> None:
        for attempt, news in fork.news:
            if isinstance(news, PartGiven):
                part = GivenPart(fork.number, attempt, news.steps, news.digest)
                self._change(tracker.gave(self.record, news.epoch, part))
            elif isinstance(news, PartsMerged):
                kept = tuple(PartFate(it.fork, it.kept, it.reason) for it in news.parts)
                done = tracker.Done(news.epoch, fork.number, attempt, kept, digest=news.digest)
                self._change(tracker.merged(self.record, done, RULE, Millis(0)))
        fork.news.clear()

    def _settle(self) -> None:
        runners = [Runner(it.number, it.attempt, 1.0) for it in self.forks if not it.away]
        there = {(it.fork, it.attempt) for it in runners}
        record = tracker.without(self.record, there)
        record = tracker.led(record, runners, Millis(0))
        self._change(tracker.opened(record, TOTAL - record.steps, runners, Millis(0)))

    def _change(self, record: Merging) -> None:
        for part in record.parts:
            self.accepted[record.epoch, part.fork] = part.steps
        self.record = record

    def _check_steps(self) -> None:
        """An epoch has the steps of its accepted parts, each begun from the merge before."""
        steps, chain = 0, self.record.digest
        by_epoch: dict[int, int] = {}
        for (epoch, _), many in self.accepted.items():
            by_epoch[epoch] = by_epoch.get(epoch, 0) + many
        for epoch in range(self.record.merged, 0, -1):
            merge = self.store["merged", epoch, chain]
            bases = {it.base for it in merge.parts}
            assert len(bases) == 1, f"parts of epoch {epoch} began from {bases}"
            made = sum(it.steps for it in merge.parts)
            assert made == by_epoch[epoch], f"epoch {epoch}: {made} of {by_epoch[epoch]} steps"
            steps, chain = steps + made, bases.pop()
        assert not chain, "the first epoch begins from no merge"
        assert steps == self.record.steps == TOTAL


async def _inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


async def _settled() -> None:
    """Let the agents do all that they can do now; nothing that they wait for takes time here."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def lived(forks: int, faults: dict[int, tuple[str, int]], downtime: int) -> int:
    """Have a world run to its end; returns how many messages that took."""

    async def scenario() -> int:
        world = World(forks, faults, downtime)
        try:
            await world.run()
        finally:
            await world.close()
        return world.messages

    with mock.patch("asyncio.to_thread", _inline):
        return asyncio.run(scenario())


def test_without_restarts_it_ends() -> None:
    assert lived(2, {}, 0) < 200


@pytest.mark.parametrize("downtime", [0, 9])
@pytest.mark.parametrize("ways", list(product(WAYS, repeat=2)))
def test_two_forks_that_begin_anew_at_any_message(ways: tuple[str, str], downtime: int) -> None:
    most = lived(2, {}, 0)
    for first, gap in product(range(1, most + 1), (0, 1, 4)):
        faults = {first: (ways[0], 0), first + gap: (ways[1], 1)}
        try:
            lived(2, faults, downtime)
        except AssertionError as error:
            raise AssertionError(f"{faults}: {error}") from error


@drawn(200)
@given(
    st.integers(2, 4),
    st.dictionaries(
        st.integers(1, 150), st.tuples(st.sampled_from(WAYS), st.integers(0, 3)), max_size=12
    ),
    st.sampled_from([0, 5, 20]),
)
def test_any_forks_that_begin_anew_at_any_messages(
    forks: int, faults: dict[int, tuple[str, int]], downtime: int
) -> None:
    lived(forks, {at: (way, it % forks) for at, (way, it) in faults.items()}, downtime)
