"""Secrets at rest: sealed, bounded, and bound to whom they are of."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, update

from eva_master.adapters.secrets.key import SecretKey
from eva_master.adapters.secrets.vault import SecretVault
from eva_master.adapters.store.rows import sealed
from eva_master.adapters.store.tables import SECRETS
from eva_master.model.secrets import Holder, NeededSecrets
from eva_wire.values.errors import (
    InvalidConfig,
    InvalidSecret,
    LimitExceeded,
    NotFound,
    StorageError,
    UnreadableSecret,
)
from eva_wire.values.ids import Millis
from tests.fakes.rpc.server import database

ANA, BEN, RED = Holder.user("ana"), Holder.user("ben"), Holder.tenant("red")
KEY, OTHER_KEY = SecretKey(bytes(range(32))), SecretKey(bytes(range(1, 33)))
TOKEN = NeededSecrets("ana", "red", ("TOKEN",))


class _Clock:
    def now(self) -> Millis:
        return Millis(5_000)


def vault(engine: Engine, key: SecretKey = KEY, *, most_bytes: int = 99) -> SecretVault:
    return SecretVault(engine, key, _Clock(), most=3, most_bytes=most_bytes)


@pytest.fixture
def engine() -> Engine:
    return database()


def column(engine: Engine, name: str) -> list[object]:
    with engine.begin() as connection:
        return [row[0] for row in connection.execute(select(SECRETS.c[name]))]


def test_a_new_value_is_a_new_version_and_the_same_is_none(engine: Engine) -> None:
    secrets = vault(engine)
    first, new = secrets.set((ANA, "TOKEN"), b"one", by="ana")
    assert (first.version, first.set_ms, first.size, new) == (1, 5_000, 3, True)
    assert secrets.set((ANA, "TOKEN"), b"one", by="ana") == (first, False)
    assert secrets.set((ANA, "TOKEN"), b"two", by="ana")[0].version == 2
    assert secrets.values(TOKEN) == {"TOKEN": "two"}
    # Another master, or the next start of this one, has the same.
    after = vault(engine)
    assert (after.of(ANA), after.values(TOKEN)) == (secrets.of(ANA), {"TOKEN": "two"})
    assert column(engine, "version") == [2]


def test_a_secret_that_is_set_again_after_its_removal_has_its_new_value(engine: Engine) -> None:
    secrets = vault(engine)
    for value in ("one", "two"):
        record, _ = secrets.set((ANA, "TOKEN"), value.encode(), by="ana")
        assert (record.version, secrets.values(TOKEN)) == (1, {"TOKEN": value})
        secrets.remove((ANA, "TOKEN"))
        assert secrets.missing(TOKEN) == ("TOKEN",)


def test_the_owners_own_comes_first_then_the_tenants(engine: Engine) -> None:
    secrets = vault(engine)
    with pytest.raises(UnreadableSecret, match="TOKEN is not set for ana, nor for tenant red"):
        secrets.values(TOKEN)
    assert secrets.missing(TOKEN) == ("TOKEN",)
    secrets.set((BEN, "TOKEN"), b"of ben", by="ben")
    secrets.set((Holder.tenant("ana"), "TOKEN"), b"of another tenant", by="op")
    secrets.set((Holder.user("red"), "TOKEN"), b"of another user", by="red")
    assert secrets.missing(TOKEN) == ("TOKEN",)
    secrets.set((RED, "TOKEN"), b"of the tenant", by="op")
    assert secrets.values(TOKEN) == {"TOKEN": "of the tenant"}
    secrets.set((ANA, "TOKEN"), b"of ana", by="ana")
    assert secrets.values(TOKEN) == {"TOKEN": "of ana"}
    assert [record.holder for record in secrets.of(ANA, RED)] == [ANA, RED]
    secrets.remove((ANA, "TOKEN"))
    assert (secrets.values(TOKEN), secrets.missing(TOKEN)) == ({"TOKEN": "of the tenant"}, ())
    with pytest.raises(NotFound, match="you have no secret 'TOKEN'"):
        secrets.remove((ANA, "TOKEN"))
    with pytest.raises(NotFound, match="tenant red has no secret 'NONE'"):
        secrets.remove((RED, "NONE"))


def test_what_is_stored_says_nothing_of_the_value(engine: Engine) -> None:
    secrets = vault(engine)
    for name in ("A", "B"):
        secrets.set((ANA, name), b"the same value", by="ana")
    first, second = column(engine, "sealed")
    assert isinstance(first, bytes)
    assert first != second
    assert b"the same" not in first
    assert len(first) == len(b"the same value") + 12 + 16


@pytest.mark.parametrize(
    "change",
    [
        {"name": "OTHER"},
        {"holder": "ben"},
        {"kind": "tenant"},
        {"version": 2},
        {"sealed": b""},
        {"sealed": b"x" * 40},
    ],
)
def test_a_value_is_bound_to_its_owner_name_and_version(
    engine: Engine, change: dict[str, object]
) -> None:
    vault(engine).set((ANA, "TOKEN"), b"value", by="ana")
    with engine.begin() as connection:
        row = dict(connection.execute(select(SECRETS)).one()._mapping) | change
        connection.execute(update(SECRETS).values(**sealed(SECRETS, [row])[0]))
    needs = NeededSecrets(
        "ben" if "holder" in change else "ana",
        "ana" if "kind" in change else "red",
        (str(change.get("name", "TOKEN")),),
    )
    secrets = vault(engine)
    with pytest.raises(UnreadableSecret, match="cannot be read") as refused:
        secrets.values(needs)
    assert "eva secret set" in refused.value.hint
    assert [record.unreadable for record in secrets.of(ANA, BEN, Holder.tenant("ana"))] == [True]
    assert secrets.missing(needs) == needs.names


def test_a_damaged_row_is_told_at_the_start(engine: Engine) -> None:
    vault(engine).set((ANA, "TOKEN"), b"value", by="ana")
    with engine.begin() as connection:
        connection.execute(update(SECRETS).values(size=1))
    with pytest.raises(StorageError, match="damaged record of secrets"):
        vault(engine)


def test_secrets_of_another_key_are_there_and_cannot_be_read_until_they_are_set_again(
    engine: Engine,
) -> None:
    vault(engine).set((ANA, "TOKEN"), b"value", by="ana")
    secrets = vault(engine, OTHER_KEY)
    (record,) = secrets.of(ANA)
    assert (record.unreadable, record.version) == (True, 1)
    assert (secrets.names(), secrets.missing(TOKEN)) == (frozenset(), ("TOKEN",))
    again, new = secrets.set((ANA, "TOKEN"), b"value", by="ana")
    assert (again.unreadable, again.version, new) == (False, 2, True)
    assert secrets.values(TOKEN) == {"TOKEN": "value"}
    assert secrets.names() == {(ANA, "TOKEN")}
    # The tenant's counts where one's own cannot be read.
    third = vault(engine)
    third.set((RED, "TOKEN"), b"of the tenant", by="op")
    assert third.values(TOKEN) == {"TOKEN": "of the tenant"}


def test_a_holder_has_few_secrets_and_few_bytes(engine: Engine) -> None:
    secrets = vault(engine)
    for name in "ABC":
        secrets.set((ANA, name), b"x" * 33, by="ana")
    secrets.set((BEN, "A"), b"x" * 99, by="ben")
    with pytest.raises(LimitExceeded, match=r"you would have 4 secrets, and 3 .*secrets_per_user"):
        secrets.set((ANA, "D"), b"x", by="ana")
    with pytest.raises(LimitExceeded, match=r"100 bytes together, and 99 .*secret_bytes_per_user"):
        secrets.set((ANA, "B"), b"x" * 34, by="ana")
    secrets.set((ANA, "B"), b"x" * 32, by="ana")
    secrets.set((ANA, "C"), b"x" * 34, by="ana")
    assert [record.size for record in secrets.of(ANA)] == [33, 32, 34]


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("EVA_TOKEN", b"x", "set by the cluster", "choose another name"),
        ("MASTER_PORT", b"x", "set by the cluster", "choose another name"),
        ("", b"x", "cannot be an environment variable", "use letters"),
        ("A=B", b"x", "cannot be an environment variable", "use letters"),
        ("A\nB", b"x", "cannot be an environment variable", "use letters"),
        ("../A", b"x", "cannot be an environment variable", "use letters"),
        ("Ä", b"x", "cannot be an environment variable", "use letters"),
        ("A" * 201, b"x", "cannot be an environment variable", "use letters"),
        ("A", b"", "is empty", "standard input"),
        ("A", b"a\0b", "is no text", "base64 FILE | eva secret set A"),
        ("A", b"\xff\xfe", "is no text", "base64 FILE | eva secret set A"),
        ("A", b"x" * 65_537, "65,537 bytes, at most 65,536", "object store"),
    ],
)
def test_what_is_no_secret_is_refused_in_a_line(
    engine: Engine, name: str, value: bytes, message: str, hint: str
) -> None:
    secrets = vault(engine, most_bytes=10**6)
    with pytest.raises(InvalidSecret) as refused:
        secrets.set((ANA, name), value, by="ana")
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert "\n" not in refused.value.message
    assert secrets.of(ANA) == []
    longest = b"x" * 65_536
    assert secrets.set((ANA, "A"), longest, by="ana")[0].size == 65_536


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    key, file = SecretKey.of(tmp_path), tmp_path / "secrets.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = file.read_bytes()
    assert SecretKey.of(tmp_path).id == key.id
    assert file.read_bytes() == written
    assert written.decode() not in repr(key)
    file.unlink()
    assert SecretKey.of(tmp_path).id != key.id


@pytest.mark.parametrize("text", ["", "00" * 32, "ab" * 32, "zz" * 32, "0123456789abcdef" * 2])
def test_a_key_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "secrets.key").write_text(text)
    with pytest.raises(InvalidConfig, match=r"secrets.key is no key") as refused:
        SecretKey.of(tmp_path)
    assert "restore it from a backup" in refused.value.hint
