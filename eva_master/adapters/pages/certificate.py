"""The certificate that pages show under a name of their own; a renewed one needs no restart."""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from cryptography import x509

from eva_wire.values.errors import InvalidConfig

log = structlog.get_logger(__name__)


class ShownCertificate:
    """A file with a key and a certificate, which is looked at when somebody connects.

    Args:
        file: The file, which may be written anew.

    Attributes:
        context: For the listener.

    Raises:
        InvalidConfig: The file has no key, or no certificate for it.
    """

    def __init__(self, file: Callable[[], Path]) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._seen: tuple[str, int, int] | None = None
        self._names: frozenset[str] = frozenset()
        self._current = self._loaded()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(file(), password=_none)
        self.context.sni_callback = self._shown

    @property
    def name(self) -> str:
        """A name of the certificate, the first without a wildcard; empty if it has none."""
        return min((name for name in self._names if "*" not in name), default="")

    def covers(self, host: str) -> bool:
        """Whether the certificate is good for a name or an address."""
        host = host.strip("[]").lower()
        above = host.partition(".")[2]
        return host in self._names or (bool(above) and f"*.{above}" in self._names)

    def _shown(self, connection: ssl.SSLObject, _name: str | None, _context: object) -> None:
        """Show the present certificate; called in each handshake."""
        with self._lock:
            try:
                self._current = self._loaded()
            except InvalidConfig as error:
                # The one before may be good for a while.
                log.error("the certificate of the pages cannot be read", reason=error.message)
            connection.context = self._current

    def _loaded(self) -> ssl.SSLContext:
        file = self._file()
        try:
            status = file.stat()
            seen = str(file), status.st_mtime_ns, status.st_size
            if seen == self._seen:
                return self._current
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(file, password=_none)
            names = _names(x509.load_pem_x509_certificates(file.read_bytes())[0])
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"{file} has no certificate for pages: {error}",
                hint="ui.certificate is a PEM file with a key without a password, the certificate "
                "and those of its authorities",
            ) from error
        self._seen, self._names = seen, names
        return context


def _names(certificate: x509.Certificate) -> frozenset[str]:
    """The names and addresses that a certificate is for."""
    try:
        kind = x509.SubjectAlternativeName
        names = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return frozenset()
    stated = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
    addresses = names.get_values_for_type(x509.IPAddress)
    return frozenset(
        stated
        | {
            str(ip)
            for ip in addresses
            if isinstance(ip, ipaddress.IPv4Address | ipaddress.IPv6Address)
        }
    )


def _none() -> str:
    """No password: nobody is asked for one."""
    return ""
