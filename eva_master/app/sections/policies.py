"""Values of the settings' sections on policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from math import gcd
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection, PolicySection
from eva_master.app.sections.building import (
    all_lend,
    all_pack,
    build_backed,
    build_policy,
    build_splitter,
    policy_config,
)
from eva_master.model.catalog import Catalog
from eva_master.model.fleet.forking import Forking
from eva_master.model.fleet.job_keys import LATENCY, SIZES, KeysRead
from eva_master.model.fleet.partitions import Partition
from eva_master.model.option_types import Contradiction
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.ports import Policy, PolicyKind
from eva_wire.text import yamlfile
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.errors import Problem

if TYPE_CHECKING:
    from eva_master.app.config import MasterConfig


def estimates_of(
    kind: PolicyKind, config: Any, default: Estimates = Estimates.POSTERIOR
) -> Estimates:
    """The source of run times that a policy wants, where that is left to it.

    Args:
        kind: The policy.
        config: Its options.
        default: For one that does not mind.
    """
    return kind.estimates(config) or default


def asked_by(section: OnePolicySection) -> Estimates | None:
    """The source of run times that a section's policy wants; `None` without a preference."""
    kind, config = _configured(section)
    return kind.estimates(config)


def spot_choice_by(section: OnePolicySection) -> SpotChoice | None:
    """The spot choice that a section's policy wants; `None` without a preference."""
    kind, config = _configured(section)
    return kind.spot_choice(config)


def forking_by(section: OnePolicySection) -> Forking | None:
    """How the policy of a section has jobs forked; `None` if that is left to their users."""
    kind, config = _configured(section)
    return kind.forking(config)


def keys_read(section: PolicySection) -> KeysRead | None:
    """Keys of a job file that policies of a section read; `None` if one of them does not say."""
    keys = set[str]()
    for _, part in section.parts:
        kind, config = _configured(part)
        declared = kind.reads(config)
        if declared is None:
            return None
        keys.update(declared)
    if section.short is not None:
        keys.add(LATENCY)
    resizing = [section.short] if section.back is not None else [section.short, section]
    if any(policies()[part.name].elastic for part in resizing if part is not None):
        keys.add(SIZES)
    return KeysRead(shown(section), frozenset(keys))


def led_by(partition: Partition, section: PolicySection) -> Partition:
    """A partition with all that its policies make of jobs, in a master and in a simulation."""
    return replace(
        partition,
        short=section.short_jobs,
        forking=forking_by(section),
        keys=keys_read(section),
        packs=all_pack(section),
        own_order=not leaves_order(section),
        lends=all_lend(section),
    )


def _configured(section: OnePolicySection) -> tuple[PolicyKind, Any]:
    """The policy of a section, and its config."""
    kind = policies()[section.name]
    return kind, policy_config(section, kind)


def estimates_in(config: MasterConfig) -> Estimates:
    """The source of a master's run times.

    That is what its settings state, or else what the policy asks for where jobs go by default.
    """
    if config.estimates is not None:
        return config.estimates
    return asked_by(_usual(config)) or Estimates.POSTERIOR


def spot_choice_in(config: MasterConfig) -> SpotChoice:
    """The spot choice of a master: by its settings, or else as its policy asks."""
    if config.spot_choice is not None:
        return config.spot_choice
    return spot_choice_by(_usual(config)) or SpotChoice.LEARNED


def shown_settings(config: MasterConfig) -> dict[str, Any]:
    """All settings as they are shown, those included that were left to a policy."""
    asked = {"estimates": estimates_in(config), "spot_choice": spot_choice_in(config)}
    return {**config.shown(), **asked}


def _usual(config: MasterConfig) -> OnePolicySection:
    """The policy where jobs go by default."""
    usual = next((name for name, partition in config.partitions.items() if partition.default), None)
    return config.policy if usual is None else config.policy_sections[usual]


def estimate_doubts(section: PolicySection, used: Estimates) -> Iterator[str]:
    """Doubts about the source of run times, for the operator.

    Args:
        section: The policies.
        used: Source in use.
    """
    for _, part in section.parts:
        asked = asked_by(part)
        if asked not in (None, used):
            yield (
                f"the policy {part.name} asks for estimates: {asked}, and run times are estimated "
                f"from {used}: leave the setting `estimates` out, unless another partition needs it"
            )


def doubts(section: PolicySection, catalog: Catalog) -> Iterator[str]:
    """Doubts of the policies themselves, for the operator.

    Args:
        section: The policies.
        catalog: Offerings: those of the cloud, and owned nodes.
    """
    for _, part in section.parts:
        kind, config = _configured(part)
        yield from kind.doubts(config, catalog)


def source(section: PolicySection) -> tuple[dict[str, Any], str]:
    """The planner process' recipe of a policy: options, and the path of a function."""
    build, options = _made_by(section), section.options
    behind = {} if section.back is None else {"behind": _spec(section.back)}
    if section.short is not None:
        options = {
            "front": _spec(section.short),
            "back": _spec(section),
            "below_ms": section.short.below,
            **behind,
        }
    elif behind:
        options = {"first": _spec(section), **behind}
    return options, f"{build.__module__}:{build.__name__}"


def _made_by(section: PolicySection) -> Callable[[str, Mapping[str, Any]], Policy]:
    if section.short is not None:
        return build_splitter
    return build_policy if section.back is None else build_backed


