"""CloudFormation as it is documented, where moto's is milder.

Parameters of Systems Manager are looked up again by every update. A replacement is created before
the original is deleted, so an interface or a volume that is in use is not to be had. Failed changes
are rolled back. Resources that the tests look at exist as moto's (`resources.py`); the rest is a
name.
"""

from __future__ import annotations

import copy
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.aws.iam.roles import Made
from tests.fakes.aws.intrinsics import NOTHING, Scope, conditions, evaluated, parsed, referred
from tests.fakes.aws.resources import IMMUTABLE, INTERRUPTS, Account, Failed

MOST_TEMPLATE_BYTES, MOST_VALUE_BYTES = 51_200, 4_096
_SSM = "AWS::SSM::Parameter::Value"


class Refused(Exception):
    """A call that CloudFormation does not take."""


@dataclass
class _Made:
    """A resource: what it is called, and what it was made of."""

    kind: str
    physical: str
    properties: Any
    attributes: dict[str, str]


@dataclass
class _Stack:
    name: str
    status: str
    template: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    made: dict[str, _Made] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    events: list[dict[str, str]] = field(default_factory=list)
    change_sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    under_way: tuple[int, str] = 0, ""

    @property
    def gone(self) -> bool:
        return self.status == "DELETE_COMPLETE"

    def tell(self, resource: str, status: str, reason: str = "") -> None:
        kind = self.template.get("Resources", {}).get(resource, {}).get("Type")
        made = self.made.get(resource)
        event = {
            "StackName": self.name,
            "LogicalResourceId": resource,
            "PhysicalResourceId": made.physical if made else "",
            "ResourceType": kind or "AWS::CloudFormation::Stack",
            "ResourceStatus": status,
            "ResourceStatusReason": reason,
            "Timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "EventId": str(len(self.events)),
            "StackId": self.name,
        }
        self.events.append(event)
        if kind:
            self.states[resource] = status, reason

    def become(self, status: str, reason: str = "") -> None:
        self.status = status
        self.tell(self.name, status, reason)


