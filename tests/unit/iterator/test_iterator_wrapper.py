"""The loop around a loader: what it passes through, counts and does at a stop."""

from __future__ import annotations

import contextlib
import copy
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import eva_iterator
import pytest
from eva_iterator import EvaIterator, Stopped, _session
from eva_iterator._session import AgentSession


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
def inside(
    outside: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentSession]:
    """A session with an agent that never hears of it."""
    monkeypatch.setenv("EVA_CHECKPOINT_DIR", str(tmp_path))
    session = AgentSession(None)
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
        {"on_stop": "exit"},
        {"on_stop": None},
    ],
)
def test_refuses_options_that_make_no_sense(options: dict) -> None:
    with pytest.raises(ValueError, match=r"total|checkpoint|on_stop"):
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


def test_counts_steps_over_epochs_and_loaders(inside: AgentSession) -> None:
    first, second = EvaIterator(Loader(3)), EvaIterator(Loader(5))
    for _ in range(2):
        assert list(first) == [0, 1, 2]
        assert list(second) == [0, 1, 2, 3, 4]
    eva_iterator.step()
    eva_iterator.step(10)
    assert inside.progress.steps() == 2 * (3 + 5) + 11


def test_counts_a_step_once_its_body_is_done(inside: AgentSession) -> None:
    seen = [inside.progress.steps() for _ in EvaIterator(range(3))]
    assert seen == [0, 1, 2]
    for i in EvaIterator(range(3)):
        if i == 1:
            break
    assert inside.progress.steps() == 4


def test_counts_nested_and_interleaved_loops(inside: AgentSession) -> None:
    assert list(zip(EvaIterator(range(3)), EvaIterator(range(3)), strict=True))
    assert inside.progress.steps() == 6


def test_total_is_the_last_one_said_and_never_a_length(inside: AgentSession) -> None:
    wrapped = EvaIterator(Loader(3))
    list(wrapped)
    assert inside.progress.total_steps == 0
    EvaIterator(Loader(3), total=30)
    assert inside.progress.total_steps == 30
    eva_iterator.set_total(40)
    assert inside.progress.total_steps == 40


def interrupted(session: AgentSession, stop_at: int) -> Iterator[int]:
    """Five items; the program is asked to stop before one of them."""
    for item in range(5):
        session.stop.requested |= item == stop_at
        yield item


def test_a_stop_finishes_the_step_publishes_and_ends_the_program(inside: AgentSession) -> None:
    done, after = [], []

    def train() -> None:
        for _epoch in range(3):
            for i in EvaIterator(range(9), checkpoint=save):
                if i == 2:
                    inside.stop.requested = True
                done.append(i)
            after.append("saved the model")

    with pytest.raises(Stopped) as stopped:
        train()
    assert (done, after) == ([0, 1, 2], [])
    assert (stopped.value.code, isinstance(stopped.value, SystemExit)) == (143, True)
    assert eva_iterator.stopping()
    latest = eva_iterator.latest_checkpoint()
    assert latest is not None
    assert (latest / "weights").read_text() == "w"
    assert inside.progress.saved_steps(1) == 3


def test_a_stop_may_end_the_loop_like_its_data(inside: AgentSession) -> None:
    done = []
    for _epoch in range(3):
        for i in EvaIterator(range(9), checkpoint=save, on_stop="end"):
            if i == 2:
                inside.stop.requested = True
            done.append(i)
    assert done == [0, 1, 2]
    assert eva_iterator.latest_checkpoint().name == "00000001"


class Untouchable:
    def __iter__(self) -> Iterator[int]:
        raise AssertionError("started its workers for nothing")


def test_later_loops_stop_before_their_first_step(inside: AgentSession) -> None:
    inside.stop.requested = True
    with pytest.raises(Stopped):
        list(EvaIterator(Untouchable(), checkpoint=save))
    assert list(EvaIterator(Untouchable(), checkpoint=save, on_stop="end")) == []
    assert eva_iterator.latest_checkpoint() is None, "there was nothing to save"


