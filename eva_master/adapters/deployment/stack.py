"""The CloudFormation stack of a cluster."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile
from typing import Any, TypeVar

from eva_master.adapters.deployment.account import Absent, listed
from eva_wire.values.errors import CloudError, NotFound

_POLL_S = 5.0
_STACK_TIMEOUT_S = 1800.0
_ABSENT = ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS")
_UNDER_WAY = "_IN_PROGRESS"
_MADE = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_GONE = ("DELETE_COMPLETE", "DELETE_SKIPPED")
_CANCELLED = ("Resource creation cancelled", "Resource update cancelled")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a stack update would make to a resource.

    Attributes:
        action: ``Add``, ``Modify`` or ``Remove``.
        resource: Its name in the template.
        type: Type of the resource, such as ``AWS::EC2::Instance``.
        replaced: Whether it is removed and made anew: ``True``, ``False`` or ``Conditional``.
    """

    action: str
    resource: str
    type: str
    replaced: str

    @property
    def lost(self) -> bool:
        """Whether the resource that is there goes."""
        return self.action == "Remove" or self.replaced == "True"


def template() -> str:
    """The template that comes with the project."""
    return files(__package__).joinpath("template.yaml").read_text(encoding="utf-8")


class Stack:
    """The stack of one cluster.

    Args:
        client: CloudFormation's, of `Account.clients`.
        cluster: The cluster's name.
        poll_s: Seconds between two looks at the progress of CloudFormation.
    """

    def __init__(self, client: Any, cluster: str, poll_s: float = _POLL_S) -> None:
        self._client = client
        self._poll_s = poll_s
        self._cluster = cluster
        self._last_event = ""
        self.name = f"eva-{cluster}"

    def exists(self) -> bool:
        """Whether the stack exists, whatever its state."""
        return self._status() is not None

    def await_others(self, told: Callable[[str], None]) -> None:
        """Wait for a change that is under way, such as one of a call that was cut short.

        Args:
            told: Called with a sentence if there is one.

        Raises:
            CloudError: The change does not end within half an hour, or the stack takes no others.
        """
        if (status := self._status() or "").endswith(_UNDER_WAY):
            told(f"The stack {self.name} is {status}: waiting for the end of that")
            self._until(
                lambda: not (self._status() or "").endswith(_UNDER_WAY), "the stack is at rest"
            )
        if refusal := _refusal(self.name, self._cluster, self._status() or ""):
            raise refusal

    def parameters(self) -> dict[str, str]:
        """The values of this stack's parameters; none if there is no stack."""
        described = self._described() or {}
        return {
            parameter["ParameterKey"]: parameter.get("ParameterValue", "")
            for parameter in described.get("Parameters", ())
        }

    def defaults(self) -> dict[str, str]:
        """The values of the template's parameters that nobody states."""
        return {
            parameter["ParameterKey"]: parameter["DefaultValue"]
            for parameter in self._summary()
            if parameter.get("DefaultValue") is not None
        }

    def propose(self, parameters: Mapping[str, str]) -> tuple[str, list[Change]]:
        """Have CloudFormation compute a change set.

        Other parameters keep their value, or get the template's default.

        Returns:
            Id of the change set, which must be executed or dropped, and the changes. Both are empty
            if nothing would change.

        Raises:
            CloudError: The template or the parameters are refused.
        """
        exists = self.exists()
        declared = {parameter["ParameterKey"] for parameter in self._summary()}
        kept = declared & self.parameters().keys() - parameters.keys()
        stated: list[dict[str, Any]]
        stated = [
            {"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()
        ]
        stated += [{"ParameterKey": key, "UsePreviousValue": True} for key in sorted(kept)]
        change_set = self._client.create_change_set(
            StackName=self.name,
            ChangeSetName=f"eva-{uuid.uuid4().hex}",
            ChangeSetType="UPDATE" if exists else "CREATE",
            TemplateBody=template(),
            Parameters=stated,
            Capabilities=["CAPABILITY_IAM"],
            Tags=[{"Key": "eva:deployment", "Value": self.name}],
        )["Id"]
        changes = self._await_changes(change_set)
        if changes is None:
            self.drop(change_set)
            return "", []
        return change_set, changes

    def drop(self, change_set: str) -> None:
        """Delete a change set, and the empty stack that was created for it."""
        self._client.delete_change_set(ChangeSetName=change_set, StackName=self.name)
        self.remove_shell()

    def remove_shell(self) -> None:
        """Delete the empty stack that a proposal leaves behind if it is not carried out."""
        if not self.exists():
            with contextlib.suppress(CloudError):
                self._client.delete_stack(StackName=self.name)

    def execute(self, change_set: str) -> None:
        """Start to execute a change set."""
        self._last_event = self._newest_event()
        self._client.execute_change_set(ChangeSetName=change_set, StackName=self.name)

    def resources(self) -> dict[str, str]:
        """Ids of the resources that the stack has, finished or not, by name in the template.

        Raises:
            NotFound: There is no stack.
        """
        if not self.exists():
            raise NotFound(f"there is no stack {self.name}", hint="see --cluster and --region")
        return {
            summary["LogicalResourceId"]: summary["PhysicalResourceId"]
            for summary in self._summaries()
            if summary.get("PhysicalResourceId") and summary["ResourceStatus"] not in _GONE
        }

    def await_resource(self, name: str) -> str:
        """Wait until a resource exists; returns its id.

        Raises:
            CloudError: The stack has failed.
        """

        def look() -> str:
            self._raise_if_failed(("FAILED", "ROLLBACK"))
            finished = {
                summary["LogicalResourceId"]: summary.get("PhysicalResourceId", "")
                for summary in self._summaries()
                if summary["ResourceStatus"] in _MADE
            }
            return str(finished.get(name, ""))

        return self._until(look, f"{name} is made")

    def settle(self) -> None:
        """Wait until the stack is created or updated, or is back where it was.

        Raises:
            CloudError: The change failed. The message has the first reason that CloudFormation
                gives.
        """

        def look() -> bool:
            # In this order: what began before the status was asked for is in the status.
            begun, status = self._newest_event() != self._last_event, str(self._status())
            if not begun or status.endswith(_UNDER_WAY):
                return False
            self._raise_if_failed(("FAILED", "ROLLBACK_COMPLETE"))
            return True

        self._until(look, "the stack is done")

    def delete(self) -> None:
        """Delete the stack, and wait until it is gone.

        Raises:
            CloudError: A resource cannot be removed.
        """
        self._last_event = self._newest_event()
        self._client.delete_stack(StackName=self.name)

        def look() -> bool:
            if (status := self._status()) == "DELETE_FAILED" and self._events():
                raise self._failure(status)
            return status is None

        self._until(look, "the stack is gone")

    def _described(self) -> Any:
        try:
            stacks = self._client.describe_stacks(StackName=self.name)["Stacks"]
        except Absent:
            return None
        return next((stack for stack in stacks if stack["StackStatus"] not in _ABSENT), None)

    def _status(self) -> str | None:
        described = self._described()
        return None if described is None else str(described["StackStatus"])

    def _summary(self) -> list[Any]:
        return list(self._client.get_template_summary(TemplateBody=template())["Parameters"])

    def _summaries(self) -> list[Any]:
        resources = "StackResourceSummaries[]"
        return list(listed(self._client, "list_stack_resources", resources, StackName=self.name))

    def _await_changes(self, change_set: str) -> list[Change] | None:
        """The changes of a change set; `None` if nothing would change."""

        def look() -> Any:
            answer = self._client.describe_change_set(ChangeSetName=change_set, StackName=self.name)
            return answer if answer["Status"].endswith(("COMPLETE", "FAILED")) else None

        answer = self._until(look, "CloudFormation works out the changes")
        if answer["Status"] == "FAILED":
            reason = answer.get("StatusReason", "")
            if "didn't contain changes" in reason or "No updates" in reason:
                return None
            raise CloudError(f"CloudFormation refuses the stack: {reason}")
        changes = (entry["ResourceChange"] for entry in answer.get("Changes", ()))
        return [
            Change(
                change["Action"],
                change["LogicalResourceId"],
                change["ResourceType"],
                change.get("Replacement", "False"),
            )
            for change in changes
        ]

    def _raise_if_failed(self, marks: tuple[str, ...]) -> None:
        """Raise `CloudError` if what was begun has come to a status with one of these words."""
        begun, status = self._newest_event() != self._last_event, self._status() or ""
        if begun and any(mark in status for mark in marks):
            raise self._failure(status)

    def _failure(self, status: str) -> CloudError:
        return CloudError(
            f"the stack {self.name} is {status}: {self._first_failure()}",
            hint=_after(status, self.name, self._cluster),
        )

    def _first_failure(self) -> str:
        """Why what was begun last has failed; others were cancelled because of it."""
        failed = [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
            for event in self._events()
            if event["ResourceStatus"].endswith("FAILED")
            and event.get("ResourceStatusReason") not in _CANCELLED
        ]
        return failed[-1] if failed else "no reason given"

    def _events(self) -> list[Any]:
        """Events since the last operation began, the newest first."""
        pages = self._client.get_paginator("describe_stack_events").paginate(StackName=self.name)
        events = (event for page in pages for event in page["StackEvents"])
        with contextlib.suppress(Absent):
            return list(takewhile(lambda event: event["EventId"] != self._last_event, events))
        return []

    def _newest_event(self) -> str:
        with contextlib.suppress(Absent):
            events = self._client.describe_stack_events(StackName=self.name)["StackEvents"]
            return str(events[0]["EventId"]) if events else ""
        return ""

    def _until(self, look: Callable[[], _T], what: str) -> _T:
        ends_at_s = time.monotonic() + _STACK_TIMEOUT_S
        while not (result := look()):
            if time.monotonic() > ends_at_s:
                raise CloudError(f"{what}: not within {_STACK_TIMEOUT_S / 60:g} minutes")
            time.sleep(self._poll_s)
        return result


def _after(status: str, stack: str, cluster: str) -> str:
    """Advice for a stack whose status says that something failed."""
    if status == "DELETE_FAILED":
        return f"run eva teardown --cluster {cluster} again"
    if status == "UPDATE_ROLLBACK_COMPLETE":
        return "the old cluster is as it was; remove the cause, and deploy again"
    if status.startswith("UPDATE"):
        return (
            "the old cluster and its files are still there; undo the rest with "
            f"aws cloudformation continue-update-rollback --stack-name {stack}, and deploy again"
        )
    return f"no cluster was made: eva teardown --cluster {cluster} removes what there is of it"


def _refusal(stack: str, cluster: str, status: str) -> CloudError | None:
    """Why a stack in some status cannot be changed now, `None` if it can."""
    stuck = status.endswith("FAILED") or status == "ROLLBACK_COMPLETE"
    if not stuck:
        return None
    return CloudError(
        f"the stack {stack} is {status} and takes no changes", hint=_after(status, stack, cluster)
    )
