"""Runs the properties that every policy keeps to over thousands of random clusters.

Run as `python -m benchmarks.conformance [--clusters N] [--policy NAME]... [--property WORD]...
[--json]`. The properties are those of `eva_master.testing.policy_suite`; the variants are all
policies with all presets, and those that the tests add. `--policy eva` means the policy itself,
`--policy 'eva*'` all whose names begin so. `--property` takes words of names; `rest` stands for the
three that ask whether a cluster comes to rest.

Every run draws new clusters, by a seed that it prints. The run may be stopped at any time, and goes
on where it was: a file (`--progress`) has what was checked, by variant and property. When the code
of the policies has changed the run begins anew, with the same seed if one is given. The exit code
is 1 if something failed; each failure is printed as the Python of a small cluster that fails as
well, which belongs into `eva_master.testing.found`.

Plans that several properties ask for are made once in a batch, except for the property that asks
for the same plan again.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import pickle
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.harness import ROOT, Figures
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Policy
from eva_master.testing.clusters import clusters
from eva_master.testing.drawing import by_declaration_alone
from eva_master.testing.minimal import minimal, source
from eva_master.testing.policy_suite import PolicySuite, Variant
from tests.conformance.test_policies import TestPolicies

PER_BATCH = 50
"""Clusters that are drawn at once, and between two of which progress is saved."""
REST = ("carried_out_is_followed_by_none", "comes_to_rest_and_stays", "comes_to_rest_while")
"""Words of the properties that ask for rest."""
_CODE = ("learning", "model", "packing", "policies", "testing")
_AGAIN = "in_whatever_order"
"""Words of the property that has a plan made again."""
_TRIES = 400
"""Clusters that are tried to make one that fails smaller."""


@dataclass
class Progress:
    """Finished checks by variant and property, and failures.

    Attributes:
        code: Digest of the code that it holds for.
        seed: That clusters are drawn by.
        checked: How many of them, by name of `Check`.
        failures: Of each the check, the cluster's number, what was raised, and Python.
        cpu_s: Processor time that went into it.
    """

    code: str
    seed: int
    checked: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    cpu_s: float = 0.0

    @classmethod
    def resumed(cls, path: Path, number: int | None) -> Progress:
        """Read a file, or begin anew where it holds for other code or another seed."""
        code = _digest()
        if path.exists():
            known = cls(**json.loads(path.read_text()))
            if known.code == code and number in (None, known.seed):
                return known
        return cls(code, secrets.randbelow(2**32) if number is None else number)

    def save(self, path: Path) -> None:
        """Write the file; it is never half written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".new")
        half.write_text(json.dumps(vars(self), indent=1))
        half.replace(path)


