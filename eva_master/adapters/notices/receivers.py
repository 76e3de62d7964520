"""A receiver of notices: where it is, and how it is told."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eva_master.adapters.notices.addresses import Target
from eva_master.adapters.notices.bodies import Form
from eva_master.model.notices import Wanted
from eva_wire.values.errors import InvalidConfig, NoticeNotSent
from eva_wire.values.ids import Millis

LEAST_SECRET_BYTES, MOST_SECRET_BYTES = 16, 4_096


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver, as the settings name it.

    Attributes:
        name: Its name, for people and metrics.
        target: Where notices go.
        wanted: Events that it is told of.
        form: Form of what it is sent.
        secret: File with the secret that signs what is sent; `None` to sign nothing.
        authorities: File with the certificates of its authority; `None` for those of the machine.
    """

    name: str
    target: Target
    wanted: Wanted = field(default_factory=Wanted)
    form: Form = field(default_factory=Form)
    secret: Path | None = None
    authorities: Path | None = None

    def key(self) -> bytes | None:
        """The secret as it is in the file now; `None` if nothing is signed.

        Raises:
            NoticeNotSent: The file cannot be read, or is no secret.
        """
        return None if self.secret is None else read_secret(self.secret)

    def trust(self) -> ssl.SSLContext:
        """The context for its certificate.

        Raises:
            NoticeNotSent: The authority's file cannot be read.
        """
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except (OSError, ValueError) as error:
            raise NoticeNotSent(f"{self.authorities} has no certificates: {error}") from None


def read_secret(file: Path) -> bytes:
    """The secret in a file, without blanks at its ends.

    Raises:
        NoticeNotSent: The file cannot be read, others may read it, or it is no secret.
    """
    try:
        with file.open("rb") as opened:
            if stat.S_IMODE(file.stat().st_mode) & stat.S_IRWXO:
                raise NoticeNotSent(
                    f"every user of this machine may read the secret {file}",
                    hint=f"chmod o= {file}",
                )
            secret = opened.read(MOST_SECRET_BYTES + 1).strip()
    except OSError as error:
        raise NoticeNotSent(f"the secret {file} cannot be read: {error.strerror}") from None
    if not LEAST_SECRET_BYTES <= len(secret) <= MOST_SECRET_BYTES:
        raise NoticeNotSent(
            f"the secret {file} has {len(secret):,} bytes, and needs {LEAST_SECRET_BYTES} to"
            f" {MOST_SECRET_BYTES:,}",
            hint=f"openssl rand -hex 32 > {file}",
        )
    return secret


def require_files(receivers: Sequence[Receiver]) -> None:
    """See that a master which starts can read what its receivers need.

    Raises:
        InvalidConfig: A file is missing, or not as it has to be.
    """
    for receiver in receivers:
        try:
            receiver.key()
            if receiver.authorities is not None:
                receiver.trust()
        except NoticeNotSent as error:
            message = f"notify: {receiver.name}: {error.message}"
            raise InvalidConfig(message, hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """How a receiver fares.

    Attributes:
        name: Its name.
        url: Where it is, without what may be secret.
        waiting: Notices that wait for it.
        sent: Notices that it took.
        dropped: Notices that it was not sent: too many waited, or one for too long.
        failing_ms: Since when it takes none, by the loop's time; `None` while it does.
        reason: Why; empty while it takes them.
    """

    name: str
    url: str
    waiting: int = 0
    sent: int = 0
    dropped: int = 0
    failing_ms: Millis | None = None
    reason: str = ""

    @property
    def attention(self) -> str:
        """A sentence for operators; empty if all is well."""
        if self.reason:
            lost = f"; {self.dropped:,} were dropped" if self.dropped else ""
            return (
                f"the receiver {self.name} takes no notices: {self.reason}."
                f" {self.waiting:,} wait{lost}"
            )
        if self.dropped:
            return f"notices to {self.name} that were dropped: {self.dropped:,}"
        return ""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a notice that was sent as a trial.

    Attributes:
        receiver: Name of the receiver.
        url: Where it is, without what may be secret.
        accepted: Whether it took the notice.
        status: Its HTTP status; 0 if it gave none.
        took_ms: How long that took.
        reason: Why it did not take it.
        hint: Advice on that.
    """

    receiver: str
    url: str
    accepted: bool
    status: int
    took_ms: int
    reason: str = ""
    hint: str = ""
