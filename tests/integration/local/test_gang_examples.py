"""The examples that run as gangs: members talk to each other, stop together and resume together."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.examples import Agent, Attempt, Gang, Task, numbers

SIZE = {"STEPS": "400", "HIDDEN": "48"}
MakeGang = Callable[..., Gang]


@pytest.fixture
def make_gang(tmp_path: Path) -> Iterator[MakeGang]:
    gangs = []

    def make(size: int, name: str = "ring_digits", **env: str) -> Gang:
        gangs.append(Gang(name, tmp_path / f"gang-{len(gangs)}", size, {**SIZE, **env}))
        return gangs[-1]

    yield make
    for gang in gangs:
        gang.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gang, list[Attempt]]]:
    """Three members that nobody stopped."""
    gang = Gang("ring_digits", tmp_path_factory.mktemp("whole") / "gang", 3, dict(SIZE))
    yield gang, gang.run()
    gang.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Task]:
    agent = Agent()
    yield Task("ring_digits", tmp_path / "alone", agent, dict(SIZE))
    agent.close()


def parameters(task: Task) -> list[np.ndarray]:
    with np.load(task.outputs / "model.npz") as model:
        return [model[name] for name in sorted(model)]


def check_all_stopped(attempts: list[Attempt]) -> int:
    """All members left at one step, before the end, in good order; returns the step."""
    for attempt in attempts:
        assert attempt.code == 0, attempt.printed
        assert "done:" not in attempt.printed
    (steps,) = {attempt.report.steps for attempt in attempts}
    assert 0 < steps < int(SIZE["STEPS"])
    return steps


@pytest.mark.long
def test_a_gang_computes_what_one_process_does(
    whole: tuple[Gang, list[Attempt]], alone: Task
) -> None:
    single = alone.run()
    assert single.code == 0, single.printed
    gang, attempts = whole
    assert [attempt.code for attempt in attempts] == [0, 0, 0], attempts
    assert {attempt.report.steps for attempt in attempts} == {400}
    assert attempts[0].column(1) == pytest.approx(single.column(1), abs=2e-4)
    loss, accuracy = numbers(attempts[0].last_line)
    assert (loss, accuracy) == pytest.approx(numbers(single.last_line), rel=1e-9)
    for mine, its in zip(parameters(gang.members[0]), parameters(alone), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-7, atol=1e-10)
    # One program writes results and checkpoints, however many run.
    assert not gang.members[1].results()
    assert not list(gang.members[1].checkpoints.iterdir())


@pytest.mark.long
def test_a_gang_that_is_stopped_goes_on_as_if_it_had_not_been(
    make_gang: MakeGang, whole: tuple[Gang, list[Attempt]]
) -> None:
    undisturbed, expected = whole
    gang = make_gang(3)
    steps = check_all_stopped(gang.run(hit=(0, 1, 2)))
    (generation,) = gang.members[0].checkpoints.iterdir()
    with np.load(generation / "state.npz") as state:
        assert state["step"] == steps

    resumed = gang.run()
    for attempt in resumed:
        assert attempt.code == 0, attempt.printed
        assert f"resumed at step {steps}\n" in attempt.printed
        assert attempt.report.steps == attempt.report.total_steps == 400 - steps
    assert resumed[0].last_line == expected[0].last_line
    assert gang.members[0].results() == undisturbed.members[0].results() != {}


@pytest.mark.long
def test_however_a_batch_is_divided_the_result_is_the_same(
    make_gang: MakeGang, tmp_path: Path
) -> None:
    """One member does an eighth of each batch, the other one the rest."""
    divided = make_gang(2, "split_batch")
    for member, share in zip(divided.members, ("0.125000", "0.875000"), strict=True):
        member.env["EVA_BATCH_SHARE"] = share
    attempts = divided.run()
    assert [attempt.code for attempt in attempts] == [0, 0], attempts
    assert "does 64 of 512 images\n" in attempts[0].printed
    assert "does 448 of 512 images\n" in attempts[1].printed

    agent = Agent()
    single = Task("split_batch", tmp_path / "alone", agent, dict(SIZE))
    alone = single.run()
    agent.close()
    assert attempts[0].last_line == alone.last_line
    assert numbers(alone.last_line)[0] > 0.9
    for mine, its in zip(parameters(divided.members[0]), parameters(single), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-7, atol=1e-10)
    assert not divided.members[1].results()


@pytest.mark.explore
def test_members_that_divide_batches_stop_together(make_gang: MakeGang) -> None:
    divided = make_gang(2, "split_batch")
    steps = check_all_stopped(divided.run(hit=(0, 1)))
    resumed = divided.run()
    assert [attempt.code for attempt in resumed] == [0, 0], resumed
    assert {attempt.report.steps for attempt in resumed} == {400 - steps}


@pytest.mark.long
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.explore)])
def test_members_that_nobody_stopped_do_not_pass_for_done(make_gang: MakeGang, first: int) -> None:
    gang = make_gang(2, EVA_GRACE_SECONDS="0.1")
    attempts = gang.run(hit=(first,))
    assert attempts[first].code == 0, attempts[first].printed
    assert attempts[1 - first].code == 1
    assert "stops because another one was stopped" in attempts[1 - first].printed
    assert len({attempt.report.steps for attempt in attempts}) == 1
    assert len(list(gang.members[0].checkpoints.iterdir())) == 1


@pytest.mark.parametrize(
    "killed", [0, *(pytest.param(it, marks=pytest.mark.explore) for it in (1, 2))]
)
def test_members_end_when_one_is_lost(make_gang: MakeGang, killed: int) -> None:
    gang = make_gang(3)
    attempts = gang.run(hit=(killed,), number=signal.SIGKILL)
    assert attempts[killed].code == -signal.SIGKILL
    others = [attempt for rank, attempt in enumerate(attempts) if rank != killed]
    assert [attempt.code for attempt in others] == [1, 1]
    assert all("is gone" in attempt.printed for attempt in others)
    assert "stopped: member" in attempts[(killed + 1) % 3].last_line


def test_members_with_other_sizes_are_not_added_up(make_gang: MakeGang) -> None:
    gang = make_gang(2)
    gang.members[1].env["HIDDEN"] = "32"
    attempts = gang.run()
    assert [attempt.code for attempt in attempts] == [1, 1]
    assert any("another size or type" in attempt.printed for attempt in attempts)


def test_a_member_of_another_gang_is_turned_away(make_gang: MakeGang) -> None:
    gang = make_gang(2)
    gang.members[1].env["NODE_RANK"] = "5"
    attempts = gang.run()
    assert [attempt.code for attempt in attempts] == [1, 1]
    assert "member 5 of 2 came to a gang of 2" in attempts[0].printed


@pytest.mark.explore
@pytest.mark.torch
def test_processes_of_torchrun_stop_together_and_resume_exactly(make_gang: MakeGang) -> None:
    whole = make_gang(2, "digits_ddp")
    expected = whole.run()
    for attempt in expected:
        assert (attempt.code, attempt.report.steps) == (0, 400), attempt.printed
    assert numbers(expected[0].last_line)[0] < expected[0].column(1)[0] / 3

    gang = make_gang(2, "digits_ddp")
    stopped = gang.run(hit=(1, 0))
    # What torchrun exits with after a signal says nothing about what it ran.
    (steps,) = {attempt.report.steps for attempt in stopped}
    assert 0 < steps < 400
    assert "done:" not in stopped[0].printed
    assert len(list(gang.members[0].checkpoints.iterdir())) == 1

    resumed = gang.run()
    for attempt in resumed:
        assert attempt.code == 0, attempt.printed
        assert f"resumed at step {steps}\n" in attempt.printed
        assert attempt.report.steps == 400 - steps
    assert resumed[0].last_line == expected[0].last_line