def test_a_stop_between_loops_is_saved_by_the_next_one(inside: AgentSession) -> None:
    list(EvaIterator(range(3), checkpoint=save))
    inside.stop.requested = True
    for _ in range(2):  # A program that swallows it gets no further.
        with pytest.raises(Stopped):
            list(EvaIterator(range(3), checkpoint=save))
    assert eva_iterator.latest_checkpoint().name == "00000001"


@pytest.mark.parametrize("stop_at", [0, 2])
def test_a_stop_within_a_loop_that_saves_nothing_is_saved_by_the_one_before(
    inside: AgentSession, stop_at: int
) -> None:
    """As in a validation after the training of each epoch."""
    list(EvaIterator(range(3), checkpoint=save))
    with pytest.raises(Stopped):
        list(EvaIterator(interrupted(inside, stop_at)))
    assert eva_iterator.latest_checkpoint().name == "00000001"
    with pytest.raises(Stopped):
        list(EvaIterator(range(3)))
    assert eva_iterator.latest_checkpoint().name == "00000001", "all is saved"


def test_a_loop_that_was_left_is_saved_by_the_next_one(inside: AgentSession) -> None:
    for i in EvaIterator(range(5), checkpoint=save):
        if i == 3:
            break
    inside.stop.requested = True
    with pytest.raises(Stopped):
        list(EvaIterator(range(5)))
    assert inside.progress.saved_steps(1) == 3


def test_what_a_loop_has_saved_is_not_saved_again_by_one_that_saves_nothing(
    inside: AgentSession,
) -> None:
    list(EvaIterator(range(3), total=3, checkpoint=save))
    inside.stop.requested = True
    with pytest.raises(Stopped):
        list(EvaIterator(range(3)))
    assert eva_iterator.latest_checkpoint().name == "00000001"


def test_a_loop_within_a_step_that_is_saved_ends_with_its_data(inside: AgentSession) -> None:
    """A validation in the middle of a step, or batches in the step of an epoch."""
    inner: list[int] = []
    finished = []

    def train() -> None:
        for step in EvaIterator(range(4), checkpoint=save):
            inner.extend(EvaIterator(interrupted(inside, 2 if step == 1 else -1)))
            finished.append(step)

    with pytest.raises(Stopped):
        train()
    assert (inner, finished) == ([*range(5)] * 2, [0, 1])
    assert inside.progress.saved_steps(1) == 2 * 5 + 2


def test_an_inner_loop_that_saves_stops_at_once(inside: AgentSession) -> None:
    inner: list[int] = []

    def train() -> None:
        for _ in EvaIterator(range(4), checkpoint=save):
            for i in EvaIterator(range(5), checkpoint=save):
                inside.stop.requested = i == 2
                inner.append(i)

    with pytest.raises(Stopped):
        train()
    assert inner == [0, 1, 2]
    assert inside.progress.saved_steps(1) == 3


def test_a_step_whose_inner_loader_dies_of_the_signal_is_not_saved(
    inside: AgentSession, caplog: pytest.LogCaptureFixture
) -> None:
    def loader() -> Iterator[int]:
        yield 1
        inside.stop.requested = True
        raise RuntimeError("DataLoader worker is killed by signal: Terminated.")

    def train() -> None:
        for _ in EvaIterator(range(4), checkpoint=save):
            list(EvaIterator(loader()))

    with pytest.raises(Stopped):
        train()
    assert eva_iterator.latest_checkpoint() is None
    assert "which is not saved" in caplog.text


def test_a_stop_within_the_last_fetch_is_saved(inside: AgentSession) -> None:
    def loader() -> Iterator[int]:
        yield 1
        inside.stop.requested = True

    with pytest.raises(Stopped):
        list(EvaIterator(loader(), checkpoint=save))
    assert eva_iterator.latest_checkpoint() is not None


