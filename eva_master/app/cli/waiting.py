"""Waits for jobs to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eva_master.app.cli.session import Patience, console
from eva_master.app.cli.views.errors import note
from eva_master.app.cli.views.words import money, plain
from eva_master.model.errors import Unreachable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from eva_master.adapters.rpc.client.master import Client
    from eva_master.adapters.rpc.messages import Job

ENDED = ("succeeded", "failed", "cancelled")


def wait_for(client: Client, ids: Sequence[str]) -> int:
    """Wait until all jobs have ended, and show their progress on stderr.

    The jobs do not depend on the command, and the command survives restarts of the master.

    Returns:
        The exit code of the first job, in the order of `ids`, that did not succeed; 0 if all
        did.

    Raises:
        Unreachable: The master was away for too long.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    screen = console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    patience = Patience()
    ended: dict[str, Job] = {}
    with Progress(
        *columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as progress:
        display = _Display(progress, ids)
        while len(ended) < len(ids):
            waiting = [one for one in ids if one not in ended]
            try:
                for job in client.watch(waiting):
                    patience.restore()
                    display.show(job)
                    if job.state in ENDED:
                        ended[job.id] = job
                    if len(ended) == len(ids):
                        break
                else:
                    patience.pause(Unreachable("the master closed the stream"))
            except Unreachable as error:
                patience.pause(error)
    return next((code for one in ids if (code := exit_code_of(ended[one]))), 0)


def exit_code_of(job: Job) -> int:
    """The exit status for the way a job ended, as in a shell."""
    if job.state == "succeeded":
        return 0
    code = job.exit_code if job.HasField("exit_code") else 0
    return code if 0 < code < 256 else 1


class _Display:
    """A bar per job on a terminal, and a line whenever a job enters another state."""

    def __init__(self, progress: Progress, ids: Sequence[str]) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {one: progress.add_task(one, total=None) for one in ids}
        self._states: dict[str, str] = {}

    def show(self, job: Job) -> None:
        total = sum(task.total_steps for task in job.tasks)
        done = sum(task.steps for task in job.tasks)
        if job.id in self._bars:
            self._progress.update(
                self._bars[job.id],
                description=f"{job.id} {job.state}",
                completed=done,
                total=total or None,
            )
        if self._states.get(job.id) != job.state:
            self._states[job.id] = job.state
            note(_line(job))


def _line(job: Job) -> str:
    text = f"{job.id}: {job.state}"
    if job.state in ENDED:
        text += f", cost {money(job.cost_micro_usd)}"
        if job.no_packing_micro_usd:
            text += f" ({money(job.no_packing_micro_usd)} on instances of its own)"
    reason = job.reason or next((one.waiting_for for one in job.tasks if one.waiting_for), "")
    return f"{text}: {plain(reason)}" if reason else text
