"""Makes policies of their names and options; the planner's process imports little more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from eva_master.app.policy_registry import current_name, policies
from eva_master.packing.claims.asking import KeepsClaims
from eva_master.packing.elastic import fixed
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy, PolicyKind

if TYPE_CHECKING:
    from eva_master.app.sections.base import PolicySection


def config_of(kind: PolicyKind, preset: str | None, options: Mapping[str, Any]) -> Any:
    """The config of a policy.

    Args:
        kind: The policy.
        preset: Its options are under those given; `None` or empty for none.
        options: By their names of today or of earlier.

    Raises:
        pydantic.ValidationError: An option has a wrong type or value.
    """
    chosen = presets_of(kind).get(preset or "", {})
    return TypeAdapter(kind.config).validate_python({**chosen, **current_options(kind, options)})


def presets_of(kind: PolicyKind) -> Mapping[str, Mapping[str, Any]]:
    """A policy's named choices of options; it need not have any."""
    return getattr(kind, "presets", {})


def current_options(kind: PolicyKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's options by their names of today; settings may use an earlier name of one."""
    renamed: Mapping[str, str] = getattr(kind, "renamed_options", {})
    return {renamed.get(name, name): value for name, value in options.items()}


def shares(kind: PolicyKind) -> bool:
    """Whether a policy says that its tasks may use instances of the one that it stands before."""
    return bool(getattr(kind, "shares", False))


def lends(kind: PolicyKind) -> bool:
    """Whether a policy lends to tenants what others leave, and sees to quotas itself."""
    return bool(getattr(kind, "lends", False))


def packs(kind: PolicyKind) -> bool:
    """Whether a policy may put several tasks on one instance."""
    return bool(getattr(kind, "packs", True))


def all_pack(section: PolicySection) -> bool:
    """Whether all policies of a section do."""
    return all(packs(policies()[it.name]) for _, it in section.parts)


def may_be_greedy(section: PolicySection) -> bool:
    """Whether a greedy pass may plan in place of a section's policy that finds no plan in time.

    Not for policies that give each task an instance of its own, nor for those that state pools and
    lines: what a plan does not state again is given up.
    """
    alone = section.short is None and section.back is None and all_pack(section)
    kinds = (policies()[it.name] for _, it in section.parts)
    return alone and not any(getattr(kind, "gives_lines", False) for kind in kinds)


def all_lend(section: PolicySection) -> bool:
    """Whether all policies of a section do."""
    return all(lends(policies()[it.name]) for _, it in section.parts)


def build_policy(name: str, options: Mapping[str, Any]) -> Policy:
    """Make a policy from its section of the configuration; the planner's process calls this.

    Args:
        name: ``NAME`` or ``NAME:PRESET``.
        options: Over those of the preset.
    """
    stated, _, preset = name.partition(":")
    name, chosen = current_name(stated, preset or None)
    kind = policies()[name]
    return fixed.built(kind, config_of(kind, chosen, options))


def build_backed(name: str, options: Mapping[str, Any]) -> Policy:  # noqa: ARG001
    """Make a policy with another one behind it, likewise.

    Args:
        name: Of both, as users see it.
        options: See `policies.source`.
    """
    stated, chosen = options["first"]
    first, _, preset = stated.partition(":")
    kind = policies()[current_name(first, preset or None)[0]]
    return backed(kind, config_of(kind, preset or None, chosen), build_policy(*options["behind"]))


def backed(kind: PolicyKind, config: Any, back: Policy) -> Policy:
    """A policy that has another one buy and pack instances for it; sizes of gangs are fixed.

    Args:
        kind: The policy.
        config: Its options.
        back: The other one.
    """
    made: Policy = kind.backed(config, back)  # type: ignore[attr-defined]
    return KeepsClaims(fixed.FixedSizes(made))


def takes_back(kind: PolicyKind) -> bool:
    """Whether a policy can have another one buy and pack instances for it."""
    return hasattr(kind, "backed")


def can_be_back(kind: PolicyKind) -> bool:
    """Whether a policy can buy and pack instances for another one."""
    return not getattr(kind, "gives_lines", False)


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
    sharing = shares(policies()[of_front])
    return Splitter.of_short(front, back, options["below_ms"], shares=sharing)
