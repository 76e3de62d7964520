"""How long a plan takes where every type is sold in several zones, on demand and as spot.

Run as `python -m benchmarks.zones [--tasks N] [--zones N] [--seeds N] [--policy NAME] [--json]`.
The tasks arrive at once and may run on spot instances; the 21 types of the paper are on sale in
each zone, at spot prices that differ. The figure is the processor time of the first plan and of the
second, before which one pool has gone and the tasks there wait again. The baseline is the same in
the same process with one zone, so that a busy machine shows in both.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from benchmarks.harness import Figures, publish, surroundings
from benchmarks.packing import PAIRS, snapshot, table_7, table_of
from eva_lab.runs import named_policy
from eva_master.adapters.catalog.market import as_spot
from eva_master.model.catalog import Catalog, Offering, Purchase, spot_family
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.snapshots import carried_out
from eva_wire.values.ids import MILLION, Millis, Price

_ROUND_MS = 300_000
_LIFE_MS = 6 * 3_600_000
_MOST = 1.5


def on_sale(types: Catalog, zones: int, seed: int) -> Iterator[Offering]:
    """Every type in every zone, on demand and beside it on the spot market."""
    drawn = random.Random(seed)
    for type_ in types:
        for zone in range(zones):
            there = replace(type_, zone=f"zone-{'abcdefgh'[zone]}")
            yield there
            part = drawn.randint(290_000, 430_000)
            yield as_spot(there, Price(there.price * part // MILLION), _LIFE_MS)


def arrived(tasks: int, zones: int, seed: int) -> Snapshot:
    """A cluster in which nothing runs yet, and in which so many tasks wait."""
    trial = table_7(tasks, seed)
    specs = {_allowed(spec): count for spec, count in trial.tasks.items()}
    wider = replace(trial, tasks=specs, catalog=tuple(on_sale(trial.catalog, zones, seed)))
    return snapshot(wider, table_of(PAIRS, wider))


def _allowed(task: TaskSpec) -> TaskSpec:
    """A task that may run on spot instances too."""
    both = [*task.demand, *((spot_family(family), need) for family, need in task.demand)]
    return replace(task, demand=tuple(sorted(both)))


def taken(start: Snapshot, policy_name: str) -> list[float]:
    """Processor time of the first plan, and of one after the dearest pool has gone, in seconds."""
    policy, _ = named_policy(policy_name)
    began = time.process_time()
    plan, memory = policy.plan(start, None)
    first = time.process_time() - began
    after = carried_out(start, plan)
    assert all(run.instance is not None for run in after.runs), "everything can be packed"
    later = _without_a_pool(after)
    began = time.process_time()
    policy.plan(later, memory)
    return [first, time.process_time() - began]


def _without_a_pool(before: Snapshot) -> Snapshot:
    """The pool with the most instances runs dry, and its tasks wait."""
    spot = [
        instance.offering.id
        for instance in before.instances
        if instance.offering.purchase is Purchase.SPOT
    ]
    gone = max(sorted(set(spot)), key=spot.count)
    lost = {instance.id for instance in before.instances if instance.offering.id == gone}
    until = Millis(before.now_ms + 10 * _ROUND_MS)
    return replace(
        before,
        now_ms=Millis(before.now_ms + _ROUND_MS),
        catalog=tuple(
            replace(offering, unavailable_until=until) if offering.id == gone else offering
            for offering in before.catalog
        ),
        instances=tuple(instance for instance in before.instances if instance.id not in lost),
        runs=tuple(
            replace(run, instance=None, running=False) if run.instance in lost else run
            for run in before.runs
        ),
        arrivals=before.arrivals + 1,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns the exit code."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=200, help="default: 200")
    parser.add_argument("--zones", type=int, default=4, choices=range(1, 9), help="default: 4")
    parser.add_argument("--seeds", type=int, default=5, help="sets of tasks; default: 5")
    parser.add_argument("--policy", default="eva", help="default: eva")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    taken(arrived(10, 1, 0), chosen.policy)  # what is imported and compiled at first
    times: dict[int, list[list[float]]] = {1: [], chosen.zones: []}
    for seed in range(chosen.seeds):
        for zones, found in times.items():
            found.append(taken(arrived(chosen.tasks, zones, seed), chosen.policy))
    figures: Figures = {"surroundings": surroundings(), "policy": chosen.policy}
    missed = []
    for place, name in enumerate(("first", "after_a_pool_has_gone")):
        one, more = (median(it[place] for it in times[zones]) for zones in (1, chosen.zones))
        figures[name] = {
            "one_zone_cpu_s": round(one, 4),
            "zones_cpu_s": round(more, 4),
            "ratio": round(more / one, 3),
        }
        if more > _MOST * one:
            missed.append(f"{name}: at most {_MOST} times as long as in one zone")
    figures["missed"] = missed
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
