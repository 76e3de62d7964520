"""The cluster's key for secrets."""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from eva_master.adapters.pki.kept_key import kept_key
from eva_master.model.secrets import SecretName
from eva_wire.values.errors import UnreadableSecret

FILE = "secrets.key"
_NONCE_BYTES = 12
_ID_CHARACTERS = 16


class SecretKey:
    """Seals and opens values with AES-256-GCM. Any thread may use it.

    Args:
        key: 32 random bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        digest = hashlib.sha256(b"eva secrets key" + key).hexdigest()
        self._id = digest[:_ID_CHARACTERS]

    def __repr__(self) -> str:
        return f"SecretKey({self._id})"

    @classmethod
    def of(cls, directory: Path) -> SecretKey:
        """The key of the cluster whose ``secrets.key`` is in `directory`; it is made if missing.

        Raises:
            InvalidConfig: The file holds no key.
        """
        return cls(
            kept_key(
                directory / FILE,
                "remove it, and the master makes a new one: secrets have to be set again then",
            )
        )

    @property
    def id(self) -> str:
        """Name of the key, from which it cannot be guessed."""
        return self._id

    def seal(self, value: bytes, secret: SecretName, version: int) -> bytes:
        """Encrypt a value for one version of one secret of one holder."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, _associated(secret, version))

    def open(self, sealed: bytes, secret: SecretName, version: int) -> bytes:
        """Decrypt what `seal` has made.

        Raises:
            UnreadableSecret: The key, secret, holder or version is another one, or the sealed value
                was changed.
        """
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, rest, _associated(secret, version))
        except (InvalidTag, ValueError):
            holder, name = secret
            raise UnreadableSecret(
                f"the secret {name} of {holder} cannot be read: it was sealed with another key than"
                f" pki/{FILE}, or was changed",
                hint=f"restore pki/{FILE} from the backup of the journal, or set it again: "
                f"eva secret set {name}",
            ) from None


def _associated(secret: SecretName, version: int) -> bytes:
    holder, name = secret
    return json.dumps([holder.kind.value, holder.name, name, version]).encode()
