"""How good models are that forks on nodes of several speeds have trained, and how soon.

Run as `python -m benchmarks.forked_training [--model NAME ...] [--seeds N] [--results FILE]
[--table]`. Five nodes, of speeds 1, 0.2, 0.2, 0.5 and 0.5, train one model together. The result is
compared with that of the fastest node alone, with as many steps (2.4 times the time) and in the
same time.

Time is virtual: a fork makes steps in proportion to its speed, and nobody sleeps, so that results
do not depend on what else the machine does. Weights and the optimiser's state are written, examined
and averaged by the code of `eva_iterator` that a forked program runs. Merging itself takes no time
here.

Results are added to a file, one JSON object a line, and what is in it is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from eva_iterator._forks import merging, parts

from benchmarks.forked_models import MODELS, Model

SPEEDS = (1.0, 0.2, 0.2, 0.5, 0.5)
RESULTS = Path("build/forked-training.jsonl")
PAPER_MERGES = 12
OFTEN_MERGES = 96
RATES = (1.0, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True)
class Setting:
    """One way to train a model.

    Attributes:
        forked: Whether all nodes train, or the fastest alone.
        whole: Alone: whether it makes all steps, or as many as it can while the forks do.
        merges: Forked: how often weights are averaged.
        rate: The learning rate, in multiples of the model's.
        keeps: Forked: whether each fork keeps an optimiser's state of its own.
    """

    forked: bool
    whole: bool = True
    merges: int = 0
    rate: float = 1.0
    keeps: bool = False

    @property
    def title(self) -> str:
        """As a row of the table."""
        rate = f", learning rate x{self.rate:g}" if self.rate != 1.0 else ""
        own = ", optimisers kept apart" if self.keeps else ""
        if self.forked:
            return f"forks, {self.merges} merges{rate}{own}"
        return f"fast node alone, {'all steps' if self.whole else 'same time'}{rate}"


SETTINGS = (
    *(Setting(False, whole=True, rate=rate) for rate in RATES),
    *(Setting(False, whole=False, rate=rate) for rate in RATES),
    Setting(True, merges=PAPER_MERGES),
    Setting(True, merges=PAPER_MERGES, keeps=True),
    *(Setting(True, merges=OFTEN_MERGES, rate=rate) for rate in RATES),
)


class Trainer:
    """One copy of a model that trains on batches of its own.

    Args:
        model: Model to train.
        seed: Of the first weights, the same for all forks.
        fork: Which copy it is; it decides on the order of the data.
        rate: The learning rate, in multiples of the model's.
    """

    def __init__(self, model: Model, seed: int, fork: int, rate: float) -> None:
        torch.manual_seed(1_000 + seed)
        self._model = model
        self.network = model.network()
        self.optimiser = model.optimiser(self.network.parameters(), rate * model.rate)
        self._random = torch.Generator().manual_seed(100_003 * (seed + 1) + fork)

    def train(self, steps: int) -> None:
        """Makes so many steps, each on a mini-batch."""
        self.network.train()
        for _ in range(steps):
            self.optimiser.zero_grad()
            self._model.loss(self.network, self._model.batch(self._random)).backward()
            self.optimiser.step()

    def quality(self) -> float:
        """The model's metric of the present weights."""
        self.network.eval()
        with torch.no_grad():
            return self._model.measure(self.network)

    def save(self, directory: Path) -> None:
        """Writes weights and the optimiser's state, as a program's `save` does."""
        torch.save(self.network.state_dict(), directory / "model.pt")
        torch.save(self.optimiser.state_dict(), directory / "optimiser.pt")

    def load(self, directory: Path, *, keeps: bool = False) -> None:
        """Takes over what `save` or a merge wrote."""
        self.network.load_state_dict(torch.load(directory / "model.pt", weights_only=True))
        if not keeps:
            state = torch.load(directory / "optimiser.pt", weights_only=True)
            self.optimiser.load_state_dict(state)


