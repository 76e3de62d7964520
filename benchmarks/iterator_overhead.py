"""The cost of `EvaIterator` per step: wrapped against bare loop, in the same process.

Run as `python -m benchmarks.iterator_overhead [--json]`. Measured outside Eva, and inside with an
agent that asks for a report every 100 ms, ten times as often as the real one. The loop's body is
empty, so the ratio is the worst case; a real step takes milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent import futures
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
from eva_iterator import EvaIterator
from eva_iterator._proto.iterator_pb2 import ReportRequest, ReportResponse
from eva_iterator._proto.iterator_pb2_grpc import IteratorServicer, add_IteratorServicer_to_server

BUDGET_NS = 1000.0
STEPS = 1_000_000
ROUNDS = 15


@dataclass(frozen=True)
class Overhead:
    """Cost of a step of an empty loop, the least over the rounds.

    Attributes:
        bare_ns: Of the bare loop.
        wrapped_ns: Of the wrapped loop.
        overhead_ns: The difference.
        ratio: The quotient.
    """

    bare_ns: float
    wrapped_ns: float
    overhead_ns: float
    ratio: float


class _Agent(IteratorServicer):
    def Report(self, request: ReportRequest, context: Any) -> ReportResponse:  # noqa: N802
        del request, context
        return ReportResponse(interval_ms=100)


def measure() -> dict[str, Overhead]:
    """Measures outside and inside Eva, each in a process of its own."""
    environ = {name: value for name, value in os.environ.items() if name != "EVA_SOCKET"}
    with tempfile.TemporaryDirectory(prefix="eva-") as directory:
        socket = str(Path(directory) / "agent.sock")
        server = grpc.server(futures.ThreadPoolExecutor(1))
        add_IteratorServicer_to_server(_Agent(), server)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            return {
                "outside": _measure_in_process(environ),
                "inside": _measure_in_process({**environ, "EVA_SOCKET": socket}),
            }
        finally:
            server.stop(0).wait()


def main(arguments: list[str] | None = None) -> int:
    """Prints the figures; returns 1 if a step costs more than the budget of 1 us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    # This process takes the measurement itself and prints it.
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.here:
        print(json.dumps(asdict(_measure_here())))
        return 0
    results = measure()
    if options.json:
        print(json.dumps({name: asdict(result) for name, result in results.items()}))
    else:
        for name, result in results.items():
            print(
                f"{name:8} bare {result.bare_ns:6.1f} ns/step   wrapped {result.wrapped_ns:6.1f}"
                f"   overhead {result.overhead_ns:6.1f}   ratio {result.ratio:5.2f}"
            )
    return int(any(result.overhead_ns > BUDGET_NS for result in results.values()))


def _measure_in_process(environ: dict[str, str]) -> Overhead:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.iterator_overhead", "--here"],
        cwd=Path(__file__).parent.parent,
        env=environ,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Overhead(**json.loads(done.stdout))


def _measure_here() -> Overhead:
    items = range(STEPS)
    wrapped = EvaIterator(items)
    bare_ns = wrapped_ns = float("inf")
    for _ in range(ROUNDS):  # alternating, so that both meet the same load on the machine
        bare_ns = min(bare_ns, _time_ns(items))
        wrapped_ns = min(wrapped_ns, _time_ns(wrapped))
    return Overhead(bare_ns, wrapped_ns, wrapped_ns - bare_ns, wrapped_ns / bare_ns)


def _time_ns(items: Iterable[int]) -> float:
    start = time.perf_counter_ns()
    for _ in items:
        pass
    return (time.perf_counter_ns() - start) / STEPS


if __name__ == "__main__":
    sys.exit(main())
