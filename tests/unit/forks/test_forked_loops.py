"""Forked loops beside a stand-in for the agents: quotas, parts, merges, stops and long silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from eva_iterator._forks import fork as fork_module
from eva_iterator._forks.link import ForkRound

from tests.fakes.forks.coordinator import Coordinator
from tests.fakes.forks.program import Trainee, run_together


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_module, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(fork_module, "_REPORT_EVERY_S", 0.002)


def run_all(coordinator: Coordinator, **keywords: str) -> list[Trainee]:
    """Runs a program for each fork, until all loops have ended."""
    trainees = [
        Trainee(fork, coordinator.directory(fork), coordinator.answer, **keywords)
        for fork in coordinator.speeds
    ]
    run_together(trainees)
    return trainees


def means(epochs: list[Mapping[int, int]]) -> Fraction:
    """What the weights are after epochs of so many steps per fork, in rational numbers."""
    weight = Fraction(0)
    for steps in epochs:
        ends = [(n, weight + n * (fork + 1)) for fork, n in steps.items()]
        weight = sum((n * end for n, end in ends), Fraction(0)) / sum(steps.values())
    return weight


def test_each_step_counts_once_and_all_end_with_the_same_weights(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, {0: 8, 1: 2, 2: 4}, total=40)
    trainees = run_all(coordinator)
    assert coordinator.steps == [14, 14, 12]
    assert [trainee.made for trainee in trainees] == [24, 6, 10]
    expected = means([{0: 8, 1: 2, 2: 4}, {0: 8, 1: 2, 2: 4}, {0: 8, 1: 2, 2: 2}])
    for trainee in trainees:
        np.testing.assert_allclose(trainee.weights, float(expected), rtol=1e-15)
        # A counter is that of the fork that made most steps.
        assert trainee.count == 24
        assert trainee.session.stopping is False
        assert trainee.stopped_with is None
        assert trainee.session.progress.steps() == trainee.made


def test_a_merge_keeps_who_was_in_it_and_old_epochs_go(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, {0: 3, 1: 1}, total=16)
    run_all(coordinator)
    assert coordinator.notes[0] == {
        "steps": 4,
        "parts": [
            {"fork": 0, "steps": 3, "kept": True, "reason": ""},
            {"fork": 1, "steps": 1, "kept": True, "reason": ""},
        ],
        "check_merged": None,
        "check_best": None,
    }
    for kind, fork in (("given", 0), ("given", 1), ("merged", 0)):
        names = sorted(path.name for path in (coordinator.directory(fork) / kind).iterdir())
        assert names == ["00000003", "00000004"]


def test_a_program_knows_how_many_steps_its_job_has_made(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, {0: 3, 1: 1}, total=8)
    trainees = [Trainee(fork, coordinator.directory(fork), coordinator.answer) for fork in (0, 1)]
    seen: list[int] = []
    trainees[0].on_step = lambda trainee: seen.append(trainee.fork.steps)
    run_together(trainees)
    assert seen == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize(
    ("name", "better"), [("loss", min), ("accuracy_top1", max), ("val_acc", max)]
)
def test_the_merge_is_measured_beside_the_best_part(
    tmp_path: Path, name: str, better: type[min] | type[max]
) -> None:
    coordinator = Coordinator(tmp_path, {0: 3, 1: 1}, total=4)
    trainees = run_all(coordinator, check=name)
    (note,) = coordinator.notes
    # Weights are 3 after three steps of the first, 2 after one of the second.
    assert note["check_best"] == better(3.0, 2.0)
    assert note["check_merged"] == (3 * 3 + 1 * 2) / 4
    merged = coordinator.directory(1) / "merged" / "00000001"
    assert (merged / "best" / "model.npz").exists()
    assert trainees[0].session.progress.metrics[name] == note["check_merged"]


def test_the_best_part_can_be_gone_back_to(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, {0: 3, 1: 1}, total=4)
    run_all(coordinator, check="loss")

    def alone(fork: int, given: int) -> ForkRound:
        return ForkRound(epoch=2, base_steps=4, quota=5, forks=1, best=True)

    trainee = Trainee(0, coordinator.directory(1), alone).run()
    assert trainee.loaded == ["00000001", "best"]
    assert trainee.weights.tolist() == [2 + 5] * 3


def test_spoiled_parts_are_left_out_with_the_reason(tmp_path: Path) -> None:
    class Spoiling(Coordinator):
        def on_part(self, path: Path, fork: int, epoch: int) -> None:
            model = path / "model.npz"
            if fork == 1:
                np.savez(model, weights=np.array([1.0, np.nan, 1.0]), count=np.array(1))
            if fork == 2:
                model.write_bytes(model.read_bytes()[:-40])
            if fork == 3:
                np.savez(model, weights=np.zeros(4), count=np.array(1))
            if fork == 4:
                (path / "more.npz").write_bytes(b"x" * (2 << 20))
            if fork == 5:
                (path / "part.json").write_text('{"steps": -4}')
            if fork == 6:
                model.unlink()
                model.symlink_to("/etc/hostname")

    coordinator = Spoiling(tmp_path, dict.fromkeys(range(8), 2), total=16)
    coordinator.total = 4
    trainees = run_all(coordinator)
    parts = {part["fork"]: part for part in coordinator.notes[0]["parts"]}
    assert [fork for fork in parts if parts[fork]["kept"]] == [0, 7]
    assert coordinator.steps == [4]
    for fork, words in enumerate(
        ("", "finite", "cannot be read", "shape", "too large", "part.json", "plain file")
    ):
        assert words in parts[fork]["reason"]
    assert trainees[3].weights.tolist() == [(2 * 2 + 2 * 16) / 4] * 3


def test_parts_that_all_are_bad_leave_the_merge_before(tmp_path: Path) -> None:
    class Spoiling(Coordinator):
        def on_part(self, path: Path, fork: int, epoch: int) -> None:
            if epoch == 2:
                (path / "model.npz").write_bytes(b"no")

    coordinator = Spoiling(tmp_path, {0: 3, 1: 1}, total=8)
    trainees = run_all(coordinator)
    assert coordinator.steps == [4, 0, 4]
    expected = float(means([{0: 3, 1: 1}, {0: 3, 1: 1}]))
    assert trainees[1].weights[0] == pytest.approx(expected, rel=1e-15)


def test_a_part_that_was_asked_for_early_has_the_steps_so_far(tmp_path: Path) -> None:
    give = False

    def answer(fork: int, given: int) -> ForkRound:
        return ForkRound(epoch=1, quota=100, forks=2, give=give, finished=given == 1)

    def on_step(trainee: Trainee) -> None:
        nonlocal give
        if trainee.made == 7:
            give = True
            trainee._report()

    trainee = Trainee(1, tmp_path, answer)
    trainee.on_step = on_step
    trainee.run()
    note = json.loads((tmp_path / "given/00000001/part.json").read_text())
    assert note == {"steps": 7, "check": None}
    assert trainee.made == 7


def test_a_part_that_was_asked_for_at_once_has_one_step(tmp_path: Path) -> None:
    def answer(fork: int, given: int) -> ForkRound:
        return ForkRound(epoch=1, quota=100, forks=2, give=True, finished=given == 1)

    trainee = Trainee(1, tmp_path, answer).run()
    assert trainee.made == 1
    assert json.loads((tmp_path / "given/00000001/part.json").read_text())["steps"] == 1


def test_a_stop_in_an_epoch_gives_what_was_done_and_publishes_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVA_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))

    def on_step(trainee: Trainee) -> None:
        trainee.session.stop.requested = trainee.made == 3

    trainee = Trainee(1, tmp_path, lambda fork, given: ForkRound(epoch=1, quota=9, forks=2))
    trainee.on_step = on_step
    trainee.run(checkpoint=trainee.save)
    assert json.loads((tmp_path / "given/00000001/part.json").read_text())["steps"] == 3
    assert trainee.fork.link.given == 1
    assert trainee.stopped_with == 143
    assert not (tmp_path / "checkpoints").exists()


def test_a_stop_may_end_a_forked_loop_like_its_data(tmp_path: Path) -> None:
    def on_step(trainee: Trainee) -> None:
        trainee.session.stop.requested = trainee.made == 3

    trainee = Trainee(1, tmp_path, lambda fork, given: ForkRound(epoch=1, quota=9, forks=2))
    trainee.on_step = on_step
    trainee.run(on_stop="end")
    assert (trainee.made, trainee.stopped_with) == (3, None)
    assert json.loads((tmp_path / "given/00000001/part.json").read_text())["steps"] == 3


def test_a_stop_while_it_waits_ends_the_loop(tmp_path: Path) -> None:
    def answer(fork: int, given: int) -> ForkRound:
        trainee.session.stop.requested = given == 1
        return ForkRound(epoch=1, quota=2, forks=2)

    trainee = Trainee(1, tmp_path, answer)
    trainee.run()
    assert trainee.made == 2


def test_a_stop_while_it_averages_publishes_nothing(tmp_path: Path) -> None:
    def answer(fork: int, given: int) -> ForkRound:
        parts = tmp_path / "parts/00000001"
        if given and not parts.exists():
            for one in (0, 1):
                (parts / str(one)).mkdir(parents=True)
            trainee.session.stop.requested = True
        return ForkRound(epoch=1, quota=2, forks=2, average=True)

    trainee = Trainee(1, tmp_path, answer)
    trainee.run()
    assert not (tmp_path / "merged").exists()
    trainee.session.stop.requested = False


def test_a_struck_fork_drops_its_steps_and_takes_the_merge(tmp_path: Path) -> None:
    merge = tmp_path / "merged/00000001"
    merge.mkdir(parents=True)
    np.savez(merge / "model.npz", weights=np.full(3, 3.0), count=np.array(3))
    said = ForkRound(epoch=1, quota=50, forks=2)

    def on_step(trainee: Trainee) -> None:
        nonlocal said
        if trainee.made == 10:
            said = ForkRound(epoch=2, base_steps=3, quota=2, forks=2)
            trainee._report()

    def answer(fork: int, given: int) -> ForkRound:
        return said._replace(finished=given == 2)

    trainee = Trainee(4, tmp_path, answer)
    trainee.on_step = on_step
    trainee.run()
    assert trainee.made == 12
    assert trainee.weights.tolist() == [3 + 2 * 5] * 3
    assert [path.name for path in (tmp_path / "given").iterdir()] == ["00000002"]


def test_after_long_silence_it_trains_on_alone(tmp_path: Path) -> None:
    trainee = Trainee(0, tmp_path, lambda fork, given: None, patience_s=1e-9)
    trainee.run(20)
    assert trainee.made == 20
    assert not (tmp_path / "given").exists()


def test_the_only_fork_goes_on_as_a_job_without_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVA_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    said = ForkRound(epoch=3, base_steps=7, quota=10, forks=1)
    (tmp_path / "merged/00000002").mkdir(parents=True)
    first = Trainee(0, tmp_path, lambda fork, given: said)
    first.save(tmp_path / "merged/00000002")

    def on_step(trainee: Trainee) -> None:
        trainee.session.stop.requested = trainee.made == 4

    first.on_step = on_step
    first.run(checkpoint=first.save)
    note = json.loads((tmp_path / "checkpoints/00000001/fork.json").read_text())
    assert note == {"epoch": 3, "steps": 4}
    assert first.loaded == ["00000002"]
    # Should its job be forked again meanwhile, the part has the steps.
    assert json.loads((tmp_path / "given/00000003/part.json").read_text())["steps"] == 4

    second = Trainee(0, tmp_path, lambda fork, given: said)
    second.load(tmp_path / "checkpoints/00000001")
    second.run(checkpoint=second.save)
    assert second.made == 6
    assert second.loaded == ["00000001"]


def test_a_job_that_goes_on_without_a_fork_has_it_end(tmp_path: Path) -> None:
    trainee = Trainee(1, tmp_path, lambda fork, given: ForkRound(epoch=2, finished=True, forks=1))
    trainee.run()
    assert trainee.made == 0
    assert trainee.session.stopping
    assert trainee.stopped_with == 0, "nothing asked for its end, and its work is done"


def test_state_that_cannot_be_averaged_is_refused_with_advice(tmp_path: Path) -> None:
    trainee = Trainee(0, tmp_path, lambda fork, given: ForkRound(epoch=1, quota=1, forks=2))
    trainee.forked.save = lambda path: (path / "model.pkl").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"model\.pkl: write weights into \.npz"):
        trainee.run()
    assert not list((tmp_path / "given").iterdir())


@pytest.mark.parametrize("phase", ["save", "load", "metric"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_stop_within_any_function_leaves_whole_directories_alone(
    tmp_path: Path, phase: str, call: int
) -> None:
    coordinator = Coordinator(tmp_path, {0: 3, 1: 1}, total=400)
    trainees = [
        Trainee(one, coordinator.directory(one), coordinator.answer, check="loss")
        for one in coordinator.speeds
    ]
    calls = 0

    def stop_during(function: Callable[..., object]) -> Callable[..., object]:
        def stopping(*arguments: Path) -> object:
            nonlocal calls
            calls += 1
            if calls == call:
                for trainee in trainees:
                    trainee.session.stop.requested = True
            return function(*arguments)

        return stopping

    leader = trainees[0].forked
    leader.save, leader.load, leader.check = (
        stop_during(getattr(trainees[0], name)) if name == phase else getattr(trainees[0], name)
        for name in ("save", "load", "metric")
    )
    run_together(trainees)
    published = [path for path in tmp_path.glob("*/*/*") if path.parent.name != "parts"]
    for path in published:
        note = "part.json" if path.parent.name == "given" else "merged.json"
        assert path.name.isdecimal()
        assert {note, "model.npz"} <= {file.name for file in path.iterdir()}
