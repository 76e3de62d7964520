"""Who may ask the master for what: roles, and the tokens that prove them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.ids import Millis

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Role(StrEnum):
    """What a user may do; each role may do all that the one before it may."""

    VIEWER = "viewer"
    """Sees everything, changes nothing."""
    USER = "user"
    """Submits jobs, and cancels his own."""
    OPERATOR = "operator"
    """Does everything: other people's jobs and the tokens too."""

    def covers(self, needed: Role) -> bool:
        """Whether this role is `needed` or more."""
        roles = list(Role)
        return roles.index(self) >= roles.index(needed)


@dataclass(frozen=True, slots=True)
class UserToken:
    """What is kept of a token: all but the secret.

    Attributes:
        id: Names it in lists and logs; a part of the secret.
        owner: Whose jobs are submitted with it.
        digest: SHA-256 of the secret, in hex.
        expires_ms: From then on it is refused, `None` for never.
        revoked_ms: Since then it is refused, `None` if it is in force.
    """

    id: str
    owner: str
    role: Role
    digest: str
    created_ms: Millis
    expires_ms: Millis | None = None
    revoked_ms: Millis | None = None


def is_owner(text: str) -> bool:
    """Whether a text can name the owner of jobs."""
    return _OWNER.fullmatch(text) is not None
