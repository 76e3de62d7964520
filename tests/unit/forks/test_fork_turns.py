"""What a fork does next, case by case."""

from __future__ import annotations

import pytest
from eva_iterator._forks.link import ForkLink, ForkRound, place_in, shard_in
from eva_iterator._forks.turns import Done, ForkStep, There, next_turn

BOTH = There(parts=True, merge=True, base=True)


@pytest.mark.parametrize(
    ("heard", "done", "there", "turn", "epoch"),
    [
        (None, Done(), There(), ForkStep.WAIT, 0),
        (ForkRound(1, quota=5, forks=2), Done(), There(), ForkStep.TRAIN, 1),
        (ForkRound(1, quota=5, forks=2), Done(epoch=1, steps=4), There(), ForkStep.TRAIN, 1),
        (ForkRound(1, quota=5, forks=2), Done(epoch=1, steps=5), There(), ForkStep.GIVE, 1),
        (
            ForkRound(1, quota=5, forks=2, give=True),
            Done(epoch=1, steps=1),
            There(),
            ForkStep.GIVE,
            1,
        ),
        # A part needs a step.
        (ForkRound(1, quota=5, forks=2, give=True), Done(), There(), ForkStep.TRAIN, 1),
        (ForkRound(1, quota=0, forks=2, give=True), Done(), There(), ForkStep.WAIT, 1),
        (ForkRound(1, quota=0, forks=2), Done(), There(), ForkStep.WAIT, 1),
        (ForkRound(1, quota=5, forks=2), Done(given=1), There(), ForkStep.WAIT, 1),
        (ForkRound(1, quota=5, forks=2), Done(given=1), There(merge=True), ForkStep.LOAD, 1),
        (ForkRound(1, quota=5, average=True, forks=2), Done(given=1), BOTH, ForkStep.AVERAGE, 1),
        (ForkRound(1, quota=5, average=True, forks=2), Done(given=1), There(), ForkStep.WAIT, 1),
        (
            ForkRound(1, quota=0, average=True, forks=2),
            Done(),
            There(parts=True),
            ForkStep.AVERAGE,
            1,
        ),
        (
            ForkRound(1, quota=5, average=True, forks=2),
            Done(given=1, failed=1),
            There(parts=True),
            ForkStep.WAIT,
            1,
        ),
        (ForkRound(1, quota=5, forks=2), Done(given=1, merged=1), BOTH, ForkStep.WAIT, 1),
        # What it did in an epoch that was closed without it is of no use.
        (ForkRound(2, quota=5, forks=2), Done(epoch=1, steps=4), There(), ForkStep.WAIT, 1),
        (ForkRound(2, quota=5, forks=2), Done(epoch=1, steps=4), BOTH, ForkStep.LOAD, 1),
        (ForkRound(2, quota=3, forks=2), Done(1, 4, 1, 1), There(), ForkStep.TRAIN, 2),
        (ForkRound(9, quota=3, forks=2), Done(), There(base=True), ForkStep.LOAD, 8),
        (ForkRound(4, quota=0, forks=1), Done(4, 99, 3, 3), There(), ForkStep.TRAIN, 4),
        (ForkRound(4, quota=99, forks=1), Done(4, 99, 3, 3), There(), ForkStep.END, 4),
        # Of a part that was not merged the steps are its own again.
        (ForkRound(4, quota=99, forks=1), Done(4, 9, 4, 3), There(base=True), ForkStep.TRAIN, 4),
        (ForkRound(4, quota=9, forks=1, best=True), Done(merged=3), There(), ForkStep.GO_BACK, 3),
        (
            ForkRound(4, quota=9, forks=1, best=True),
            Done(4, 1, 3, 3, 3),
            There(),
            ForkStep.TRAIN,
            4,
        ),
        (ForkRound(4, finished=True), Done(merged=3), There(), ForkStep.END, 4),
        (ForkRound(4, finished=True), Done(merged=2), There(base=True), ForkStep.LOAD, 3),
        (ForkRound(4, finished=True), Done(merged=3), There(merge=True), ForkStep.LOAD, 4),
        (ForkRound(4, finished=True, forks=1), Done(merged=2), BOTH, ForkStep.END, 4),
    ],
)
def test_next_turn(
    heard: ForkRound | None, done: Done, there: There, turn: ForkStep, epoch: int
) -> None:
    assert next_turn(heard, done, there) == (turn, epoch)


def test_an_epoch_that_is_over_is_not_heard() -> None:
    link = ForkLink()
    link.enter(ForkRound(2, quota=5))
    link.enter(ForkRound(1, quota=7))
    assert link.round == ForkRound(2, quota=5)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"EVA_FORK": "1"},
        {"EVA_FORK": "2", "EVA_FORKS": "2"},
        {"EVA_FORK": "-1", "EVA_FORKS": "2"},
        {"EVA_FORK": "x", "EVA_FORKS": "2"},
        {"EVA_FORK": "1", "EVA_FORKS": "65"},
    ],
)
def test_a_strange_environment_is_one_without_forks(environ: dict[str, str]) -> None:
    assert shard_in(environ) == (0, 1)


def test_the_environment_names_the_place() -> None:
    environ = {
        "EVA_FORK": "1",
        "EVA_FORKS": "3",
        "EVA_MERGE_DIR": "/merges",
        "EVA_MERGE_PATIENCE_MS": "1500000",
        "EVA_MERGE_CHECK": "val_acc",
    }
    place = place_in(environ)
    assert place is not None
    assert (place.fork, place.forks, place.patience_s) == (1, 3, 1500.0)
    strange = place_in({**environ, "EVA_MERGE_PATIENCE_MS": "long"})
    assert strange is not None
    assert strange.patience_s == 0
    assert place.larger_is_better
    assert not place._replace(better="smaller").larger_is_better
    other = place_in({**environ, "EVA_MERGE_CHECK": "score", "EVA_MERGE_BETTER": "larger"})
    assert other is not None
    assert other.larger_is_better
    assert place_in({**environ, "EVA_MERGE_DIR": ""}) is None
