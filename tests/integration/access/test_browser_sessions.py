"""Codes are good for a minute, and sessions for twelve hours, never longer than their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eva_master.adapters.pages.sessions import CODE_S, SESSION_MS, BrowserSessions, LoginCodes
from eva_master.adapters.store import SqlJournal, UserTokens
from eva_wire.values.errors import NotAuthenticated
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now(self) -> Millis:
        return Millis(self.ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Iterator[UserTokens]:
    with SqlJournal.open(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        yield UserTokens(journal.engine, clock)


@pytest.mark.parametrize(("after_s", "good"), [(CODE_S - 0.1, True), (CODE_S, False)])
def test_a_code_is_good_for_a_minute(after_s: float, *, good: bool) -> None:
    now_s = 100.0
    codes = LoginCodes(lambda: now_s)
    code = codes.make("token")
    now_s += after_s
    if good:
        assert codes.use(code) == "token"
    with pytest.raises(NotAuthenticated, match="used once, within a minute"):
        codes.use(code)


def test_a_session_ends_after_twelve_hours(
    tmp_path: Path, tokens: UserTokens, clock: Clock
) -> None:
    sessions = BrowserSessions(tmp_path, tokens)
    token, _ = tokens.create("ada", Role.USER)
    _, cookie = sessions.begin(token.id)
    clock.ms += SESSION_MS - 1
    assert BrowserSessions(tmp_path, tokens).of(cookie).token.owner == "ada", "also after a restart"
    clock.ms += 1
    with pytest.raises(NotAuthenticated, match="has ended"):
        sessions.of(cookie)


def test_a_cookie_with_another_end_is_none_of_ours(tmp_path: Path, tokens: UserTokens) -> None:
    sessions = BrowserSessions(tmp_path, tokens)
    token, _ = tokens.create("ada", Role.USER)
    session, cookie = sessions.begin(token.id)
    with pytest.raises(NotAuthenticated, match="not logged in"):
        sessions.of(cookie.replace(str(session.ends_ms), str(session.ends_ms + 1)))
