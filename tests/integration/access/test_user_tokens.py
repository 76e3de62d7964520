"""Users' tokens in a database: what is kept, what is refused, what outlives a restart."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eva_master.adapters.identities.principals import AdmittedIdentity, principal_of
from eva_master.adapters.identities.prover import IdentityProver
from eva_master.adapters.identities.sts import Sts
from eva_master.adapters.rpc.identities.service import identities_service
from eva_master.adapters.store import SqlJournal, UserTokens
from eva_wire.values.errors import (
    InvalidConfig,
    LimitExceeded,
    NotAuthenticated,
    NotFound,
    StorageError,
)
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role

ARN = "arn:aws:sts::123456789012:assumed-role/Lab/ana"


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> Millis:
        return Millis(self.time)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{path}") as opened:
        yield opened


@pytest.fixture
def tokens(journal: SqlJournal, clock: HandClock) -> UserTokens:
    return UserTokens(journal.engine, clock)


def test_a_secret_names_its_token(tokens: UserTokens, clock: HandClock) -> None:
    token, secret = tokens.create("ana", Role.USER, 5_000)
    assert tokens.authenticate(secret) == token
    assert (token.owner, token.role) == ("ana", Role.USER)
    assert (token.created_ms, token.expires_ms) == (1_000_000, 1_005_000)
    assert secret.startswith(f"eva_{token.id}_")


def test_no_two_secrets_are_alike(tokens: UserTokens) -> None:
    made = [tokens.create("ana", Role.USER) for _ in range(20)]
    assert len({secret for _, secret in made}) == 20
    assert len({token.id for token, _ in made}) == 20
    assert {len(secret.rpartition("_")[2]) for _, secret in made} == {64}
    for token, secret in made:
        assert tokens.authenticate(secret) == token


def test_the_database_has_the_digest_and_nowhere_the_secret(
    tokens: UserTokens, journal: SqlJournal, path: Path
) -> None:
    token, secret = tokens.create("ana", Role.OPERATOR)
    with closing(sqlite3.connect(path)) as connection:
        (row,) = connection.execute(
            "SELECT id, owner, role, digest, created_ms, expires_ms, revoked_ms FROM user_tokens"
        ).fetchall()
    assert row == (
        *(token.id, "ana", "operator", hashlib.sha256(secret.encode()).hexdigest()),
        *(1_000_000, None, None),
    )
    random = secret.split("_", 2)[2].encode()
    files = [file for file in path.parent.iterdir() if file.is_file()]
    assert len(files) > 1
    assert all(random not in file.read_bytes() for file in files)


def test_what_does_not_fit_is_refused(tokens: UserTokens) -> None:
    token, secret = tokens.create("ana", Role.USER)
    _, other_secret = tokens.create("ben", Role.USER)
    mixed = f"eva_{token.id}_{other_secret.split('_', 2)[2]}"
    for wrong in ("", "eva", token.id, secret[:-1], secret + "x", mixed, f"eva_{token.id}_", "é"):
        with pytest.raises(NotAuthenticated, match="does not know this token"):
            tokens.authenticate(wrong)


def test_a_token_ends_on_the_millisecond(tokens: UserTokens, clock: HandClock) -> None:
    token, secret = tokens.create("ana", Role.USER, 5_000)
    clock.time += 4_999
    assert tokens.authenticate(secret) == token
    clock.time += 1
    with pytest.raises(NotAuthenticated, match=f"token {token.id} of ana has expired") as caught:
        tokens.authenticate(secret)
    assert "operator" in caught.value.hint
    with pytest.raises(NotAuthenticated):
        tokens.check(token.id)


def test_a_revoked_token_is_refused_at_once_and_after_a_restart(
    tokens: UserTokens, journal: SqlJournal, clock: HandClock
) -> None:
    kept, kept_secret = tokens.create("ana", Role.USER)
    token, secret = tokens.create("ben", Role.USER)
    revoked = tokens.revoke(token.id)
    assert revoked.revoked_ms == clock.time
    clock.time += 10
    # Once is for ever: the time stays.
    assert tokens.revoke(token.id) == revoked
    for each in (tokens, UserTokens(journal.engine, clock)):
        with pytest.raises(NotAuthenticated, match="of ben was revoked"):
            each.authenticate(secret)
        assert each.authenticate(kept_secret) == kept
        assert each.all() == tuple(sorted((kept, revoked), key=lambda one: one.id))


def test_a_token_that_is_not_there_cannot_be_revoked(tokens: UserTokens) -> None:
    with pytest.raises(NotFound, match="no token 'nope'"):
        tokens.revoke("nope")


@pytest.mark.parametrize("owner", ["", "a b", "-ana", "ana\n", "a" * 64, "../ana"])
def test_nobody_has_such_a_name(tokens: UserTokens, owner: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot be an owner"):
        tokens.create(owner, Role.USER)
    assert tokens.all() == ()


def test_what_the_database_refuses_has_not_happened(tokens: UserTokens, path: Path) -> None:
    _, secret = tokens.create("ana", Role.USER)
    with closing(sqlite3.connect(path)) as connection:
        for verb in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TRIGGER full{verb} BEFORE {verb} ON user_tokens"
                " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
            )
    with pytest.raises(StorageError, match="disk is full"):
        tokens.create("ben", Role.USER)
    with pytest.raises(StorageError, match="disk is full"):
        tokens.revoke(tokens.all()[0].id)
    assert [token.owner for token in tokens.all()] == ["ana"]
    assert tokens.authenticate(secret).owner == "ana"


def test_tokens_that_are_lent_are_bounded_and_forgotten_after_a_month(
    tokens: UserTokens, journal: SqlJournal, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.store.user_tokens._MOST_TEMPORARY", 3)
    lasting, _ = tokens.create("ana", Role.USER, 10_000_000_000)
    revoked, _ = tokens.issue_temporary("ana", Role.USER, 5_000, ARN)
    tokens.revoke(revoked.id)
    issued = [tokens.issue_temporary("ana", Role.USER, 5_000, ARN)[0] for _ in range(3)]
    with pytest.raises(LimitExceeded, match="ana has 3 tokens"):
        tokens.issue_temporary("ana", Role.USER, 5_000, ARN)
    tokens.issue_temporary("ben", Role.USER, 5_000, ARN)
    clock.time += 5_000
    tokens.issue_temporary("ana", Role.USER, 5_000, ARN)
    assert {token.id for token in issued} < {token.id for token in tokens.all()}
    clock.time += 31 * 86_400_000
    last, _ = tokens.issue_temporary("ana", Role.USER, 5_000, ARN)
    assert {token.id for token in tokens.all()} == {lasting.id, last.id}
    # The table has forgotten them, too.
    assert {token.id for token in UserTokens(journal.engine, clock).all()} == {lasting.id, last.id}


def lets_in(clock: HandClock, *entries: tuple[str, str | None, Role]) -> IdentityProver:
    """Decides about the identities of a list."""
    listed = [AdmittedIdentity(principal_of(arn)[0], owner, role) for arn, owner, role in entries]
    return IdentityProver("lab", "", sts=Sts("us-east-2"), entries=listed, wall=clock.now)


def test_a_master_that_starts_revokes_the_tokens_of_identities_that_are_listed_no_more(
    journal: SqlJournal, clock: HandClock
) -> None:
    role, user = ARN, "arn:aws:iam::123456789012:user/team/ben"
    first = UserTokens(journal.engine, clock)
    made, _ = first.create("ana", Role.OPERATOR, 5_000)
    by_role, _ = first.issue_temporary("ana", Role.USER, 5_000, role)
    by_user, _ = first.issue_temporary("ben", Role.USER, 5_000, user)
    both = ((role, None, Role.USER), (user, "ben", Role.USER))

    def valid(*entries: tuple[str, str | None, Role]) -> set[str]:
        """Tokens in force once a master has started with a list."""
        tokens = UserTokens(journal.engine, clock)
        identities_service(tokens, lets_in(clock, *entries) if entries else None)
        return {token.id for token in tokens.all() if token.revoked_ms is None}

    assert valid(*both) == {made.id, by_role.id, by_user.id}
    # Another owner or role, and no entry any more.
    assert valid(both[0], (user, "ben", Role.VIEWER)) == {made.id, by_role.id}
    by_user, _ = first.issue_temporary("ben", Role.USER, 5_000, user)
    assert valid(both[0], (user, "eve", Role.USER)) == {made.id, by_role.id}
    assert valid(both[1]) == {made.id}
    by_user, _ = first.issue_temporary("ben", Role.USER, 5_000, user)
    assert valid(both[1]) == {made.id, by_user.id}
    assert valid() == {made.id}
