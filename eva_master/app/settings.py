"""The master's settings, gathered and checked: file < environment < flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, create_model

from eva_master.adapters.jobfile.inputs import InputRoots, Place
from eva_master.adapters.text import yamlfile
from eva_master.adapters.text.yamlfile import Document
from eva_master.app.clouds import cloud_of, clouds
from eva_master.app.config import (
    MasterConfig,
    PolicySection,
    current_options,
    policy_config,
    presets_of,
)
from eva_master.app.layers import Layers
from eva_master.model.errors import Problem
from eva_master.ports import PolicyKind


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
) -> MasterConfig:
    """Gather the master's settings.

    Args:
        policies: What `policy.name` may be; `policy.options` is checked against its config.
        file: A settings file, `None` for none.
        flags: Nested settings that override file and environment.
        defaults: Nested settings that file and environment override.

    Raises:
        InvalidConfig: With every problem that was found, each with line and key, variable or
            flag.
    """
    layers = Layers(master_model(), file=file, flags=flags or {}, defaults=defaults or {})
    layers.refuse_unknown_variables()
    config = layers.settings()
    problems = _policy_problems(config.policy, policies, layers.document)
    problems += _cloud_problems(config, layers.document)
    problems += _input_problems(config, layers.document)
    if problems:
        raise layers.invalid(problems)
    return config


def _cloud_problems(config: MasterConfig, document: Document) -> list[Problem]:
    found = cloud_of(config).complaints(config)
    return [document.problem(path, message, hint) for path, message, hint in found]


def _input_problems(config: MasterConfig, document: Document) -> list[Problem]:
    """Roots of inputs that have the master's own files, such as its keys."""
    ours = _place(config.state_dir)
    store = InputRoots(config.input_roots, config.objects_url).store_place
    problems = []
    for number, url in enumerate(config.input_roots):
        root = Place.of(url)
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


def _place(path: Path) -> Place:
    return Place("file", "", path.resolve().parts[1:])


def _policy_problems(
    section: PolicySection, policies: Mapping[str, PolicyKind], document: Document
) -> list[Problem]:
    kind = policies.get(section.name)
    if kind is None:
        known = sorted(policies)
        hint = yamlfile.suggestion(section.name, known) or f"known: {', '.join(known)}"
        return [document.problem(("policy", "name"), f"no policy {section.name!r}", hint)]
    presets = sorted(presets_of(kind))
    if section.preset is not None and section.preset not in presets:
        hint = yamlfile.suggestion(section.preset, presets)
        hint = hint or f"known: {', '.join(presets) or 'none'}"
        message = f"policy {section.name!r} has no preset {section.preset!r}"
        return [document.problem(("policy", "preset"), message, hint)]
    known = [option.name for option in fields(kind.config)]
    problems = [
        document.problem(
            ("policy", "options", name),
            f"policy {section.name!r} has no option {name!r}",
            yamlfile.suggestion(name, known) or f"known: {', '.join(known) or 'none'}",
        )
        for name in section.options
        if current_options(kind, {name: None}).keys().isdisjoint(known)
    ]
    try:
        policy_config(section, kind)
    except ValidationError as failure:
        written = {
            next(iter(current_options(kind, {name: None}))): name for name in section.options
        }
        for details in failure.errors(include_url=False):
            option, *rest = details["loc"]
            path = ("policy", "options", written.get(str(option), option), *rest)
            problems.append(document.problem(path, details["msg"]))
    return problems
