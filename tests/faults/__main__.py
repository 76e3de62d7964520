"""Kills and pauses over master, agents, supervisors, tasks and engines, with tasks in containers.

``python -m tests.faults --count 100 --seed 7`` runs episodes of 20 faults, each on a cluster of its
own. What an episode came to is one line of a file, so a run that was interrupted goes on where it
was. The exit code is 1 if a job did not succeed, a finished task ran again, a task ran twice at a
time, or the books differ from the cloud's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import traceback
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from eva_master.model.errors import EvaError
from tests.faults.campaign import Episode, Result, cluster_of

_PER_EPISODE = 20


def main() -> int:
    """Run what is left of a campaign, and print its figures."""
    options = _parser().parse_args()
    options.record.parent.mkdir(parents=True, exist_ok=True)
    done = _read(options.record)
    left, number = options.count, 0
    while left > 0:
        size = min(left, _PER_EPISODE)
        name = f"{options.seed}/{number}/{size}"
        if name not in done:
            done[name] = _episode(options.seed * 1000 + number, size)
            with options.record.open("a") as file:
                file.write(json.dumps({"name": name, **done[name]}) + "\n")
            print(f"episode {name}: {json.dumps(done[name])}", flush=True)
        left, number = left - size, number + 1
    return _summary(list(done.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="faults in all")
    parser.add_argument("--seed", type=int, default=7, help="of what happens when to whom")
    record = Path(".cache/faults.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="what was done already")
    return parser


def _read(record: Path) -> dict[str, dict[str, object]]:
    if not record.exists():
        return {}
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return {line.pop("name"): line for line in lines}


def _episode(seed: int, count: int) -> dict[str, object]:
    result = Result()
    try:
        with cluster_of(seed) as cluster:
            episode = Episode(cluster, random.Random(seed))
            result = episode.result
            try:
                episode.run(count)
            except BaseException:
                for title, text in cluster.logs():
                    print(f"--- {title}\n{text}", file=sys.stderr)
                raise
            if result.again or result.wrong:
                for title, text in cluster.logs():
                    print(f"--- {title}\n{text}", file=sys.stderr)
    except (AssertionError, OSError, RuntimeError, EvaError) as error:
        traceback.print_exc()
        result.wrong.append(f"{type(error).__name__}: {error}")
    return asdict(result)


def _summary(results: list[dict[str, object]]) -> int:
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result["faults"])  # type: ignore[arg-type]
    total = {
        name: sum(int(str(result[name])) for result in results) for name in ("jobs", "attempts")
    }
    again = [it for result in results for it in result["again"]]  # type: ignore[attr-defined]
    wrong = [it for result in results for it in result["wrong"]]  # type: ignore[attr-defined]
    print(f"{sum(faults.values())} faults: {dict(sorted(faults.items()))}")
    print(f"{total['jobs']} jobs, {total['attempts']} attempts of their tasks")
    print(f"finished tasks that ran again: {again or 'none'}; wrong: {wrong or 'nothing'}")
    return 1 if again or wrong else 0


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
