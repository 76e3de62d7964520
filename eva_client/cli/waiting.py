"""Waits for jobs to end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eva_client.cli.session import Patience, console
from eva_client.cli.views import job_tasks
from eva_client.cli.views.errors import note
from eva_client.cli.views.words import money, plain
from eva_wire.values.errors import Unreachable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import Job

ENDED = job_tasks.ENDED
TIMED_OUT = 124
"""Exit code after which jobs run on, as of the program timeout."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How waiting for jobs ended.

    Attributes:
        ids: The jobs, in order.
        ended: The jobs that have ended, by id.
    """

    ids: Sequence[str]
    ended: Mapping[str, Job]

    @property
    def unfinished(self) -> list[str]:
        """The jobs that had not ended when the time was over."""
        return [id_ for id_ in self.ids if id_ not in self.ended]

    @property
    def exit_code(self) -> int:
        """The exit code of the first job that did not succeed; 0 if all did.

        Of jobs that have not ended it is `TIMED_OUT`.
        """
        if self.unfinished:
            return TIMED_OUT
        return next((code for id_ in self.ids if (code := exit_code_of(self.ended[id_]))), 0)


def wait_for(
    client: Client, ids: Sequence[str], *, timeout_s: float | None = None, table: bool = True
) -> Waited:
    """Wait until all jobs have ended, and show their progress on stderr.

    The jobs do not depend on the command, and the command survives restarts of the master.

    Args:
        client: The connection.
        ids: The jobs, each once.
        timeout_s: How long to wait at most.
        table: Whether a table is drawn on terminals, and not lines alone.

    Raises:
        Unreachable: The master was away for too long.
    """
    screen = console(stderr=True)
    patience = Patience(client)
    ended: dict[str, Job] = {}
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    with progress_table(screen, drawn=table) as progress:
        display = Display(progress, ids)
        while len(ended) < len(ids) and (left_s := until - time.monotonic()) > 0:
            waiting = [id_ for id_ in ids if id_ not in ended]
            try:
                for job in client.watch(waiting, timeout_s=None if timeout_s is None else left_s):
                    patience.restore()
                    display.show(job)
                    if job.state in ENDED:
                        ended[job.id] = job
                    if len(ended) == len(ids):
                        break
                else:
                    patience.pause(Unreachable("the master closed the stream"))
            except Unreachable as error:
                if time.monotonic() < until:
                    patience.pause(error)
    return Waited(ids, ended)


def still_running(ids: Sequence[str]) -> None:
    """Tell that jobs run on though nothing waits for them any more."""
    what = " ".join(ids)
    note(f"\n{what}: still running; `eva logs -f` shows its output, `eva cancel` ends it")


def exit_code_of(job: Job) -> int:
    """The exit status for the way a job ended, as in a shell."""
    if job.state == "succeeded":
        return 0
    code = job.exit_code if job.HasField("exit_code") else 0
    return code if 0 < code < 256 else 1


def progress_table(screen: Console, *, drawn: bool = True) -> Progress:
    """A table with a row per job, that is drawn on a terminal only and vanishes at the end."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[state]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[tasks]}", markup=False),
    )
    return Progress(
        *columns, console=screen, transient=True, disable=not (drawn and screen.is_terminal)
    )


class Display:
    """A row per job on a terminal, and a line whenever a job has come further.

    A job that runs and has to wait again has not come further: its tasks start and end, move and
    are tried again all the time.

    Args:
        progress: The table, as `progress_table` makes it.
        ids: The jobs.
    """

    def __init__(self, progress: Progress, ids: Sequence[str]) -> None:
        self._progress = progress
        self._rows: dict[str, TaskID] = {
            id_: progress.add_task(id_, total=None, state="", tasks="") for id_ in ids
        }
        self._states: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._paused = False

    def show(self, job: Job) -> None:
        """Take in the newest about a job."""
        self._show_pause(job)
        before = self._states.get(job.id)
        state = job.state
        if before is not None and _RANKS.get(state, 0) < _RANKS.get(before, 0):
            state = before
        done = job_tasks.share_done(job)
        if job.id in self._rows:
            self._progress.update(
                self._rows[job.id],
                state=state,
                tasks=_tasks(job),
                completed=done or 0.0,
                total=None if done is None else 1.0,
            )
        failures = self._failures.get(job.id, 0)
        self._states[job.id], self._failures[job.id] = state, max(failures, job.failures)
        if state != before:
            self._tell(_line(job, state))
        elif job.failures > failures:
            self._tell(f"{job.id}: {state}, {self._after_failure(job)}: {plain(job.reason)}")

    def _after_failure(self, job: Job) -> str:
        """Consequence of a failure while the job runs on."""
        before, failed = self._failed.get(job.id, 0), job_tasks.counted(job).get("failed", 0)
        self._failed[job.id] = max(before, failed)
        if failed <= before:
            return "tried again after a failure"
        return f"goes on with {failed:,} of {job_tasks.number(job):,} tasks failed; the last"

    def _show_pause(self, job: Job) -> None:
        """Tell once that the master stands still, and once that it goes on."""
        paused = job.HasField("pause")
        if paused == self._paused or job.state in ENDED:
            return
        self._paused = paused
        if paused:
            why = f"{plain(job.pause.reason)}; {plain(job.pause.hint)}"
            self._tell(f"the master stands still, and tasks run on: {why}")
        else:
            self._tell("the master goes on")

    def _tell(self, line: str) -> None:
        if self._progress.disable:
            note(line)
        else:  # Above the table, which is drawn again below it.
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


_RANKS = {"pending": 0, "suspended": 1, "running": 1, "ending": 2, **dict.fromkeys(ENDED, 3)}
"""How far a job has come, by its state."""


def _tasks(job: Job) -> str:
    """How many tasks of a job are in which state; empty for a single task."""
    return job_tasks.in_words(job) if job_tasks.number(job) > 1 else ""


def _line(job: Job, state: str) -> str:
    text = f"{job.id}: {state}"
    if state in ENDED:
        text += f", cost {money(job.cost_micro_usd)}"
        if job.no_packing_micro_usd:
            text += f" ({money(job.no_packing_micro_usd)} on instances of its own)"
    reason = job.reason or job_tasks.why_waiting(job)
    return f"{text}: {plain(reason)}" if reason else text
