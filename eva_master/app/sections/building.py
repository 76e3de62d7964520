"""Makes policies of their names and options; the planner's process imports little more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from eva_master.app.policy_registry import policies
from eva_master.packing.claims.asking import KeepsClaims
from eva_master.packing.elastic import fixed
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy, PolicyKind

if TYPE_CHECKING:
    from eva_master.app.sections.base import OnePolicySection, PolicySection

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""By the class of a config, what checks options by the types of its fields; it is slow to make."""


def config_of(kind: PolicyKind, preset: str | None, options: Mapping[str, Any]) -> Any:
    """The config of a policy.

    Args:
        kind: The policy.
        preset: Its options are under those given; `None` or empty for none.
        options: Over those of the preset.

    Raises:
        pydantic.ValidationError: An option has a wrong type or value.
    """
    chosen = kind.presets.get(preset or "", {})
    return _adapter(kind.config).validate_python({**chosen, **options})


def policy_config(section: OnePolicySection, kind: PolicyKind) -> Any:
    """The config of a policy, made of its preset and options.

    Raises:
        pydantic.ValidationError: An option has a wrong type; never after `load_master_config`.
    """
    return config_of(kind, section.preset, section.options)


def all_pack(section: PolicySection) -> bool:
    """Whether all policies of a section may put several tasks on one instance."""
    return all(policies()[part.name].packs for _, part in section.parts)


def may_be_greedy(section: PolicySection) -> bool:
    """Whether a greedy pass may plan in place of a section's policy that finds no plan in time.

    Not for policies that give each task an instance of its own, nor for those that state pools and
    lines: what a plan does not state again is given up.
    """
    alone = section.short is None and section.back is None and all_pack(section)
    return alone and not any(policies()[part.name].gives_lines for _, part in section.parts)


def all_lend(section: PolicySection) -> bool:
    """Whether all policies of a section answer for quotas of tenants themselves."""
    return all(policies()[part.name].lends for _, part in section.parts)


def build_policy(name: str, options: Mapping[str, Any]) -> Policy:
    """Make a policy from its section of the configuration; the planner's process calls this.

    Args:
        name: ``NAME`` or ``NAME:PRESET``.
        options: Over those of the preset.
    """
    policy, _, preset = name.partition(":")
    kind = policies()[policy]
    return fixed.built(kind, config_of(kind, preset, options))


def build_backed(name: str, options: Mapping[str, Any]) -> Policy:  # noqa: ARG001
    """Make a policy with another one behind it, likewise.

    Args:
        name: Of both, as users see it.
        options: See `policies.source`.
    """
    stated, chosen = options["first"]
    first, _, preset = stated.partition(":")
    kind = policies()[first]
    return backed(kind, config_of(kind, preset or None, chosen), build_policy(*options["behind"]))


def backed(kind: PolicyKind, config: Any, back: Policy) -> Policy:
    """A policy that has another one buy and pack instances for it; sizes of gangs are fixed.

    Args:
        kind: The policy; it can have another one behind it.
        config: Its options.
        back: The other one.
    """
    assert kind.backed is not None
    return KeepsClaims(fixed.FixedSizes(kind.backed(config, back)))


def build_splitter(name: str, options: Mapping[str, Any]) -> Policy:  # noqa: ARG001
    """Make a policy for short jobs in front of another one, likewise.

    Args:
        name: Of both, as users see it.
        options: See `policies.source`.
    """
    front = build_policy(*options["front"])
    if "behind" in options:
        pair = {"first": options["back"], "behind": options["behind"]}
        back = build_backed(options["back"][0], pair)
    else:
        back = build_policy(*options["back"])
    of_front, _, _ = options["front"][0].partition(":")
    shares = policies()[of_front].shares
    return Splitter.of_short(front, back, options["below_ms"], shares=shares)
