"""What the command is told about the master: by files, variables and flags."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from eva_client.settings import client_file, load_client_config, write_aws_settings
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.store import SqlJournal, UserTokens
from eva_master.app.operator import write_client_file
from eva_wire.values.errors import InvalidConfig, NotAuthenticated
from eva_wire.values.users import Role
from tests.fakes.rpc.authority import authority


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings."""
    for name in list(os.environ):
        if name.startswith("EVA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def own_file(home: Path, text: str, mode: int = 0o600) -> Path:
    return write(home / "config" / "eva" / "config.yaml", text, mode)


def test_file_then_variable_then_flag(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_file(home, "address: one:1\nca_file: /one\ntoken: first\n")
    config = load_client_config()
    assert (config.address, config.ca_file, config.secret()) == ("one:1", Path("/one"), "first")
    monkeypatch.setenv("EVA_ADDRESS", "two:2")
    monkeypatch.setenv("EVA_CA_FILE", "/two")
    monkeypatch.setenv("EVA_TOKEN", "second")
    config = load_client_config()
    assert (config.address, config.ca_file, config.secret()) == ("two:2", Path("/two"), "second")
    third = write(home / "token", "third\n")
    flags = {"address": "three:3", "ca_file": "/three", "token_file": str(third)}
    config = load_client_config(flags)
    assert (config.address, config.ca_file, config.secret()) == ("three:3", Path("/three"), "third")


def test_the_token_file_of_a_variable_counts_before_the_token_of_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file(home, "token: first\n")
    monkeypatch.setenv("EVA_TOKEN_FILE", str(write(home / "token", "second")))
    assert load_client_config().secret() == "second"


def test_token_and_token_file_in_one_place_are_one_too_many(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file(home, "token: a\ntoken_file: b\n")
    with pytest.raises(InvalidConfig, match="token and token_file are both set"):
        load_client_config()
    own_file(home, "")
    monkeypatch.setenv("EVA_TOKEN", "a")
    monkeypatch.setenv("EVA_TOKEN_FILE", "b")
    with pytest.raises(InvalidConfig, match="EVA_TOKEN and EVA_TOKEN_FILE are both set"):
        load_client_config()


def test_which_file_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_file() is None
    left = write(home / "state" / "eva" / "client.yaml", "address: left:1\n")
    assert (client_file(), load_client_config().address) == (left, "left:1")
    own = own_file(home, "address: own:1\n")
    assert (client_file(), load_client_config().address) == (own, "own:1")
    named = write(home / "named.yaml", "address: named:1\n")
    monkeypatch.setenv("EVA_CONFIG", str(named))
    assert (client_file(), load_client_config().address) == (named, "named:1")
    monkeypatch.setenv("EVA_CONFIG", str(home / "none.yaml"))
    with pytest.raises(InvalidConfig, match=r"none.yaml cannot be read"):
        load_client_config()


def test_paths_in_the_file_are_relative_to_it_and_others_to_where_one_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_file(home, "ca_file: ca.pem\ntoken_file: token\n")
    write(file.with_name("token"), "from-file")
    config = load_client_config()
    assert config.ca_file == file.with_name("ca.pem")
    assert config.secret() == "from-file"
    monkeypatch.setenv("EVA_CA_FILE", "ca.pem")
    assert load_client_config().ca_file == Path("ca.pem")
    monkeypatch.setenv("HOME", str(home))
    own_file(home, "ca_file: ~/ca.pem\n")
    monkeypatch.delenv("EVA_CA_FILE")
    assert load_client_config().ca_file == home / "ca.pem"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_what_holds_a_token_is_for_its_owner_alone(
    home: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_file(home, "token: secret\n", mode)
    with pytest.raises(InvalidConfig, match="others can read or change it") as caught:
        load_client_config()
    assert f"chmod 600 {file}" in caught.value.hint
    assert "secret" not in caught.value.message
    # Without a token, or with one that does not come from there, it may be anybody's.
    monkeypatch.setenv("EVA_TOKEN", "other")
    assert load_client_config().secret() == "other"
    monkeypatch.delenv("EVA_TOKEN")
    own_file(home, "address: one:1\n", mode)
    load_client_config()
    own_file(home, "token_file: token\n", mode)
    write(file.with_name("token"), "secret", mode)
    with pytest.raises(InvalidConfig, match="others can read or change it"):
        load_client_config().secret()


@pytest.mark.parametrize("token", ["a b", "a\\n", "é", ""])
def test_what_cannot_be_a_token_is_not_shown(home: Path, token: str) -> None:
    own_file(home, f'address: one:1\ntoken: "{token}"\n')
    with pytest.raises(InvalidConfig, match=r"config.yaml:2:1: token: this cannot be a token"):
        load_client_config()


def test_tokens_are_not_printed(home: Path) -> None:
    own_file(home, "token: secret\n")
    config = load_client_config()
    assert "secret" not in repr(config) + str(config.model_dump(mode="json"))


def test_unknown_keys_are_refused(home: Path) -> None:
    own_file(home, "adress: one:1\n")
    with pytest.raises(InvalidConfig, match=r"config.yaml:1:1: adress: unknown key"):
        load_client_config()


def test_authorities_that_are_none(home: Path) -> None:
    with pytest.raises(InvalidConfig, match="no ca_file is set") as caught:
        load_client_config().authorities()
    assert "eva up" in caught.value.hint
    with pytest.raises(InvalidConfig, match="nowhere cannot be read: No such file"):
        load_client_config({"ca_file": "/nowhere"}).authorities()
    other = write(home / "ca.pem", "hello")
    with pytest.raises(InvalidConfig, match="has no certificate"):
        load_client_config({"ca_file": str(other)}).authorities()
    ca_file = str(authority().ca_file)
    assert load_client_config({"ca_file": ca_file}).authorities() == authority().certificates


def test_a_token_file_that_is_none(home: Path) -> None:
    with pytest.raises(InvalidConfig, match="nowhere cannot be read"):
        load_client_config({"token_file": "/nowhere"}).secret()
    file = write(home / "token", "one\ntwo\n")
    with pytest.raises(InvalidConfig, match="does not hold a token and no more"):
        load_client_config({"token_file": str(file)}).secret()


# -- what a master leaves for its own user ---------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[UserTokens]:
    with SqlJournal.open(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        yield UserTokens(journal.engine, SystemClock())


@pytest.fixture
def state_dir(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `eva up` keeps its state."""
    monkeypatch.setenv("LOGNAME", "ana")
    directory = home / "state" / "eva"
    directory.mkdir(parents=True)
    return directory


def test_the_first_start_leaves_an_operators_token(tokens: UserTokens, state_dir: Path) -> None:
    file = write_client_file(state_dir, "one:1", authority().ca_file, tokens)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    config = load_client_config()
    assert config.address == "one:1"
    assert config.authorities() == authority().certificates
    token = tokens.authenticate(config.secret())
    assert (token.owner, token.role, token.expires_ms) == ("ana", Role.OPERATOR, None)


def test_a_later_start_keeps_the_token_and_tells_the_new_address(
    tokens: UserTokens, state_dir: Path
) -> None:
    write_client_file(state_dir, "one:1", authority().ca_file, tokens)
    secret = load_client_config().secret()
    write_client_file(state_dir, "two:2", authority().ca_file, tokens)
    config = load_client_config()
    assert (config.address, config.secret()) == ("two:2", secret)
    assert len(tokens.all()) == 1


@pytest.mark.parametrize("spoilt", ["revoked", "viewer", "damaged", "foreign", "gone", "list"])
def test_a_token_that_is_of_no_use_is_replaced(
    tokens: UserTokens, state_dir: Path, spoilt: str
) -> None:
    file = write_client_file(state_dir, "one:1", authority().ca_file, tokens)
    match spoilt:
        case "revoked":
            tokens.revoke(tokens.all()[0].id)
        case "viewer":
            file.write_text(yaml.safe_dump({"token": tokens.create("ana", Role.VIEWER)[1]}))
        case "damaged":
            file.write_text("{")
        case "foreign":
            file.write_text("token: eva_00000000_x\n")
        case "gone":
            file.unlink()
        case "list":
            file.write_text("- token\n")
    write_client_file(state_dir, "one:1", authority().ca_file, tokens)
    token = tokens.authenticate(load_client_config().secret())
    assert (token.owner, token.role) == ("ana", Role.OPERATOR)


@pytest.mark.parametrize("name", ["a b", ""])
def test_a_login_name_that_nobody_can_have(
    tokens: UserTokens, state_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: name)
    write_client_file(state_dir, "one:1", authority().ca_file, tokens)
    assert [token.owner for token in tokens.all()] == ["operator"]


def test_where_operators_prove_who_they_are_no_token_of_theirs_outlasts_a_start(
    tokens: UserTokens, state_dir: Path
) -> None:
    """An earlier release left its token in the account's Parameter Store."""
    write_client_file(state_dir, "one:1", authority().ca_file, tokens)
    standing = load_client_config().secret()
    write_client_file(state_dir, "one:1", authority().ca_file, tokens, renewed=True)
    with pytest.raises(NotAuthenticated, match="was revoked"):
        tokens.authenticate(standing)
    assert tokens.authenticate(load_client_config().secret()).role is Role.OPERATOR


def test_settings_for_an_identity_hold_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some where" / "lab.yaml"
    write_aws_settings(file, "one:1", authority().certificates.decode())
    monkeypatch.setenv("EVA_CONFIG", str(file))
    config = load_client_config()
    assert (config.identity, config.secret()) == ("aws", "")
    assert config.authorities() == authority().certificates
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open("a") as more:
        more.write("token: eva_1_2\n")
    with pytest.raises(InvalidConfig, match="both set"):
        load_client_config()