def quotas(time: float, merges: int) -> Iterator[tuple[int, ...]]:
    """Steps of each fork in each epoch.

    Args:
        time: Steps that the fastest node makes in all of it.
        merges: How many epochs there are.
    """
    made = [0] * len(SPEEDS)
    for epoch in range(1, merges + 1):
        due = [int(speed * time * epoch / merges + 1e-9) for speed in SPEEDS]
        yield tuple(after - before for after, before in zip(due, made, strict=True))
        made = due


def trained(model: Model, seed: int, setting: Setting) -> tuple[float, int]:
    """Trains a model; returns its quality, and the steps in its weights."""
    time = model.steps / sum(SPEEDS)
    if not setting.forked:
        alone = Trainer(model, seed, 0, setting.rate)
        steps = model.steps if setting.whole else round(time)
        alone.train(steps)
        return alone.quality(), steps
    forks = [Trainer(model, seed, fork, setting.rate) for fork in range(len(SPEEDS))]
    steps = 0
    for quota in quotas(time, setting.merges):
        with tempfile.TemporaryDirectory() as folder:
            steps += _epoch(forks, quota, Path(folder), keeps=setting.keeps)
    return forks[0].quality(), steps


def _epoch(forks: Sequence[Trainer], quota: Sequence[int], folder: Path, *, keeps: bool) -> int:
    """Has all forks train and go on from the mean; returns the steps in it."""
    given, merged = folder / "given", folder / "merged"
    merged.mkdir(parents=True)
    for fork, (trainer, steps) in enumerate(zip(forks, quota, strict=True)):
        if steps:
            path = given / str(fork)
            path.mkdir(parents=True)
            trainer.train(steps)
            trainer.save(path)
            (path / parts.PART_FILE).write_text(json.dumps({"steps": steps, "check": None}))
    if not any(quota):
        return 0
    merge, form = merging.select(given, None, own_function=False, goes_on=lambda: True)
    assert form is not None
    assert not merge.left_out, merge.left_out
    merging.write_mean(merge.kept, form, merged, lambda: True)
    for trainer, steps in zip(forks, quota, strict=True):
        trainer.load(merged, keeps=keeps and steps > 0)
    return merge.steps


def _read(results: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )


def run(names: Sequence[str], seeds: int, results: Path) -> None:
    """Trains all that is not among the results yet, and adds it there.

    Args:
        names: Of models.
        seeds: How often each is trained in each setting.
        results: A file of JSON objects.
    """
    results.parent.mkdir(parents=True, exist_ok=True)
    known = {(row["model"], row["seed"], json.dumps(row["setting"])) for row in _read(results)}
    for name in names:
        model = MODELS[name]()
        for seed in range(seeds):
            for setting in SETTINGS:
                row = {"model": name, "seed": seed, "setting": asdict(setting)}
                if (name, seed, json.dumps(row["setting"])) in known:
                    continue
                quality, steps = trained(model, seed, setting)
                row |= {"quality": quality, "steps": steps, "whole": model.steps}
                with results.open("a") as file:
                    file.write(f"{json.dumps(row)}\n")
                print(f"{name}, seed {seed}: {setting.title}: {quality:.4f}", file=sys.stderr)


def table(results: Path) -> str:
    """The results as a table, one row for each setting.

    Args:
        results: A file that `run` wrote.
    """
    rows = _read(results)
    names = [name for name in MODELS if any(row["model"] == name for row in rows)]
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for setting in SETTINGS:
        cells = []
        for name in names:
            values = [
                row["quality"]
                for row in rows
                if row["model"] == name and Setting(**row["setting"]) == setting
            ]
            cells.append(_cell(values))
        if any(cells):
            lines.append(f"| {setting.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean = statistics.fmean(values)
    digits = 1 if mean > 10 else 3 if mean > 0.5 else 4
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        arguments: Without the program's name; those of the process if None.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", choices=tuple(MODELS), help="all unless given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only show what there is")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not options.table:
        run(options.model or tuple(MODELS), options.seeds, options.results)
    print(table(options.results))


if __name__ == "__main__":
    main()