class Remembering:
    """A policy that makes no plan twice.

    Args:
        policy: Makes the plans.
        known: Known errors, by the bytes that they depend on.
    """

    def __init__(self, policy: Policy, known: dict[bytes, tuple[Plan, PolicyMemory | None]]):
        self.name = policy.name
        self._policy = policy
        self._known = known

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Plan, or find the plan."""
        asked = hashlib.sha256(pickle.dumps((snapshot, memory))).digest()
        if asked not in self._known:
            self._known[asked] = self._policy.plan(snapshot, memory)
        return self._known[asked]


@dataclass(frozen=True)
class RememberingVariant(Variant):
    """A variant of which no plan is made twice.

    Attributes:
        known: See `Remembering`.
    """

    known: dict[bytes, tuple[Plan, PolicyMemory | None]] = field(default_factory=dict)

    def make(self, **more: Any) -> Policy:
        """Build the policy; one with other options remembers nothing."""
        policy = super().make(**more)
        return policy if more else Remembering(policy, self.known)


@dataclass(frozen=True)
class Check:
    """One property of one variant."""

    name: str
    variant: Variant
    test: Callable[..., None]

    def error(self, snapshot: Snapshot, number: int) -> str:
        """The fault of a cluster, empty if there is none."""
        takes = inspect.signature(self.test).parameters
        given = {"variant": self.variant, "explained": self.variant, "seed": number}
        try:
            self.test(
                PolicySuite(),
                snapshot=snapshot,
                **{name: value for name, value in given.items() if name in takes},
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""


def checks(
    variants: Mapping[str, Variant], policies: Sequence[str], words: Sequence[str]
) -> list[Check]:
    """Properties and variants that are asked for; all if nothing is said."""
    found = []
    for name in sorted(variants):
        if policies and not any(fnmatch(name, pattern) for pattern in policies):
            continue
        plain = variants[name]
        remembering = RememberingVariant(plain.kind, plain.options)
        for title, test in inspect.getmembers(PolicySuite, inspect.isfunction):
            drawn = getattr(test, "hypothesis", None)
            inner = drawn and drawn.inner_test
            explains = inner and "explained" in inspect.signature(inner).parameters
            wanted = not words or any(word in title for word in words)
            if inner and wanted and (not explains or variants[name].takes("explained")):
                about = title.removeprefix("test_").replace("_", " ")
                variant = plain if _AGAIN in title else remembering
                found.append(Check(f"{name}: {about}", variant, inner))
    return found


def batch(name: str) -> list[Snapshot]:
    """Clusters with at least one job, the same ones for the same name."""
    drawn: list[Snapshot] = []
    while len(drawn) < PER_BATCH:

        @seed(f"{name} {len(drawn)}")
        @settings(
            max_examples=2 * PER_BATCH,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(snapshot=clusters())
        def draw(snapshot: Snapshot) -> None:
            if snapshot.jobs:
                drawn.append(snapshot)

        draw()
    return drawn[:PER_BATCH]


def run(wanted: Sequence[Check], goal: int, progress: Progress, deadline_s: float) -> Iterator[str]:
    """Check until all have seen so many clusters, or until the time is up.

    Args:
        wanted: Checks to run.
        goal: How many clusters each is to see.
        progress: Where it stands; kept up to date.
        deadline_s: By the monotonic clock.

    Yields:
        After each batch a line on what was new; `progress` may then be saved.
    """
    done = min((progress.checked.get(one.name, 0) for one in wanted), default=goal)
    while done < goal and time.monotonic() < deadline_s:
        began = time.process_time()
        drawn, told = batch(f"{progress.seed} {done}"), [f"{done} of {goal} clusters"]
        for one in wanted:
            if progress.checked.get(one.name, 0) > done:
                continue
            for number, snapshot in enumerate(drawn, done):
                if error := one.error(snapshot, number):
                    told.append(_failed(one, snapshot, number, error, progress))
            progress.checked[one.name] = done + PER_BATCH
        for one in wanted:
            if isinstance(one.variant, RememberingVariant):
                one.variant.known.clear()
        done += PER_BATCH
        progress.cpu_s += time.process_time() - began
        yield "\n".join(told)


def _failed(check: Check, snapshot: Snapshot, number: int, error: str, progress: Progress) -> str:
    small = minimal(snapshot, lambda other: check.error(other, number) != "", _TRIES)
    python = source(small)
    known = {"check": check.name, "number": number, "error": error[:500], "python": python}
    progress.failures.append(known)
    return f"{check.name}, cluster {number}: {error[:200]}\n{python}"


def _digest() -> str:
    known = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((ROOT / "eva_master" / folder).rglob("*.py")):
            known.update(path.read_bytes())
    return known.hexdigest()[:16]


def figures(wanted: Sequence[Check], goal: int, progress: Progress) -> Figures:
    """Results of the checks: `missed` names failed and unfinished ones."""
    names = {one.name for one in wanted}
    failures = [failure for failure in progress.failures if failure["check"] in names]
    checked = {name: progress.checked.get(name, 0) for name in sorted(names)}
    return {
        "seed": progress.seed,
        "checks": len(checked),
        "clusters": sum(checked.values()),
        "fewest": min(checked.values(), default=0),
        "cpu_s": round(progress.cpu_s),
        "failures": failures,
        "missed": sorted(
            {failure["check"] for failure in failures}
            | {name for name, n in checked.items() if n < goal}
        ),
    }


def main(
    arguments: Sequence[str] | None = None,
    variants: Mapping[str, Variant] = TestPolicies.variants,
) -> int:
    """Go on, and tell where it stands; returns the exit code."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clusters", type=int, default=2_000, help="of each check")
    parser.add_argument("--policy", action="append", default=[], help="a variant, or a pattern")
    parser.add_argument("--property", action="append", default=[], help="words of its name")
    parser.add_argument("--seed", type=int, help="to draw by; a new one if not given")
    parser.add_argument("--progress", type=Path, default=ROOT / "build/conformance.json")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    by_declaration_alone()
    words = [w for word in chosen.property for w in (REST if word == "rest" else (word,))]
    wanted = checks(variants, chosen.policy, [word.replace(" ", "_") for word in words])
    progress = Progress.resumed(chosen.progress, chosen.seed)
    print(f"seed {progress.seed}, {len(wanted)} checks", file=sys.stderr)
    for told in run(wanted, chosen.clusters, progress, time.monotonic() + chosen.limit_s):
        progress.save(chosen.progress)
        print(told, file=sys.stderr, flush=True)
    known = figures(wanted, chosen.clusters, progress)
    if chosen.json:
        print(json.dumps(known))
    else:
        for name, value in known.items():
            print(f"{name:10} {value}")
    return int(bool(known["missed"]))


if __name__ == "__main__":
    sys.exit(main())
