"""The cluster's authority and what it signs."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eva_master.adapters.pki.authority import Authority, requested_key
from eva_master.adapters.pki.server import ServerIdentity
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import InstanceId, Millis

DAY_MS = 86_400_000
ONE = InstanceId("i00001")


class Clock:
    def __init__(self) -> None:
        self.time = Millis(1_800_000_000_000)

    def now(self) -> Millis:
        return self.time

    @property
    def date(self) -> datetime:
        return datetime.fromtimestamp(self.time / 1000, UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path, clock: Clock) -> Authority:
    return Authority.of(tmp_path / "pki", "lab", clock)


def agent_certificate(authority: Authority, life_ms: int = DAY_MS) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = authority.issue_agent(key.public_key(), ONE, life_ms)
    return x509.load_pem_x509_certificate(pem)


def names(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_the_authority_is_made_once(authority: Authority, tmp_path: Path, clock: Clock) -> None:
    clock.time += DAY_MS
    assert Authority.of(tmp_path / "pki", "renamed", clock).certificates == authority.certificates
    (own,) = x509.load_pem_x509_certificates(authority.certificates)
    constraints = own.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert own.not_valid_after_utc > clock.date + timedelta(days=3640)


def test_nobody_else_may_read_the_keys(authority: Authority, tmp_path: Path, clock: Clock) -> None:
    ServerIdentity(authority, tmp_path / "pki", (), clock)
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
    for name in ("ca.key", "server.pem"):
        assert (tmp_path / "pki" / name).stat().st_mode & 0o777 == 0o600


def test_a_master_killed_between_key_and_certificate_makes_the_certificate_later(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, calls = Path.replace, []

    def power_cut(aside: Path, path: Path) -> Path:
        calls.append(path.name)
        if path.name == "ca.pem" and len(calls) == 2:
            raise OSError("power cut")
        return replace(aside, path)

    monkeypatch.setattr(Path, "replace", power_cut)
    with pytest.raises(OSError, match="power cut"):
        Authority.of(tmp_path, "lab", clock)
    key = (tmp_path / "ca.key").read_bytes()
    agent_certificate(Authority.of(tmp_path, "lab", clock))
    assert (tmp_path / "ca.key").read_bytes() == key


@pytest.mark.parametrize("years", [-50, -6, 11, 60])
def test_an_authority_that_was_made_by_a_wrong_clock_is_of_use_once_that_is_right(
    authority: Authority, tmp_path: Path, clock: Clock, years: int
) -> None:
    made = clock.date
    clock.time = Millis(clock.time + years * 365 * DAY_MS)
    again = Authority.of(tmp_path / "pki", "lab", clock)
    own = x509.load_pem_x509_certificate(again.certificates)
    for moment in (made, clock.date):
        assert own.not_valid_before_utc <= moment <= own.not_valid_after_utc
    # Clients that have the earlier one know the key, and so what it has signed.
    agent_certificate(again).verify_directly_issued_by(
        x509.load_pem_x509_certificate(authority.certificates)
    )
    assert Authority.of(tmp_path / "pki", "lab", clock).certificates == again.certificates


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda pki: (pki / "ca.key").unlink(), "ca.key is missing"),
        (lambda pki: (pki / "ca.key").write_text("x"), "is no private key"),
        (lambda pki: (pki / "ca.pem").write_text("x"), "holds no certificate"),
        (lambda pki: (pki / "other" / "ca.key").rename(pki / "ca.key"), "not of the key"),
    ],
)
def test_an_authority_that_is_not_whole_is_refused(
    authority: Authority, tmp_path: Path, clock: Clock, damage: object, told: str
) -> None:
    Authority.of(tmp_path / "pki" / "other", "lab", clock)
    damage(tmp_path / "pki")  # type: ignore[operator]
    with pytest.raises(InvalidConfig, match=told):
        Authority.of(tmp_path / "pki", "lab", clock)


def test_an_authority_that_is_being_replaced_is_trusted_a_while(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    newer = Authority.of(tmp_path / "newer", "lab", clock)
    bundle = newer.certificates + authority.certificates
    (tmp_path / "newer" / "ca.pem").write_bytes(bundle)
    both = Authority.of(tmp_path / "newer", "lab", clock)
    assert both.certificates == bundle
    issuer = x509.load_pem_x509_certificate(newer.certificates)
    agent_certificate(both).verify_directly_issued_by(issuer)


def test_an_agents_certificate_is_good_for_an_agent_alone(
    authority: Authority, clock: Clock
) -> None:
    certificate = agent_certificate(authority)
    assert certificate.subject.rfc4514_string() == f"CN={ONE}"
    assert MASTER_NAME not in names(certificate)
    assert set(names(certificate)) == {"localhost", "127.0.0.1", "::1"}
    assert certificate.not_valid_after_utc == clock.date + timedelta(days=1)
    assert certificate.not_valid_before_utc == clock.date - timedelta(hours=12)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    # A server on its own machine, whose name is not the master's, and a client anywhere.
    both = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert usages(certificate) == both


def test_a_certificate_outlives_a_clock_that_is_set(authority: Authority, clock: Clock) -> None:
    certificate = agent_certificate(authority, life_ms=DAY_MS)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    # An agent renews it two thirds through, as those of earlier releases do.
    renewed = begin + (end - begin) * 2 / 3
    assert renewed == clock.date + timedelta(hours=12)
    for moment in (clock.date, renewed):
        assert begin <= moment - timedelta(hours=11)
        assert moment + timedelta(hours=11) <= end


@pytest.mark.parametrize("by_ms", [-1, -3 * 3_600_000])
def test_the_masters_certificate_is_made_anew_if_the_clock_is_set_back(
    authority: Authority, tmp_path: Path, clock: Clock, by_ms: int
) -> None:
    identity = ServerIdentity(authority, tmp_path, (), clock, life_ms=3 * DAY_MS)
    first = identity.current()
    clock.time = Millis(clock.time + by_ms)
    second = identity.current()
    assert second.certificate != first.certificate
    assert identity.current() is second


def test_a_short_lived_certificate_is_not_dated_back_by_much(
    authority: Authority, clock: Clock
) -> None:
    certificate = agent_certificate(authority, life_ms=30_000)
    assert certificate.not_valid_before_utc == clock.date - timedelta(seconds=15)


def test_the_masters_certificate_names_its_hosts_and_is_no_clients(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    shown = ServerIdentity(authority, tmp_path, ("10.0.0.1", "master.lab", "[fd00::1]"), clock)
    certificate = x509.load_pem_x509_certificate(shown.current().certificate)
    assert names(certificate)[0] == MASTER_NAME
    assert {"10.0.0.1", "master.lab", "fd00::1", "127.0.0.1"} <= set(names(certificate))
    assert usages(certificate) == {ExtendedKeyUsageOID.SERVER_AUTH}


def test_the_masters_certificate_is_renewed_after_two_thirds_of_its_life(
    authority: Authority, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = ServerIdentity(authority, tmp_path, (), clock, life_ms=3 * DAY_MS)
    first = identity.current()
    clock.time += 2 * DAY_MS - 1
    assert identity.current() is first
    clock.time += 1
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", _full)
        assert identity.current() is first, "a full disk must not close the ports"
    second = identity.current()
    assert second.certificate != first.certificate
    assert second.file.read_bytes() == second.key + second.certificate


def _full(_descriptor: int) -> None:
    raise OSError("No space left on device")


def request(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "i-2")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_a_signing_request_counts_for_its_key_alone() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    assert requested_key(request(key)) == key.public_key()


def test_signing_requests_that_no_agent_makes_are_refused() -> None:
    with pytest.raises(ValueError, match="no PEM certificate signing request"):
        requested_key(b"nonsense")
    with pytest.raises(ValueError, match="P-256"):
        requested_key(request(rsa.generate_private_key(65537, 2048)))
    with pytest.raises(ValueError, match="P-256"):
        requested_key(request(ec.generate_private_key(ec.SECP384R1())))


def test_a_signing_request_must_be_signed_by_its_own_key() -> None:
    mine, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    der = x509.load_pem_x509_csr(request(mine)).public_bytes(Encoding.DER)
    forged = der.replace(_point(mine), _point(other))
    assert forged != der
    body = base64.encodebytes(forged).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
    with pytest.raises(ValueError, match="not signed by its own key"):
        requested_key(pem.encode())


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
