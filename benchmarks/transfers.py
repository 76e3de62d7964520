"""How fast a worker stores a large file and fetches it again, and how much memory that takes.

Run as `python -m benchmarks.transfers [--mebibytes N] [--json]`. The file goes to a substitute for
S3 on this machine, which determines the seconds. The goal for additional memory of the process is
100 MiB, whatever the size of the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Figures, options, publish, surroundings
from eva_worker.files.objects import Objects
from tests.fakes.aws.service import CREDENTIALS, Aws

MOST_MIB = 100
_MIB = 1 << 20
_CHILD = "--measured"


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def _measure(url: str, source: Path, target: Path) -> Figures:
    """Measure in a process that does nothing else."""
    store = Objects(url, uploads=source.with_name("uploads"))
    await store.put("warm", b"x")
    await store.get("warm")
    before = _peak_mib()
    began = time.perf_counter()
    size = await store.put("large", source)
    stored, up_mib = time.perf_counter(), _peak_mib() - before
    await store.fetch("large", target, size=size)
    fetched, down_mib = time.perf_counter(), _peak_mib() - before
    return {
        "up_seconds": round(stored - began, 1),
        "up_mib": up_mib,
        "down_seconds": round(fetched - stored, 1),
        "down_mib": down_mib,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == [_CHILD]:
        print(
            json.dumps(asyncio.run(_measure(given[1], Path(given[2]), Path(given[3])))), flush=True
        )
        os._exit(0)  # As agents end: threads of the object store do not survive Python's own end.
    chosen = options(__doc__, given, mebibytes=1024)
    os.environ.update({name.upper(): value for name, value in CREDENTIALS.items()})
    aws = Aws()
    with tempfile.TemporaryDirectory(prefix="eva-bench-") as home:
        source, target = Path(home, "source"), Path(home, "target")
        with source.open("wb") as file:
            for _ in range(chosen.mebibytes):
                file.write(os.urandom(_MIB))
        command = [sys.executable, "-m", "benchmarks.transfers", _CHILD, aws.make_bucket()]
        done = subprocess.run(
            [*command, str(source), str(target)], check=True, stdout=subprocess.PIPE
        )
    aws.stop()
    measured = json.loads(done.stdout)
    memory = max(measured["up_mib"], measured["down_mib"])
    figures: Figures = {
        "surroundings": surroundings(),
        "mebibytes": chosen.mebibytes,
        **measured,
        "missed": [f"{memory} MiB of memory"] if memory > MOST_MIB else [],
    }
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
