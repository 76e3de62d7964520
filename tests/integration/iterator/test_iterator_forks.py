"""Forked programs in processes of their own, each with an agent on its socket."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from eva_iterator._proto.iterator_pb2 import MergeRound, ReportRequest, ReportResponse

from tests.fakes.forks.coordinator import Coordinator
from tests.fakes.iterator_agent import Program, RecordingAgent
from tests.fakes.paths import short_tempdir

EXAMPLES = Path(__file__).parents[3] / "examples"
TRAIN = """
import itertools, sys
import numpy as np
import eva_iterator
from eva_iterator import EvaIterator, Forked, job_steps, shard

fork, forks = shard()
state = {"weights": np.zeros(2), "count": np.array(0)}

def save(directory):
    np.savez(directory / "model.npz", **state)

def load(directory):
    with np.load(directory / "model.npz", allow_pickle=False) as found:
        state.update(found)

def check():
    return float(state["weights"][0])

forked = Forked(save, load, check=check)
for step in EvaIterator(itertools.count(), checkpoint=save, forked=forked):
    state["weights"] = state["weights"] + fork + 1
    state["count"] = state["count"] + 1
    if PAUSE and step == 1:
        print("paused", flush=True)
        while not eva_iterator.stopping():
            pass
print(forks, state["weights"][0], eva_iterator.stopping(), "grpc" in sys.modules)
"""


class ForkAgent(RecordingAgent):
    """Answers a fork what the coordinator says."""

    def __init__(self, socket: Path, coordinator: Coordinator, fork: int) -> None:
        super().__init__(socket)
        self._coordinator = coordinator
        self._fork = fork

    def Report(self, request: ReportRequest, context: Any) -> ReportResponse:
        response = super().Report(request, context)
        said = self._coordinator.answer(self._fork, request.given_epoch)
        response.merge.CopyFrom(MergeRound(**said._asdict()))
        return response


@pytest.fixture
def agents() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(
    agents: ExitStack,
    coordinator: Coordinator,
    fork: int,
    *,
    pause: bool = False,
    code: str = TRAIN,
) -> Program:
    sockets = agents.enter_context(tempfile.TemporaryDirectory(dir=short_tempdir()))
    agent = ForkAgent(Path(sockets, "socket"), coordinator, fork)
    agent.start()
    agents.callback(agent.stop)
    directory = coordinator.root / f"program{fork}"
    directory.mkdir(exist_ok=True)
    environ = {
        "EVA_FORK": str(fork),
        "EVA_FORKS": str(len(coordinator.speeds)),
        "EVA_MERGE_DIR": str(coordinator.directory(fork)),
        "EVA_MERGE_CHECK": "loss",
    }
    return Program(code.replace("PAUSE", str(pause)), directory, agent, environ)


def test_two_programs_train_together(agents: ExitStack, tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, {0: 3, 1: 1}, total=4)
    programs = [start(agents, coordinator, fork) for fork in (0, 1)]
    for program in programs:
        program.finish()
        assert program.output == "2 2.75 False True\n"
        assert not program.checkpoints.exists()
    assert coordinator.steps == [4]
    assert coordinator.notes[0]["check_merged"] == 2.75
    assert coordinator.notes[0]["check_best"] == 2.0


def test_a_stopped_program_gives_its_part_and_says_so(agents: ExitStack, tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, {0: 9, 1: 9}, total=90)
    program = start(agents, coordinator, 1, pause=True)
    assert program.read_line() == "paused"
    program.send(signal.SIGTERM)
    program.finish(143)
    assert program.output == "", "nothing runs on weights that are not averaged yet"
    note = json.loads((coordinator.directory(1) / "given/00000001/part.json").read_text())
    assert note == {"steps": 2, "check": 4.0}
    assert coordinator.epoch.gave == {1}
    assert not program.checkpoints.exists()


def test_outside_eva_nothing_happens_and_nothing_is_imported(tmp_path: Path) -> None:
    code = """
import sys
import eva_iterator
from eva_iterator import EvaIterator, Forked

def never(*_):
    raise AssertionError

forked = Forked(never, never, average=never, check=never)
print(sum(EvaIterator([1, 2], forked=forked)), eva_iterator.shard(), eva_iterator.job_steps())
print([name for name in sys.modules if name.split(".")[0] in ("grpc", "numpy", "torch")])
print([name for name in sys.modules if name.startswith("eva_iterator._forks")])
"""
    program = Program(code, tmp_path, None)
    program.finish()
    assert program.output == "3 (0, 1) 0\n[]\n[]\n"


def test_the_example_trains_with_and_without_forks(agents: ExitStack, tmp_path: Path) -> None:
    code = (EXAMPLES / "forked" / "train.py").read_text()
    coordinator = Coordinator(tmp_path, {0: 120, 1: 60}, total=360)
    programs = [start(agents, coordinator, fork, code=code) for fork in (0, 1)]
    alone = Program(code, tmp_path, None, {"STEPS": "240"})
    for program in (*programs, alone):
        program.finish()
    assert coordinator.steps == [180, 180]
    merged = coordinator.notes[-1]
    assert merged["check_merged"] < coordinator.notes[0]["check_merged"] < 1.0
    # Both end with the merged weights, and say the same of them.
    ends = {program.output.splitlines()[-1] for program in programs}
    assert len(ends) == 1
    assert f"loss {merged['check_merged']:.4f}" in ends.pop()
    assert "step 200 of fork 0" in alone.output
