"""Compares the speed of two commits, which take turns so that a busy machine slows both alike.

Run as `python -m benchmarks.compare BASE [--new COMMIT] [--pairs N] [--only NAME ...] [--json]`
(`make bench-compare BASE=COMMIT`). Each commit gets a git worktree of its own and runs its own code
there, benchmarks included, with its own entry points and the packages of this environment. After a
run of each that does not count, the commits run by turns: base, new, new, base, base, ... Two runs
are a pair, whose ratio is the new figure over the base's. The ratio of a measure is the geometric
mean over its pairs; the interval has it with 95 % confidence, by Student's t of the logarithms.

The exit code is 1 if an interval lies wholly above 1.10: the new commit is slower by more than a
tenth; 2 if a commit is unknown or a benchmark fails in it. Changes that are not committed are not
measured. Worktrees are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from benchmarks.harness import ROOT, Figures, Rows, end_children_at_sigterm, surroundings

LIMIT = 1.10
"""A ratio above which a measure has become slower."""
_CONFIDENCE = 0.95
_PAIRS = 6
_GRACE_S = 20.0
_METADATA = ".installed"
"""Folder of a worktree that says what is installed from it."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A command that is run in both commits.

    Attributes:
        name: Its name on the command line.
        command: Arguments of Python.
        figures: Paths of figures in the JSON object that the command prints, such as
            ``round_s.median``. Empty: the processor time of the command itself.
    """

    name: str
    command: tuple[str, ...]
    figures: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of its figures, or that of processor time."""
        return self.figures or ("processor_s",)


_EVA = (
    "from importlib.metadata import entry_points; "
    "(eva,) = entry_points(group='console_scripts', name='eva'); eva.load()()"
)
"""Code that runs the command `eva` of a commit, in whichever module that has it."""
BENCHMARKS = (
    Benchmark(
        "rounds",
        ("-m", "benchmarks.rounds", "--tasks=300", "--changes=20", "--rounds=6", "--json"),
        ("round_s.median", "snapshot_ms", "snapshot_from_scratch_ms"),
    ),
    Benchmark(
        "simulator",
        (
            "-m",
            "benchmarks.simulator",
            "--trace=examples/traces/workloads.jsonl",
            "--policy=eva",
            "--json",
        ),
        ("eva.cpu_s", "eva.loop_s"),
    ),
    Benchmark(
        "submission",
        ("-m", "benchmarks.submission", "--queued=20", "--samples=30", "--json"),
        ("submission_ms.median",),
    ),
    Benchmark("help", ("-c", _EVA, "--help")),
)


class Failed(Exception):
    """A commit cannot be compared; the text says why."""


@dataclass
class Compared:
    """The runs of one benchmark.

    Attributes:
        benchmark: The benchmark.
        base: Figures of the base commit by measure, one per pair.
        new: Figures of the new commit, likewise.
    """

    benchmark: Benchmark
    base: dict[str, list[float]] = field(default_factory=dict)
    new: dict[str, list[float]] = field(default_factory=dict)

    def rows(self) -> Iterator[Figures]:
        """A row per measure: both means, the ratio, and its interval."""
        for measure in self.benchmark.measures:
            base, new = self.base[measure], self.new[measure]
            ratio, low, high = interval(base, new)
            yield {
                "benchmark": self.benchmark.name,
                "measure": measure,
                "base": float(np.mean(base)),
                "new": float(np.mean(new)),
                "ratio": round(ratio, 3),
                "from": round(low, 3),
                "to": round(high, 3),
                "slower": low > LIMIT,
            }


