"""Sessions of browsers: a code that is used once, then a cookie that is bound to a token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eva_master.adapters.pki.kept_key import kept_key
from eva_master.adapters.store import UserTokens
from eva_wire.values.errors import NotAuthenticated
from eva_wire.values.ids import Millis
from eva_wire.values.users import UserToken

CODE_S = 60.0
SESSION_MS = 12 * 3_600_000
FILE = "pages.key"
_CODE_BYTES = 24
_SESSION_BYTES = 16
_MOST_CODES = 1_000
_CODES_PER_TOKEN = 8
_MOST_ENDED = 10_000
_LONGEST_COOKIE = 500
_HINT = "run `eva ui`, which prints an address with a new code"


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session of a browser.

    Attributes:
        token: The token of its user.
        id: Names it.
        ends_ms: When it ends at the latest.
    """

    token: UserToken
    id: str
    ends_ms: Millis


class LoginCodes:
    """Codes with which browsers log in, in memory alone. Any thread may use them.

    Args:
        now_s: A monotonic clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._codes: dict[bytes, tuple[str, float]] = {}

    def make(self, token: str) -> str:
        """A code for a token, good once within `CODE_S`."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        with self._lock:
            now = self._now_s()
            self._codes = {key: held for key, held in self._codes.items() if held[1] > now}
            own = [key for key, (holder, _) in self._codes.items() if holder == token]
            for key in own[: max(0, 1 + len(own) - _CODES_PER_TOKEN)]:
                del self._codes[key]
            if len(self._codes) >= _MOST_CODES:
                del self._codes[next(iter(self._codes))]
            self._codes[_digest(code)] = token, now + CODE_S
        return code

    def use(self, code: str) -> str:
        """The id of the token of a code, which is not good any more.

        Raises:
            NotAuthenticated: There is no such code, or it was used, or is too old.
        """
        with self._lock:
            token, end = self._codes.pop(_digest(code), ("", 0.0))
            if end <= self._now_s():
                raise NotAuthenticated(
                    "this code is no longer good: it is used once, within a minute", hint=_HINT
                )
        return token


class BrowserSessions:
    """Cookies of browsers. They outlive a restart of the master, and not their tokens.

    A cookie names a token, its end and a random id, under a MAC over these and the digest of the
    token's secret; the key is kept beside the keys of the cluster.

    Args:
        directory: Has the key, or gets it.
        tokens: The tokens of this cluster.

    Raises:
        InvalidConfig: The file of the key holds none.
    """

    def __init__(self, directory: Path, tokens: UserTokens) -> None:
        self._key = kept_key(
            directory / FILE, "remove it, and the master makes a new one: users log in again then"
        )
        self._tokens = tokens
        self._lock = threading.Lock()
        self._ended: dict[str, Millis] = {}

    def begin(self, token: str) -> tuple[BrowserSession, str]:
        """Begin a session; returns it and the value of its cookie.

        Raises:
            NotAuthenticated: The token is not valid any more.
        """
        holder, now = self._tokens.check(token), self._tokens.now()
        ends_ms = min(now + SESSION_MS, holder.expires_ms or now + SESSION_MS)
        session = BrowserSession(holder, secrets.token_hex(_SESSION_BYTES), Millis(ends_ms))
        return session, f"{holder.id}.{ends_ms}.{session.id}.{self._mac(session)}"

    def of(self, cookie: str) -> BrowserSession:
        """The session of a cookie.

        Raises:
            NotAuthenticated: The cookie is none of this cluster, or its session or token has ended.
        """
        session = self._session(cookie)
        self.check(session)
        return session

    def check(self, session: BrowserSession) -> None:
        """Check that a session goes on.

        Raises:
            NotAuthenticated: The session or its token has ended.
        """
        self._tokens.check(session.token.id)
        with self._lock:
            ended = session.id in self._ended
        if ended or session.ends_ms <= self._tokens.now():
            raise NotAuthenticated("this session has ended", hint=_HINT)

    def end(self, session: BrowserSession) -> None:
        """End a session before its time."""
        now = self._tokens.now()
        with self._lock:
            self._ended = {name: end for name, end in self._ended.items() if end > now}
            while len(self._ended) >= _MOST_ENDED:
                del self._ended[next(iter(self._ended))]
            self._ended[session.id] = session.ends_ms

    def _session(self, cookie: str) -> BrowserSession:
        parts = cookie[:_LONGEST_COOKIE].split(".")
        if len(parts) == 4 and parts[1].isascii() and parts[1].isdigit():
            key, end, name, mac = parts
            session = BrowserSession(self._tokens.check(key), name, Millis(int(end)))
            if hmac.compare_digest(mac.encode(), self._mac(session).encode()):
                return session
        raise NotAuthenticated("this browser is not logged in", hint=_HINT)

    def _mac(self, session: BrowserSession) -> str:
        token = session.token
        text = f"{token.id}.{session.ends_ms}.{session.id}.{token.digest}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
