"""Kills and pauses over all that a cluster consists of, under jobs of every kind.

``python -m tests.faults --count 200 --seed 7`` runs episodes of 20 faults, each on a cluster of its
own: arrays, gangs, chains, forks on owned nodes, deadlines on spot instances, caps and suspended
jobs, as plain processes. With ``--containers`` tasks are in containers of test hosts, whose engines
are hit too; that needs root and dockerd. The result of an episode is one line of a file, so a run
that was interrupted goes on where it was. The exit code is 1 if a job did not succeed, a finished
task ran again, a task ran twice at a time or did again what it had stored, a cap was overspent, or
the books differ from the cloud's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import traceback
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from eva_wire.values.errors import EvaError
from tests.faults import campaign, every_kind
from tests.faults.campaign import Result

_PER_EPISODE = 20


def main() -> int:
    """Run what is left of a campaign, and print its figures."""
    options = _parser().parse_args()
    options.record.parent.mkdir(parents=True, exist_ok=True)
    done = _read(options.record)
    where = "containers/" if options.containers else ""
    left, number = options.count, 0
    while left > 0:
        size = min(left, _PER_EPISODE)
        name = f"{where}{options.seed}/{number}/{size}"
        if name not in done:
            seed = options.seed * 1000 + number
            done[name] = _episode(seed, size, containers=options.containers)
            with options.record.open("a") as file:
                file.write(json.dumps({"name": name, **done[name]}) + "\n")
            print(f"episode {name}: {json.dumps(done[name])}", flush=True)
        left, number = left - size, number + 1
    return _summary(list(done.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="faults in all")
    parser.add_argument("--containers", action="store_true", help="with tasks in containers")
    parser.add_argument("--seed", type=int, default=7, help="of what happens when to whom")
    record = Path(".cache/faults.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="what was done already")
    return parser


def _read(record: Path) -> dict[str, dict[str, object]]:
    if not record.exists():
        return {}
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return {line.pop("name"): line for line in lines}


def _episode(seed: int, count: int, *, containers: bool) -> dict[str, object]:
    result, rng = Result(), random.Random(seed)
    try:
        with contextlib.ExitStack() as stack:
            episode: campaign.Episode | every_kind.Episode
            if containers:
                episode = campaign.Episode(stack.enter_context(campaign.cluster_of(seed)), rng)
            else:
                episode = every_kind.Episode(*stack.enter_context(every_kind.cluster_of()), rng)
            result = episode.result
            try:
                episode.run(count)
            finally:
                if sys.exc_info()[0] or result.again or result.wrong:
                    for title, text in episode.logs():
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
