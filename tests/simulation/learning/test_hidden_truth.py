"""Schedulers learn how tasks disturb each other from what is reported, and from nothing else."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType

import pytest

from eva_lab.runs import Chosen, named_policy, prepared
from eva_lab.simulator.run import Setup, simulate
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import Interference
from eva_master.ports import Policy
from eva_wire.values.ids import Workload
from tests.simulation.test_accounting import SHARE, job, setup

POLICIES = ("eva", "eva_published", "no_packing", "stratus", "synergy")
DECIDERS = ("control/", "learning/", "packing/", "policies/", "eva_policies/")
LOOP = "control/loop.py"
"""On every stack, since it waits while virtual time passes."""


class Poison:
    """A truth that nobody but the simulated workers may touch.

    Attributes:
        asked: Companies that it was asked about.
    """

    def __init__(self, truth: Interference) -> None:
        self._truth = truth
        self.asked: set[tuple[Workload, tuple[Workload, ...]]] = set()

    def __call__(self, workload: Workload, others: tuple[Workload, ...]) -> float:
        frame = sys._getframe()
        while frame is not None:
            path = frame.f_code.co_filename.rpartition("eva_master/")[2]
            assert path == LOOP or not path.startswith(DECIDERS), f"{path} asks for the truth"
            frame = frame.f_back  # type: ignore[assignment]
        self.asked.add((workload, others))
        return self._truth(workload, others)


class Watched:
    """A policy that is handed nothing from which the truth can be reached."""

    def __init__(self, policy: Policy, poison: Poison) -> None:
        self._policy = policy
        self._poison = poison
        self.name = policy.name
        self.looked = 0

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        if self.looked < 8:
            assert not reaches((snapshot, memory, self._policy), self._poison)
            self.looked += 1
        return self._policy.plan(snapshot, memory)


def reaches(roots: Iterable[object], wanted: object) -> bool:
    """Whether an object can be got at from others by following their fields."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if one is wanted:
            return True
        if id(one) not in seen and not isinstance(one, ModuleType | FunctionType | type):
            seen.add(id(one))
            waiting.extend(gc.get_referents(one))
    return False


def scenario(poison: Poison, policy: Policy, gap: int | None) -> Setup:
    names = ("a", "b", "a", "c", "b", "a")
    jobs = [
        job(f"{name}{n}", n * 500, 2000, cpus=1 + n % 3, workload=name)
        for n, name in enumerate(names)
    ]
    return setup(*jobs, policy=policy, truth=poison, round_gap_s=gap)


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_touches_the_truth(name: str) -> None:
    poison = Poison(SHARE)
    policy, gap = named_policy(name)
    watched = Watched(policy, poison)
    simulate(scenario(poison, watched, gap))
    assert watched.looked > 2
    assert poison.asked, "tasks ran"


def test_the_net_catches_who_does() -> None:
    poison = Poison(SHARE)

    class Nosy(Watched):
        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            return super().plan(snapshot, PolicyMemory("nosy", 1, {"truth": [poison]}))

    policy, gap = named_policy("stratus")
    with pytest.raises(AssertionError):
        simulate(scenario(poison, Nosy(policy, poison), gap))


def test_what_never_happens_makes_no_difference() -> None:
    """Another truth about companies that nobody was ever in leads to the same life."""
    poison = Poison(SHARE)
    policy, gap = named_policy("eva_published")
    one = simulate(scenario(poison, policy, gap))
    met = {(workload, other) for workload, others in poison.asked for other in others}

    def elsewhere(workload: Workload, others: tuple[Workload, ...]) -> float:
        known = all((workload, other) in met for other in others)
        return SHARE(workload, others) if known else 0.123

    again = simulate(scenario(Poison(SHARE), policy, gap))
    other = simulate(scenario(elsewhere, policy, gap))  # type: ignore[arg-type]
    assert one == again == other


def test_owl_is_told_its_profile_and_nothing_else() -> None:
    """The one baseline that is given measurements beforehand, as in its paper."""
    poison = Poison(SHARE)
    base = scenario(poison, named_policy("no_packing")[0], None)
    told = prepared(Chosen("owl", {}), base)
    assert not reaches((told.policy,), poison)
    simulate(told)
