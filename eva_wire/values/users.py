"""Users: their roles, and the tokens that prove them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from eva_wire.values.ids import Millis

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Role(StrEnum):
    """Permissions of a user; each role includes those of the one before it."""

    VIEWER = "viewer"
    """Sees everything and changes nothing."""
    USER = "user"
    """Submits jobs, and cancels their own."""
    OPERATOR = "operator"
    """Does everything, with other users' jobs and tokens too."""

    def covers(self, needed: Role) -> bool:
        """Whether this role may do all that `needed` may."""
        roles = list(Role)
        return roles.index(self) >= roles.index(needed)


@dataclass(frozen=True, slots=True)
class UserToken:
    """The stored part of a token: everything but the secret.

    Attributes:
        id: Names it in lists and logs; a part of the secret.
        owner: Owner of the jobs that are submitted with it.
        digest: SHA-256 of the secret, in hex.
        expires_ms: Time from which it is refused; `None` for never.
        revoked_ms: Time when it was revoked; `None` if it is valid.
        identity: Identity of the cloud that got it by a proof; `None` if an operator made it.
    """

    id: str
    owner: str
    role: Role
    digest: str
    created_ms: Millis
    expires_ms: Millis | None = None
    revoked_ms: Millis | None = None
    identity: str | None = None


def is_owner(text: str) -> bool:
    """Whether a text can name the owner of jobs."""
    return _OWNER.fullmatch(text) is not None
