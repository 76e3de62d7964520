"""Join tokens, with which an instance proves, once, that this master launched it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from eva_master.adapters.store.join_tokens import JoinTokenTable
from eva_master.ports import Clock
from eva_wire.files import write_file
from eva_wire.values.errors import InvalidConfig, NotAuthorised
from eva_wire.values.ids import InstanceId, Millis

_SHORTEST_KEY = 32
_LEAST_VARIETY = 8
"""Different bytes of a key: after a crash some file systems leave a file of zeros."""
_HINT = "an instance joins with the token of its own launch, once and soon"


class JoinTokens:
    """Issues and redeems join tokens. Any thread may use it.

    A token contains the id of its launch and is authenticated with the cluster's secret. So a
    launch always has the same token, and tokens are not stored; the table records their use.

    Args:
        secret: The cluster's own.
        table: Records when tokens were issued and used.
        clock: Tells when a token has expired.
        life_ms: How long a token is valid.
    """

    def __init__(self, secret: bytes, table: JoinTokenTable, clock: Clock, life_ms: int) -> None:
        self._secret = secret
        self._table = table
        self._clock = clock
        self._life_ms = life_ms

    @classmethod
    def of(cls, directory: Path, table: JoinTokenTable, clock: Clock, life_ms: int) -> JoinTokens:
        """The tokens of the cluster whose ``join.key`` is in `directory`; it is made if missing.

        Raises:
            InvalidConfig: The key is empty, too short or too regular to be a secret.
        """
        path = directory / "join.key"
        if not path.exists():
            write_file(path, secrets.token_hex(32).encode(), mode=0o600)
        secret = path.read_bytes()
        if len(secret.strip()) < _SHORTEST_KEY or len(set(secret)) < _LEAST_VARIETY:
            raise InvalidConfig(
                f"{path} is no secret: it has {len(secret)} bytes, {len(set(secret))} different",
                hint="restore it from a backup; or remove it, and the master makes a new one: "
                "instances that boot just then are replaced",
            )
        return cls(secret, table, clock, life_ms)

    def token(self, instance: InstanceId, attempt: int) -> str:
        """The token of a launch; its time begins with the first call.

        Raises:
            StorageError: The token could not be recorded, so it must not be used.
        """
        now = self._clock.now()
        self._table.issue(instance, attempt, Millis(now + self._life_ms), now)
        launch = f"{instance}/{attempt}"
        return f"{launch}/{self._seal(launch)}"

    def redeem(self, instance: InstanceId, token: str, public_key: bytes) -> None:
        """Use a token for a key, perhaps again after a lost answer.

        Args:
            instance: The instance that presents it.
            token: The token as received.
            public_key: The key, in DER.

        Raises:
            NotAuthorised: The message says why.
            StorageError: The use could not be recorded, so it does not count.
        """
        owner, attempt = self.launch_of(token)
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
                hint="the instance will be replaced; if instances take long to boot, raise "
                "the setting join_token_lifetime",
            )
        if record.public_key != digest:
            raise NotAuthorised(
                f"the join token of instance {instance!r} was used before, for another key",
                hint="if the instance's own agent is refused, another program has its token: "
                "terminate the instance",
            )

    def launch_of(self, token: str) -> tuple[str, int]:
        """The instance and the launch attempt of a token, by its seal alone, in microseconds.

        Raises:
            NotAuthorised: This master sealed no such token.
        """
        launch, _, seal = token.rpartition("/")
        if not hmac.compare_digest(self._seal(launch).encode(), seal.encode()):
            raise NotAuthorised("this is no join token of this cluster", hint=_HINT)
        instance, _, attempt = launch.rpartition("/")
        return instance, int(attempt)

    def _seal(self, launch: str) -> str:
        return hmac.new(self._secret, launch.encode(), hashlib.sha256).hexdigest()
