"""Settings: AWS identities that get tokens by proving who they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from eva_master.adapters.identities.principals import AdmittedIdentity, principal_of
from eva_master.app.sections.base import Section
from eva_wire.settings.refusals import refusal
from eva_wire.values.users import Role, is_owner

_MOST = 1_000


def _check_arn(arn: str) -> str:
    try:
        _, session = principal_of(arn)
    except ValueError as error:
        raise refusal(str(error), "write arn:aws:iam::ACCOUNT:user/NAME or ...:role/NAME") from None
    if session:
        raise refusal(f"{arn} is a session of a role", "name the role: arn:aws:iam::...:role/NAME")
    return arn


def _check_user(user: str) -> str:
    if not is_owner(user):
        hint = "use at most 63 letters, digits, '.', '_', '@', '-'"
        raise refusal(f"{user!r} cannot be an owner", hint)
    return user


class Identity(Section):
    """An AWS identity that is let in.

    Attributes:
        arn: ARN of a user or a role.
        user: The owner of its jobs.
        owner: ``session`` in place of `user`: the name of the role's session, which callers who may
            assume the role choose unless its trust policy says otherwise.
        role: Role of its tokens.
    """

    arn: Annotated[str, AfterValidator(_check_arn)]
    user: Annotated[str, AfterValidator(_check_user)] | None = None
    owner: Literal["session"] | None = None
    role: Role = Role.USER

    @model_validator(mode="after")
    def _one_owner(self) -> Self:
        if (self.user is None) == (self.owner is None):
            raise refusal(f"{self.arn} needs one owner", "write user: NAME, or owner: session")
        if self.owner and self.entry.principal.kind != "role":
            raise refusal(f"{self.arn} has no sessions", "write user: NAME")
        return self

    @property
    def entry(self) -> AdmittedIdentity:
        """The entry of the list."""
        return AdmittedIdentity(principal_of(self.arn)[0], self.user, self.role)


def _check_once(identities: Sequence[Identity]) -> Sequence[Identity]:
    principals = [identity.entry.principal for identity in identities]
    for principal in principals:
        if principals.count(principal) > 1:
            raise refusal(f"{principal.arn} is listed twice", "leave one of the entries out")
    return identities


Identities = Annotated[tuple[Identity, ...], Field(max_length=_MOST), AfterValidator(_check_once)]
