"""The suite that every policy passes, over policies in front of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from eva_master.app.policy_registry import policies
from eva_master.model.planning.job_view import JobView
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy, PolicyKind
from eva_master.testing.policy_suite import PolicySuite, Variant, variants_of
from tests.conformance.bounded import BOUNDED
from tests.drawing import NEW

FEW = ("split:plain", "split:that-shares")
"""Those that are tried with every change; the others are by `make explore`."""


@dataclass(frozen=True, slots=True)
class Config:
    """The options.

    Attributes:
        front: The policy of every other job.
        back: That of the rest.
        explained: Whether both give reasons.
    """

    front: str = "stratus"
    back: str = "eva"
    explained: bool = True


def _every_other(job: JobView) -> bool:
    return sum(job.id.encode()) % 2 == 0


def _made(name: str, *, explained: bool) -> Policy:
    kind = policies()[name]
    known = {option.name for option in fields(kind.config)}
    options: dict[str, Any] = dict(BOUNDED.get(name, {}))
    return kind.build(
        kind.config(**options, **({"explained": explained} if "explained" in known else {}))
    )


class _Named(Splitter):
    name = "split"


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"front": "no_packing", "back": "synergy"},
    "packed-first": {"front": "eva", "back": "no_packing"},
    "published": {"front": "no_packing", "back": "eva_published"},
    "that-shares": {"front": "cloudcoaster", "back": "eva"},
}


def _build(config: Config) -> Policy:
    """Make the two policies."""
    front, back = (_made(name, explained=config.explained) for name in (config.front, config.back))
    return _Named(front, back, _every_other, shares=policies()[config.front].shares)


KIND = PolicyKind(name="split", config=Config, build=_build, presets=PRESETS)
"""A splitter, as the suite wants it."""


class TestSplitter(PolicySuite):
    variants: ClassVar[Mapping[str, Variant]] = {
        name: it for name, it in variants_of(KIND).items() if NEW or name in FEW
    }
