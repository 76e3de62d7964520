"""Runs the benchmarks one after the other, each in a process of its own.

Run as `python -m benchmarks [NAME...] [--json] [--smoke]`. With `--json` standard output is one
object, a member per benchmark. The exit code is 1 if any of them missed a goal, 2 if one failed.
`--smoke` uses the smallest sizes, to check that everything runs; its figures mean nothing and are
not compared with goals.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.harness import ROOT, end_children_at_sigterm

SMOKE: dict[str, list[str]] = {
    "submission": ["--queued", "6", "--samples", "3"],
    "idle_agents": ["--agents", "3", "--window", "1"],
    "control_loop": ["--jobs", "2", "--many-jobs", "3"],
    "simulator": ["--jobs", "3"],
    "iterator_overhead": [],
    "rounds": ["--tasks", "50", "--changes", "6", "--rounds", "2"],
    "clouds": ["--instances", "20"],
    "history": ["--jobs", "20", "--reads", "2"],
    "transfers": ["--mebibytes", "4"],
    "amplification": ["--tasks", "20", "--kilobytes", "4"],
    "distinct": ["--tasks", "20"],
    "beside": ["--crowd", "distinct", "--scale", "100", "--limit", "60"],
    "load": ["--jobs", "8", "--watchers", "3"],
    "watching": ["--streams", "3", "--samples", "4"],
    "pages": ["--instances", "4", "--jobs", "20", "--open", "5", "--window", "2"],
    "stragglers": ["--tasks", "20", "--seeds", "1"],
    "arrays": ["--tasks", "20", "--tasks", "40", "--slots", "16"],
    "estimates": ["--tasks", "50", "--owners", "8"],
    "owners": ["--jobs", "6", "--owners", "3", "--seeds", "1"],
    "lines": ["--waiting", "50", "--waiting", "100"],
    "zones": ["--tasks", "10", "--seeds", "1"],
    "array_simulation": ["--tasks", "40", "--nodes", "1"],
    "array_master": ["--tasks", "20", "--agents", "2", "--limit", "60"],
}
"""Every benchmark, with the arguments for its smallest size."""
_MISSED = 1
_BROKEN = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; returns the exit code."""
    end_children_at_sigterm()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SMOKE)}")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--smoke", action="store_true", help="the smallest sizes")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in SMOKE]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SMOKE)}")
    codes, figures = [], {}
    for name in chosen.names or SMOKE:
        code, output = _run(name, SMOKE[name] if chosen.smoke else [], as_json=chosen.json)
        codes.append(0 if code == _MISSED and chosen.smoke else code)
        if chosen.json:
            figures[name] = json.loads(output) if output else None
        else:
            print(f"== {name}\n{output}", flush=True)
    if chosen.json:
        print(json.dumps(figures))
    return max(codes)


def _run(name: str, arguments: Sequence[str], *, as_json: bool) -> tuple[int, str]:
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with subprocess.Popen(
        [*command, "--json"] if as_json else command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            output, _ = running.communicate()
        except BaseException:
            running.terminate()  # It ends what it has started.
            raise
    # One that failed has the exit code of one that missed a goal, but no output.
    return (running.returncode if output else _BROKEN), output


if __name__ == "__main__":
    sys.exit(main())
