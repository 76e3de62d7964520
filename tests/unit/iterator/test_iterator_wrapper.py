"""The loop around a loader: what it passes through, counts and does at a stop."""

from __future__ import annotations

import copy
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import eva_iterator
import pytest
from eva_iterator import EvaIterator, _session
from eva_iterator._session import Session


class Loader:
    """Looks like PyTorch's."""

    def __init__(self, length: int = 3) -> None:
        self.dataset = list(range(length))
        self.batch_size = 1

    def __iter__(self) -> Iterator[int]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return len(self.dataset)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVA_SOCKET", "EVA_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_session, "_session", None)


@pytest.fixture
def inside(outside: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session with an agent that never hears of it."""
    monkeypatch.setenv("EVA_CHECKPOINT_DIR", str(tmp_path))
    session = Session(None)
    session.active = True
    monkeypatch.setattr(_session, "_session", session)
    before = signal.getsignal(signal.SIGTERM)
    yield session
    signal.signal(signal.SIGTERM, before)


def save(directory: Path) -> None:
    (directory / "weights").write_text("w")


def test_passes_length_and_attributes_through() -> None:
    wrapped = EvaIterator(Loader(7))
    assert len(wrapped) == 7
    assert wrapped.dataset == list(range(7))
    assert wrapped.batch_size == 1
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = wrapped.nothing_such


def test_an_iterable_without_length_stays_one() -> None:
    wrapped = EvaIterator(x for x in "ab")
    assert bool(wrapped)
    with pytest.raises(TypeError):
        len(wrapped)
    assert list(wrapped) == ["a", "b"]


def test_an_empty_loader_is_false() -> None:
    assert not EvaIterator(Loader(0))


def test_can_be_copied_and_pickled() -> None:
    wrapped = EvaIterator([1, 2], total=2)
    for twin in (copy.copy(wrapped), copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert isinstance(twin, EvaIterator)
        assert list(twin) == [1, 2]


def test_is_the_bare_loop_outside_eva() -> None:
    assert type(iter(EvaIterator([1]))) is type(iter([1]))
    assert not eva_iterator.stopping()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    eva_iterator.step(3)
    eva_iterator.report(loss=1.0)
    eva_iterator.set_total(5)
    assert eva_iterator.publish(save) == 0
    assert eva_iterator.latest_checkpoint() is None
    assert _session.current().progress.steps() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"total": -1},
        {"checkpoint_every_s": 1.0},
        {"checkpoint": save, "checkpoint_every_s": 0},
        {"checkpoint": save, "checkpoint_every_s": float("nan")},
    ],
)
def test_refuses_options_that_make_no_sense(options: dict) -> None:
    with pytest.raises(ValueError, match=r"total|checkpoint"):
        EvaIterator([], **options)


@pytest.mark.parametrize("environment", ["outside", "inside"])
def test_refuses_figures_that_are_none(environment: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(environment)
    with pytest.raises(ValueError, match="could not convert"):
        eva_iterator.report(loss="high")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-1"):
        eva_iterator.step(-1)
    with pytest.raises(ValueError, match="-1"):
        eva_iterator.set_total(-1)


def test_counts_steps_over_epochs_and_loaders(inside: Session) -> None:
    first, second = EvaIterator(Loader(3)), EvaIterator(Loader(5))
    for _ in range(2):
        assert list(first) == [0, 1, 2]
        assert list(second) == [0, 1, 2, 3, 4]
    eva_iterator.step()
    eva_iterator.step(10)
    assert inside.progress.steps() == 2 * (3 + 5) + 11


def test_counts_a_step_once_its_body_is_done(inside: Session) -> None:
    seen = [inside.progress.steps() for _ in EvaIterator(range(3))]
    assert seen == [0, 1, 2]
    for i in EvaIterator(range(3)):
        if i == 1:
            break
    assert inside.progress.steps() == 4


def test_counts_nested_and_interleaved_loops(inside: Session) -> None:
    assert list(zip(EvaIterator(range(3)), EvaIterator(range(3)), strict=True))
    assert inside.progress.steps() == 6


def test_total_is_the_last_one_said_and_never_a_length(inside: Session) -> None:
    wrapped = EvaIterator(Loader(3))
    list(wrapped)
    assert inside.progress.total_steps == 0
    EvaIterator(Loader(3), total=30)
    assert inside.progress.total_steps == 30
    eva_iterator.set_total(40)
    assert inside.progress.total_steps == 40


def test_stop_finishes_the_step_publishes_and_ends(inside: Session) -> None:
    done = []
    for i in EvaIterator(range(9), checkpoint=save):
        if i == 2:
            inside.stop.requested = True
        done.append(i)
    assert done == [0, 1, 2]
    assert eva_iterator.stopping()
    latest = eva_iterator.latest_checkpoint()
    assert latest is not None
    assert (latest / "weights").read_text() == "w"


def test_later_loops_end_before_their_first_step(inside: Session) -> None:
    inside.stop.requested = True

    class Untouchable:
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("started its workers for nothing")

    assert list(EvaIterator(Untouchable(), checkpoint=save)) == []
    assert eva_iterator.latest_checkpoint() is None, "there was nothing to save"


def test_a_stop_between_loops_is_saved_by_the_next_one(inside: Session) -> None:
    list(EvaIterator(range(3), checkpoint=save))
    inside.stop.requested = True
    assert list(EvaIterator(range(3), checkpoint=save)) == []
    list(EvaIterator(range(3), checkpoint=save))
    assert eva_iterator.latest_checkpoint().name == "00000001"


def test_a_stop_within_the_last_fetch_is_saved(inside: Session) -> None:
    def loader() -> Iterator[int]:
        yield 1
        inside.stop.requested = True

    list(EvaIterator(loader(), checkpoint=save))
    assert eva_iterator.latest_checkpoint() is not None


def test_a_loader_that_fails_because_of_the_stop_ends_the_loop(inside: Session) -> None:
    def loader() -> Iterator[int]:
        yield 1
        inside.stop.requested = True
        raise RuntimeError("DataLoader worker is killed by signal: Terminated.")

    assert list(EvaIterator(loader(), checkpoint=save)) == [1]
    assert eva_iterator.latest_checkpoint() is not None


def test_a_loader_that_fails_for_itself_is_heard(inside: Session) -> None:
    def loader() -> Iterator[int]:
        yield 1
        raise RuntimeError("bad record")

    with pytest.raises(RuntimeError, match="bad record"):
        list(EvaIterator(loader(), checkpoint=save))


def test_a_checkpoint_that_fails_is_heard(inside: Session) -> None:
    def fail(directory: Path) -> None:
        raise OSError("disk full")

    steps = iter(EvaIterator(range(3), checkpoint=fail))
    next(steps)
    inside.stop.requested = True
    with pytest.raises(OSError, match="disk full"):
        next(steps)
    assert eva_iterator.latest_checkpoint() is None


def test_publishes_when_due_and_goes_on(inside: Session) -> None:
    done = []
    for i in EvaIterator(range(6), checkpoint=save, checkpoint_every_s=1000):
        if i in {1, 3}:
            (loop,) = inside.progress._loops
            loop.due = True
        done.append(i)
    assert done == list(range(6))
    assert eva_iterator.latest_checkpoint().name == "00000002"


def test_publishes_after_the_last_step_of_all(inside: Session) -> None:
    wrapped = EvaIterator(range(3), total=6, checkpoint=save)
    list(wrapped)
    assert eva_iterator.latest_checkpoint() is None, "one more epoch is to come"
    list(wrapped)
    assert inside.progress.saved_steps(1) == 6
    # Whoever is stopped in what follows has nothing left to save.
    inside.stop.requested = True
    list(wrapped)
    assert eva_iterator.latest_checkpoint().name == "00000001"


def test_publishes_after_no_loop_when_the_total_is_unknown(inside: Session) -> None:
    list(EvaIterator(range(3), checkpoint=save))
    assert eva_iterator.latest_checkpoint() is None


def test_publish_numbers_the_generations(inside: Session) -> None:
    assert [eva_iterator.publish(save), eva_iterator.publish(save)] == [1, 2]
