"""Join tokens: what an instance shows, once, to prove that this master launched it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from eva_master.adapters.pki.files import write_file
from eva_master.adapters.store.join_tokens import JoinTokenTable
from eva_master.model.errors import NotAuthorised
from eva_master.model.ids import InstanceId, Millis
from eva_master.ports import Clock

_HINT = "an instance joins with the token of its own launch, once and soon"


class JoinTokens:
    """Makes join tokens and takes them back; any thread may use it.

    A token names the launch that it is for, under a seal that only this master can make. So the
    same launch always has the same token, and none is stored: the table has their fates.

    Args:
        secret: The cluster's own.
        table: Remembers what became of each token.
        clock: Tells when a token has expired.
        life_ms: How long a token is good.
    """

    def __init__(self, secret: bytes, table: JoinTokenTable, clock: Clock, life_ms: int) -> None:
        self._secret = secret
        self._table = table
        self._clock = clock
        self._life_ms = life_ms

    @classmethod
    def of(cls, directory: Path, table: JoinTokenTable, clock: Clock, life_ms: int) -> JoinTokens:
        """The tokens of the cluster whose ``join.key`` is in `directory`; it is made if missing."""
        path = directory / "join.key"
        if not path.exists():
            write_file(path, secrets.token_hex(32).encode(), mode=0o600)
        return cls(path.read_bytes(), table, clock, life_ms)

    def token(self, instance: InstanceId, attempt: int) -> str:
        """The token of a launch; its time begins with the first call.

        Raises:
            StorageError: It could not be written down, so nobody may have it.
        """
        now = self._clock.now()
        self._table.issue(instance, attempt, Millis(now + self._life_ms), now)
        launch = f"{instance}/{attempt}"
        return f"{launch}/{self._seal(launch)}"

    def redeem(self, instance: InstanceId, token: str, public_key: bytes) -> None:
        """Use a token for a key; the same key may use it again, for an answer that was lost.

        Args:
            instance: Who shows it.
            token: As it came.
            public_key: In DER.

        Raises:
            NotAuthorised: The message says why.
            StorageError: The use could not be written down, so it was none.
        """
        owner, attempt = self._opened(token)
        if owner != instance:
            raise NotAuthorised(f"this join token is not that of instance {instance!r}", hint=_HINT)
        digest = hashlib.sha256(public_key).hexdigest()
        now = self._clock.now()
        record = self._table.claim(instance, attempt, digest, now)
        if record is None:
            raise NotAuthorised("this join token is not known any more", hint=_HINT)
        if record.expires_ms <= now:
            late_s = (now - record.expires_ms) // 1000
            raise NotAuthorised(
                f"the join token of instance {instance!r} expired {late_s} s ago",
                hint="the instance is replaced by and by; if instances take long to boot, raise "
                "the setting join_token_lifetime",
            )
        if record.public_key != digest:
            raise NotAuthorised(
                f"the join token of instance {instance!r} was used before, for another key",
                hint="if the instance's own agent is refused, somebody else has its token: "
                "terminate the instance",
            )

    def _opened(self, token: str) -> tuple[str, int]:
        """Whose token it is, and of which attempt."""
        launch, _, seal = token.rpartition("/")
        if not hmac.compare_digest(self._seal(launch).encode(), seal.encode()):
            raise NotAuthorised("this is no join token of this cluster", hint=_HINT)
        instance, _, attempt = launch.rpartition("/")
        return instance, int(attempt)

    def _seal(self, launch: str) -> str:
        return hmac.new(self._secret, launch.encode(), hashlib.sha256).hexdigest()
