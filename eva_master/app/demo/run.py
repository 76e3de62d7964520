"""Runs the demo from its cluster's start to its end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from eva_client.cli.session import console, print_json
from eva_client.cli.views.explanation import explain
from eva_master.app.demo.cluster import DemoCluster, DemoFailed
from eva_master.app.demo.jobs import FIRST_JOB, FIRST_WAVE, READERS, SECOND_WAVE, Submitter
from eva_master.app.demo.report import DemoReport
from eva_master.app.demo.screen import Screen
from eva_master.app.demo.story import ENDED, Picture, Progress, Story, called, resumptions
from eva_master.app.demo.tasks import Tasks
from eva_wire.rpc.messages import Job
from eva_wire.values.errors import EvaError

_STUCK_S = 600.0
"""The demo takes one to three minutes, and longer on a busy machine; one in which nothing goes on
for so long is stuck."""
_PATIENCE_S = 45.0
"""The second wave comes when the readers have been kept apart, and after this time anyway."""
_POLL_S = 0.5
_LOG_LINES = 20

_INTRODUCTION = """\
Jobs on a cluster of this machine's own: real programs, real workers, real scheduling.
Its instances are emulated: they cost what EC2 asks for them, but come up in seconds."""


class Demo:
    """One run of the demo.

    Args:
        cluster: Has not been started.
        tasks: Runtime of the tasks.
        screen: Where it is shown.
    """

    def __init__(self, cluster: DemoCluster, tasks: Tasks, screen: Screen) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._screen = screen
        self._story = Story(READERS)
        self._progress = Progress()
        self._explained = False

    def run(self) -> DemoReport:
        """Run the demo from the first job to the bill.

        Raises:
            DemoFailed: A job failed, nothing went on for long, or no job was moved.
        """
        self._screen.say("starting a cluster: eva up")
        self._cluster.start(self._tasks.settings)
        # A killed process leaves its temporary files behind; a container has its own.
        scratch = None if self._tasks.engine else self._cluster.scratch
        jobs = Submitter(self._cluster.client, scratch)
        jobs.upload()
        jobs.submit(FIRST_WAVE)
        self._screen.say(f"submitted {', '.join(job.name for job in FIRST_WAVE)}")
        latest = self._screen.elapsed_s + _PATIENCE_S
        self._watch(lambda now: _kept_apart(now) or self._screen.elapsed_s > latest)
        jobs.submit(SECOND_WAVE)
        self._screen.say(f"submitted {', '.join(job.name for job in SECOND_WAVE)}")
        last = self._watch(lambda now: now.over)
        return self._report(last)

    def _watch(self, enough: Callable[[Picture], bool]) -> Picture:
        """Show what happens until the demo is over; returns the last picture."""
        while True:
            picture = Picture.take(self._cluster.client)
            for line in self._story.lines(picture):
                self._screen.say(line)
            self._explain(picture)
            self._screen.show(picture)
            for job in picture.jobs:
                if job.state in ("failed", "cancelled"):
                    raise DemoFailed(self._failure(job))
            if enough(picture):
                return picture
            if self._progress.none_for_s(picture, self._screen.elapsed_s) > _STUCK_S:
                raise DemoFailed(f"nothing went on for {_STUCK_S:g} s; {_awaited(picture)}")
            time.sleep(_POLL_S)

    def _explain(self, picture: Picture) -> None:
        """Show why a reader was moved away from the other one, once it runs elsewhere."""
        for job in picture.jobs:
            task = job.tasks[0]
            moved = task.moves and task.state == "running"
            if job.name in READERS and moved and not (self._explained or picture.together(READERS)):
                why = self._cluster.client.explain(job.id)
                self._screen.answer(f"eva explain {job.name}", explain(why))
                self._explained = True

    def _log(self, job: Job) -> str:
        return b"".join(self._cluster.client.logs(job.id)).decode(errors="replace")

    def _failure(self, job: Job) -> str:
        tail = self._log(job).splitlines()[-_LOG_LINES:]
        return "\n".join([f"{job.name} {job.state}: {job.reason}", "the end of its log:", *tail])

    def _report(self, last: Picture) -> DemoReport:
        resumed = [
            resumption for job in last.jobs for resumption in resumptions(job.name, self._log(job))
        ]
        if not any(resumption.continued for resumption in resumed):
            raise DemoFailed("no job was moved and resumed from its checkpoint")
        if broken := [resumption for resumption in resumed if not resumption.continued]:
            raise DemoFailed(f"a job did not go on where it was: {broken}")
        return DemoReport(
            last,
            tuple(resumed),
            {job.name: self._story.places(job) for job in last.jobs},
            self._screen.elapsed_s,
            contained=bool(self._tasks.engine),
        )


def _kept_apart(picture: Picture) -> bool:
    """Whether the readers run on different instances."""
    readers = [picture.task(name) for name in READERS]
    running = all(
        reader.state == "running" and reader.target == reader.instance for reader in readers
    )
    return running and len({reader.instance for reader in readers}) == len(readers)


def _awaited(picture: Picture) -> str:
    """The event that the demo waits for, for the message that it took too long."""
    tasks = [
        f"{called(job, task)} ({task.state}, step {task.steps:,} of {task.total_steps:,}) "
        f"{task.waiting_for}".rstrip()
        for job in picture.jobs
        if job.state not in ENDED
        for task in job.tasks
    ]
    instances = [
        f"{instance.id} ({instance.state})"
        for instance in picture.state.instances
        if not instance.gone_ms
    ]
    return f"waiting for {', '.join([*tasks, *instances])}"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def run(*, as_json: bool, keep: bool) -> int:
    """Run some jobs on a private cluster of emulated instances, and show what they cost.

    Args:
        as_json: Whether the report is printed as JSON.
        keep: Whether the cluster's state and logs are kept.

    Returns:
        The exit code of the command.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    out = console(stderr=as_json)
    out.print(_INTRODUCTION + "\n")
    cluster = DemoCluster()
    tasks, report, code = None, None, 1
    try:
        with Screen(out) as screen:
            tasks = Tasks.choose(screen.say)
            screen.say(tasks.why)
            report = Demo(cluster, tasks, screen).run()
        code = 0
    except (DemoFailed, EvaError) as error:
        out.print(f"\nThe demo failed: {error}", style="red")
    except KeyboardInterrupt:
        out.print("\nInterrupted; the cluster is being ended.")
        code = 130
    finally:
        # A second Ctrl-C here would leave processes behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        remains = [*cluster.stop(), *(tasks.left(cluster.home) if tasks else [])]
    if remains:
        out.print("\nThe cluster left something behind; it was ended:", *remains, sep="\n")
        code = code or 1
    if report is not None:
        _present(report, as_json=as_json, out=out)
    if keep or code == 1:
        out.print(f"\nState and logs are in {cluster.home}")
    else:
        cluster.remove()
    if code == 0 and not as_json:
        out.print(next_steps(), highlight=False, soft_wrap=True)
    return code


def _present(report: DemoReport, *, as_json: bool, out: Console) -> None:
    if as_json:
        print_json(report.shape())
        return
    out.print()
    out.print(report.show())
    kinds = "no process, no container" if report.contained else "no process"
    out.print(f"\n{report.took_s:.0f} s; nothing is left running: {kinds}.")


def next_steps() -> str:
    """The commands to try next, which work from the directory in which the demo was run."""
    job = shlex.quote(os.path.relpath(FIRST_JOB))
    eva = "eva"
    if shutil.which(eva) is None:
        eva = shlex.quote(os.path.relpath(Path(sys.executable).parent / eva))
    return f"Next: {eva} up, and in another terminal {eva} submit --wait {job}"
