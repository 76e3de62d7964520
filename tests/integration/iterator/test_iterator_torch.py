"""PyTorch's DataLoader with worker processes, forked, spawned and from a fork server."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.iterator_agent import Program, RecordingAgent

pytestmark = pytest.mark.torch

Start = Callable[..., Program]

TRAIN = """
import signal, time
import torch
from torch.utils.data import DataLoader, Dataset
import eva_iterator
from eva_iterator import EvaIterator

class Squares(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        eva_iterator.step(1000)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        return torch.tensor(float(i * i))

def save(directory):
    torch.save({"epoch": epoch}, directory / "model.pt")

if __name__ == "__main__":
    loader = EvaIterator(
        DataLoader(
            Squares(),
            batch_size=4,
            num_workers=2,
            multiprocessing_context=METHOD,
            persistent_workers=True,
        ),
        checkpoint=save,
    )
    assert (len(loader), loader.batch_size, len(loader.dataset)) == (16, 4, 64)
    total = 0.0
"""


@pytest.fixture(
    params=[
        "fork",
        pytest.param("spawn", marks=pytest.mark.explore),
        pytest.param("forkserver", marks=pytest.mark.explore),
    ]
)
def start(request: pytest.FixtureRequest, iterator_agent: RecordingAgent, tmp_path: Path) -> Start:
    def start(code: str) -> Program:
        train = TRAIN.replace("METHOD", repr(request.param))
        return Program(train + code, tmp_path, iterator_agent)

    return start


def test_workers_feed_the_loop_and_report_nothing(
    start: Start, iterator_agent: RecordingAgent
) -> None:
    program = start(
        """
    for epoch in range(2):
        for batch in loader:
            total += batch.sum().item()
    print(total)
"""
    )
    program.finish()
    assert float(program.output) == 2 * sum(i * i for i in range(64))
    assert iterator_agent.last.steps == 32


@pytest.mark.parametrize("group", [False, True], ids=["program", "process group"])
def test_stops_at_a_checkpoint_with_workers_running(
    start: Start, iterator_agent: RecordingAgent, group: bool
) -> None:
    # Where the signal ends the workers as well, the step goes on undisturbed all the same.
    program = start(
        """
    for epoch in range(3):
        for i, batch in enumerate(loader):
            if i == 2:
                print("step", flush=True)
                while not eva_iterator.stopping():
                    time.sleep(0.001)
                for _ in range(100):
                    time.sleep(0.001)
    print("trained")
"""
    )
    assert program.read_line() == "step"
    program.send(signal.SIGTERM, group=group)
    program.finish(143)
    assert program.output == ""
    assert program.generations() == ["00000001"]
    assert (iterator_agent.last.steps, iterator_agent.last.generation) == (3, 1)
