"""When an agent renews its certificate, whatever its clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eva_master.adapters.pki.authority import Authority, requested_key
from eva_wire.values.ids import InstanceId, Millis
from eva_worker.errors import NotEnrolled
from eva_worker.link.enrolment import Enrolment
from eva_worker.link.identity import Credentials, Identity

HOUR_S = 3_600.0
ISSUED = datetime(2027, 1, 15, 8, tzinfo=UTC)
# Credentials of 24 hours: valid from 12 hours before, and renewed after half of their life.
HELD = Credentials(b"", b"", b"", ISSUED + timedelta(hours=12), ISSUED + timedelta(hours=24))


def due_after(ahead_hours: float) -> float:
    """Hours after which it is renewed by an agent whose clock is so far ahead."""
    for minutes in range(48 * 60):
        held_s = minutes * 60.0
        now = ISSUED + timedelta(hours=ahead_hours, seconds=held_s)
        if HELD.due_in_s(now, held_s) <= 0:
            return minutes / 60
    raise AssertionError("it is never renewed")


@pytest.mark.parametrize(
    ("ahead_hours", "hours"),
    [(0, 12), (3, 9), (-3, 12), (-30, 12), (-24 * 365, 12), (11, 6), (13, 6), (48, 6)],
)
def test_it_is_renewed_in_time_and_not_again_and_again(ahead_hours: float, hours: float) -> None:
    assert due_after(ahead_hours) == hours


@pytest.mark.parametrize("hours", [-12, 0, 11, 12, 30])
def test_one_of_an_earlier_agent_is_renewed_by_the_clock(hours: float) -> None:
    now = ISSUED + timedelta(hours=hours)
    assert HELD.due_in_s(now, None) == (12 - hours) * HOUR_S


class Wrong:
    """A master's clock by which certificates were made that have expired here."""

    def now(self) -> Millis:
        return Millis(1_000_000_000_000)


async def test_one_that_has_expired_by_this_clock_is_still_shown_to_the_master(
    tmp_path: Path,
) -> None:
    identity = Identity(tmp_path / "identity", "i-1")
    authority = Authority.of(tmp_path / "pki", "lab", Wrong())
    key = requested_key(identity.signing_request())
    certificate = authority.issue_agent(key, InstanceId("i-1"), 3_600_000)
    kept = identity.keep(certificate, authority.certificates)
    assert kept.expired
    enrolment = Enrolment(identity, "i-1", join="", token="", authorities="")
    assert await enrolment.credentials() == kept
    assert "by this machine's clock" in enrolment.doubt
    assert "start the worker with a new token" in enrolment.doubt


async def test_without_any_there_is_nothing_to_show(tmp_path: Path) -> None:
    enrolment = Enrolment(Identity(tmp_path, "i-1"), "i-1", join="", token="", authorities="")
    with pytest.raises(NotEnrolled, match="new token"):
        await enrolment.credentials()
