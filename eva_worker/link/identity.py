"""The agent's identity: a key that never leaves the instance, and its certificate.

::

    STATE_DIR/identity/ key.pem           made before the first request; only its owner may read it
    certificate.pem   of the instance, from the master authorities.pem   certificates that the
    master is verified with
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from eva_worker.errors import BadIdentity
from eva_worker.process.durable_files import write_file
from eva_worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials for a connection to the master, all in PEM.

    Attributes:
        authorities: Certificates that the master is verified with.
        renew: When to ask for the next certificate, two thirds through the life of this one.
        expires: When the master stops accepting it.
    """

    key: bytes
    certificate: bytes
    authorities: bytes
    renew: datetime
    expires: datetime

    def due_in_s(self, now: datetime, held_s: float | None) -> float:
        """Seconds until it is time to ask for the next certificate.

        The clock of this machine may be wrong: how long this one was held counts as well. So it is
        renewed neither again and again nor too late.

        Args:
            now: By the clock of this machine.
            held_s: For how long it has been held; `None` if an earlier agent got it.
        """
        by_clock_s = (self.renew - now).total_seconds()
        if held_s is None:
            return by_clock_s
        third_s = (self.expires - self.renew).total_seconds()
        return min(max(by_clock_s, third_s / 2 - held_s), third_s - held_s)

    @property
    def expired(self) -> bool:
        """Whether the certificate has expired by the clock of this machine."""
        return datetime.now(UTC) >= self.expires


class Identity:
    """The files of an instance's identity. Its methods block until the disk has answered.

    Args:
        home: The directory of the files.
        instance: The instance's id.
    """

    def __init__(self, home: Path, instance: str) -> None:
        self._home = home
        self._instance = instance
        self.key_file = home / "key.pem"
        self.certificate_file = home / "certificate.pem"
        self._authorities_file = home / "authorities.pem"

    @classmethod
    def at(cls, settings: Settings) -> Identity:
        """The identity of a worker, by its state directory."""
        return cls(settings.state_dir / "identity", settings.instance)

    def load(self) -> Credentials | None:
        """Read the files of the last agent; `None` if it had no certificate.

        Raises:
            BadIdentity: The files are damaged, or another instance's.
        """
        try:
            certificate = self.certificate_file.read_bytes()
            authorities = self._authorities_file.read_bytes()
            key = self.key_file.read_bytes()
        except FileNotFoundError:
            return None
        return self._checked(key, certificate, authorities)

    def signing_request(self) -> bytes:
        """A certificate signing request in PEM for the key, which is made if there is none."""
        key = self._key()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._instance)])
        request = x509.CertificateSigningRequestBuilder().subject_name(name)
        return request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def keep(self, certificate: bytes, authorities: bytes) -> Credentials:
        """Put a new certificate in force.

        Raises:
            BadIdentity: The certificate is not for this key and this instance. Nothing was changed.
        """
        checked = self._checked(self.key_file.read_bytes(), certificate, authorities)
        # The authorities are not read before there is a certificate.
        write_file(self._authorities_file, authorities)
        write_file(self.certificate_file, certificate)
        return checked

    def _key(self) -> ec.EllipticCurvePrivateKey:
        if not self.key_file.exists():
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = ec.generate_private_key(ec.SECP256R1())
            pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_file(self.key_file, pem, mode=0o600)
        return self._parsed_key(self.key_file.read_bytes())

    def _parsed_key(self, pem: bytes) -> ec.EllipticCurvePrivateKey:
        try:
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise BadIdentity(f"{self.key_file} is no private key in PEM") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadIdentity(f"{self.key_file} is not an EC key")
        return key

    def _checked(self, key: bytes, certificate: bytes, authorities: bytes) -> Credentials:
        try:
            parsed = x509.load_pem_x509_certificate(certificate)
            x509.load_pem_x509_certificates(authorities)
        except ValueError as error:
            raise BadIdentity(f"{self._home}: a certificate is not in PEM") from error
        if parsed.public_key() != self._parsed_key(key).public_key():
            raise BadIdentity(f"the certificate is not for the key in {self.key_file}")
        names = [str(name.value) for name in parsed.subject]
        if names != [self._instance]:
            raise BadIdentity(
                f"the certificate is that of {', '.join(names)}, not of {self._instance}: "
                "a state directory belongs to one instance"
            )
        begin, end = parsed.not_valid_before_utc, parsed.not_valid_after_utc
        return Credentials(key, certificate, authorities, begin + (end - begin) * 2 / 3, end)
