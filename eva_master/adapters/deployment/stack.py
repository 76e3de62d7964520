"""The CloudFormation stack of a cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from eva_master.model.errors import CloudDenied, CloudError, NotFound

_POLL_S = 5.0
_STACK_TIMEOUT_S = 1800.0
_ABSENT = ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS")
_MADE = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_DENIED = ("AccessDenied", "UnauthorizedOperation", "AccessDeniedException")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a stack update would make to a resource.

    Attributes:
        action: ``Add``, ``Modify`` or ``Remove``.
        resource: Its name in the template.
        kind: Such as ``AWS::EC2::Instance``.
        replaced: Whether it is removed and made anew: ``True``, ``False`` or ``Conditional``.
    """

    action: str
    resource: str
    kind: str
    replaced: str


def template() -> str:
    """The template that comes with the project."""
    return files(__package__).joinpath("template.yaml").read_text(encoding="utf-8")


class Stack:
    """The stack of one cluster.

    Args:
        client: A boto3 client for CloudFormation.
        cluster: The cluster's name.
        poll_s: Seconds between two looks at the progress of CloudFormation.
    """

    def __init__(self, client: Any, cluster: str, poll_s: float = _POLL_S) -> None:
        self._client = client
        self._poll_s = poll_s
        self.name = f"eva-{cluster}"

    def exists(self) -> bool:
        """Whether the stack exists, whatever its state."""
        return self._status() is not None

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
        kept = self._parameters() - parameters.keys() if exists else set()
        stated: list[dict[str, Any]]
        stated = [{"ParameterKey": key, "ParameterValue": it} for key, it in parameters.items()]
        stated += [{"ParameterKey": key, "UsePreviousValue": True} for key in sorted(kept)]
        answer = self._change_set(exists, stated)
        if answer is None:
            return "", []
        found = self._await_change_set(answer)
        if found is None:
            self.drop(answer)
            return "", []
        return answer, list(_changes(found))

    def _change_set(self, exists: bool, parameters: list[dict[str, Any]]) -> str | None:
        """Create a change set; returns its id, or `None` if there is nothing to change."""
        try:
            answer = self._client.create_change_set(
                StackName=self.name,
                ChangeSetName=f"eva-{int(time.time())}",
                ChangeSetType="UPDATE" if exists else "CREATE",
                TemplateBody=template(),
                Parameters=parameters,
                Capabilities=["CAPABILITY_IAM"],
                Tags=[{"Key": "eva:deployment", "Value": self.name}],
            )
        except (BotoCoreError, ClientError) as error:
            if "No updates" in str(error):
                return None
            raise _translated(error) from error
        return str(answer["Id"])

    def drop(self, change_set: str) -> None:
        """Delete a change set, and the empty stack that was created for it."""
        _told(lambda: self._client.delete_change_set(ChangeSetName=change_set, StackName=self.name))
        if not self.exists():
            with contextlib.suppress(CloudError):
                _told(lambda: self._client.delete_stack(StackName=self.name))

    def execute(self, change_set: str) -> None:
        """Start to execute a change set."""
        _told(
            lambda: self._client.execute_change_set(ChangeSetName=change_set, StackName=self.name)
        )

    def resources(self) -> dict[str, str]:
        """Ids of the resources that the stack has created so far, by name in the template.

        Raises:
            NotFound: There is no stack.
        """
        if not self.exists():
            raise NotFound(f"there is no stack {self.name}", hint="see --cluster and --region")
        pages = self._client.get_paginator("list_stack_resources").paginate(StackName=self.name)
        return _told(
            lambda: {
                it["LogicalResourceId"]: it.get("PhysicalResourceId", "")
                for page in pages
                for it in page["StackResourceSummaries"]
                if it["ResourceStatus"] in _MADE
            }
        )

    def await_resource(self, name: str) -> str:
        """Wait until a resource exists; returns its id.

        Raises:
            CloudError: The stack has failed.
        """
        return self._until(
            lambda: self._failure_or(self.resources().get(name, "")), f"{name} is made"
        )

    def settle(self) -> None:
        """Wait until the stack is created or updated.

        Raises:
            CloudError: It has failed. The message has the first reason that CloudFormation gives.
        """
        self._until(
            lambda: self._failure_or(str(self._status()).endswith("_COMPLETE")), "the stack is done"
        )

    def delete(self) -> None:
        """Delete the stack, and wait until it is gone.

        Raises:
            CloudError: A resource cannot be removed.
        """
        _told(lambda: self._client.delete_stack(StackName=self.name))
        self._until(lambda: self._failure_or(self._status() is None), "the stack is gone")

    def _described(self) -> Any:
        try:
            stacks = self._client.describe_stacks(StackName=self.name)["Stacks"]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise _translated(error) from error
        return next((it for it in stacks if it["StackStatus"] not in _ABSENT), None)

    def _status(self) -> str | None:
        found = self._described()
        return None if found is None else str(found["StackStatus"])

    def _parameters(self) -> set[str]:
        """The parameters that this stack has, as far as the template still has them."""
        described = self._described() or {}
        had = {it["ParameterKey"] for it in described.get("Parameters", ())}
        summary = _told(lambda: self._client.get_template_summary(TemplateBody=template()))
        return had & {it["ParameterKey"] for it in summary["Parameters"]}

    def _await_change_set(self, change_set: str) -> Any:
        """Wait for a change set; `None` if it is empty."""

        def look() -> Any:
            found = _told(
                lambda: self._client.describe_change_set(
                    ChangeSetName=change_set, StackName=self.name
                )
            )
            return found if found["Status"].endswith(("COMPLETE", "FAILED")) else None

        found = self._until(look, "CloudFormation works out the changes")
        if found["Status"] != "FAILED":
            return found
        reason = found.get("StatusReason", "")
        if "didn't contain changes" in reason or "No updates" in reason:
            return None
        raise CloudError(f"CloudFormation refuses the stack: {reason}")

    def _failure_or(self, answer: _T) -> _T:
        """Return an answer unless the stack has failed.

        Raises:
            CloudError: It has.
        """
        status = self._status() or ""
        if "ROLLBACK" in status or status.endswith("FAILED"):
            raise CloudError(
                f"the stack {self.name} is {status}: {self._first_failure()}",
                hint="eva teardown removes what is left of it",
            )
        return answer

    def _first_failure(self) -> str:
        pages = self._client.get_paginator("describe_stack_events").paginate(StackName=self.name)
        failed = [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
            for page in pages
            for event in page["StackEvents"]
            if event["ResourceStatus"].endswith("FAILED")
        ]
        return failed[-1] if failed else "no reason given"

    def _until(self, look: Callable[[], _T], what: str) -> _T:
        deadline = time.monotonic() + _STACK_TIMEOUT_S
        while not (found := look()):
            if time.monotonic() > deadline:
                raise CloudError(f"{what}: not within {_STACK_TIMEOUT_S / 60:g} minutes")
            time.sleep(self._poll_s)
        return found


def _changes(described: Mapping[str, Any]) -> Iterator[Change]:
    for entry in described.get("Changes", ()):
        change = entry["ResourceChange"]
        yield Change(
            change["Action"],
            change["LogicalResourceId"],
            change["ResourceType"],
            change.get("Replacement", "False"),
        )


def _told(call: Callable[[], _T]) -> _T:
    """Call AWS; its errors are raised as `CloudError`."""
    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        raise _translated(error) from error


def _translated(error: BotoCoreError | ClientError) -> CloudError:
    if isinstance(error, ClientError):
        details = error.response["Error"]
        words = f"{details['Code']}: {details.get('Message', '')}"
        if details["Code"] in _DENIED:
            return CloudDenied(words, hint="use credentials of an administrator of the account")
        return CloudError(words)
    return CloudError(f"AWS: {error}", hint="see AWS_PROFILE and --region")
