"""Bootstrap tokens: what an instance shows to prove that this master launched it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from eva_master.model.ids import InstanceId


class Tokens:
    """Makes and checks tokens bound to an instance; none is stored.

    Args:
        secret: The cluster's own.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of(cls, state_dir: Path) -> Tokens:
        """The tokens of the cluster with this state directory; its secret is made when missing."""
        path = state_dir / "secret"
        if not path.exists():
            aside = path.with_suffix(".new")
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        return cls(path.read_text().strip().encode())

    def token(self, instance: InstanceId) -> str:
        """The token of an instance."""
        return hmac.new(self._secret, instance.encode(), hashlib.sha256).hexdigest()

    def verify(self, instance: InstanceId, token: str) -> bool:
        """Whether a token is the instance's; takes the same time whatever the answer."""
        return hmac.compare_digest(self.token(instance).encode(), token.encode())
