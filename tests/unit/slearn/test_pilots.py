"""Which tasks are pilots, and how many pay."""

from __future__ import annotations

from collections import Counter

import pytest

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_policies.slearn.memory import Memory, Sampled
from eva_policies.slearn.ratio import Ratios
from eva_policies.slearn.sampling import chosen, pilots_of
from eva_wire.values.ids import JobId, Millis

ONE, TWO, THREE, FOUR, FIVE = (part * 10_000 for part in range(1, 6))
JOB = JobId("job-1")


# -- sampling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "ratio", "pilots"),
    [
        (3, THREE, 1),
        (33, THREE, 1),
        (66, THREE, 1),
        (67, THREE, 2),
        (100, THREE, 3),
        (150, FIVE, 7),
        (10_000, ONE, 100),
        (1, FIVE, 1),
        (7, 1_000_000, 7),
    ],
)
def test_a_job_has_its_share_of_pilots_and_one_at_least(
    tasks: int, ratio: int, pilots: int
) -> None:
    assert pilots_of(tasks, ratio) == pilots


def test_an_array_of_a_hundred_thousand_has_a_hundred_pilots() -> None:
    assert [pilots_of(tasks, 50_000) for tasks in (1_999, 2_000, 100_000)] == [99, 100, 100]


def test_pilots_are_distinct_tasks_of_the_job() -> None:
    for tasks in range(1, 40):
        for pilots in (1, tasks // 2, tasks, tasks + 3):
            found = chosen(JOB, tasks, pilots, 1)
            assert len(found) == len(set(found)) == min(pilots, tasks)
            assert all(0 <= index < tasks for index in found)


def test_a_seed_chooses_the_same_pilots_ever_again_and_another_one_others() -> None:
    first = chosen(JOB, 1_000, 30, 1)
    assert first == chosen(JobId("job-1"), 1_000, 30, 1)
    assert first != chosen(JOB, 1_000, 30, 2)
    assert first != chosen(JobId("job-2"), 1_000, 30, 1)
    # More of them are the same and some more, in whatever round that is decided.
    assert chosen(JOB, 1_000, 40, 1)[:30] == first


def test_each_task_is_about_as_often_a_pilot_as_any_other() -> None:
    tasks, pilots, jobs = 20, 3, 4_000
    count = Counter(
        index for job in range(jobs) for index in chosen(JobId(f"j-{job}"), tasks, pilots, 7)
    )
    expected = jobs * pilots / tasks
    # Chi-square with 19 degrees of freedom is above 43.8 once in a thousand times.
    assert sum((count[index] - expected) ** 2 / expected for index in range(tasks)) < 43.8


# -- how many --------------------------------------------------------------------------------------


def begun(ratios: Ratios, jobs: int) -> Ratios:
    for _ in range(jobs):
        ratios = ratios.begun()
    return ratios


def learned(**scores: int) -> Ratios:
    """All of the first three hundred jobs have begun; the mean score of each share."""
    ratios = begun(Ratios(), 300)
    names = {"one": ONE, "two": TWO, "three": THREE, "four": FOUR, "five": FIVE}
    for name, score in scores.items():
        for job in range(100):
            ratios = ratios.ended(names[name], score + (-1) ** job * (score // 10))
    return ratios


def test_the_first_hundred_jobs_have_three_per_cent_the_next_two_and_the_next_four() -> None:
    ratios, found = Ratios(), []
    for _ in range(300):
        found.append(ratios.next())
        ratios = ratios.begun()
    assert found == [THREE] * 100 + [TWO] * 100 + [FOUR] * 100


@pytest.mark.parametrize(
    ("two", "three", "four", "share"),
    [
        # The best of the three is taken.
        (1_300, 1_000, 1_200, THREE),
        (1_000, 1_050, 1_200, TWO),
        (1_200, 1_050, 1_000, FOUR),
        # By more than a tenth: the one beyond is tried. Exactly a tenth is not enough.
        (1_000, 1_100, 1_200, TWO),
        (1_000, 1_101, 1_200, ONE),
        (1_200, 1_100, 1_000, FOUR),
        (1_200, 1_101, 1_000, FIVE),
        (1_000, 1_101, 1_050, ONE),
        (1_050, 1_101, 1_000, FIVE),
    ],
)
def test_afterwards_the_best_is_taken_or_the_one_beyond_is_tried(
    two: int, three: int, four: int, share: int
) -> None:
    assert learned(two=two, three=three, four=four).next() == share


@pytest.mark.parametrize(
    ("scores", "share"),
    [
        # Worked by hand from the listing of Figure 4; its line 15 takes all ratios into account.
        ({"one": 1_000, "two": 1_500, "three": 1_600, "four": 1_700}, ONE),
        ({"two": 1_500, "three": 1_600, "four": 1_700, "five": 1_000}, FIVE),
        # The step from the middle's neighbour is taken again, whatever it gave before.
        ({"one": 1_400, "two": 1_000, "three": 1_101, "four": 1_200}, ONE),
        ({"three": 1_101, "four": 1_000, "five": 1_400}, FIVE),
        # Without a gain of more than a tenth the lowest score stands.
        ({"one": 1_400, "two": 1_000, "three": 1_100, "four": 1_200}, TWO),
        ({"one": 1_400, "two": 1_300, "three": 1_000, "four": 1_200, "five": 1_001}, THREE),
    ],
)
def test_the_lowest_score_of_all_ratios_decides(scores: dict[str, int], share: int) -> None:
    assert learned(**scores).next() == share


def test_only_the_last_hundred_jobs_of_a_share_speak_for_it() -> None:
    known = learned(two=2_000, three=1_000, four=1_500)
    assert known.next() == THREE
    for _ in range(99):
        known = known.ended(TWO, 950)
    # The last bad one is still in it: (99 * 950 + 1,800) / 100 is 958.
    assert known.next() == TWO
    assert len(known.scores[TWO]) == 100
    for _ in range(100):
        known = known.ended(TWO, 1_100)
    assert known.next() == THREE


def test_where_nothing_has_ended_yet_it_stays_with_three_per_cent() -> None:
    assert begun(Ratios(), 400).next() == THREE
    assert begun(Ratios(), 400).ended(FOUR, 1_000).next() == FOUR


# -- the memory ------------------------------------------------------------------------------------


def test_what_is_remembered_is_read_as_it_was_written() -> None:
    memory = Memory(
        {JobId("a-1"): Sampled(THREE, Millis(5)), JobId("b-2"): Sampled(ONE, Millis(7), 900)},
        {JobId("c-3"): 4},
        Ratios(17, {THREE: (1_000, 2_000), FOUR: (5,)}),
    )
    written = memory.written()
    assert (written.policy, written.version) == ("slearn", 1)
    assert Memory.read(written) == memory
    assert Memory.read(Memory().written()) == Memory()


@pytest.mark.parametrize(
    ("policy", "version", "data"),
    [
        ("fifo", 1, {"started": 5}),
        ("slearn", 2, {"started": 5}),
        ("slearn", 1, {}),
        ("slearn", 1, {"started": "many"}),
        ("slearn", 1, {"started": None}),
        ("slearn", 1, {"started": 5, "sampled": {"a-1": [1, 2]}}),
        ("slearn", 1, {"started": 5, "sampled": {"a-1": 7}}),
        ("slearn", 1, {"started": 5, "placed": {"a-1": "first"}}),
        ("slearn", 1, {"started": 5, "placed": {"a-1": [1]}}),
        ("slearn", 1, {"started": 5, "scores": {"few": [1]}}),
        ("slearn", 1, {"started": 5, "scores": {"30000": ["x"]}}),
    ],
)
def test_what_cannot_be_read_is_as_if_it_were_not_there(
    policy: str, version: int, data: dict[str, Json]
) -> None:
    assert Memory.read(PolicyMemory(policy, version, data)) == Memory()
    assert Memory.read(None) == Memory()
