"""Lets the Eva scheduler see how fast a training loop runs, and stop it at a checkpoint.

    from eva_iterator import EvaIterator

    for batch in EvaIterator(loader, checkpoint=save):
        train(batch)

Outside Eva (without EVA_SOCKET in the environment) this package has no effect and does not import
grpc.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eva_iterator import _checkpoints, _process_forks, _session
from eva_iterator._forked import Forked
from eva_iterator._iterator import EvaIterator
from eva_iterator._stop import Stopped

__all__ = [
    "EvaIterator",
    "Forked",
    "Stopped",
    "job_steps",
    "latest_checkpoint",
    "mean",
    "publish",
    "report",
    "set_total",
    "shard",
    "step",
    "stopping",
]

_process_forks.watch()


def step(n: int = 1) -> None:
    """Counts steps of a program that has no loader to wrap.

    Args:
        n: Steps finished since the last call.

    Raises:
        ValueError: `n` is negative.
    """
    if n < 0:
        raise ValueError(f"steps must not be negative: {n}")
    session = _session.current()
    if session.active:
        session.progress.add(n)


def report(**metrics: float) -> None:
    """Reports metrics of the program, such as loss and accuracy.

    Only the latest value of each name is kept. A value on a GPU is fetched at once.

    Args:
        **metrics: Anything that `float` takes.

    Raises:
        TypeError, ValueError: A value is not a number.
    """
    values = {name: float(value) for name, value in metrics.items()}
    session = _session.current()
    if session.active:
        session.progress.metrics.update(values)


def set_total(steps: int) -> None:
    """Sets how many steps the program will have made when it is done.

    Counting starts with the program: one that resumes at step 300 of 1000 makes 700. The last call
    counts.

    Args:
        steps: Steps in all loops and processes of the program together, 0 if unknown.

    Raises:
        ValueError: `steps` is negative.
    """
    if steps < 0:
        raise ValueError(f"total must not be negative: {steps}")
    _session.current().progress.total_steps = steps


def latest_checkpoint() -> Path | None:
    """Directory of the newest published checkpoint, None where there is none."""
    directory = _session.checkpoint_directory()
    generation = 0 if directory is None else _checkpoints.newest(directory)
    if directory is None or generation == 0:
        return None
    return _checkpoints.path_of(directory, generation)


def publish(save: Callable[[Path], object]) -> int:
    """Publishes a checkpoint atomically as a new generation.

    Args:
        save: Writes the checkpoint into the empty directory that it is given.

    Returns:
        The number of the generation; 0, without calling `save`, if EVA_CHECKPOINT_DIR is not set,
        and in a command beside a task (`eva exec`).

    Raises:
        OSError: The checkpoint cannot be written. Nothing is published then, as when `save` raises.
    """
    return _session.current().publish(save)


def stopping() -> bool:
    """Whether the program has been asked to stop.

    The first call in the main thread handles SIGTERM from then on, as does the first loop over an
    `EvaIterator`. A program that calls this must end by itself within $EVA_GRACE_SECONDS of the
    signal.
    """
    session = _session.current()
    if session.active:
        session.stop.install()
    return session.stopping


def shard() -> tuple[int, int]:
    """Which fork this program is and how many there are: (0, 1) in a job without forks.

    Forks that seed the order of their data with the first number train on different batches.
    """
    if not os.environ.get(_session.MERGE_VARIABLE):
        return 0, 1
    from eva_iterator._forks.link import shard_in

    return shard_in(os.environ)


def job_steps() -> int:
    """Steps of all forks together that are in this program's weights, such as for a schedule.

    0 in a job without forks, and before the first step of a forked loop.
    """
    fork = _session.current().fork
    return 0 if fork is None else fork.steps


def mean(states: Sequence[Any], steps: Sequence[int]) -> Any:
    """The mean of states, weighted by steps, for a program that averages its own files.

    Args:
        states: Nested dicts, lists and tuples of numpy arrays, torch tensors and numbers, all of
            one form. Floating-point ones are averaged, everything else is that of the state with
            most steps.
        steps: The weight of each.

    Raises:
        ValueError: The states differ in form, or a weight is below 1.
    """
    from eva_iterator._forks import states as nested

    return nested.mean(states, steps)
