"""What the control loop is told of the checkpoints in the object store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.objects import open_store
from eva_master.adapters.objects.checkpoints import StoredCheckpoints
from eva_master.model.actions import ListCheckpoints
from eva_master.model.events import CheckpointsListed, Event
from eva_master.ports import ObjectStore
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import JobId, RunId
from tests.fakes.archive import none_ended

JOB, FIRST, SECOND = JobId("g-1"), RunId("g-1/0"), RunId("g-1/1")


class Heard:
    """An inbox of which only the first event matters."""

    def __init__(self) -> None:
        self.first: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def post(self, event: Event) -> None:
        self.first.set_result(event)


async def ask(
    store: ObjectStore, after: int | None = None, discard: tuple[RunId, ...] = ()
) -> CheckpointsListed:
    inbox = Heard()
    # Asked from the control loop's thread.
    adapter = StoredCheckpoints(store, inbox, SystemClock(), none_ended)  # type: ignore[arg-type]
    question = ListCheckpoints(7, JOB, (FIRST, SECOND), after, discard)
    await asyncio.to_thread(adapter.request, question)
    async with asyncio.timeout(30):
        answer = await inbox.first
    assert isinstance(answer, CheckpointsListed)
    return answer


@pytest.fixture
async def store(tmp_path: Path) -> ObjectStore:
    store = open_store(tmp_path.as_uri())
    for generation in (1, 2, 3):
        prefix = f"jobs/{FIRST}/checkpoints/{generation:08d}"
        await store.put(f"{prefix}/files/model", b"...")
        await store.put(f"{prefix}/manifest.json", b"{}")
    await store.put(f"jobs/{SECOND}/checkpoints/00000004/files/model", b"torn")
    await store.put(f"jobs/{SECOND}/logs/0001/0000000000000000", b"log")
    return store


async def test_complete_generations_are_listed(store: ObjectStore) -> None:
    before = await store.list("jobs")
    assert await ask(store) == CheckpointsListed(7, JOB, ((FIRST, (1, 2, 3)), (SECOND, ())))
    assert await store.list("jobs") == before


async def test_what_is_given_up_goes_first(store: ObjectStore) -> None:
    assert await ask(store, after=1) == CheckpointsListed(7, JOB, ((FIRST, (1,)), (SECOND, ())))
    left = await store.list("jobs")
    assert [key for key in left if "checkpoints" in key] == [
        f"jobs/{FIRST}/checkpoints/00000001/files/model",
        f"jobs/{FIRST}/checkpoints/00000001/manifest.json",
    ]
    assert len(left) == 3


async def test_of_who_comes_back_to_a_gang_nothing_is_kept(store: ObjectStore) -> None:
    assert await ask(store, 1, (FIRST,)) == CheckpointsListed(7, JOB, ((FIRST, ()), (SECOND, ())))
    assert await store.list("jobs") == [f"jobs/{SECOND}/logs/0001/0000000000000000"]


@pytest.mark.parametrize("failure", [StorageError("no such bucket"), OSError("no such bucket")])
async def test_no_question_stays_without_an_answer(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def fail(_prefix: str) -> list[str]:
        raise failure

    monkeypatch.setattr(store, "list", fail)
    answer = await ask(store)
    assert answer.generations == ()
    assert "no such bucket" in answer.error
