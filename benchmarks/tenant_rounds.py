"""How long a plan takes for tenants with many jobs, their alone twins included.

Run as `python -m benchmarks.tenant_rounds [--jobs N] [--tenants N] [--servers N] [--json]`.
Elastic gangs with values, drawn from a seed, compete for servers that tenants brought; plans are
carried out at once, an hour apart. Times are processor time of this process. The first plan knows
nothing; the others find what runs and the memory of the twins.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from statistics import fmean

from tests.unit.astraea.played import Market, Work


def market(jobs: int, tenants: int, servers: int) -> Market:
    """Tenants with servers of 2 and 8 GPUs, and jobs of 5 to 500 hours for 2 to 50 members."""
    draw = random.Random(1)
    names = [f"t{number:02}" for number in range(tenants)]
    nodes = [8 if draw.random() < 0.4 else 2 for _ in range(servers)]
    quotas = dict.fromkeys(names, 0)
    for number, gpus in enumerate(nodes):
        quotas[names[number % tenants]] += gpus
    works = [
        Work(
            f"j{number:05}",
            draw.choice(names),
            draw.uniform(5, 500),
            most=draw.randint(2, 50),
            dollars=draw.uniform(100, 1000),
            loses=draw.uniform(0.1, 2),
        )
        for number in range(jobs)
    ]
    return Market(nodes, quotas, works)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how long plans take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--tenants", type=int, default=14)
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    played, seconds = market(chosen.jobs, chosen.tenants, chosen.servers), []
    for _ in range(chosen.rounds):
        seen = played.seen()
        start = time.process_time()
        played.policy.plan(seen, played.memory)
        seconds.append(time.process_time() - start)
        played.round()
    found = {
        "jobs": chosen.jobs,
        "tenants": chosen.tenants,
        "plan_mean_s": round(fmean(seconds), 3),
        "plan_max_s": round(max(seconds), 3),
    }
    print(json.dumps(found) if chosen.json else found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
