"""The how-to's patterns, run as they are printed: no step is lost, repeated or counted twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eva_worker.tasks.progress_server import StepCounters
from tests.fakes.iterator_agent import Program, RecordingAgent
from tests.fakes.patience import DEADLINE_S

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "iterator.md").read_text()
TORCH = """
import json


def save(state, path):
    path.write_text(json.dumps(state))


def load(path):
    return json.loads(path.read_text())
"""
TRAINING = """
import torch

EPOCHS = 3
order = []


class Model:
    done = []

    def state_dict(self):
        return self.done

    def load_state_dict(self, done):
        self.done = done


class Sampler:
    def set_epoch(self, epoch):
        order[:] = [10 * epoch + number for number in range(10)]


class Loader:
    def __len__(self):
        return 10

    def __iter__(self):
        return iter(list(order))


class Loss:
    def item(self):
        return 0.5


def train(batch):
    model.done.append(batch)
    print(batch, flush=True)
    input()
    return Loss()


model, sampler, loader = Model(), Sampler(), Loader()
"""


def block(language: str, word: str) -> str:
    """The page's code block of a language that has a word in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [one for one in blocks if word in one]
    return str(found)


@pytest.mark.parametrize("stops", [[14], [4, 10, 17], [30]])
def test_the_training_loop_counts_each_step_once(
    stops: list[int], tmp_path: Path, iterator_agent: RecordingAgent
) -> None:
    """It is stopped in the middle and at the end of epochs, and after the last step."""
    # Where no step is left, there is nothing to report.
    (tmp_path / "torch.py").write_text(TORCH)
    code = TRAINING + block("python", "EvaIterator(batches()")
    counters = StepCounters(tmp_path / "progress.json")
    done = []
    for last in [*stops, None]:
        iterator_agent.reports.clear()
        left = 30 - len(done)
        program = Program(code, tmp_path, iterator_agent, {"PYTHONPATH": python_path(tmp_path)})
        while line := program.read_line():
            done.append(int(line))
            if len(done) == last:
                program.send(signal.SIGTERM)
            program.write_line()
        program.finish(143 if last else 0)
        if left:
            note(counters, iterator_agent.last)
            assert counters.progress().total_steps == 30
            assert counters.progress().steps == len(done)
        counters = StepCounters(tmp_path / f"progress-{last}.json")
        counters.begin_from(len(done))
    assert done == list(range(30))


def note(counters: StepCounters, report: object) -> None:
    """What the agent does with a report."""
    counters.note(
        report.source,  # type: ignore[attr-defined]
        steps=report.steps,  # type: ignore[attr-defined]
        total=report.total_steps,  # type: ignore[attr-defined]
        published=report.generation,  # type: ignore[attr-defined]
        kept=report.saved_steps,  # type: ignore[attr-defined]
    )


def python_path(*first: Path) -> str:
    """The path of modules for a program, with its own ones first."""
    return os.pathsep.join([*map(str, first), *filter(None, sys.path)])


@pytest.mark.parametrize("last", [2])
def test_the_shell_loop_counts_each_step_once(
    last: int, tmp_path: Path, iterator_agent: RecordingAgent
) -> None:
    """It is killed in the middle, and goes on from its checkpoint."""
    short = block("sh", "eva-progress latest").replace("100", str(last + 1))
    work = tmp_path / "work"
    work.write_text(f"#!/bin/sh\n[ -e again ] || [ $(cat state/step) -lt {last} ] || exit 9\n")
    with work.open("a") as more:
        more.write("cat state/step >> done\necho 0.5 > state/error\n")
    work.chmod(0o755)
    bin_ = Path(sys.executable).parent
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EVA_")},
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": python_path(),
        "EVA_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "EVA_SOCKET": str(iterator_agent.socket),
    }

    def attempt() -> int:
        command = ["/bin/sh", "-e", "-c", short]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, check=False, timeout=DEADLINE_S
        ).returncode

    assert attempt() == 9
    counters = StepCounters(tmp_path / "progress.json")
    note(counters, iterator_agent.last)
    assert (counters.progress().steps, counters.progress().total_steps) == (last, last + 1)
    (tmp_path / "again").touch()
    iterator_agent.reports.clear()
    assert attempt() == 0
    counters = StepCounters(tmp_path / "progress-2.json")
    counters.begin_from(last)
    note(counters, iterator_agent.last)
    assert (counters.progress().steps, counters.progress().total_steps) == (last + 1, last + 1)
    assert (tmp_path / "done").read_text().split() == [str(n) for n in range(last + 1)]
