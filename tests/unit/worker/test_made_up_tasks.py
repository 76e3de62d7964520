"""A bounded number of made-up tasks; ``make fuzz`` runs a hundred thousand."""

from __future__ import annotations

import gc

import pytest

from tests.fuzz.bench import Bench, in_memory, open_files

_TASKS = 60
_PARTS = 4
_SOME = 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_whatever_a_task_does_the_agent_and_the_next_attempt_go_on(part: int) -> None:
    with in_memory() as directory:
        bench = Bench(directory)
        bench.run(part)
        before = open_files()
        for number in range(_PARTS + part, _TASKS, _PARTS):
            bench.run(number)
        gc.collect()
        # A few sockets are closed by threads of gRPC, whenever they come to it.
        assert open_files() <= before + _SOME, "files are left open"