def test_a_loader_that_fails_because_of_the_stop_is_no_failure(inside: AgentSession) -> None:
    def loader() -> Iterator[int]:
        yield 1
        inside.stop.requested = True
        raise RuntimeError("DataLoader worker is killed by signal: Terminated.")

    with pytest.raises(Stopped):
        list(EvaIterator(loader(), checkpoint=save))
    assert eva_iterator.latest_checkpoint() is not None


def test_a_stop_runs_what_the_program_closes(inside: AgentSession) -> None:
    closed = []

    @contextlib.contextmanager
    def resource() -> Iterator[None]:
        try:
            yield
        finally:
            closed.append("with")

    def batches() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            closed.append("generator")

    def train() -> None:
        try:
            with resource():
                for i in EvaIterator(batches(), checkpoint=save):
                    inside.stop.requested = i == 1
        except Exception:
            closed.append("taken for an error")
        finally:
            closed.append("finally")

    with pytest.raises(Stopped):
        train()
    assert sorted(closed) == ["finally", "generator", "with"]


def test_the_thread_that_iterates_is_the_one_that_is_stopped(inside: AgentSession) -> None:
    def train() -> None:
        for _ in EvaIterator(range(9), checkpoint=save):
            inside.stop.requested = True

    with ThreadPoolExecutor(1) as pool, pytest.raises(Stopped):
        pool.submit(train).result()
    assert eva_iterator.latest_checkpoint() is not None


def test_stopped_crosses_processes() -> None:
    assert pickle.loads(pickle.dumps(Stopped())).code == 143
    assert pickle.loads(pickle.dumps(Stopped(0))).code == 0


def test_stopped_crosses_processes_of_dask() -> None:
    """Its package tblib pickles exceptions by their attributes, and so without the exit code."""
    program = """
import pickle
from eva_iterator import Stopped
from tblib import pickling_support
pickling_support.install()
print([pickle.loads(pickle.dumps(Stopped(code))).code for code in (143, 0)])
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[143, 0]\n"


def test_a_loader_that_fails_for_itself_is_heard(inside: AgentSession) -> None:
    def loader() -> Iterator[int]:
        yield 1
        raise RuntimeError("bad record")

    with pytest.raises(RuntimeError, match="bad record"):
        list(EvaIterator(loader(), checkpoint=save))


def test_a_checkpoint_that_fails_is_heard(inside: AgentSession) -> None:
    def fail(directory: Path) -> None:
        raise OSError("disk full")

    steps = iter(EvaIterator(range(3), checkpoint=fail))
    next(steps)
    inside.stop.requested = True
    with pytest.raises(OSError, match="disk full"):
        next(steps)
    assert eva_iterator.latest_checkpoint() is None


def test_publishes_when_due_and_goes_on(inside: AgentSession) -> None:
    done = []
    for i in EvaIterator(range(6), checkpoint=save, checkpoint_every_s=1000):
        if i in {1, 3}:
            (loop,) = inside.progress._loops
            loop.due = True
        done.append(i)
    assert done == list(range(6))
    assert eva_iterator.latest_checkpoint().name == "00000002"


def test_publishes_after_the_last_step_of_all(inside: AgentSession) -> None:
    wrapped = EvaIterator(range(3), total=6, checkpoint=save)
    list(wrapped)
    assert eva_iterator.latest_checkpoint() is None, "one more epoch is to come"
    list(wrapped)
    assert inside.progress.saved_steps(1) == 6
    # A program that is stopped in what follows has nothing left to save.
    inside.stop.requested = True
    with pytest.raises(Stopped):
        list(wrapped)
    assert eva_iterator.latest_checkpoint().name == "00000001"


def test_publishes_after_no_loop_when_the_total_is_unknown(inside: AgentSession) -> None:
    list(EvaIterator(range(3), checkpoint=save))
    assert eva_iterator.latest_checkpoint() is None


def test_publish_numbers_the_generations(inside: AgentSession) -> None:
    assert [eva_iterator.publish(save), eva_iterator.publish(save)] == [1, 2]
