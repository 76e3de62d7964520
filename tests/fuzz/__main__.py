"""Runs many made-up tasks against the agent; goes on where it was stopped.

``python -m tests.fuzz --count 100000 --done build/fuzz.txt``
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from tests.fuzz.bench import Bench, in_memory

_EVERY = 500


def main() -> None:
    """Run the tasks whose numbers are from the last one done up to the count."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="tasks in all")
    parser.add_argument("--first", type=int, default=0, help="number of the first task")
    parser.add_argument(
        "--done", type=Path, default=Path("build/fuzz.txt"), help="file that says how many are done"
    )
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    options.done.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        options.first = max(options.first, int(options.done.read_text()))
    began = time.monotonic()
    for number in _numbers(options):
        ran = number - options.first + 1
        if ran % _EVERY == 0 or number + 1 == options.count:
            options.done.write_text(f"{number + 1}\n")
            print(f"{number + 1} of {options.count}: {time.monotonic() - began:.0f} s", flush=True)


def _numbers(options: argparse.Namespace) -> Iterator[int]:
    with in_memory() as directory:
        bench = Bench(directory)
        for number in range(options.first, options.count):
            bench.run(number)
            yield number


if __name__ == "__main__":
    main()