class Stacks:
    """All stacks of the account.

    Attributes:
        failing: By resource, why it can be neither made nor changed.
        looks: So many descriptions of a stack say that an operation is under way, after it began.
            Other changes are refused meanwhile, as AWS's page on stack status codes has it
            (https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html).
    """

    def __init__(self) -> None:
        self.looks = 0
        self._stacks: dict[str, _Stack] = {}
        self._account: Account | None = None
        self.failing: dict[str, str] = {}

    def answer(self, form: Mapping[str, str], account: Account) -> bytes:
        """The XML that answers a call; raises `Refused`."""
        self._account = account
        action = form["Action"]
        calls: dict[str, Callable[[Mapping[str, str]], Any]] = {
            "CreateChangeSet": self._create_change_set,
            "DescribeChangeSet": self._describe_change_set,
            "DeleteChangeSet": self._delete_change_set,
            "ExecuteChangeSet": self._execute_change_set,
            "DescribeStacks": self._describe_stacks,
            "ListStackResources": self._list_resources,
            "DescribeStackEvents": self._describe_events,
            "GetTemplateSummary": self._summary,
            "DeleteStack": self._delete_stack,
        }
        result = calls[action](form)
        body = _xml(result) if result is not None else ""
        return (
            f"<{action}Response xmlns='http://cloudformation.amazonaws.com/doc/2010-05-15/'>"
            f"<{action}Result>{body}</{action}Result>"
            f"<ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></{action}Response>"
        ).encode()

    def resources(self) -> list[Made]:
        """The resources of all stacks that are there."""
        return [
            Made(made.kind, made.physical, made.properties)
            for stack in self._stacks.copy().values()
            for made in stack.made.copy().values()
            if not stack.gone
        ]

    # -- looking ---------------------------------------------------------------------------------

    def _stack(self, name: str) -> _Stack:
        if name not in self._stacks or self._stacks[name].gone:
            raise Refused(f"Stack with id {name} does not exist")
        return self._stacks[name]

    def _describe_stacks(self, form: Mapping[str, str]) -> Any:
        wanted = form.get("StackName")
        found = [self._stack(wanted)] if wanted else list(self._stacks.values())
        for stack in found:
            looks, status = stack.under_way
            stack.under_way = max(0, looks - 1), status
            if looks:
                return {"Stacks": [{**_described(stack), "StackStatus": status}]}
        return {"Stacks": [_described(stack) for stack in found]}

    def _list_resources(self, form: Mapping[str, str]) -> Any:
        stack = self._stack(form["StackName"])
        return {
            "StackResourceSummaries": [
                {
                    "LogicalResourceId": name,
                    "PhysicalResourceId": stack.made[name].physical if name in stack.made else "",
                    "ResourceType": stack.template["Resources"].get(name, {}).get("Type", ""),
                    "ResourceStatus": status,
                    "LastUpdatedTimestamp": "2026-01-01T00:00:00Z",
                }
                for name, (status, _) in stack.states.items()
            ]
        }

    def _describe_events(self, form: Mapping[str, str]) -> Any:
        return {"StackEvents": self._stack(form["StackName"]).events[::-1]}

    def _summary(self, form: Mapping[str, str]) -> Any:
        template = parsed(form["TemplateBody"])
        return {
            "Parameters": [
                {
                    "ParameterKey": key,
                    "ParameterType": it["Type"],
                    **({"DefaultValue": str(it["Default"])} if "Default" in it else {}),
                }
                for key, it in template["Parameters"].items()
            ]
        }

    # -- change sets -----------------------------------------------------------------------------

    def _create_change_set(self, form: Mapping[str, str]) -> Any:
        name, update = form["StackName"], form["ChangeSetType"] == "UPDATE"
        if len(form["TemplateBody"].encode()) > MOST_TEMPLATE_BYTES:
            raise Refused("'templateBody' must have length less than or equal to 51200")
        if update:
            stack = self._stack(name)
            if stack.under_way[0]:
                raise Refused(
                    f"Stack:{name} is in {stack.under_way[1]} state and can not be updated."
                )
            if not stack.status.endswith("_COMPLETE") or stack.status == "ROLLBACK_COMPLETE":
                raise Refused(f"Stack:{name} is in {stack.status} state and can not be updated.")
        else:
            there = self._stacks.get(name)
            if there and not there.gone and there.status != "REVIEW_IN_PROGRESS":
                raise Refused(f"Stack [{name}] already exists and cannot be created again")
            stack = self._stacks[name] = _Stack(name, "REVIEW_IN_PROGRESS")
        template = parsed(form["TemplateBody"])
        parameters = self._parameters(form, template, stack)
        resolved = self._resolved(template, parameters)
        changes = self._changes(stack, template, resolved)
        change_set = {
            "template": template,
            "parameters": parameters,
            "resolved": resolved,
            "changes": changes,
        }
        key = f"arn:change-set/{form['ChangeSetName']}/{uuid.uuid4().hex}"
        stack.change_sets[key] = change_set
        return {"Id": key, "StackId": name}

    def _parameters(self, form: Mapping[str, str], template: Any, stack: _Stack) -> dict[str, str]:
        declared = template["Parameters"]
        found = {key: str(it["Default"]) for key, it in declared.items() if "Default" in it}
        for number in range(1, 1000):
            start = f"Parameters.member.{number}."
            if (key := form.get(f"{start}ParameterKey")) is None:
                break
            if key not in declared:
                raise Refused(f"Parameters: [{key}] do not exist in the template")
            if form.get(f"{start}UsePreviousValue") == "true":
                if key not in stack.parameters:
                    raise Refused(
                        f"Invalid input for parameter key {key}. Cannot specify "
                        "usePreviousValue as true for a parameter key not in the "
                        "previous template"
                    )
                found[key] = stack.parameters[key]
            else:
                found[key] = form[f"{start}ParameterValue"]
        if missing := declared.keys() - found.keys():
            raise Refused(f"Parameters: {sorted(missing)} must have values")
        for key, value in found.items():
            pattern = declared[key].get("AllowedPattern")
            if pattern and not re.fullmatch(pattern, value):
                raise Refused(f"Parameter {key} failed to satisfy constraint: {pattern}")
            if len(value.encode()) > MOST_VALUE_BYTES:
                raise Refused(f"Parameter {key} is longer than {MOST_VALUE_BYTES} bytes")
            allowed = declared[key].get("AllowedValues")
            if allowed and value not in map(str, allowed):
                raise Refused(f"Parameter '{key}' must be one of AllowedValues")
        return found

    def _resolved(self, template: Any, parameters: Mapping[str, str]) -> dict[str, str]:
        """Present values of parameters."""
        assert self._account
        return {
            key: self._account.look_up(value)
            if template["Parameters"][key]["Type"].startswith(_SSM)
            else value
            for key, value in parameters.items()
        }

    def _changes(self, stack: _Stack, template: Any, resolved: Mapping[str, str]) -> list[Any]:
        """Changes that would be made, by resource; `execute` works them out again with the present
        resources.
        """
        wanted = _wanted(template, self._scope(stack.name, template, resolved, stack.made))
        changes: list[Any] = []
        touched: dict[str, str] = {}
        for name in _in_order(template, wanted):
            kind = template["Resources"][name]["Type"]
            if name not in stack.made:
                changes.append(_change("Add", name, kind))
                continue
            there = stack.made[name]
            details = [
                (prop, "Static", _recreation(kind, prop))
                for prop in _differing(there.properties, wanted[name])
            ]
            properties = template["Resources"][name].get("Properties", {})
            for prop, value in properties.items():
                if any(touched.get(other) for other, _ in referred(value)) and prop not in {
                    it[0] for it in details
                }:
                    details.append((prop, "Dynamic", _recreation(kind, prop)))
            details = [it for it in details if it[1] == "Static" or it[2] == "Always"]
            if not details:
                continue
            replaced = "False"
            if any(recreation != "Never" for _, _, recreation in details):
                replaced = "Conditional"
            if any(it[1:] == ("Static", "Always") for it in details):
                replaced = "True"
            touched[name] = replaced
            changes.append(_change("Modify", name, kind, replaced, details))
        changes += [
            _change("Remove", name, made.kind)
            for name, made in stack.made.items()
            if name not in wanted
        ]
        return changes

    def _describe_change_set(self, form: Mapping[str, str]) -> Any:
        found = self._stack(form["StackName"]).change_sets[form["ChangeSetName"]]
        if not found["changes"]:
            return {
                "Status": "FAILED",
                "StatusReason": "The submitted information didn't contain changes. Submit "
                "different information to create a change set.",
            }
        return {"Status": "CREATE_COMPLETE", "Changes": found["changes"]}

    def _delete_change_set(self, form: Mapping[str, str]) -> None:
        self._stack(form["StackName"]).change_sets.pop(form["ChangeSetName"], None)

    # -- carrying out ----------------------------------------------------------------------------

    def _execute_change_set(self, form: Mapping[str, str]) -> None:
        stack = self._stack(form["StackName"])
        chosen = stack.change_sets[form["ChangeSetName"]]
        stack.change_sets.clear()
        new = stack.status == "REVIEW_IN_PROGRESS"
        verb = "CREATE" if new else "UPDATE"
        stack.under_way = self.looks, f"{verb}_IN_PROGRESS"
        before = copy.deepcopy((stack.template, stack.parameters, stack.resolved, stack.made))
        stack.template = chosen["template"]
        stack.become(f"{verb}_IN_PROGRESS", "User Initiated")
        made: list[tuple[str, _Made]] = []
        replaced: list[tuple[str, _Made]] = []
        try:
            self._bring_about(stack, chosen["resolved"], made, replaced)
        except Failed:
            stack.become(f"{'' if new else 'UPDATE_'}ROLLBACK_IN_PROGRESS")
            for name, resource in reversed(made):
                self._remove(stack, name, resource)
            stack.template, stack.parameters, stack.resolved, stack.made = before
            if new:
                stack.states.clear()
            else:
                stack.states = {
                    name: ("UPDATE_COMPLETE", "") for name in stack.states if name in stack.made
                }
            stack.become(f"{'' if new else 'UPDATE_'}ROLLBACK_COMPLETE")
            return
        stack.parameters, stack.resolved = chosen["parameters"], chosen["resolved"]
        if not new:
            stack.become("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        names = self._names(stack)
        gone = [(name, it) for name, it in stack.made.items() if name not in names]
        for name, resource in reversed(gone):
            del stack.made[name]
            self._remove(stack, name, resource)
        for name, resource in reversed(replaced):
            self._remove(stack, name, resource, replaced=True)
        stack.become(f"{verb}_COMPLETE")

    def _names(self, stack: _Stack) -> set[str]:
        scope = self._scope(stack.name, stack.template, stack.resolved, stack.made)
        return set(_wanted(stack.template, scope))

    def _bring_about(
        self,
        stack: _Stack,
        resolved: Mapping[str, str],
        made: list[tuple[str, _Made]],
        replaced: list[tuple[str, _Made]],
    ) -> None:
        assert self._account
        template = stack.template
        scope = self._scope(stack.name, template, resolved, stack.made)
        for name in _in_order(template, _wanted(template, scope)):
            resource = template["Resources"][name]
            kind = resource["Type"]
            properties = evaluated(resource.get("Properties", {}), scope)
            there = stack.made.get(name)
            changed = _differing(there.properties, properties) if there else []
            if there and not changed:
                continue
            anew = not there or any(_recreation(kind, it) == "Always" for it in changed)
            try:
                if name in self.failing:
                    raise Failed(self.failing[name])
                if anew:
                    found = self._account.create(kind, properties, stack.name, name)
                    stack.made[name] = _Made(kind, found[0], properties, found[1])
                    made.append((name, stack.made[name]))
                    if there:
                        replaced.append((name, there))
                else:
                    assert there
                    attributes = self._account.change(kind, there.physical, properties, changed)
                    stack.made[name] = _Made(
                        kind, there.physical, properties, {**there.attributes, **attributes}
                    )
            except Failed as failure:
                stack.tell(name, f"{'UPDATE' if there else 'CREATE'}_FAILED", str(failure))
                raise
            restarted = not anew and any(it in INTERRUPTS.get(kind, ()) for it in changed)
            status = "UPDATE_COMPLETE" if there else "CREATE_COMPLETE"
            stack.tell(name, status, "stopped and started" if restarted else "")
            scope.made = {key: (it.physical, it.attributes) for key, it in stack.made.items()}

    def _remove(self, stack: _Stack, name: str, made: _Made, *, replaced: bool = False) -> None:
        assert self._account
        try:
            self._account.delete(made.kind, made.physical, made.properties)
        except Failed as failure:
            stack.tell(name, "DELETE_FAILED", str(failure))
            return
        stack.tell(name, "DELETE_COMPLETE")
        if replaced:
            stack.states[name] = "UPDATE_COMPLETE", ""
        else:
            stack.states.pop(name, None)

    def _delete_stack(self, form: Mapping[str, str]) -> None:
        name = form["StackName"]
        if name not in self._stacks or self._stacks[name].gone:
            return
        stack = self._stacks[name]
        stack.become("DELETE_IN_PROGRESS", "User Initiated")
        for resource, made in reversed(list(stack.made.items())):
            self._remove(stack, resource, made)
            if stack.states.get(resource, ("",))[0] == "DELETE_FAILED":
                continue
            del stack.made[resource]
        stack.become("DELETE_FAILED" if stack.made else "DELETE_COMPLETE")

    def _scope(
        self, name: str, template: Any, resolved: Mapping[str, str], made: Mapping[str, _Made]
    ) -> Scope:
        assert self._account
        scope = Scope(
            {**resolved, **self._account.pseudo(name)},
            {key: (it.physical, it.attributes) for key, it in made.items()},
            self._account.zones(),
        )
        scope.conditions = conditions(template.get("Conditions", {}), scope)
        return scope


def _wanted(template: Any, scope: Scope) -> dict[str, Any]:
    """Properties of the resources whose conditions hold."""
    return {
        name: evaluated(it.get("Properties", {}), scope)
        for name, it in template["Resources"].items()
        if "Condition" not in it or scope.conditions[it["Condition"]]
    }


def _in_order(template: Any, wanted: Iterable[str]) -> list[str]:
    """Resources, each after those that it needs."""
    names, done = set(wanted), []

    def visit(name: str) -> None:
        if name in done:
            return
        resource = template["Resources"][name]
        depends = resource.get("DependsOn", [])
        needed = [depends] if isinstance(depends, str) else list(depends)
        needed += [other for other, _ in referred(resource.get("Properties", {}))]
        for other in needed:
            if other in names and other != name:
                visit(other)
        done.append(name)

    for name in template["Resources"]:
        if name in names:
            visit(name)
    return done


def _differing(old: Any, new: Any) -> list[str]:
    return sorted(
        key for key in old.keys() | new.keys() if old.get(key, NOTHING) != new.get(key, NOTHING)
    )


def _recreation(kind: str, prop: str) -> str:
    if prop in IMMUTABLE.get(kind, ()):
        return "Always"
    return "Conditionally" if prop in INTERRUPTS.get(kind, ()) else "Never"


def _change(
    action: str,
    name: str,
    kind: str,
    replaced: str = "",
    details: Iterable[tuple[str, str, str]] = (),
) -> Any:
    change: dict[str, Any] = {
        "Action": action,
        "LogicalResourceId": name,
        "ResourceType": kind,
        "Details": [
            {
                "Target": {
                    "Attribute": "Properties",
                    "Name": prop,
                    "RequiresRecreation": recreation,
                },
                "Evaluation": evaluation,
            }
            for prop, evaluation, recreation in details
        ],
    }
    if replaced:
        change["Replacement"] = replaced
    return {"Type": "Resource", "ResourceChange": change}


def _described(stack: _Stack) -> Any:
    kinds = {key: it["Type"] for key, it in stack.template.get("Parameters", {}).items()}
    return {
        "StackId": stack.name,
        "StackName": stack.name,
        "CreationTime": "2026-01-01T00:00:00Z",
        "StackStatus": stack.status,
        "Parameters": [
            {
                "ParameterKey": key,
                "ParameterValue": value,
                **({"ResolvedValue": stack.resolved[key]} if kinds[key].startswith(_SSM) else {}),
            }
            for key, value in stack.parameters.items()
        ],
    }


def _xml(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"<{key}>{_xml(it)}</{key}>" for key, it in value.items())
    if isinstance(value, list):
        return "".join(f"<member>{_xml(it)}</member>" for it in value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
