"""Names of secrets and of their holders; values are in no record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HolderKind(StrEnum):
    """Kind of holder that a secret is set for."""

    USER = "user"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A user or a tenant that a secret is set for.

    Attributes:
        kind: Whether it is a user or a tenant; the two may have equal names.
        name: The user's or the tenant's name.
    """

    kind: HolderKind
    name: str

    @classmethod
    def user(cls, name: str) -> Holder:
        """The holder that a user is."""
        return cls(HolderKind.USER, name)

    @classmethod
    def tenant(cls, name: str) -> Holder:
        """The holder that a tenant is."""
        return cls(HolderKind.TENANT, name)

    def __str__(self) -> str:
        """The holder in words."""
        return f"tenant {self.name}" if self.kind is HolderKind.TENANT else self.name


SecretName = tuple[Holder, str]
"""The holder of a secret, and the name of the variable that its value goes to."""


@dataclass(frozen=True, slots=True)
class NeededSecrets:
    """The secrets that an attempt needs.

    Attributes:
        owner: The owner of its job, whose own secrets come first.
        tenant: The job's tenant, whose secrets come second.
        names: The names of the variables.
    """

    owner: str
    tenant: str
    names: tuple[str, ...]

    @property
    def holders(self) -> tuple[Holder, Holder]:
        """The holders whose secrets the attempt may have, the first that has one counts."""
        return Holder.user(self.owner), Holder.tenant(self.tenant)

    def of(self, name: str) -> tuple[SecretName, SecretName]:
        """The secrets that may be meant by a name, the first that is set counts."""
        first, second = self.holders
        return (first, name), (second, name)
