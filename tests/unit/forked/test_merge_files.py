"""Forks on their workers: parts and merges go through the store, and what is torn does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from eva_worker.files.objects import Objects
from eva_worker.forks.files import KINDS, MergeFiles
from eva_worker.forks.merges import ForkMerges
from eva_worker.orders import MergeNews, MergeRound, Part, PartGiven, PartsMerged, TaskKey
from tests.fakes.patience import DEADLINE_S

JOB = "a-1"


class Side:
    """One fork with its directories, and what it has told the master and its user."""

    def __init__(self, home: Path, objects: Objects, fork: int) -> None:
        self.home = home
        for kind in KINDS:
            (home / kind).mkdir(parents=True)
        self.said: list[MergeNews] = []
        self.lines: list[str] = []
        run = f"{JOB}/0" if fork == 0 else f"{JOB}/0+{fork}"
        files = MergeFiles(objects, JOB, home)
        self.merges = ForkMerges(
            TaskKey(run, 1), fork, files, say=self.said.append, tell=self.lines.append
        )
        self.merges.start()

    def publish(self, kind: str, epoch: int, note: object, weights: bytes = b"w") -> None:
        """What the program writes: a directory that appears at once."""
        draft = self.home / kind / f".{epoch}"
        draft.mkdir()
        (draft / "weights.npz").write_bytes(weights)
        name = "part.json" if kind == "given" else "merged.json"
        (draft / name).write_text(note if isinstance(note, str) else json.dumps(note))
        draft.rename(self.home / kind / f"{epoch:08d}")

    def path(self, kind: str, epoch: int) -> Path:
        return self.home / kind / f"{epoch:08d}"


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def _sides(tmp_path: Path) -> tuple[Side, Side, Path]:
    store = tmp_path / "objects"
    store.mkdir()
    objects = Objects(f"file://{store}")
    return (
        Side(tmp_path / "zero", objects, 0),
        Side(tmp_path / "one", objects, 1),
        store / "jobs" / JOB / "merge",
    )


async def _given(side: Side, steps: int, weights: bytes) -> PartGiven:
    side.merges.receive(MergeRound(1, quota=10))
    await _until(lambda: side.merges.answer.quota == 10)
    side.publish("given", 1, {"steps": steps, "check": None}, weights)
    side.merges.heard(1, 0)
    await _until(lambda: side.said)
    (part,) = side.said
    assert isinstance(part, PartGiven)
    return part


def test_parts_reach_the_leader_and_its_merge_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader, other, _ = _sides(tmp_path)
        parts = [
            Part(number, it.steps, it.digest)
            for number, it in enumerate(
                [await _given(leader, 7, b"zero"), await _given(other, 3, b"one")]
            )
        ]
        leader.merges.receive(MergeRound(1, quota=7, average=True, parts=tuple(parts)))
        await _until(lambda: leader.merges.answer.average)
        found = leader.path("parts", 1)
        assert (found / "0" / "weights.npz").read_bytes() == b"zero"
        assert (found / "1" / "weights.npz").read_bytes() == b"one"
        assert json.loads((found / "1" / "part.json").read_text())["steps"] == 3
        note = {"steps": 10, "parts": [{"fork": 0, "kept": True}, {"fork": 1, "kept": True}]}
        leader.publish("merged", 1, note, b"mean")
        leader.merges.heard(1, 1)
        await _until(lambda: isinstance(leader.said[-1], PartsMerged))
        merged = leader.said[-1]
        assert isinstance(merged, PartsMerged)
        assert [(it.fork, it.kept) for it in merged.parts] == [(0, True), (1, True)]
        # The other one hears of the next epoch only once the merge is there.
        other.merges.receive(MergeRound(2, base_steps=10, quota=5, merge=merged.digest))
        await _until(lambda: other.merges.answer.epoch == 2)
        assert (other.path("merged", 1) / "weights.npz").read_bytes() == b"mean"
        for side in (leader, other):
            await side.merges.close()

    asyncio.run(scenario())


def test_a_torn_part_is_named_and_not_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader, other, store = _sides(tmp_path)
        own, torn = await _given(leader, 7, b"zero"), await _given(other, 3, b"one")
        (store / "00000001" / "parts" / "1" / "files" / "weights.npz").write_bytes(b"two")
        parts = (
            Part(0, 7, own.digest),
            Part(1, 3, torn.digest),
            Part(2, 3, "0" * 64),  # never stored
        )
        leader.merges.receive(MergeRound(1, quota=7, average=True, parts=parts))
        await _until(lambda: leader.merges.answer.average)
        found = leader.path("parts", 1)
        assert sorted(it.name for it in found.iterdir()) == ["0", "missing.json"]
        missing = json.loads((found / "missing.json").read_text())
        assert sorted(missing) == ["1", "2"]
        assert "weights.npz" in missing["1"]
        for side in (leader, other):
            await side.merges.close()

    asyncio.run(scenario())


def test_another_part_in_its_place_is_not_what_was_given(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader, other, _ = _sides(tmp_path)
        own = await _given(leader, 7, b"zero")
        await _given(other, 3, b"one")
        parts = (Part(0, 7, own.digest), Part(1, 3, "f" * 64))
        leader.merges.receive(MergeRound(1, quota=7, average=True, parts=parts))
        await _until(lambda: leader.merges.answer.average)
        missing = json.loads((leader.path("parts", 1) / "missing.json").read_text())
        assert missing == {"1": "its files are not those that were given"}
        for side in (leader, other):
            await side.merges.close()

    asyncio.run(scenario())


def test_a_program_that_lies_is_told_so_and_nothing_is_given(tmp_path: Path) -> None:
    notes = ["no json", "[]", '{"steps": -1}', '{"steps": true}', '{"steps": 1e3}', " " * (2 << 20)]

    async def scenario() -> None:
        side, other, _ = _sides(tmp_path)
        for epoch, note in enumerate(notes, 1):
            if epoch > 1:
                side.publish("merged", epoch - 1, {})  # else it is waited for
            side.merges.receive(MergeRound(epoch, quota=10))
            await _until(lambda epoch=epoch: side.merges.answer.epoch == epoch)  # type: ignore[misc]
            side.publish("given", epoch, note)
            side.merges.heard(epoch, 0)
            await _until(lambda epoch=epoch: len(side.lines) == epoch)  # type: ignore[misc]
        assert not side.said
        assert all("cannot be stored" in line for line in side.lines)
        for it in (side, other):
            await it.merges.close()

    asyncio.run(scenario())


def test_a_part_that_is_given_at_the_end_is_stored_before_the_exit(tmp_path: Path) -> None:
    async def scenario() -> None:
        side, other, _ = _sides(tmp_path)
        side.merges.receive(MergeRound(1, quota=10))
        await _until(lambda: side.merges.answer.quota == 10)
        side.publish("given", 1, {"steps": 4})
        await side.merges.close()
        assert [(it.epoch, it.steps) for it in side.said if isinstance(it, PartGiven)] == [(1, 4)]
        await other.merges.close()

    asyncio.run(scenario())


def test_what_was_said_is_said_again_when_the_master_asks_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        side, other, _ = _sides(tmp_path)
        part = await _given(side, 4, b"zero")
        side.merges.receive(MergeRound(1, quota=10, give=True))
        assert side.said == [part, part]
        side.merges.receive(MergeRound(0, quota=10))  # an epoch that there is not
        assert side.said == [part, part]
        for it in (side, other):
            await it.merges.close()

    asyncio.run(scenario())


async def _merged(side: Side, weights: bytes) -> PartsMerged:
    """The merge of the first epoch that a leader has made of nothing."""
    side.merges.receive(MergeRound(1, average=True))
    await _until(lambda: side.merges.answer.average)
    side.publish("merged", 1, {"parts": []}, weights)
    side.merges.heard(0, 1)
    await _until(lambda: side.said)
    (merged,) = side.said
    assert isinstance(merged, PartsMerged)
    return merged


def test_of_two_merges_of_an_epoch_the_one_that_counts_is_fetched(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second, store = _sides(tmp_path)
        third = Side(tmp_path / "two", Objects(f"file://{tmp_path / 'objects'}"), 2)
        accepted = await _merged(first, b"first")
        other = await _merged(second, b"second")
        assert accepted.digest != other.digest
        assert sorted(it.name for it in (store / "00000001" / "merged").iterdir()) == sorted(
            [accepted.digest, other.digest]
        )
        # What lies there already, of whomever, is replaced.
        third.publish("merged", 1, {"parts": []}, b"third")
        order = MergeRound(2, quota=5, merge=accepted.digest)
        for side in (first, second, third):
            side.merges.receive(order)
        await _until(lambda: first.merges.answer.epoch == third.merges.answer.epoch == 2)
        for side in (first, third):
            assert (side.path("merged", 1) / "weights.npz").read_bytes() == b"first"
        # The program that has loaded its own hears of no epoch after it.
        await _until(lambda: second.lines)
        assert second.lines == ["eva: another fork's merge of epoch 1 counts, so this attempt ends"]
        assert second.merges.answer.epoch == 1
        for side in (first, second, third):
            await side.merges.close()

    asyncio.run(scenario())