def interval(base: Sequence[float], new: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of paired figures, and the ends of its confidence interval.

    Args:
        base: At least two figures above 0.
        new: As many, each the partner of the base's at its place.
    """
    logs = np.log(np.asarray(new) / np.asarray(base))
    mean = float(np.mean(logs))
    error = float(np.std(logs, ddof=1)) / len(logs) ** 0.5
    reach = float(stdtrit(len(logs) - 1, (1 + _CONFIDENCE) / 2)) * error
    ratio, low, high = np.exp([mean, mean - reach, mean + reach]).tolist()
    return ratio, low, high


def compared(
    root: Path, base: str, new: str, benchmarks: Sequence[Benchmark], pairs: int
) -> Iterator[Compared]:
    """Run benchmarks in two commits by turns.

    Args:
        root: A git repository.
        base: The commit to compare with.
        new: The commit to be compared.
        benchmarks: Run one after the other.
        pairs: Runs of each commit that count, at least two.

    Yields:
        The runs of each benchmark.

    Raises:
        Failed: A commit is unknown, or a benchmark fails in it or prints no such figure.
    """
    with worktrees(root, (base, new)) as (old_tree, new_tree):
        for benchmark in benchmarks:
            for tree in (old_tree, new_tree):
                measured(benchmark, tree)
            result = Compared(benchmark)
            for pair in range(pairs):
                sides = [(old_tree, result.base), (new_tree, result.new)]
                for tree, figures in reversed(sides) if pair % 2 else sides:
                    for measure, figure in measured(benchmark, tree).items():
                        figures.setdefault(measure, []).append(figure)
            yield result


@contextmanager
def worktrees(root: Path, commits: Sequence[str]) -> Iterator[list[Path]]:
    """A git worktree of each commit, removed in the end.

    Raises:
        Failed: A commit is unknown.
    """
    names = [
        _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") for commit in commits
    ]
    with tempfile.TemporaryDirectory(prefix="eva-compare-") as folder:
        trees = [Path(folder) / f"{number}-{name[:12]}" for number, name in enumerate(names)]
        try:
            for tree, name in zip(trees, names, strict=True):
                _git(root, "worktree", "add", "--quiet", "--detach", str(tree), name)
                install(tree)
            yield trees
        finally:
            for tree in trees:
                if tree.exists():
                    _git(root, "worktree", "remove", "--force", str(tree))
            _git(root, "worktree", "prune")


def install(tree: Path) -> None:
    """Write the entry points of a worktree as an installation has them.

    Policies and commands are found by entry points, and those of the environment are of one commit.
    """
    project = tree / "pyproject.toml"
    if not project.exists():
        return
    described = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    name = described["name"].replace("-", "_")
    folder = tree / _METADATA / f"{name}-{described['version']}.dist-info"
    folder.mkdir(parents=True)
    about = f"Name: {described['name']}\nVersion: {described['version']}\n"
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\n{about}", encoding="utf-8")
    groups = {"console_scripts": described.get("scripts", {}), **described.get("entry-points", {})}
    lines = (
        "\n".join([f"[{group}]", *(f"{point} = {target}" for point, target in points.items())])
        for group, points in groups.items()
    )
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def measured(benchmark: Benchmark, tree: Path) -> dict[str, float]:
    """Run a benchmark once in a worktree; returns its figures by measure.

    Raises:
        Failed: The benchmark fails, or does not print a figure above 0.
    """
    path = os.pathsep.join(map(str, (tree / _METADATA, tree, tree / "iterator_sdk")))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [sys.executable, *benchmark.command],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with _ended(process):
        output, errors = process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not benchmark.figures:
        if process.returncode:
            raise Failed(f"{benchmark.name} fails in {tree.name}: {errors[-500:]}")
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"processor_s": spent}
    try:
        document = json.loads(output)
        figures = {name: _figure(document, name) for name in benchmark.figures}
    except (ValueError, LookupError, TypeError) as error:
        raise Failed(f"{benchmark.name} fails in {tree.name}: {error!r} {errors[-500:]}") from error
    if nothing := [name for name, figure in figures.items() if not figure > 0]:
        raise Failed(f"{benchmark.name} measures nothing in {tree.name}: {', '.join(nothing)}")
    return figures


def _figure(document: Mapping[str, object], name: str) -> float:
    """The number at a path such as ``round_s.median``."""
    value = reduce(lambda inner, key: inner[key], name.split("."), document)  # type: ignore[arg-type, return-value, index]
    return float(value)  # type: ignore[arg-type]


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """End a process with its children if the block does not end by itself."""
    try:
        yield
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip() or "there is no such commit"
        raise Failed(f"git {' '.join(arguments)}: {said}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row per measure; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--new", default="HEAD", metavar="COMMIT", help="default: HEAD")
    parser.add_argument("--pairs", type=int, default=_PAIRS, help=f"default: {_PAIRS}, at least 2")
    parser.add_argument("--only", action="append", choices=names, help="one of the benchmarks")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.pairs < 2:
        parser.error("--pairs is at least 2, for an interval needs two ratios")
    end_children_at_sigterm()
    benchmarks = [each for each in BENCHMARKS if each.name in (chosen.only or names)]
    if not chosen.json:
        print(", ".join(f"{name} {value}" for name, value in surroundings().items()), flush=True)
    rows, slower = Rows(as_json=chosen.json), False
    try:
        for result in compared(ROOT, chosen.base, chosen.new, benchmarks, chosen.pairs):
            for row in result.rows():
                rows.add(row)
                slower |= row["slower"]
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows.show()
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