def _spec(section: OnePolicySection) -> list[Any]:
    return [_named(section), section.options]


def built(section: PolicySection) -> Policy:
    """Make the policy of a section in this process."""
    options, _ = source(section)
    return _made_by(section)(shown(section), options)


def leaves_order(section: OnePolicySection) -> bool:
    """Whether a policy leaves it to others who goes first: it gives no turns, lines or rounds."""
    kind = policies()[section.name]
    orders = kind.orders or kind.time_shares or kind.gives_lines
    return not orders and not _grid_ms(section)


def round_grid_ms(section: PolicySection) -> int:
    """At multiples of which time a policy likes to plan, 0 for whenever something happens."""
    grids = [_grid_ms(section if section.back is None else section.back)]
    if section.short is not None:
        grids.append(_grid_ms(section.short))
    return gcd(*grids) if all(grids) else 0


def _grid_ms(section: OnePolicySection) -> int:
    chosen = policy_config(section, policies()[section.name])
    return (getattr(chosen, "round_gap_s", None) or 0) * 1000


def shown(section: PolicySection) -> str:
    """``NAME`` or ``NAME:PRESET`` of each policy, those in front first, with a plus between."""
    sections = (section.short, section, section.back)
    return "+".join(_named(named) for named in sections if named is not None)


def _named(section: OnePolicySection) -> str:
    return f"{section.name}:{section.preset}" if section.preset else section.name


def policy_problems(
    path: Path,
    section: PolicySection,
    known: Mapping[str, PolicyKind],
    document: Document,
) -> list[Problem]:
    """Problems of a section on policies.

    Args:
        path: Where it is in the document.
        section: The section.
        known: All policies.
        document: The settings.
    """
    problems: list[Problem] = []
    for keys, part in section.parts:
        problems += _problems((*path, *keys), part, known, document)
    if section.back is not None and not problems and (why := back_problem(section, section.back)):
        problems.append(document.problem((*path, "back"), *why))
    return problems


def back_problem(section: OnePolicySection, back: OnePolicySection) -> tuple[str, str] | None:
    """Why a policy cannot be behind another one, and what to do; `None` if it can.

    Args:
        section: The one in front; it is known, as is the other one.
        back: The one behind.
    """
    kinds = policies()
    if kinds[section.name].backed is None:
        able = [name for name in kinds if kinds[name].backed is not None]
        return (
            f"policy {section.name!r} buys and packs instances itself",
            f"leave 'back' out, or have one of: {', '.join(able)}",
        )
    if kinds[back.name].gives_lines:
        able = [name for name in kinds if not kinds[name].gives_lines]
        return (
            f"policy {back.name!r} has lines that give its room away, whoever is to come first",
            f"have one of: {', '.join(able)}",
        )
    return None


def live_problems(
    path: Path,
    section: PolicySection,
    known: Mapping[str, PolicyKind],
    document: Document,
) -> list[Problem]:
    """Problems of a live master's section on policies, where run times are not known.

    Args:
        path: Where it is in the document.
        section: The section.
        known: All policies.
        document: The settings.
    """
    if problems := policy_problems(path, section, known, document):
        return problems
    problems = []
    for keys, part in section.parts:
        kind = known[part.name]
        for option, message, hint in kind.refusals(policy_config(part, kind)):
            place = _said_at((*path, *keys), option, part, document)
            problems.append(document.problem(place, f"policy {part.name!r}: {message}", hint))
    return problems


def _said_at(path: Path, option: str, section: OnePolicySection, document: Document) -> Path:
    """Where a section says what an option is: itself, or by its preset."""
    if option in section.options:
        return (*path, "options", option)
    preset = (*path, "preset")
    return preset if preset in document.marks else (*path, "name")


def _problems(
    path: Path,
    section: OnePolicySection,
    kinds: Mapping[str, PolicyKind],
    document: Document,
) -> list[Problem]:
    kind = kinds.get(section.name)
    if kind is None:
        names = sorted(kinds)
        hint = yamlfile.suggestion(section.name, names) or f"known: {', '.join(names)}"
        return [document.problem((*path, "name"), f"no policy {section.name!r}", hint)]
    presets = sorted(kind.presets)
    if section.preset is not None and section.preset not in presets:
        hint = yamlfile.suggestion(section.preset, presets)
        hint = hint or f"known: {', '.join(presets) or 'none'}"
        message = f"policy {section.name!r} has no preset {section.preset!r}"
        return [document.problem((*path, "preset"), message, hint)]
    names = [option.name for option in fields(kind.config)]
    problems = [
        document.problem(
            (*path, "options", name),
            f"policy {section.name!r} has no option {name!r}",
            yamlfile.suggestion(name, names) or f"known: {', '.join(names) or 'none'}",
        )
        for name in section.options
        if name not in names
    ]
    try:
        policy_config(section, kind)
    except ValidationError as failure:
        for details in failure.errors(include_url=False):
            option, *rest = details["loc"] or (_at_fault(details, section.options),)
            where = (*path, "options", *([option] if option else []), *rest)
            problems.append(document.problem(where, yamlfile.wording(details)))
    return problems


def _at_fault(details: ErrorDetails, stated: Mapping[str, Any]) -> str:
    """Which of the options that do not go together is to be another one, if it was stated."""
    failure = details.get("ctx", {}).get("error")
    option = failure.option if isinstance(failure, Contradiction) else ""
    return option if option in stated else ""
