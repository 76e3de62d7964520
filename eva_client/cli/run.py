"""The command run: a job of one command, from its upload to its outputs."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from eva_client.cli.environments import environment_of
from eva_client.cli.jobfiles import LocalJobFile
from eva_client.cli.session import CommandSession, FiniteRange, address_option, pass_session
from eva_client.cli.submit import warn_of_secrets
from eva_client.cli.uploading import Uploads
from eva_client.cli.views.errors import note, report
from eva_client.cli.views.words import plain
from eva_wire.values.errors import EvaError, InvalidJob, NotFound

if TYPE_CHECKING:
    from eva_client.cli.waiting import Waited
    from eva_client.rpc.master import Client

_CPUS_PER_GPU = 4
_MIB_PER_CPU = 2_048
_LEAST_MIB = 64
_INTERPRETERS = re.compile(r"env|exec|time|python[0-9.]*|(ba|z)?sh|torchrun|uv|run|Rscript|julia")
_ENDINGS = frozenset({".py", ".sh", ".R", ".jl"})
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 63
_TO_CANCEL_S = 5.0
"""Time to wait for an answer before the command is left."""
_INTERRUPTED = 130
"""Exit code of a command that the user ended."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--gpus", type=click.IntRange(0, 1_024), default=0, metavar="N", help="GPUs.")
@click.option(
    "--cpus",
    type=FiniteRange(min=0.001),
    metavar="N",
    help=f"vCPUs; {_CPUS_PER_GPU} for each GPU if absent, or 1.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help=f"Memory, such as 8GiB; {_MIB_PER_CPU // 1_024}GiB for each vCPU if absent.",
)
@click.option("--disk", metavar="SIZE", help="Disk beside the image, such as 200GiB.")
@click.option("--image", metavar="IMAGE", help="Container image to run in.")
@click.option("--name", metavar="NAME", help="Name of the job; that of the program if absent.")
@click.option(
    "--env",
    "variables",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a variable; NAME alone takes yours. May be repeated.",
)
@click.option(
    "--env-file",
    "env_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Set the variables of a file, a line each, as --env does. May be repeated.",
)
@click.option("--no-upload", is_flag=True, help="Run in an empty directory.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Fetch what the command has written to $EVA_STORAGE/outputs into DIR.",
)
@click.option("--force", is_flag=True, help="Replace other files of the same names in DIR.")
@click.option("-y", "--yes", is_flag=True, help="Upload more than 100 MB without a question.")
@click.argument("command", metavar="[--] COMMAND...", nargs=-1, required=True)
@address_option
@click.pass_context
@pass_session
def run(
    session: CommandSession,
    ctx: click.Context,
    /,
    *,
    variables: tuple[str, ...],
    env_files: tuple[Path, ...],
    no_upload: bool,
    out: Path | None,
    force: bool,
    yes: bool,
    command: tuple[str, ...],
    **asked: Any,
) -> None:
    """Run COMMAND on the cluster as if it ran here.

    The present directory is uploaded and is the command's. Its log is printed while it runs, and
    its exit code is that of this command. COMMAND is a program and its arguments; a single argument
    is a line for the shell. --out fetches the outputs at the end. A command has no standard input,
    and is not tried again when it fails.

    Ctrl-C cancels the job and shows its log to the end; a second Ctrl-C leaves at once.
    """
    environment = environment_of(variables, env_files)
    envs = environment.values
    text = _job_text(command, upload=not no_upload, **asked)
    job_file = LocalJobFile("eva run", text, Path.cwd())
    job_file.check(envs)
    if not no_upload:
        _require_project(Path.cwd())
    warn_of_secrets("eva run", environment.unwritten)
    uploads = Uploads(job_file, job_file.workdir(), None, sure=yes)
    with session.client() as client:
        answer = client.submit(
            job_file.text, file_name=job_file.name, workdir=uploads.send_workdir(client), envs=envs
        )
        for doubt in answer.notes:
            note(f"{answer.job_id}: {plain(doubt)}")
        job = _Run(client, answer.job_id)
        code = job.follow()
        if out is not None and job.over:
            _fetch_outputs(client, answer.job_id, out, force=force, failed=code != 0)
        ctx.exit(code)


def _fetch_outputs(client: Client, job: str, out: Path, *, force: bool, failed: bool) -> None:
    """Fetch the outputs of a job that has ended; of one that failed that they cannot be is told.

    Raises:
        EvaError: Outputs of a command that succeeded cannot be fetched.
    """
    from eva_client.cli.getting import fetch_shown, say_fetched

    try:
        say_fetched(fetch_shown(client, job, "outputs", to=out, force=force), err=True)
    except NotFound:
        note(f"{job} has stored no outputs")
    except EvaError as failure:
        note(f"`eva get {job} --to DIR` fetches the outputs later")
        if not failed:
            raise
        report(failure)


def _require_project(directory: Path) -> None:
    """Refuse to upload the user's home or what is above it; raises `InvalidJob`."""
    if Path("~").expanduser().resolve().is_relative_to(directory.resolve()):
        raise InvalidJob(
            f"all of {directory} would be uploaded, with the files of your home",
            hint="go to the directory of the program, or add --no-upload",
        )


def _job_text(
    command: Sequence[str],
    *,
    upload: bool,
    gpus: int,
    cpus: float | None,
    memory: str | None,
    disk: str | None,
    image: str | None,
    name: str | None,
) -> str:
    """The job file of a command."""
    import yaml

    cpus = cpus or (_CPUS_PER_GPU * gpus or 1)
    memory = memory or f"{max(_LEAST_MIB, round(_MIB_PER_CPU * cpus))}MiB"
    resources: dict[str, object] = {"gpus": gpus, "cpus": cpus, "memory": memory}
    if disk:
        resources["disk"] = disk
    document: dict[str, object] = {
        "name": name or program_name(command),
        "run": command[0] if len(command) == 1 else shlex.join(command),
        "resources": resources,
        "retries": 0,
    }
    if upload:
        document["workdir"] = "."
    if image:
        document["image"] = image
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def program_name(command: Sequence[str]) -> str:
    """A name for the job of a command: that of its program, or of the script that it reads."""
    words = command[0].split() if len(command) == 1 else command
    for word in words:
        path = PurePath(word)
        if word.startswith("-") or "=" in word or _INTERPRETERS.fullmatch(path.name):
            continue
        name = path.stem if path.suffix in _ENDINGS else path.name
        name = _NO_NAME.sub("-", name)[:_LONGEST_NAME].strip("-._")
        if name:
            return name
    return "run"


class _Run:
    """A submitted job whose log is shown.

    Args:
        client: The connection.
        job: Id of the job.
    """

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self._job = job
        self._waited: Waited | None = None
        self._failure: EvaError | None = None
        self._canceller: threading.Thread | None = None
        self._cancelled = False

    @property
    def over(self) -> bool:
        """Whether the end of the job was seen."""
        return self._waited is not None

    def follow(self) -> int:
        """Show the log until the job has ended, or the user leaves; returns an exit code."""
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            waited = self._to_its_end()
        except KeyboardInterrupt:
            self._leave()
            return _INTERRUPTED
        except OSError:  # The reader of the output is gone, or its disk is full.
            if not self.over:
                shows, ends = f"eva logs -f {self._job}", f"eva cancel {self._job}"
                note(f"{self._job} runs on; `{shows}` shows the rest, `{ends}` ends it")
            raise
        finally:
            signal.signal(signal.SIGINT, before)
        if self._canceller is not None:
            self._canceller.join(_TO_CANCEL_S)
        stopped = self._canceller is not None and waited.ended[self._job].state == "cancelled"
        return _INTERRUPTED if stopped else waited.exit_code

    def _to_its_end(self) -> Waited:
        """Show the log, and wait for the end of the job beside that."""
        from eva_client.cli.log_streams import Plain, copy_log
        from eva_wire.rpc.messages import LogsRequest

        # The thread ends with the command, which closes the connection.
        waiter = threading.Thread(target=self._wait, daemon=True)
        waiter.start()
        writer = Plain(sys.stdout.buffer, raw=not sys.stdout.isatty())
        copy_log(self._client, LogsRequest(job=self._job, follow=True), writer)
        waiter.join()
        if self._waited is None:
            raise self._failure or EvaError(f"the end of {self._job} is not known")
        return self._waited

    def _wait(self) -> None:
        from eva_client.cli.waiting import wait_for

        try:
            self._waited = wait_for(self._client, [self._job], table=False)
        except EvaError as failure:
            self._failure = failure
        except ValueError:  # The connection is closed, since the user has left.
            return

    def _interrupted(self, _signal: int, _frame: object) -> None:
        """Cancel the job at the first Ctrl-C, and leave at the second.

        An exception at the first one would lose or repeat a piece of the log.
        """
        if self._canceller is not None:
            raise KeyboardInterrupt
        self._canceller = threading.Thread(target=self._cancel, daemon=True)
        self._canceller.start()

    def _cancel(self) -> None:
        note(f"\ncancelling {self._job} and waiting for its end; Ctrl-C again leaves it")
        try:
            self._client.cancel(self._job)
            self._cancelled = True
        except EvaError as failure:
            report(failure)

    def _leave(self) -> None:
        """Leave once the master knows that the job is cancelled, unless it does not answer."""
        assert self._canceller is not None
        self._canceller.join(_TO_CANCEL_S)
        if self._cancelled:
            note(f"\n{self._job} is being cancelled; `eva status {self._job}` shows it")
        else:
            note(f"\n{self._job} may run on; `eva cancel {self._job}` ends it")
