"""Notices go to HTTPS and this machine alone, and never where instances find credentials."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from eva_master.adapters.notices.addresses import refusal, target_of


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "secure"),
    [
        ("https://hooks.example.com/a/b?c=d", "hooks.example.com", 443, "/a/b?c=d", True),
        ("https://example.com", "example.com", 443, "/", True),
        ("https://10.0.0.5:8443/x", "10.0.0.5", 8443, "/x", True),
        ("http://127.0.0.1:8080/x", "127.0.0.1", 8080, "/x", False),
        ("http://localhost/x", "localhost", 80, "/x", False),
        ("http://[::1]:9/x", "::1", 9, "/x", False),
    ],
)
def test_a_url_is_read(url: str, host: str, port: int, path: str, secure: bool) -> None:
    target = target_of(url)
    assert (target.host, target.port, target.path, target.secure) == (host, port, path, secure)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "http://10.0.0.5/x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "https:///x",
        "https://ana:pw@example.com/x",
        "https://example.com/x#part",
        "https://example.com/a b",
        "https://example.com/\r\nHost: other",
        "https://example.com/\u00e9",
        "https://exam_ple.com/x",
        "https://example.com:99999/x",
        "https://[fe80::1%25eth0]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00:ec2::254]/latest",
        "https://[::ffff:169.254.169.254]/latest",
        "https://[64:ff9b::a9fe:a9fe]/latest",
        "https://[2002:a9fe:a9fe::]/latest",
        "https://0.0.0.0/x",
        "https://[::]/x",
        "https://224.0.0.1/x",
        "https://255.255.255.255/x",
        "https://example.com/" + "x" * 3_000,
    ],
)
def test_what_is_no_receiver_is_refused_without_its_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        target_of(url)
    assert "/x" not in str(caught.value).replace("https://HOST/PATH", "")
    assert "pw" not in str(caught.value).split()


@pytest.mark.parametrize(
    ("addresses", "allowed"),
    [
        (["93.184.216.34"], True),
        (["10.0.0.5", "192.168.1.1", "fd12::1"], True),
        (["127.0.0.1"], True),
        (["93.184.216.34", "169.254.169.254"], False),
        (["fe80::1"], False),
        (["::ffff:169.254.169.254"], False),
        (["fd00:ec2::254"], False),
        (["100.100.100.200"], False),
    ],
)
def test_all_addresses_of_a_name_have_to_be_allowed(addresses: list[str], allowed: bool) -> None:
    target = target_of("https://example.com/x")
    assert (not refusal(map(ip_address, addresses), target)) is allowed


def test_unencrypted_is_only_this_machine_whatever_its_name_stands_for() -> None:
    target = target_of("http://localhost/x")
    assert not refusal([ip_address("127.0.0.1"), ip_address("::1")], target)
    assert refusal([ip_address("127.0.0.1"), ip_address("10.0.0.5")], target)


def test_people_are_shown_no_path() -> None:
    assert target_of("https://hooks.slack.com/services/T/B/secret").shown == (
        "https://hooks.slack.com"
    )
    assert target_of("http://[::1]:9/x").shown == "http://[::1]:9"
