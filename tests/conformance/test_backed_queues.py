"""The suite that every policy passes, over the queues of SLearn with other policies behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from eva_master.app.policy_registry import policies
from eva_master.ports import Policy, PolicyKind
from eva_master.testing.policy_suite import PolicySuite, Variant, variants_of
from eva_policies.slearn import POLICY
from tests.drawing import NEW


@dataclass(frozen=True, slots=True)
class Config:
    """The options.

    Attributes:
        back: The policy behind; `eva` itself, whose search takes long, is by `make explore`.
        estimator: That of the queues.
        explained: Whether both give reasons.
    """

    back: str = "eva" if NEW else "eva_published"
    estimator: str = "posterior"
    explained: bool = True


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "las+no_packing": {"estimator": "las", "back": "no_packing"},
    **(
        {
            "pilots+stratus": {"estimator": "pilots", "back": "stratus"},
            "fifo+synergy": {"estimator": "fifo", "back": "synergy"},
            "posterior+eva_published": {"back": "eva_published"},
        }
        if NEW
        else {}
    ),
}


def _build(config: Config) -> Policy:
    """Make the two policies."""
    kind = policies()[config.back]
    known = {option.name for option in fields(kind.config)}
    options = {"explained": config.explained} if "explained" in known else {}
    own = POLICY.config(estimator=config.estimator, explained=config.explained)
    return POLICY.backed(own, kind.build(kind.config(**options)))


KIND = PolicyKind(name="slearn", config=Config, build=_build, presets=PRESETS)
"""SLearn with another policy behind it, as the suite wants it."""


class TestBackedQueues(PolicySuite):
    variants: ClassVar[Mapping[str, Variant]] = variants_of(KIND)
