"""SIGTERM to real programs: the step is finished, a checkpoint published, the program over."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.iterator_agent import Program, RecordingAgent

Start = Callable[[str], Program]

SAVE = """
import json, os, signal, sys, threading
import eva_iterator
from eva_iterator import EvaIterator

done = []
def save(directory):
    (directory / "state.json").write_text(json.dumps(done))
"""


@pytest.fixture
def start(iterator_agent: RecordingAgent, tmp_path: Path) -> Start:
    return lambda code: Program(SAVE + code, tmp_path, iterator_agent)


@pytest.mark.parametrize(
    ("on_stop", "code", "after"),
    [("raise", 143, "closed\n"), ("end", 0, "epoch 3\n" * 3 + "trained\nclosed\n")],
)
def test_finishes_the_step_publishes_and_ends(
    start: Start, iterator_agent: RecordingAgent, on_stop: str, code: int, after: str
) -> None:
    program = start(
        f"""
try:
    for epoch in range(3):
        for i in EvaIterator(range(10), checkpoint=save, on_stop={on_stop!r}):
            if i == 2:
                print("step", flush=True)
                while not eva_iterator.stopping():
                    pass
            done.append(i)
        print("epoch", len(done), flush=True)
    print("trained")
finally:
    print("closed")
"""
    )
    assert program.read_line() == "step"
    program.send(signal.SIGTERM)
    program.finish(code)
    assert program.output == after
    assert program.generations() == ["00000001"]
    assert (program.checkpoints / "00000001/state.json").read_text() == "[0, 1, 2]"
    assert (iterator_agent.last.steps, iterator_agent.last.generation) == (3, 1)
    assert iterator_agent.last.saved_steps == 3


def test_code_without_a_loader_can_ask(start: Start, iterator_agent: RecordingAgent) -> None:
    program = start(
        """
first = True
while not eva_iterator.stopping():
    eva_iterator.step()
    done.append(0)
    if first:
        print("step", flush=True)
        first = False
eva_iterator.publish(save)
"""
    )
    assert program.read_line() == "step"
    program.send(signal.SIGTERM)
    program.finish()
    assert iterator_agent.last.generation == 1
    assert iterator_agent.last.steps > 0


def test_a_program_that_only_reports_still_ends_at_once(start: Start) -> None:
    program = start('eva_iterator.step(); print("step", flush=True); input()')
    assert program.read_line() == "step"
    program.send(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM


def test_publishes_at_intervals(start: Start, iterator_agent: RecordingAgent) -> None:
    program = start(
        """
def steps():
    while eva_iterator.latest_checkpoint() is None or (
        eva_iterator.latest_checkpoint().name < "00000003"
    ):
        yield 0

for i in EvaIterator(steps(), checkpoint=save, checkpoint_every_s=0.01):
    done.append(i)
"""
    )
    program.finish()
    assert program.generations() == ["00000002", "00000003"]
    assert iterator_agent.last.generation == 3


def test_a_handler_set_later_is_left_alone(start: Start) -> None:
    program = start(
        """
for epoch in range(2):
    for i in EvaIterator(range(1)):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
eva_iterator.stopping()
print("ready", flush=True)
input()
"""
    )
    assert program.read_line() == "ready"
    program.send(signal.SIGTERM)
    assert program.wait() == 7


def test_a_loop_in_another_thread_leaves_the_signal_alone(
    start: Start, iterator_agent: RecordingAgent
) -> None:
    program = start(
        """
thread = threading.Thread(target=lambda: list(EvaIterator(range(5))))
thread.start()
thread.join()
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
for i in EvaIterator(range(1)):
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
"""
    )
    program.finish()
    assert iterator_agent.last.steps == 6


def test_a_forked_child_dies_of_the_signal_and_the_parent_goes_on(start: Start) -> None:
    program = start(
        """
for i in EvaIterator(range(3), checkpoint=save):
    pid = os.fork()
    if pid == 0:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        signal.pause()
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    done.append(i)
print(done, eva_iterator.stopping())
"""
    )
    program.finish()
    assert program.output == "[0, 1, 2] False\n"
    assert not program.checkpoints.exists()


def test_a_child_forked_by_native_code_dies_of_the_signal_too(start: Start) -> None:
    program = start(
        """
import ctypes
libc = ctypes.PyDLL(None)
for i in EvaIterator(range(1), checkpoint=save):
    pid = libc.fork()
    if pid == 0:
        while True:
            pass
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
print(eva_iterator.stopping())
"""
    )
    program.finish()
    assert program.output == "False\n"


def test_a_child_forked_within_a_loop_publishes_nothing(start: Start) -> None:
    program = start(
        """
for i in EvaIterator(range(2), checkpoint=save, on_stop="end"):
    if i == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    )
    program.finish()
    assert program.generations() == ["00000001"]


@pytest.mark.parametrize(
    ("began", "when"),
    [
        ("before the loop", "with it"),
        ("before the loop", "after it"),
        ("within it", "while it is handled"),
        ("within it", "after it"),
    ],
)
def test_workers_of_a_loader_may_end_at_any_moment_of_a_stop(
    start: Start, when: str, began: str
) -> None:
    """Python runs handlers by number; PyTorch's for a worker that ended raises."""
    program = start(
        f"""
def failed(signum, frame):
    raise RuntimeError("DataLoader worker is killed by signal: Terminated.")
failed.__module__ = "torch.utils.data._utils.signal_handling"
if {began!r} == "before the loop":
    signal.signal(signal.SIGCHLD, failed)

when, look, workers = {when!r}, signal.getsignal, [1, 2]
def look_and_lose_a_worker(number):
    found = look(number)
    if found is failed and workers:
        workers.pop()
        os.kill(os.getpid(), signal.SIGCHLD)
    return found

for i in EvaIterator(range(3), checkpoint=save):
    if {began!r} == "within it":
        signal.signal(signal.SIGCHLD, failed)
    if when == "while it is handled":
        signal.getsignal = look_and_lose_a_worker
    both = {{signal.SIGTERM, signal.SIGCHLD}}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    os.kill(os.getpid(), signal.SIGTERM)
    if when == "with it":
        os.kill(os.getpid(), signal.SIGCHLD)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    if when == "after it":
        os.kill(os.getpid(), signal.SIGCHLD)
    done.append(i)
"""
    )
    program.finish(143)
    assert program.generations() == ["00000001"]
    assert (program.checkpoints / "00000001/state.json").read_text() == "[0]"
