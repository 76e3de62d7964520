"""Partitions for simulations, from a master's settings or from an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eva_lab.runs import Chosen, Division, prepared
from eva_lab.simulator.run import Setup
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection, PolicySection
from eva_master.app.sections.building import backed, config_of
from eva_master.app.sections.partitions import (
    MOST_PARTITIONS,
    PartitionName,
    PartitionSection,
    contradictions,
    unsold,
)
from eva_master.app.sections.policies import leaves_order, led_by, policy_problems, shown
from eva_master.app.sections.tenants import (
    SimulatedTenantSection,
    SimulatedTenantSections,
    tenancy,
    unfounded,
)
from eva_master.control.settings import PATIENCE_MS
from eva_master.model.fleet.partitions import with_nodes
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.text import yamlfile
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import InvalidConfig, Problem

Sections = Annotated[
    dict[PartitionName, PartitionSection], Field(min_length=1, max_length=MOST_PARTITIONS)
]


_Model = TypeVar("_Model", bound=BaseModel)


class _File(BaseModel):
    """A file of partitions; it may be a master's settings, whose other keys are of no interest."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    partitions: Sections


def read_partitions(file: Path, setup: Setup) -> dict[str, PartitionSection]:
    """The partitions of a master's settings.

    Args:
        file: With ``partitions:``.
        setup: Has catalog and nodes.

    Raises:
        InvalidConfig: The file cannot be read or is wrong; carries line and key of each problem.
    """
    document = yamlfile.read(file)
    sections = _valid(file, document, _File).partitions
    if problems := problems_of(sections, document, setup):
        raise yamlfile.invalid(InvalidConfig, str(file), problems)
    return sections


def _valid(file: Path, document: Document, model: type[_Model]) -> _Model:
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        problems = yamlfile.problems_of(error, document, model)
        raise yamlfile.invalid(InvalidConfig, str(file), problems) from error


class _TenantsFile(BaseModel):
    """A file of tenants, likewise."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    tenants: SimulatedTenantSections


def with_tenants(sections: Mapping[str, SimulatedTenantSection], setup: Setup) -> Setup:
    """A setup in which tenants may have only so much.

    Args:
        sections: By name.
        setup: Has catalog and nodes.

    Raises:
        InvalidConfig: There are not so many GPUs.
    """
    for path, message, hint in unfounded(sections, setup.offered):
        raise InvalidConfig(f"{'.'.join(map(str, path))}: {message}", hint=hint)
    return replace(setup, tenancy=tenancy(sections))


def read_tenants(file: Path, setup: Setup) -> Setup:
    """A setup with the quotas and budgets of a master's settings.

    Args:
        file: With ``tenants:``.
        setup: Has catalog and nodes.

    Raises:
        InvalidConfig: The file cannot be read or is wrong; carries line and key of each problem.
    """
    return with_tenants(_valid(file, yamlfile.read(file), _TenantsFile).tenants, setup)


def problems_of(
    sections: Mapping[str, PartitionSection], document: Document, setup: Setup | None = None
) -> list[Problem]:
    """Problems of simulated partitions; tenants are those of the trace.

    Args:
        sections: By name.
        document: Where they are.
        setup: Has catalog and nodes; without it, what is sold is not looked at.
    """
    tenants = {
        name
        for section in sections.values()
        for name in (section.rule and section.rule.tenants) or ()
    }
    nodes = {} if setup is None else {node.name: node.offering.id for node in setup.nodes}
    complaints = [*contradictions(sections, tuple(tenants), nodes)]
    if setup is not None and not complaints:
        complaints = [*unsold(sections, setup.catalog, nodes)]
    problems = [document.problem(path, message, hint) for path, message, hint in complaints]
    for name, section in sections.items():
        if section.policy is not None:
            path = ("partitions", name, "policy")
            problems += policy_problems(path, section.policy, policies(), document)
    return problems


def division(sections: Mapping[str, PartitionSection]) -> Division:
    """Divides the cluster of a setup; partitions that name no policy have the setup's.

    Args:
        sections: By name; not contradictory.
    """

    def divide(setup: Setup, rhythm: int | None) -> Setup:
        own: dict[str, Policy] = {}
        patience: dict[str, int] = {}
        parts = []
        for name, section in sections.items():
            gap, policy_name = setup.round_gap_s, setup.policy.name
            if section.policy is not None:
                own[name], gap = policy_of(section.policy, setup)
                policy_name = shown(section.policy)
            gap = gap if rhythm is None else rhythm
            patient = bool(setup.patience)
            if section.policy is not None:
                patient = leaves_order(section.policy)
            if patient:
                patience[name] = PATIENCE_MS
            part = section.partition(name, policy_name, (gap or 0) * 1000)
            if section.policy is None:
                part = part.led_like(setup.partitions.whole)
            else:
                part = led_by(part, section.policy)
            parts.append(part)
        nodes = {node.name: node.offering.id for node in setup.nodes}
        divided = with_nodes(parts, nodes)
        return replace(setup, partitions=divided, policies=own, patience=patience)

    return divide


def policy_of(section: PolicySection, setup: Setup) -> tuple[Policy, int | None]:
    """The policy of a section, and at multiples of how many seconds it plans; `None` for any time.

    Args:
        section: On a policy and those in front of it and behind it.
        setup: Setup of the simulation.
    """
    back, gap = _one(section, setup)
    if section.back is not None:
        behind, gap = _one(section.back, setup)
        kind = policies()[section.name]
        options = {"explained": False, **section.options}  # as in `prepared`
        config = config_of(kind, section.preset, options)
        back = backed(kind, config, behind)
    if section.short is None:
        return back, gap
    front, other = _one(section.short, setup)
    shares = policies()[section.short.name].shares
    splitter = Splitter.of_short(front, back, section.short.below, shares=shares)
    return splitter, gcd(gap, other) if gap and other else None


def _one(section: OnePolicySection, setup: Setup) -> tuple[Policy, int | None]:
    name = f"{section.name}:{section.preset}" if section.preset else section.name
    made = prepared(Chosen(name, section.options), setup)
    return made.policy, made.round_gap_s
