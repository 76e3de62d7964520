"""Makes a world of tenants, as those of the Astraea paper's evaluation.

Run as `python -m benchmarks.make_world SEED --philly philly_jobs.csv.gz [--jobs N] [--servers N]`,
with the jobs of Microsoft's Philly cluster (columns `timestamp`, `duration`, `num_gpus`, `gpu_time`
and `cluster`); prints the world as JSON.

Arrivals and requested GPUs are those of so many consecutive jobs from a random point. Servers have
2 or 8 workers, as often as Philly's machines have so many GPUs, and room for one parameter server.
Tenants are the 14 largest virtual clusters, or `--tenants` of them; they own whole servers, in
proportion to the square root of their GPU time. A job's tenant is drawn by its workers times a
factor of its own, whose logarithm is normal. All else is uniform. Each quantity has a generator of
its own, so that worlds of one seed with other numbers of servers have the same jobs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from eva_lab.traces.fleets.tenant_worlds import World
from eva_lab.traces.lines import read_lines
from eva_wire.values.errors import EvaError

_SIZES, _MACHINES = (2, 8), (321, 231)
"""GPUs of a machine, and how many machines of Philly have so many."""
_TENANTS = 14
_MS_PER_HOUR = 3_600_000


class _Draw(IntEnum):
    WINDOW = 1
    SERVERS = 2
    OWNERS = 3
    NETWORK = 4
    TENANTS = 5
    JOBS = 6


def made(
    seed: int, philly: Path, jobs: int = 100, servers: int = 100, tenants: int = _TENANTS
) -> dict[str, Any]:
    """A world.

    Args:
        seed: Of all that is drawn.
        philly: The jobs of the Philly cluster.
        jobs: How many.
        servers: How many, at least one for each tenant.
        tenants: How many.

    Raises:
        ValueError: The file has too few jobs or virtual clusters, or there are too few servers.
        EvaError: The file cannot be read.
    """
    rows = sorted(csv.DictReader(read_lines(philly)), key=lambda row: row["timestamp"])
    if len(rows) < jobs or servers < tenants:
        raise ValueError(f"{jobs} jobs and at least {tenants} servers are wanted")
    first = int(_random(seed, _Draw.WINDOW).integers(len(rows) - jobs + 1))
    machines = _random(seed, _Draw.SERVERS).choice(
        _SIZES, servers, p=np.array(_MACHINES) / sum(_MACHINES)
    )
    owners = _tenants(seed, _roots(rows, tenants), machines.tolist())
    network = _random(seed, _Draw.NETWORK)
    return {
        "servers": [{"workers": int(size), "ps": 1} for size in machines],
        "worker_mbps": round(float(network.uniform(100, 5120)), 3),
        "ps_mbps": round(float(network.uniform(5_000, 20_000)), 3),
        "tenants": owners,
        "jobs": _jobs(seed, rows[first : first + jobs], [owner["workers"] for owner in owners]),
    }


def _random(seed: int, draw: _Draw) -> np.random.Generator:
    return np.random.default_rng([seed, draw])


def _roots(rows: Sequence[dict[str, str]], tenants: int) -> list[float]:
    """The square roots of the GPU time of the largest virtual clusters, largest first."""
    used: dict[str, float] = {}
    for row in rows:
        used[row["cluster"]] = used.get(row["cluster"], 0.0) + float(row["gpu_time"])
    largest = sorted(used.values(), reverse=True)[:tenants]
    if len(largest) < tenants:
        raise ValueError(f"there are fewer than {tenants} virtual clusters")
    return [sqrt(it) for it in largest]


def _tenants(seed: int, roots: list[float], machines: list[int]) -> list[dict[str, Any]]:
    """Whole servers for each tenant, one at least; which ones is drawn."""
    spare = len(machines) - len(roots)
    parts = [spare * root / sum(roots) for root in roots]
    counts = [1 + int(part) for part in parts]
    rests = sorted(range(len(roots)), key=lambda it: int(parts[it]) - parts[it])
    for it in rests[: len(machines) - sum(counts)]:
        counts[it] += 1
    order = _random(seed, _Draw.OWNERS).permutation(len(machines)).tolist()
    found, start = [], 0
    for count in counts:
        own = sorted(order[start : start + count])
        start += count
        workers = sum(machines[it] for it in own)
        found.append({"servers": own, "workers": workers, "ps": len(own)})
    return found


def _jobs(seed: int, rows: Sequence[dict[str, str]], workers: list[int]) -> list[dict[str, Any]]:
    random = _random(seed, _Draw.TENANTS)
    weights = np.array(workers) * random.lognormal(0.0, 1.0, len(workers))
    owners = random.choice(len(workers), len(rows), p=weights / weights.sum()).tolist()
    began = datetime.fromisoformat(rows[0]["timestamp"])
    draw = _random(seed, _Draw.JOBS)
    found = []
    for owner, row in zip(owners, rows, strict=True):
        passed = datetime.fromisoformat(row["timestamp"]) - began
        found.append(
            {
                "tenant": owner,
                "arrival_slot": int(passed.total_seconds() // 3600) + 1,
                "epochs": int(draw.integers(50, 101)),
                "chunks": int(draw.integers(20, 51)),
                "minibatches": int(draw.integers(10, 51)),
                "minibatch_h": float(draw.uniform(0.001, 0.05)),
                "update_h": float(draw.uniform(10, 100)) / _MS_PER_HOUR,
                "gradient_mb": float(draw.uniform(30, 575)),
                "k": float(draw.uniform(-2, -0.1)),
                "g": float(draw.uniform(100, 1000)),
                "e": float(draw.uniform(100, 1000)),
                "kappa": float(draw.uniform(1, 2)),
                "requested_gpus": int(row["num_gpus"]),
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a world as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("--philly", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--tenants", type=int, default=_TENANTS)
    chosen = parser.parse_args(arguments)
    try:
        world = made(chosen.seed, chosen.philly, chosen.jobs, chosen.servers, chosen.tenants)
    except (EvaError, KeyError, ValueError) as error:
        print(f"{chosen.philly}: {error}", file=sys.stderr)
        return 2
    print(World.model_validate(world).model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
