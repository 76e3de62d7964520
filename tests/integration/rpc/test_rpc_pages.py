"""Pages for readers whose model is older than the journal, and for those who make tokens up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eva_master.adapters.rpc.server import pages, views
from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.events import JobSubmitted
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.ids import InstanceId, JobId, Millis
from tests.fakes.jobs import CATALOG, job

NOW = Millis(3_000)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as opened:
        yield opened


def test_a_job_that_was_written_down_after_the_model_is_on_a_later_page(
    journal: SqlJournal,
) -> None:
    machine = Machine(State.restored(CATALOG, journal.load()), Settings())

    def submitted(name: str, at: int) -> None:
        machine.handle([JobSubmitted(name, job(name, 2))], Millis(at))
        journal.commit(machine.take_changes())

    submitted("a", 1_000)
    older = machine.published()
    submitted("b", 2_000)
    archive = SqlArchive(journal.engine)
    for model, names in ((older, ["a-1"]), (machine.published(), ["b-2", "a-1"])):
        records, token = pages.all_jobs(model, archive, "", 10, NOW)
        assert [views.job(model, record, NOW).id for record in records] == names
        assert not token


@pytest.mark.parametrize("name", ["x", "x-" + "9" * 25, "x-" + "9" * 5_000, "", "é"])
def test_made_up_tokens_are_refused(name: str) -> None:
    if name:
        with pytest.raises(BadRequest):
            pages.decoded(pages.encoded(name), JobId)
    else:
        assert pages.decoded("", InstanceId) is None
