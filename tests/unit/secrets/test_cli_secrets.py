"""The command secret: where values come from, and what is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_client.cli import secrets as module
from eva_wire.values.errors import NotAuthorised
from tests.fakes.rpc.api import NOW_MS, FakeApi, sample_jobs

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)

    def run(*arguments: str, value: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, ["secret", *arguments], input=value)

    return run


def value_of(api: FakeApi, name: str = "TOKEN", tenant: str = "") -> bytes:
    return api.secrets[tenant, name].value


@pytest.mark.parametrize(
    ("typed", "kept"),
    [("abc\n", b"abc"), ("abc", b"abc"), ("a\nb\n\n", b"a\nb\n"), (b"\xff\n", b"\xff")],
)
def test_a_value_comes_from_standard_input_without_its_last_line_feed(
    eva: Run, api: FakeApi, typed: str | bytes, kept: bytes
) -> None:
    result = eva("set", "TOKEN", value=typed)
    assert (result.exit_code, result.stdout) == (0, "set TOKEN\n")
    assert value_of(api) == kept
    assert eva("set", "TOKEN", value=typed).stdout == "TOKEN has that value already\n"


def test_a_value_comes_from_a_file(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"x" * 65_536 + b"\n")
    result = eva("set", "TOKEN", "--file", str(file), "--tenant", "red")
    assert (result.exit_code, result.stdout) == (0, "set TOKEN for tenant red\n")
    assert value_of(api, tenant="red") == b"x" * 65_536


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"x" * 65_537, "the value of TOKEN has more than 65,536 bytes"),
        (b"x" * 10_000_000, "the value of TOKEN has more than 65,536 bytes"),
    ],
)
def test_a_file_that_is_none_or_too_long_is_told(
    eva: Run, api: FakeApi, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    result = eva("set", "TOKEN", "--file", str(file))
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) <= 2
    assert api.secrets == {}


def test_a_value_is_asked_for_and_not_shown(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_asks", lambda: True)
    result = eva("set", "TOKEN", value="typed secret\n")
    assert result.exit_code == 0
    assert value_of(api) == b"typed secret"
    assert "typed secret" not in result.output + result.stderr


def test_what_is_typed_and_is_no_text_is_left_to_the_master_to_refuse(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_asks", lambda: True)
    monkeypatch.setattr(module.click, "prompt", lambda *_, **__: "a\udcffb")
    result = eva("set", "TOKEN")
    assert result.exit_code == 0, result.output
    assert value_of(api) == b"a\xffb"


def test_jobs_that_use_it_are_told(eva: Run, api: FakeApi) -> None:
    api.jobs = sample_jobs()
    names = list(api.jobs)
    users = f"{names[0]}, {names[1]} and {len(names) - 2} other"
    result = eva("set", "TOKEN", value="x")
    assert f"used by {users}" in result.stderr
    assert "tasks that run keep what they have" in result.stderr
    result = eva("rm", "TOKEN", "-y")
    assert (result.exit_code, result.stdout) == (0, "removed TOKEN\n")
    assert "that begin from now on wait until it is set again" in result.stderr


def test_secrets_are_listed_without_values(eva: Run) -> None:
    for name, tenant in (("TOKEN", ""), ("OLD_KEY", "red")):
        eva("set", name, "--tenant", tenant, value="a value")
    listed = eva("ls")
    assert "a value" not in listed.stdout
    header, first, second = listed.stdout.splitlines()
    assert header.split() == ["NAME", "OF", "VERSION", "SET", "STATE"]
    assert first.split() == ["TOKEN", "you", "3", "1m", "0s", "ago", "set"]
    assert second.split()[:3] == ["OLD_KEY", "tenant", "red"]
    assert second.endswith("unreadable: set it again")
    assert json.loads(eva("ls", "--json").stdout)["secrets"][1] == {
        "name": "OLD_KEY",
        "tenant": "red",
        "version": 3,
        "set_ms": NOW_MS - 60_000,
        "set_by": "ana",
        "unreadable": True,
    }


def test_a_removal_is_confirmed(eva: Run, api: FakeApi) -> None:
    eva("set", "TOKEN", value="x")
    assert eva("rm", "TOKEN", value="n\n").exit_code == 1
    assert api.secrets
    assert eva("rm", "TOKEN", value="y\n").exit_code == 0
    assert api.secrets == {}
    missing = eva("rm", "TOKEN", "-y")
    assert (missing.exit_code, "you have no secret 'TOKEN'" in missing.stderr) == (1, True)


def test_a_refusal_is_told_without_the_value(eva: Run, api: FakeApi) -> None:
    api.failures["Secrets.Set"] = [NotAuthorised("tenants are for operators", hint="ask one")]
    result = eva("set", "TOKEN", "--tenant", "red", value="a value")
    assert result.exit_code == 1
    assert "tenants are for operators" in result.stderr
    assert "a value" not in result.output + result.stderr
