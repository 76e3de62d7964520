"""A cluster's authority for tests, and what servers of it show."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import grpc
from cryptography.hazmat.primitives.asymmetric import ec

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pki.authority import Authority, private_pem
from eva_master.adapters.pki.server import ServerIdentity
from eva_wire.values.ids import InstanceId

_LIFE_MS = 3_600_000


class TestAuthority:
    """An authority in a temporary directory that goes with the process."""

    __test__ = False

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="eva-authority-")
        self.authority = Authority.of(Path(self._home.name), "test", SystemClock())

    @property
    def ca_file(self) -> Path:
        """For clients."""
        return Path(self._home.name) / "ca.pem"

    @property
    def certificates(self) -> bytes:
        """The content of `ca_file`."""
        return self.authority.certificates

    def server(self) -> ServerIdentity:
        """The identity of a master, renewed in time."""
        return ServerIdentity(self.authority, Path(self._home.name), (), SystemClock())

    def agent(self, instance: str, life_ms: int = _LIFE_MS) -> tuple[bytes, bytes]:
        """Key and certificate of an agent."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.authority.issue_agent(key.public_key(), InstanceId(instance), life_ms)
        return private_pem(key), certificate

    def server_credentials(self, *, agents_only: bool = False) -> grpc.ServerCredentials:
        """The credentials of a master, for agents with a certificate alone if wanted."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.authority.issue_master(key.public_key(), (), _LIFE_MS)
        return grpc.ssl_server_credentials(
            [(private_pem(key), certificate)],
            self.certificates if agents_only else None,
            require_client_auth=agents_only,
        )


@cache
def authority() -> TestAuthority:
    """One for all tests of this process."""
    return TestAuthority()
