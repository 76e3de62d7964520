"""The outputs of an extra run that has won take the place of its task's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.objects import open_store
from eva_master.adapters.objects.checkpoints import StoredCheckpoints
from eva_master.model.actions import PlaceOutputs
from eva_master.model.events import Event, OutputsPlaced
from eva_master.ports import ObjectStore
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import JobId, RunId
from tests.fakes.archive import none_ended

OWN, EXTRA, OTHER = RunId("a-1/0"), RunId("a-1/0+1"), RunId("a-1/00")
BIG = bytes(range(256)) * 70_000


async def place(store: ObjectStore, times: int = 1) -> list[Event]:
    heard: list[Event] = []
    answered = asyncio.Event()

    class Inbox:
        def post(self, event: Event) -> None:
            heard.append(event)
            answered.set()

    adapter = StoredCheckpoints(store, Inbox(), SystemClock(), none_ended)  # type: ignore[arg-type]
    for _ in range(times):
        await asyncio.to_thread(adapter.place, PlaceOutputs(JobId("a-1"), EXTRA, OWN))
    async with asyncio.timeout(30):
        await answered.wait()
    return heard


@pytest.fixture
async def store(tmp_path: Path) -> ObjectStore:
    store = open_store(tmp_path.as_uri())
    await store.put(f"jobs/{OWN}/outputs/model", b"half of a mod")
    await store.put(f"jobs/{OWN}/outputs/deep/leftover", b"of the loser")
    await store.put(f"jobs/{OWN}/logs/0001/0000000000000000", b"log")
    await store.put(f"jobs/{OTHER}/outputs/model", b"another task's")
    await store.put(f"jobs/{EXTRA}/outputs/model", BIG)
    await store.put(f"jobs/{EXTRA}/outputs/deep/er/empty", b"")
    return store


async def outputs(store: ObjectStore, run: RunId) -> dict[str, bytes]:
    prefix = f"jobs/{run}/outputs"
    return {it.removeprefix(prefix): await store.get(it) for it in await store.list(prefix)}


async def test_they_replace_what_the_loser_left(store: ObjectStore) -> None:
    won = await outputs(store, EXTRA)
    for _ in range(2):  # A master that died asks again.
        assert await place(store) == [OutputsPlaced(EXTRA)]
        assert await outputs(store, OWN) == won == {"/model": BIG, "/deep/er/empty": b""}
    assert await outputs(store, EXTRA) == won, "they stay where they are, to be copied again"
    assert await outputs(store, OTHER) == {"/model": b"another task's"}
    assert await store.list(f"jobs/{OWN}/logs")


async def test_a_run_without_outputs_leaves_none(store: ObjectStore) -> None:
    for key in await store.list(f"jobs/{EXTRA}/outputs"):
        await store.delete(key)
    await place(store)
    assert await outputs(store, OWN) == {}


class Failing:
    """A store of which one method fails."""

    def __init__(self, store: ObjectStore) -> None:
        self.list, self.get, self.delete = store.list, store.get, store.delete

    async def put(self, key: str, data: object) -> None:
        raise StorageError(f"object {key}: no room")


async def test_a_failure_is_told_and_can_be_made_good(store: ObjectStore) -> None:
    (told,) = await place(Failing(store))  # type: ignore[arg-type]
    assert isinstance(told, OutputsPlaced)
    assert "no room" in told.error
    assert await place(store) == [OutputsPlaced(EXTRA)]
    assert await outputs(store, OWN) == await outputs(store, EXTRA)
