"""Which checkpoint generations stay in the object store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eva_worker.files.checkpoints import checkpoint_key, newest, newest_in_common, obsolete, prune
from eva_worker.files.objects import Objects


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects((tmp_path / "objects").as_uri())


async def put(objects: Objects, copy: str, *generations: int, torn: bool = False) -> None:
    for generation in generations:
        key = checkpoint_key(copy, generation)
        await objects.put(f"{key}/files/deep/manifest.json", b"a file of that name is none")
        if not torn:
            await objects.put(f"{key}/manifest.json", b"{}")


async def there(objects: Objects, copy: str) -> set[int]:
    keys = [key async for key in objects.list(f"jobs/{copy}/checkpoints")]
    return {int(key.split("/")[4]) for key in keys}


@pytest.mark.parametrize(
    ("own", "others", "common"),
    [
        ({1, 2, 3}, [{2, 3}, {1, 2}], 2),
        ({1, 2, 3}, [], 3),
        ({1, 2, 3}, [set()], 3),
        ({5, 6}, [{3, 4}], 0),
        (set(), [{3, 4}], 0),
    ],
)
def test_newest_in_common(own: set[int], others: list[set[int]], common: int) -> None:
    assert newest_in_common(own, others) == common


def test_the_newest_two_stay_and_what_is_to_be_kept() -> None:
    assert obsolete({1, 2, 3, 4, 5}, {2, 9}) == {1, 3}
    assert obsolete({1, 2}, ()) == set()


async def test_a_task_on_its_own_keeps_the_newest_two(objects: Objects) -> None:
    await put(objects, "a/0", 1, 3, 4)
    await put(objects, "a/0", 2, 9, torn=True)
    assert await prune(objects, "a/0") == 4
    # A torn one that is newer may be what is being stored.
    assert await there(objects, "a/0") == {3, 4, 9}
    assert await newest(objects, "a/0") == 4


async def test_a_member_keeps_what_another_that_lags_behind_has_too(objects: Objects) -> None:
    await put(objects, "g/0", 1, 2, 3, 4, 5, 6)
    await put(objects, "g/1", 2, 3)
    assert await prune(objects, "g/0", ["g/1", "g/2"], keep={1}) == 3
    assert await there(objects, "g/0") == {1, 3, 5, 6}


# The first looks, the second catches up and looks too, and then both delete.
CATCHING_UP = [
    *[(0, "store")] * 6,
    *[(1, "store"), (1, "look"), (1, "delete"), (0, "look")],
    *[(1, "store")] * 3,
    *[(1, "look"), (1, "delete"), (0, "delete")],
]


@example(CATCHING_UP)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["store", "look", "delete"])), max_size=80
    )
)
def test_what_all_have_seen_in_common_is_not_lost_to_an_older_one(
    steps: list[tuple[int, str]],
) -> None:
    """However they store, look at each other and delete: each step of each as slow as it likes."""
    members = 2
    stored: list[set[int]] = [{1} for _ in range(members)]
    common = [1] * members
    terminating: list[set[int]] = [set() for _ in range(members)]
    for member, step in steps:
        match step:
            case "store":
                stored[member].add(max(stored[member]) + 1)
            case "look":
                others = [stored[other] for other in range(members) if other != member]
                now = newest_in_common(stored[member], others)
                terminating[member] = obsolete(stored[member], {now, 1, common[member]})
                common[member] = now
            case _:
                stored[member] -= terminating[member]
                terminating[member] = set()
        assert max(set.intersection(*stored)) >= min(common)
