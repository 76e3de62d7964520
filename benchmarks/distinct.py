"""How long a round takes if all tasks differ, against as many that are alike.

Run as `python -m benchmarks.distinct [--tasks N ...] [--policy NAME[:PRESET]] [--json]`. One user's
tasks, each of another size and workload, arrive at once, and another user's task behind them. The
policy plans three rounds: the first places all of them, before each of the others a job comes and
goes. The figure is the processor time of the dearest round. The baseline runs in the same process
with tasks that are alike, so that a busy machine shows in both. A task without a place after the
first round is an error.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness import Figures, publish, surroundings
from eva_lab.runs import named_policy
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.snapshots import Cluster, carried_out, offer, task
from eva_wire.values.ids import Millis

_TASKS = (300, 1_000, 7_500)
_ROUNDS = 3
_ROUND_MS = 300_000
_CATALOG = (
    ("p.small", (1, 8, 61), 3.06, "p"),
    ("p.large", (4, 32, 244), 12.24, "p"),
    ("p.huge", (8, 64, 488), 24.48, "p"),
    ("c.small", (0, 4, 8), 0.18, "c"),
    ("c.medium", (0, 8, 16), 0.36, "c"),
    ("c.large", (0, 32, 64), 1.43, "c"),
    ("c.huge", (0, 64, 128), 2.86, "c"),
    ("r.medium", (0, 8, 64), 0.53, "r"),
    ("r.large", (0, 32, 256), 2.12, "r"),
)
"""Name, size, dollars per hour, family."""


def arrived(tasks: int, *, distinct: bool) -> Snapshot:
    """A cluster in which nothing runs yet, and in which so many tasks and one more wait.

    Args:
        tasks: Of the first user.
        distinct: Whether each of them is of another size and workload.
    """
    cluster = Cluster(*(offer(name, size, usd, family=of) for name, size, usd, of in _CATALOG))
    drawn = random.Random(1)
    for number in range(tasks):
        cpus, workload = drawn.randint(1, 7), f"w{number}" if distinct else "w"
        size = (0, cpus, 0.5 + number / 1_000) if distinct else (0, 3, 4)
        cluster.job(f"a{number:06}", task(workload, c=size, r=size))
    return cluster.job("b", task("other", c=(0, 2, 4))).snapshot()


def dearest(snapshot: Snapshot, policy_name: str) -> float:
    """Processor time of the dearest of a few rounds, in seconds."""
    policy, _ = named_policy(policy_name)
    memory: PolicyMemory | None = None
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        plan, memory = policy.plan(snapshot, memory)
        times.append(time.process_time() - began)
        snapshot = carried_out(snapshot, plan)
        without = [run.id for run in snapshot.runs if run.instance is None]
        if without:
            raise AssertionError(f"{len(without)} tasks have no place, {without[0]} among them")
        snapshot = replace(
            snapshot,
            now_ms=Millis(snapshot.now_ms + _ROUND_MS),
            arrivals=snapshot.arrivals + 1,
            completions=snapshot.completions + 1,
        )
    return round(max(times), 3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns the exit code."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=_TASKS, help="how many wait")
    parser.add_argument("--policy", default="eva", help="default: eva")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    figures: Figures = {"surroundings": surroundings(), "policy": chosen.policy}
    dearest(arrived(10, distinct=False), chosen.policy)  # what is imported and compiled at first
    for tasks in chosen.tasks:
        figures[f"{tasks}_tasks"] = {
            "distinct_cpu_s": dearest(arrived(tasks, distinct=True), chosen.policy),
            "alike_cpu_s": dearest(arrived(tasks, distinct=False), chosen.policy),
        }
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
