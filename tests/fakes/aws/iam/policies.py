"""Policy documents and what they allow, by AWS's evaluation logic.

An explicit denial wins over what is allowed, and what nothing allows is denied:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html.
Operators and parts of statements that are not known here are errors, so that no policy passes a
test unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_PARTS = {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}
_ALL = "ForAllValues:"
_KEY_SEPARATOR = ":"


class Unsupported(Exception):
    """A policy has something that the stand-in does not know."""


@dataclass(frozen=True)
class Demand:
    """Something that a call needs.

    Attributes:
        action: As in a policy, such as ``ec2:RunInstances``.
        resource: An ARN; ``*`` for actions without one.
        context: Values of condition keys; their names do not depend on case.
    """

    action: str
    resource: str
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def values(self, key: str) -> Sequence[str]:
        """Values of a condition key; none if it is absent."""
        return {name.lower(): values for name, values in self.context.items()}.get(key.lower(), ())


def allowed(documents: Iterable[Mapping[str, Any]], demand: Demand) -> bool:
    """Whether policies allow something.

    Args:
        documents: Policies of the caller and of the resource.
        demand: The permission that is asked for.

    Raises:
        Unsupported: A statement has an operator, a variable or a part that is not known here,
            whether or not it matters to this demand.
    """
    statements = [s for document in documents for s in _listed(document["Statement"])]
    for statement in statements:
        _check(statement)
    effects = [s["Effect"] for s in statements if _applies(s, demand)]
    return "Deny" not in effects and "Allow" in effects


def _check(statement: Mapping[str, Any]) -> None:
    if strange := statement.keys() - _PARTS:
        raise Unsupported(f"parts of a statement: {sorted(strange)}")
    if statement["Effect"] not in ("Allow", "Deny"):
        raise Unsupported(f"Effect: {statement['Effect']}")
    for operator, keys in statement.get("Condition", {}).items():
        if operator.removeprefix(_ALL) not in _OPERATORS:
            raise Unsupported(f"operator {operator}")
        values = [str(value) for each in keys.values() for value in _listed(each)]
        if any("${" in value for value in values):
            raise Unsupported(f"a variable: {values}")
    if any("${" in str(pattern) for pattern in _listed(statement["Resource"])):
        raise Unsupported(f"a variable: {statement['Resource']}")


def _applies(statement: Mapping[str, Any], demand: Demand) -> bool:
    # Actions do not depend on case, and resources do.
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_action.html
    return (
        any(_like(name.lower(), demand.action.lower()) for name in _listed(statement["Action"]))
        and any(_resembles(arn, demand.resource) for arn in _listed(statement["Resource"]))
        and all(
            _holds(operator, key, _listed(wanted), demand)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: Sequence[Any], demand: Demand) -> bool:
    """Whether a condition holds. A key that is absent fails it, but for ForAllValues.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
    """
    matches = _OPERATORS[operator.removeprefix(_ALL)]
    values = demand.values(key)
    one_of = [any(matches(_text(pattern), value) for pattern in wanted) for value in values]
    if operator.startswith(_ALL):
        return all(one_of)
    return any(one_of)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _like(pattern: str, text: str) -> bool:
    """``*`` stands for any characters and ``?`` for one."""
    expression = "".join(
        {"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern
    )
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _resembles(pattern: str, resource: str) -> bool:
    """In a Resource a wildcard may reach over the colons of an ARN's last part alone."""
    if pattern == "*":
        return True
    return _arn_like(pattern, resource)


def _arn_like(pattern: str, arn: str) -> bool:
    """Each of the six parts is compared alone.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
    """
    parts, others = pattern.split(_KEY_SEPARATOR, 5), arn.split(_KEY_SEPARATOR, 5)
    return len(parts) == len(others) and all(map(_like, parts, others))


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringLike": _like,
    "ArnLike": _arn_like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
