"""Pages under a name of the operator's: TLS, whose certificate may be renewed."""

from __future__ import annotations

import asyncio
import datetime
import http.client
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eva_master.adapters.pages.certificate import ShownCertificate
from eva_master.adapters.pages.server import Listener, tcp_listener
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.pages import PageMaster, page_master

NAMES = ("eva.example", "*.pages.example")


def write_certificate(file: Path, *names: str) -> bytes:
    """Write a key and a certificate for names; returns the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    return made.public_bytes(Encoding.DER)


class Named:
    """Pages at a port, under the names of a certificate."""

    def __init__(self, pages: PageMaster, port: int, file: Path) -> None:
        self.pages = pages
        self.port = port
        self.file = file

    def ask(
        self, path: str, host: str = "eva.example", cookie: str = ""
    ) -> tuple[int, http.client.HTTPMessage, bytes | None]:
        """The answer to a browser that calls the server by a name, and its certificate."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=DEADLINE_S, context=context
        )
        connection.connect()
        try:
            shown = connection.sock.getpeercert(binary_form=True)  # type: ignore[union-attr]
            headers = {"host": f"{host}:{self.port}"} | ({"cookie": cookie} if cookie else {})
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers, shown
        finally:
            connection.close()


@pytest.fixture
async def named(tmp_path: Path) -> AsyncIterator[Named]:
    file = tmp_path / "pages.pem"
    write_certificate(file, *NAMES)
    shown = ShownCertificate(lambda: file)
    assert shown.name == "eva.example"
    listener = tcp_listener("ui.listen", "127.0.0.1:0")
    extra = Listener(listener, shown.covers, shown.context)
    async with page_master(tmp_path, extra=[extra]) as pages:
        yield Named(pages, listener.getsockname()[1], file)
    listener.close()


async def test_a_browser_logs_in_over_tls_with_a_secure_cookie(named: Named) -> None:
    token, _ = named.pages.master.tokens.create("ana", Role.USER)
    code = named.pages.codes.make(token.id)
    status, headers, _ = await asyncio.to_thread(named.ask, f"/login?code={code}")
    assert status == 303
    cookie = headers["set-cookie"]
    assert cookie.startswith(f"eva_test_{named.port}=")
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    pair = cookie.partition(";")[0]
    status, _, _ = await asyncio.to_thread(named.ask, "/", "eva.example", pair)
    assert status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("eva.example", 401),
        ("EVA.example", 401),
        ("one.pages.example", 401),
        ("pages.example", 421),
        ("a.b.pages.example", 421),
        ("localhost", 421),
        ("127.0.0.1", 421),
        ("evil.example", 421),
    ],
)
async def test_pages_answer_under_the_names_of_the_certificate_alone(
    named: Named, host: str, status: int
) -> None:
    assert (await asyncio.to_thread(named.ask, "/", host))[0] == status


async def test_a_renewed_certificate_is_shown_without_a_restart(named: Named) -> None:
    before = (await asyncio.to_thread(named.ask, "/"))[2]
    renewed = write_certificate(named.file, "new.example")
    status, _, shown = await asyncio.to_thread(named.ask, "/", "new.example")
    assert (status, shown) == (401, renewed)
    assert shown != before
    named.file.write_text("half a file")
    status, _, shown = await asyncio.to_thread(named.ask, "/", "new.example")
    assert (status, shown) == (401, renewed)


def test_a_file_without_a_certificate_is_told(tmp_path: Path) -> None:
    file = tmp_path / "pages.pem"
    with pytest.raises(InvalidConfig, match="has no certificate for pages"):
        ShownCertificate(lambda: file)
    file.write_text("nonsense")
    with pytest.raises(InvalidConfig, match="has no certificate for pages") as error:
        ShownCertificate(lambda: file)
    assert "ui.certificate" in error.value.hint


def test_a_port_that_is_taken_is_told() -> None:
    with tcp_listener("ui.listen", "127.0.0.1:0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"ui.listen: cannot listen on 127.0.0.1:{port}"):
            tcp_listener("ui.listen", f"127.0.0.1:{port}")
