"""A user is told which outputs and checkpoints are not stored: by the agent, master and command."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from eva_client.cli.views import shapes, tables
from eva_master.adapters.rpc.workers import messages
from eva_master.model.events import Phase, RunReport
from eva_wire._proto import worker_pb2
from eva_wire.rpc.messages import Job, Task
from eva_worker.files.objects import Objects
from eva_worker.files.plain.copies import How
from eva_worker.link.wire import task_report
from eva_worker.orders import Phase as WorkerPhase
from eva_worker.orders import Report, TaskKey
from tests.unit.control.test_failures import Stage
from tests.unit.plain_files.test_outputs import Attempt

WORDS = "output 'last.bin' is not stored: it is a link that leads nowhere"


async def test_an_agent_has_the_first_and_how_many_more(tmp_path: Path) -> None:
    one = Attempt(Objects((tmp_path / "objects").as_uri()), tmp_path / "attempts", 1)
    await one.uploader.all()
    assert one.uploader.not_stored == ""
    (one.outputs / "last.bin").symlink_to("nothing")
    await one.uploader.all()
    assert one.uploader.not_stored == WORDS
    (one.outputs / "out").symlink_to("/etc/hostname")
    await one.uploader.all(How.ENDED)
    assert one.uploader.not_stored == f"{WORDS}; its log tells of 1 more"


def test_a_report_says_it_on_the_wire() -> None:
    data = task_report(
        Report(TaskKey("job-1/0", 1), WorkerPhase.RUNNING, not_stored=WORDS)
    ).SerializeToString()
    (report,) = messages.reports([worker_pb2.TaskReport.FromString(data)])
    assert report.not_stored == WORDS


def test_the_master_keeps_it_until_the_next_attempt() -> None:
    stage = Stage()
    stage.begin()
    stage.say(RunReport(stage.run().id, 1, Phase.RUNNING, not_stored=WORDS))
    assert stage.run().not_stored == WORDS
    stage.end(not_stored=f"{WORDS}, still")
    assert stage.run().not_stored == f"{WORDS}, still"
    stage.begin()
    assert stage.run().not_stored == ""
    stage.end(code=0, not_stored=WORDS)
    assert (stage.run().state, stage.run().not_stored) == ("succeeded", WORDS)


def test_status_shows_it() -> None:
    task = Task(index=0, state="succeeded", not_stored=WORDS)
    screen = Console(width=200)
    with screen.capture() as capture:
        screen.print(tables.task(Job(), task, 0))
        screen.print(tables.tasks([task], 0))
    assert capture.get().count(WORDS) == 2, "in the details and in the table of tasks"
    assert shapes.task(task)["not_stored"] == WORDS
