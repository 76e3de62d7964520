"""The suite that every policy of Eva passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from eva_master.app.policy_registry import OWN, policies
from eva_master.ports import PolicyKind
from eva_master.testing.policy_suite import PolicySuite, Variant, variants_of
from eva_policies.cloudcoaster.config import PRESETS
from tests.conformance.bounded import BOUNDED
from tests.drawing import NEW

KINDS: dict[str, PolicyKind] = {
    name: kind
    for name, kind in policies().items()
    if policies().sources(name)[0].distribution == OWN
}
PAIRS = tuple(
    (one, other, 1_000_000 - 20_000 * number)
    for number, (one, other) in enumerate(
        (one, other)
        for one in ("gpu", "small", "any", "gpu-cpu")
        for other in ("gpu", "small", "any", "gpu-cpu")
    )
)
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "eva-without-interference": ("eva", {"interference": False}),
    "eva-without-gangs": ("eva", {"multi_task_view": False}),
    "eva-greedy": ("eva", {"optimizer": "greedy"}),
    "eva-by-the-lp": ("eva", {"optimizer": "lp"}),
    "eva_published-by-the-lp": ("eva_published", {"optimizer": "lp"}),
    "eva_published-by-either": ("eva_published", {"optimizer": "auto"}),
    "hadar_published-that-moves-nobody": ("hadar_published", {"replan": "arrivals"}),
    "hadar_published-to-the-letter": (
        "hadar_published",
        {"candidate": "cost", "refused": "ends"},
    ),
    "hadar_published-that-fills": (
        "hadar_published",
        {"order": "shortest", "utility": "slowdown", "refused": "fills"},
    ),
    "owl-with-a-profile": ("owl", {"profile": PAIRS, "least_throughput_ppm": 700_000}),
    "owl-that-moves-nothing": ("owl", {"profile": PAIRS, "migrate": False}),
    "stratus-that-clears-nothing": ("stratus", {"clear_below_percent": 0}),
    "stratus-that-clears-what-it-can": ("stratus", {"clear_below_percent": 100}),
}
"""Policies with other settings than their own."""
FEW = ("owl-with-a-profile", "stratus-that-clears-what-it-can")
"""Those of them that are tried with every change; the others are by `make explore`."""
ALIKE = (
    *("eva:spot_until_safety_net", "eva:uniform_progress", "eva:on_demand"),
    *("eva_published:full-only", "eva_published:partial-only", "eva_published:rp"),
    *("eva_published:single-task", "gavel:max-sum", "gavel:makespan", "gavel:max-min"),
    *("slearn:fifo", "slearn:las"),
    *("slearn:3sigma", "slearn:3sigma-dag", "slearn:3sigma-tl", "slearn:las-dag"),
    *("slearn:oracle", "slearn:point", "slearn:point-dag", "slearn:slearn-dag"),
)
"""Presets that plan as another does, from other estimates at most, or as half of another; by `make
explore`, too."""
ROOMY = 1_000
"""Slots of policies that have no more than these, however much waits: enough for everybody here."""


class TestPolicies(PolicySuite):
    variants: ClassVar[Mapping[str, Variant]] = {
        **{
            name: it
            for kind in KINDS.values()
            for name, it in variants_of(kind).items()
            if NEW or name not in ALIKE
        },
        **{
            f"cloudcoaster:{preset}": Variant(KINDS["cloudcoaster"], {**options, "slots": ROOMY})
            for preset, options in PRESETS.items()
        },
        **{name: Variant(KINDS[name], options) for name, options in BOUNDED.items()},
        **{
            name: Variant(KINDS[of], options)
            for name, (of, options) in MORE.items()
            if NEW or name in FEW
        },
    }


def test_every_policy_is_named_as_its_package() -> None:
    assert {name: kind.name for name, kind in KINDS.items()} == {name: name for name in KINDS}
