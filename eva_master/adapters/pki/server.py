"""The master's own certificate, renewed while the master runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from eva_master.adapters.pki.authority import Authority, private_pem
from eva_master.ports import Clock
from eva_wire.files import write_file
from eva_wire.values.ids import Millis

LIFE_MS = 7 * 86_400_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key and its certificate, both in PEM.

    Attributes:
        file: Has both, for libraries that read files.
        made_ms: When they were made; they are replaced too if the clock is set back before that.
        renew_ms: When they are to be replaced.
    """

    key: bytes
    certificate: bytes
    file: Path
    made_ms: Millis
    renew_ms: Millis


class ServerIdentity:
    """The certificate that the master's ports present to clients. Any thread may use it.

    Ports ask for the current certificate for every connection, so a new one needs no restart.

    Args:
        authority: Issues the certificates.
        directory: Gets ``server.pem``.
        hosts: Names and IP addresses of the master, beside this machine's.
        clock: Tells when to renew.
        life_ms: How long a certificate is valid; it is replaced after two thirds of that.
    """

    def __init__(
        self,
        authority: Authority,
        directory: Path,
        hosts: Iterable[str],
        clock: Clock,
        life_ms: int = LIFE_MS,
    ) -> None:
        self._authority = authority
        self._file = directory / "server.pem"
        self._hosts = tuple(hosts)
        self._clock = clock
        self._life_ms = life_ms
        self._lock = threading.Lock()
        self._current = self._issue()

    @property
    def authorities(self) -> bytes:
        """The PEM certificates that clients are verified with."""
        return self._authority.certificates

    def current(self) -> Credentials:
        """The current credentials, renewed if it is time."""
        with self._lock:
            if not self._current.made_ms <= self._clock.now() < self._current.renew_ms:
                try:
                    self._current = self._issue()
                except OSError as error:
                    # The present certificate remains valid for a while.
                    log.error("cannot renew the master's certificate", error=str(error))
            return self._current

    def _issue(self) -> Credentials:
        now = self._clock.now()
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._authority.issue_master(key.public_key(), self._hosts, self._life_ms)
        write_file(self._file, private_pem(key) + certificate, mode=0o600)
        renew_ms = Millis(now + self._life_ms * 2 // 3)
        return Credentials(private_pem(key), certificate, self._file, now, renew_ms)
