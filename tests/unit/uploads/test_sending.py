"""Files are sent to a master that goes away meanwhile, and comes back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from eva_client.rpc.retry_wait import IMPATIENCE
from eva_client.rpc.sending import Upload, send
from eva_wire.values.errors import Busy, DigestMismatch, EvaError, Unreachable

FILES = [Upload(str(number), b"", 0) for number in range(40)]


class Master:
    """Takes files, unless it is away.

    Attributes:
        taken: Files that it has.
        refused: Calls that it did not answer.
    """

    def __init__(self) -> None:
        self.taken: list[Upload] = []
        self.refused = 0
        self.leaves_after: list[int] = []
        self.away: EvaError | None = None
        self._lock = threading.Lock()

    def put(self, upload: Upload) -> None:
        with self._lock:
            if self.leaves_after and len(self.taken) == self.leaves_after[0]:
                self.leaves_after.pop(0)
                self.away = Unreachable("no master answers")
            if self.away is not None:
                self.refused += 1
                raise self.away
            self.taken.append(upload)


class Patient:
    """Has a master come back after some pauses without progress."""

    def __init__(self, master: Master, *, most: int) -> None:
        self.pauses, self.in_all = 0, 0
        self._master, self._most = master, most

    def pause(self, error: EvaError) -> None:
        self.pauses += 1
        self.in_all += 1
        if self.pauses > self._most:
            raise error
        if self.pauses == self._most:
            self._master.away = None

    def restore(self) -> None:
        self.pauses = 0


def test_what_a_master_that_went_away_has_not_got_is_sent_again() -> None:
    master = Master()
    master.leaves_after = [3, 20]
    sent: list[Upload] = []
    patient = Patient(master, most=4)
    assert send(master.put, FILES, sent.append, patient) == []
    assert sorted(map(id, sent)) == sorted(map(id, master.taken)) == sorted(map(id, FILES))
    assert patient.in_all == 8
    # Beside those under way, none is tried at a master that is away.
    assert master.refused <= 8 * 8


@pytest.mark.parametrize("error", [Unreachable("away"), Busy("busy")])
def test_a_master_that_stays_away_ends_an_upload(error: EvaError) -> None:
    master = Master()
    master.away = error
    with pytest.raises(type(error)):
        send(master.put, FILES, lambda _: None, IMPATIENCE)


def test_files_that_were_changed_are_told_and_the_others_sent() -> None:
    taken: list[Upload] = []

    def put(upload: Upload) -> None:
        if upload is FILES[0]:
            raise DigestMismatch("0")
        if upload is FILES[1]:
            Path("/nowhere/at/all").stat()
        taken.append(upload)

    assert set(send(put, FILES[:4], lambda _: None, IMPATIENCE)) == set(FILES[:2])
    assert sorted(map(id, taken)) == sorted(map(id, FILES[2:4]))
