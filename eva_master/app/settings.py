"""The master's settings, gathered and checked: file < environment < flag."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import create_model

from eva_master.adapters.resolving.inputs import InputPlace, InputRoots
from eva_master.app.clouds import cloud_of, clouds
from eva_master.app.config import (
    MasterConfig,
)
from eva_master.app.nodes.settings import clashes, contradictions, owned_nodes, short_fences
from eva_master.app.sections.base import POLICY_OF_TENANTS, PolicySection
from eva_master.app.sections.notify import called_alike
from eva_master.app.sections.partitions import contradictions as contradicting_partitions
from eva_master.app.sections.partitions import unsold
from eva_master.app.sections.policies import live_problems
from eva_master.app.sections.tenants import twice, unfounded
from eva_master.model.fleet.nodes import offerings
from eva_master.model.planning.suspension import Preemption
from eva_master.ports import PolicyKind
from eva_wire.settings.layers import Layers
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem


@cache
def master_model() -> type[MasterConfig]:
    """The master's settings with a section for every cloud."""
    names = tuple(clouds())
    sections: dict[str, Any] = {name: cloud.section() for name, cloud in clouds().items()}
    # A type made of values is no type to a checker.
    choice: Any = Literal[names]
    return create_model("MasterConfig", __base__=MasterConfig, cloud=(choice, "local"), **sections)


def load_master_config(
    *,
    policies: Mapping[str, PolicyKind],
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    environment: bool = True,
) -> MasterConfig:
    """Gather the master's settings.

    Args:
        policies: Values of `policy.name`; `policy.options` is checked against the policy's config.
        file: A settings file, `None` for none.
        flags: Nested settings that override file and environment.
        defaults: Nested settings that file and environment override.
        environment: Whether this process's variables count: not for a master elsewhere.

    Raises:
        InvalidConfig: With every problem that was found, each with line and key, variable or
            flag.
    """
    layers = Layers(
        master_model(),
        file=file,
        flags=flags or {},
        defaults=defaults or {},
        environment=environment,
    )
    if environment:
        layers.refuse_unknown_variables()
    config = _with_policy(layers.settings())
    problems = live_problems(("policy",), config.policy, policies, layers.document)
    problems += _cloud_problems(config, layers.document)
    problems += _input_problems(config, layers.document)
    problems += _tenant_problems(config, layers.document)
    problems += _priority_problems(config, layers.document)
    problems += _node_problems(config, layers.document)
    problems += _partition_problems(config, policies, layers.document)
    problems += [layers.document.problem(*complaint) for complaint in called_alike(config.notify)]
    if problems:
        raise layers.invalid(problems)
    return config


def _with_policy(config: MasterConfig) -> MasterConfig:
    """The settings with the policy for tenants, if they name none and it is the one to have.

    That is so where there are nodes of theirs alone, and tenants with quotas.
    """
    quotas = any(section.quota is not None for section in config.tenants.values())
    if "policy" in config.model_fields_set or config.partitions or not config.nodes or not quotas:
        return config
    if cloud_of(config).catalog(config):
        return config
    return config.model_copy(update={"policy": PolicySection(name=POLICY_OF_TENANTS)})


def _priority_problems(config: MasterConfig, document: Document) -> list[Problem]:
    """Users who could have others' jobs suspended at will, and what has no effect."""
    if config.preemption_across and config.preemption is Preemption.NEVER:
        return [
            document.problem(
                ("preemption_across",),
                "no job has any other suspended, so none does across partitions",
                "add `preemption: suspend`, or leave it out",
            )
        ]
    if config.preemption is Preemption.NEVER or config.limits.priority is not None:
        return []
    return [
        document.problem(
            ("preemption",),
            "any user could suspend everybody's jobs by the priority of their own",
            "say which priority users may state at most, such as 0 in limits.priority; operators "
            "may state any",
        )
    ]


def _cloud_problems(config: MasterConfig, document: Document) -> list[Problem]:
    complaints = cloud_of(config).complaints(config)
    return [document.problem(path, message, hint) for path, message, hint in complaints]


def _node_problems(config: MasterConfig, document: Document) -> list[Problem]:
    complaints = [*contradictions(config.nodes), *short_fences(config.nodes, config.heartbeat)]
    if config.nodes and not complaints:
        complaints = clashes(config.nodes, cloud_of(config).catalog(config))
    return [document.problem(path, message, hint) for path, message, hint in complaints]


def _input_problems(config: MasterConfig, document: Document) -> list[Problem]:
    """Roots of inputs that have the master's own files, such as its keys."""
    ours = _place(config.state_dir)
    store = InputRoots(config.input_roots, config.objects_url).store_place
    problems = []
    for number, url in enumerate(config.input_roots):
        root = InputPlace.of(url)
        if root.scheme == "file":
            root = _place(Path("/", *root.names))
        if (root.covers(ours) or ours.covers(root)) and not (store and store.covers(root)):
            problems.append(
                document.problem(
                    ("input_roots", number),
                    f"{url} has the master's own files ({config.state_dir})",
                    "name directories that have only what every user may read",
                )
            )
    return problems


def _tenant_problems(config: MasterConfig, document: Document) -> list[Problem]:
    """Owners of two tenants, and quotas that are more than there is."""

    def where(path: tuple[str | int, ...]) -> str:
        mark = document.marks.get(path)
        return "" if mark is None else f" (line {mark.line})"

    complaints = [*twice(config.tenants, where)]
    if any(section.quota is not None for section in config.tenants.values()):
        nodes = offerings(owned_nodes(config.nodes).values())
        complaints += unfounded(config.tenants, (*cloud_of(config).catalog(config), *nodes))
    return [document.problem(path, message, hint) for path, message, hint in complaints]


def _partition_problems(
    config: MasterConfig, policies: Mapping[str, PolicyKind], document: Document
) -> list[Problem]:
    """Partitions that contradict each other, or cannot be as they are."""
    tenants, nodes = config.tenant_rules.names, owned_nodes(config.nodes)
    complaints = [*contradicting_partitions(config.partitions, tenants, nodes)]
    if config.partitions and not complaints:
        stand_for = {name: node.offering.id for name, node in nodes.items()}
        complaints = [*unsold(config.partitions, cloud_of(config).catalog(config), stand_for)]
    problems = [document.problem(path, message, hint) for path, message, hint in complaints]
    for name, section in config.partitions.items():
        if section.policy is not None:
            path = ("partitions", name, "policy")
            problems += live_problems(path, section.policy, policies, document)
    return problems


def _place(path: Path) -> InputPlace:
    return InputPlace("file", "", path.resolve().parts[1:])
