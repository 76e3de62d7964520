"""The last lines of a log, against an oracle that splits the whole text."""

from __future__ import annotations

import random

import pytest

from eva_master.adapters.objects.task_logs import LogPiece, StoredLogs, last_lines
from eva_wire.values.ids import RunId

RUN = RunId("a-1/0")


def pieces_of(text: bytes, chance: random.Random, attempt: int = 1) -> list[LogPiece]:
    pieces, at = [], 0
    while at < len(text):
        end = at + chance.randint(1, 7)
        pieces.append(LogPiece(attempt, at, text[at:end]))
        at = end
    return pieces


@pytest.mark.parametrize("seed", range(40))
def test_the_last_lines_are_those_of_the_whole_text(seed: int) -> None:
    chance = random.Random(seed)
    text = bytes(chance.choice(b"ab\n\r") for _ in range(chance.randint(0, 60)))
    for lines in (0, 1, 2, 5, 100):
        kept = last_lines(pieces_of(text, chance), lines)
        split = text.split(b"\n")
        whole = [line + b"\n" for line in split[:-1]] + ([split[-1]] if split[-1] else [])
        assert b"".join(piece.data for piece in kept) == b"".join(
            whole[len(whole) - lines :] if lines <= len(whole) else whole
        )
        for piece in kept:
            assert text[piece.offset :].startswith(piece.data)


class Store:
    """Objects in memory that count how much is read."""

    def __init__(self, objects: dict[str, bytes], times: dict[str, int] | None = None) -> None:
        self.objects, self.times, self.read = objects, times or {}, 0

    async def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    async def size(self, key: str) -> int | None:
        return len(self.objects[key])

    async def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        data = self.objects[key][offset:][:length]
        self.read += len(data)
        return data

    async def modified(self, prefix: str) -> dict[str, int]:
        return {key: time for key, time in self.times.items() if key.startswith(prefix)}


def key(attempt: int, offset: int) -> str:
    return f"jobs/{RUN}/logs/{attempt:04d}/{offset:016d}"


@pytest.mark.parametrize("lines", [0, 1, 3, 50, 10_000])
async def test_a_position_before_the_last_lines_needs_the_end_of_the_log_alone(lines: int) -> None:
    text = b"".join(b"line %d\n" % number for number in range(200_000))
    store = Store({key(1, 0): text[:1_000_000], key(1, 1_000_000): text[1_000_000:]})
    attempt, offset = await StoredLogs(store).before_end(RUN, lines, (0, 0))  # type: ignore[arg-type]
    assert attempt == 1
    assert text[offset:].count(b"\n") >= lines
    assert store.read < 64 * 1024 + 20 * lines + 64 * 1024


async def test_lines_are_counted_over_attempts_and_objects_that_overlap() -> None:
    store = Store({key(1, 0): b"a\nb\n", key(2, 0): b"c\nd\n", key(2, 2): b"d\ne\n"})
    logs = StoredLogs(store)  # type: ignore[arg-type]
    assert await logs.before_end(RUN, 1, (0, 0)) <= (2, 4)
    assert (await logs.before_end(RUN, 4, (0, 0)))[0] == 1
    assert await logs.before_end(RUN, 100, (0, 0)) == (1, 0)
    assert await logs.before_end(RUN, 100, (2, 0)) == (2, 0)


async def test_a_line_without_end_does_not_have_the_whole_log_read() -> None:
    store = Store({key(1, at << 20): b"x" * (1 << 20) for at in range(20)})
    attempt, offset = await StoredLogs(store).before_end(RUN, 5, (0, 0))  # type: ignore[arg-type]
    assert (attempt, offset) == (1, 16 << 20)
    assert store.read == 4 << 20


async def test_what_was_stored_since_a_time_begins_with_an_object() -> None:
    objects = {key(1, 0): b"old", key(1, 3): b"newer", key(2, 0): b"newest"}
    store = Store(objects, {key(1, 0): 1_000, key(1, 3): 2_000, key(2, 0): 3_000})
    logs = StoredLogs(store)  # type: ignore[arg-type]
    for then, start in ((0, (1, 0)), (1_500, (1, 3)), (2_500, (2, 0)), (9_000, (2, 6))):
        assert await logs.since(RUN, then) == start  # type: ignore[arg-type]
