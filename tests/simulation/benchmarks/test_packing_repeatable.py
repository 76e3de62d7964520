"""The same cluster gets the same plan in every process, whatever its hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json
from benchmarks.packing import PAIRS, snapshot, spread_out, table_7, table_of
from eva_master.policies.eva import POLICY

for trial in (table_7(24, 3), spread_out(24, 3)):
    seen = snapshot(trial, table_of(PAIRS, trial))
    plan, memory = POLICY.build(POLICY.config(optimizer="lp")).plan(seen, None)
    places = [(entry.run, entry.on) for entry in plan.entries]
    launches = [(launch.key, launch.offering.id) for launch in plan.launches]
    print(json.dumps([launches, places, dict(plan.figures), memory.data]))
"""


def planned(seed: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_plans_are_the_same_in_every_process():
    first, second = planned("1"), planned("2")
    assert len(first) == 2
    assert first == second
