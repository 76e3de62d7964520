"""Principals of AWS by their ARNs, and the list of those that a cluster lets in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eva_wire.values.errors import NotAuthorised
from eva_wire.values.users import Role, is_owner

_ARN = re.compile(
    r"arn:(?P<partition>aws[a-z-]{0,20}):(?P<service>iam|sts)::(?P<account>[0-9]{12}):"
    r"(?P<kind>user|role|assumed-role|federated-user|root)(?:/(?P<path>[\w+=,.@/-]{1,1000}))?",
    re.ASCII,
)
_SERVICES = {"user": "iam", "role": "iam", "root": "iam", "assumed-role": "sts"}
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9._@-]+")
_LONGEST_OWNER = 63


@dataclass(frozen=True, slots=True)
class Principal:
    """The signer of a request.

    A role has no path here: STS leaves it out, and an account has one role of a name.

    Attributes:
        partition: AWS's, such as ``aws``.
        account: The account's number.
        kind: ``user``, ``role``, ``federated-user`` or ``root``.
        name: With the path if it is a user's; empty for ``root``.
    """

    partition: str
    account: str
    kind: str
    name: str

    @property
    def arn(self) -> str:
        """The ARN without session and path of a role."""
        service = _SERVICES.get(self.kind, "sts")
        name = f"/{self.name}" if self.name else ""
        return f"arn:{self.partition}:{service}::{self.account}:{self.kind}{name}"

    @property
    def owner(self) -> str:
        """A name for jobs, made of the last part of its own."""
        name = _UNNAMEABLE.sub("-", self.name.rpartition("/")[2] or self.kind).lstrip("._@-")
        return name[:_LONGEST_OWNER] or self.kind


def principal_of(arn: str) -> tuple[Principal, str]:
    """The principal of an ARN, and the name of its session, empty if it has none.

    ``arn:aws:sts::1:assumed-role/Admin/ana`` is the role Admin of account 1.

    Raises:
        ValueError: No caller has such an ARN.
    """
    match = _ARN.fullmatch(arn)
    if match is None:
        raise ValueError(f"{arn[:200]!r} is no ARN of a user or a role")
    kind, path = match["kind"], match["path"] or ""
    parts, session = path.split("/"), ""
    wrong = match["service"] != _SERVICES.get(kind, "sts") or all(parts) == (kind == "root")
    if kind == "assumed-role":
        wrong |= len(parts) != 2  # the role and the session
        kind, path, session = "role", parts[0], parts[-1]
    elif kind == "role":
        path = parts[-1]
    if wrong:
        raise ValueError(f"{arn[:200]!r} is no ARN of a user or a role")
    return Principal(match["partition"], match["account"], kind, path), session


@dataclass(frozen=True, slots=True)
class AdmittedIdentity:
    """An identity that is let in.

    Attributes:
        principal: The AWS identity.
        owner: Owner of the jobs that are submitted with it; `None` for the name of its session.
        role: The role that it has.
    """

    principal: Principal
    owner: str | None
    role: Role


@dataclass(frozen=True, slots=True)
class Grant:
    """The owner and the role that a proof of an identity gives."""

    owner: str
    role: Role


def with_entries(
    below: Iterable[Mapping[str, Any]], above: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Entries of settings, and those of others that are of other principals.

    Raises:
        ValueError: No caller has such an ARN.
    """
    principals = [principal_of(entry["arn"])[0] for entry in above]
    others = (entry for entry in below if principal_of(entry["arn"])[0] not in principals)
    return [*above, *others]


def grant(entries: Sequence[AdmittedIdentity], principal: Principal, session: str) -> Grant:
    """Look a principal up in a list.

    Raises:
        NotAuthorised: The principal is not on the list, or its session's name cannot be an owner.
    """
    entry = next((entry for entry in entries if entry.principal == principal), None)
    if entry is None:
        raise NotAuthorised(
            f"{principal.arn} is not among the identities that this cluster lets in",
            hint="use other credentials (AWS_PROFILE), or have an operator add it to "
            "ec2.identities: eva deploy aws --settings FILE",
        )
    if entry.owner is not None:
        return Grant(entry.owner, entry.role)
    if not is_owner(session):
        raise NotAuthorised(
            f"the session {session[:80]!r} of {principal.arn} cannot be the owner of jobs",
            hint="assume the role with a session name of letters, digits, '.', '_', '@', '-'",
        )
    return Grant(session, entry.role)
