"""CloudFormation's templates: read, and with their functions worked out."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

NOTHING = object()
"""The value of a property that is left out."""
_NAMED = re.compile(r"\$\{([^!}][^}]*)\}")


class _Loader(yaml.CSafeLoader):
    """Reads the short forms of functions; templates are read often."""


def _short(loader: _Loader, suffix: str, node: yaml.Node) -> Any:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    return {name: value}


_Loader.add_multi_constructor("!", _short)


def parsed(text: str) -> dict[str, Any]:
    """Read a template."""
    document: dict[str, Any] = yaml.load(text, Loader=_Loader)
    return document


@dataclass
class Scope:
    """Values of names.

    Attributes:
        values: Of parameters and pseudo parameters.
        made: Name and attributes of each resource that is there, by its name in the template.
        zones: Of the region.
    """

    values: Mapping[str, str]
    made: Mapping[str, tuple[str, Mapping[str, str]]]
    zones: list[str]
    conditions: Mapping[str, bool] = field(default_factory=dict)

    def ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NOTHING
        if name in self.values:
            return self.values[name]
        return self.made[name][0] if name in self.made else f"<{name}>"

    def att(self, name: str, attribute: str) -> str:
        if name not in self.made:
            return f"<{name}.{attribute}>"
        return self.made[name][1].get(attribute, f"{self.made[name][0]}.{attribute}")


def conditions(declared: Mapping[str, Any], scope: Scope) -> dict[str, bool]:
    """Which conditions of a template hold."""
    scope.conditions = {}
    known: dict[str, bool] = {}
    scope.conditions = known
    for name in declared:  # A template states them in order here.
        known[name] = bool(evaluated(declared[name], scope))
    return known


def evaluated(value: Any, scope: Scope) -> Any:
    """A value with its functions worked out."""
    if isinstance(value, list):
        found = [evaluated(it, scope) for it in value]
        return [it for it in found if it is not NOTHING]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, argument),) = value.items()
        if name == "Ref":
            return scope.ref(argument)
        if name == "Condition" and isinstance(argument, str):
            return scope.conditions[argument]
        if name.startswith("Fn::"):
            return _function(name.removeprefix("Fn::"), argument, scope)
    found = {key: evaluated(it, scope) for key, it in value.items()}
    return {key: it for key, it in found.items() if it is not NOTHING}


def _function(name: str, argument: Any, scope: Scope) -> Any:
    if name == "If":
        return evaluated(argument[1 if scope.conditions[argument[0]] else 2], scope)
    if name == "Sub":
        return _substituted(argument, scope)
    if name == "GetAZs":
        return scope.zones
    worked_out = evaluated(argument, scope)
    match name:
        case "GetAtt":
            return scope.att(*worked_out)
        case "Equals":
            return str(worked_out[0]) == str(worked_out[1])
        case "Not":
            return not worked_out[0]
        case "And":
            return all(worked_out)
        case "Or":
            return any(worked_out)
        case "Select":
            return worked_out[1][int(worked_out[0])]
        case "Join":
            return worked_out[0].join(map(str, worked_out[1]))
        case "Base64":
            return base64.b64encode(worked_out.encode()).decode()
    raise NotImplementedError(name)


def _substituted(argument: Any, scope: Scope) -> str:
    text, own = (argument, {}) if isinstance(argument, str) else argument
    own = {key: evaluated(it, scope) for key, it in own.items()}

    def named(match: re.Match[str]) -> str:
        name = match[1]
        if name in own:
            return str(own[name])
        first, dot, rest = name.partition(".")
        return scope.att(first, rest) if dot else str(scope.ref(name))

    return _NAMED.sub(named, text).replace("${!", "${")


def referred(value: Any) -> Iterator[tuple[str, str]]:
    """Names that a value refers to, with the attribute if it is one."""
    if isinstance(value, list):
        for it in value:
            yield from referred(it)
    elif isinstance(value, dict):
        for key, it in value.items():
            if key == "Ref":
                yield it, ""
            elif key == "Fn::GetAtt":
                yield it[0], it[1]
            elif key == "Fn::Sub":
                text = it if isinstance(it, str) else it[0]
                for name in _NAMED.findall(text):
                    yield name.partition(".")[0], name.partition(".")[2]
                yield from referred([] if isinstance(it, str) else it[1])
            else:
                yield from referred(it)
