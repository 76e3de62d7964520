"""The cluster's certificate authority, which issues all certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eva_master.ports import Clock
from eva_wire.files import write_file
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import InstanceId, Millis

PublicKey = ec.EllipticCurvePublicKey

log = structlog.get_logger(__name__)

_AUTHORITY_LIFE = timedelta(days=3650)
_SHORTEST_KEY_BITS = 256
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Authority:
    """Issues the certificates of one cluster.

    Any thread may use it.

    Args:
        key: Signs.
        bundle: Certificates that clients trust: first that of `key`, then those of authorities that
            are being replaced.
        clock: Dates certificates.
    """

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey,
        bundle: Iterable[x509.Certificate],
        clock: Clock,
    ) -> None:
        self._key = key
        self._bundle = tuple(bundle)
        self._clock = clock

    @classmethod
    def of(cls, directory: Path, cluster: str, clock: Clock) -> Authority:
        """The authority whose key and certificate are in `directory`, made when missing.

        Args:
            directory: Holds ``ca.key`` and ``ca.pem``.
            cluster: For the name of a new authority.
            clock: Dates certificates.

        Raises:
            InvalidConfig: The files are damaged, do not belong together, or one is lost.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key_file, bundle_file = directory / "ca.key", directory / "ca.pem"
        if not key_file.exists():
            if bundle_file.exists():
                raise InvalidConfig(
                    f"{key_file} is missing, but there is {bundle_file}",
                    hint="restore the key; or remove the certificate too, and every worker and "
                    "user needs the new one",
                )
            write_file(key_file, private_pem(ec.generate_private_key(ec.SECP256R1())), mode=0o600)
        key = _load_key(key_file)
        # The key is written first: if the master dies in between, the next one signs a certificate.
        if not bundle_file.exists():
            name = _named(f"Eva cluster {cluster}")
            write_file(bundle_file, _own_certificate(key, name, clock).public_bytes(_PEM))
        own, *others = _load_bundle(bundle_file, key)
        if not own.not_valid_before_utc <= _date(clock) <= own.not_valid_after_utc:
            log.warning(
                "the authority's certificate is not valid by this machine's clock, which is wrong"
                " or was: it is made again, to be valid by both",
                since=f"{own.not_valid_before_utc:%Y-%m-%d}",
                until=f"{own.not_valid_after_utc:%Y-%m-%d}",
                clock=f"{_date(clock):%Y-%m-%d %H:%M:%S} UTC",
            )
            own = _own_certificate(key, own.subject, clock, own)
            write_file(
                bundle_file,
                b"".join(certificate.public_bytes(_PEM) for certificate in (own, *others)),
            )
        return cls(key, (own, *others), clock)

    @staticmethod
    def made(directory: Path) -> bool:
        """Whether an authority was made in `directory` before."""
        return (directory / "ca.key").exists()

    @property
    def certificates(self) -> bytes:
        """The PEM certificates that clients of this cluster must trust."""
        return b"".join(certificate.public_bytes(_PEM) for certificate in self._bundle)

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate that signs now, in hex."""
        return self._bundle[0].fingerprint(hashes.SHA256()).hex()

    def issue_master(self, key: PublicKey, hosts: Iterable[str], life_ms: int) -> bytes:
        """A PEM certificate for the master.

        Args:
            key: The master's.
            hosts: Names and IP addresses that it has beside `MASTER_NAME` and this machine's.
            life_ms: How long it is valid.
        """
        names = [MASTER_NAME, *_LOCAL, *hosts]
        return self._issue(MASTER_NAME, key, names, [ExtendedKeyUsageOID.SERVER_AUTH], life_ms)

    def left_s(self, expires_ms: Millis) -> float:
        """Seconds until a certificate expires by the clock that dates them."""
        return (expires_ms - self._clock.now()) / 1000

    def issue_agent(self, key: PublicKey, instance: InstanceId, life_ms: int) -> bytes:
        """A PEM certificate for an instance's agent.

        The certificate is valid for a client of the master, and for a server on the agent's own
        machine.

        Args:
            key: The agent's, see `requested_key`.
            instance: Becomes the common name.
            life_ms: How long it is valid.
        """
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        return self._issue(instance, key, _LOCAL, usages, life_ms)

    def _issue(
        self,
        name: str,
        key: PublicKey,
        hosts: Iterable[str],
        usages: list[x509.ObjectIdentifier],
        life_ms: int,
    ) -> bytes:
        issuer = self._bundle[0]
        builder = (
            _dated(*_life(self._clock.now(), timedelta(milliseconds=life_ms)))
            .subject_name(_named(name))
            .issuer_name(issuer.subject)
            .public_key(key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.SubjectAlternativeName(list(dict.fromkeys(map(_general, hosts)))),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM)


_PEM = Encoding.PEM


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a private key as unencrypted PEM."""
    return key.private_bytes(_PEM, PrivateFormat.PKCS8, NoEncryption())


def requested_key(signing_request: bytes) -> PublicKey:
    """The public key of a PEM certificate signing request, which proves possession of the key.

    Raises:
        ValueError: The request is malformed, not signed by its key, or the key has the wrong type.
    """
    try:
        request = x509.load_pem_x509_csr(signing_request)
        signed = request.is_signature_valid
        key = request.public_key()
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ValueError("this is no PEM certificate signing request") from error
    if not signed:
        raise ValueError("the signing request is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the key of a signing request must be an EC key on P-256")
    return key


def _own_certificate(
    key: ec.EllipticCurvePrivateKey,
    name: x509.Name,
    clock: Clock,
    earlier: x509.Certificate | None = None,
) -> x509.Certificate:
    """The certificate of an authority, which is valid for as long as an earlier one, too."""
    begin, end = _life(clock.now(), _AUTHORITY_LIFE)
    if earlier is not None:
        begin = min(begin, earlier.not_valid_before_utc)
        end = max(end, earlier.not_valid_after_utc)
    return (
        _dated(begin, end)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _date(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now() / 1000, UTC)


def _life(now: Millis, life: timedelta) -> tuple[datetime, datetime]:
    """From when until when a certificate is valid that is made now."""
    # The certificate is valid from half of its life earlier, so that it survives a clock that is
    # set back, and serves machines whose clocks are behind. Agents renew it two thirds through, so
    # after half of its life from now: a clock that is set forward by less finds it valid, too.
    present = datetime.fromtimestamp(now / 1000, UTC)
    return present - life / 2, present + life


def _dated(begin: datetime, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _named(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise InvalidConfig(
            f"{path} is no private key in PEM", hint="restore it from a backup"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidConfig(f"{path} is not an EC key", hint="restore it from a backup")
    if key.curve.key_size < _SHORTEST_KEY_BITS:
        raise InvalidConfig(
            f"{path} is an EC key of {key.curve.key_size} bits, which is too short",
            hint=f"use one of at least {_SHORTEST_KEY_BITS} bits",
        )
    return key


def _load_bundle(path: Path, key: ec.EllipticCurvePrivateKey) -> list[x509.Certificate]:
    try:
        bundle = x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        raise InvalidConfig(
            f"{path} holds no certificate in PEM", hint="restore it from a backup"
        ) from error
    if bundle[0].public_key() != key.public_key():
        raise InvalidConfig(
            f"the first certificate in {path} is not of the key beside it",
            hint="restore both from one backup",
        )
    return bundle
