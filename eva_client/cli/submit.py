"""``eva submit``: checks, uploads and submits jobs, and waits for them if asked to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import click

from eva_client.cli.array_tables import array_options, read_local_table
from eva_client.cli.jobfiles import LocalJobFile, read_job_file
from eva_client.cli.session import (
    CommandSession,
    address_option,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.uploading import Uploads
from eva_client.cli.views.errors import note
from eva_client.cli.views.words import plain

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.jobfile import Predecessors
    from eva_wire.rpc.messages import SubmitResponse

_SECRET = re.compile(
    r"(?i)(secret|passw|credential|api_?key|token$|(^|_)(token|auth|pat|pwd)(_|$)|(^|_)key(_|$))"
)
"""Names of variables that are likely to hold a secret."""


def _variables(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, _value in pairs:
        if not (name and equals):
            raise click.BadParameter(f"{name!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


@click.command()
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option("--wait", is_flag=True, help="Wait for the jobs and exit with their exit code.")
@click.option("--name", metavar="NAME", help="Used instead of the name in the file.")
@click.option(
    "--env",
    "envs",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_variables,
    help="Set a variable of the tasks; may be repeated.",
)
@array_options
@click.option(
    "--allow-outside",
    is_flag=True,
    help="Upload a directory above that of its job file.",
)
@click.option("-y", "--yes", is_flag=True, help="Upload more than 100 MB without a question.")
@json_option
@address_option
@click.pass_context
@pass_session
def submit(
    session: CommandSession,
    ctx: click.Context,
    /,
    *,
    files: tuple[str, ...],
    wait: bool,
    name: str | None,
    envs: dict[str, str],
    array: str | None,
    names: str,
    allow_outside: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Submit the job in each FILE (- for stdin) and print its id."""
    for option, value in (("--name names one job", name), ("--array is for one job", array)):
        if value and len(files) > 1:
            raise click.UsageError(f"{option}: submit the files one by one")
    if array == "-" and files == ("-",):
        raise click.UsageError("the job file and the table cannot both be read from stdin")
    table = read_local_table(array, names)
    job_files = [read_job_file(Path(file)) for file in files]
    callers = [job_file.variables_of_caller(envs) for job_file in job_files]
    for job_file, caller in zip(job_files, callers, strict=True):
        # All files are checked before any is submitted, so that a mistake in one submits none.
        job_file.check(envs, name, None if table is None else table.table, caller)
        warn_of_secrets(job_file.name, caller)
    together = _Together.of(job_files)
    uploads = [
        Uploads(
            job_file,
            job_file.workdir(allow_outside=allow_outside),
            job_file.build_context(allow_outside=allow_outside),
            sure=yes,
        )
        for job_file in job_files
    ]
    with session.client() as client:
        together.check(client, envs, callers)
        with _Printed(quiet=as_json) as printed:
            for number in together.order:
                own, file = uploads[number], job_files[number]
                before = together.submitted_before(number, printed.ids)
                answer = client.submit(
                    file.text,
                    file_name=file.name,
                    workdir=own.send_workdir(client),
                    build=own.send_context(client),
                    envs=envs,
                    name=name or "",
                    after_ids=before,
                    table=None if table is None else table.upload(client),
                    caller_envs=callers[number],
                )
                printed.add(number, answer)
        ids = [printed.ids[number] for number in range(len(job_files))]
        if as_json:
            print_json({"jobs": printed.shapes(job_files)})
        if wait:
            ctx.exit(wait_for_all(client, ids))


class _Together(NamedTuple):
    """Job files that are submitted together, and may name each other.

    Attributes:
        files: As the user gave them.
        named: The jobs that each of them is to run after.
        order: Their numbers in the order in which they are to be submitted.
    """

    files: Sequence[LocalJobFile]
    named: Sequence[Predecessors]
    order: Sequence[int]

    @classmethod
    def of(cls, files: Sequence[LocalJobFile]) -> _Together:
        """Find their order; raises `InvalidJob` if there is none."""
        if len(files) == 1:
            return cls(files, (), (0,))
        from eva_wire.jobfile import in_order

        named = [file.predecessors() for file in files]
        return cls(files, named, in_order(named))

    def check(
        self, client: Client, envs: dict[str, str], callers: Sequence[Mapping[str, str]]
    ) -> None:
        """Have the master check them all if one needs another, so that a mistake submits none."""
        if not any(file.problems for file in self.named):
            return
        names = [self.named[number].name for number in self.order]
        for place, number in enumerate(self.order):
            file, own = self.files[number], self.named[number].problems
            coming = [name for name in names[:place] if name in own]
            client.check(
                file.text,
                file_name=file.name,
                envs=envs,
                coming=coming,
                caller_envs=callers[number],
            )

    def submitted_before(self, number: int, ids: Mapping[int, str]) -> dict[str, str]:
        """The ids of those that a file names, by their names.

        Args:
            number: Of the file.
            ids: Of the jobs that have been submitted, by the numbers of their files.
        """
        own = self.named[number].problems if self.named else {}
        return {
            name: job_id for at, job_id in ids.items() if own and (name := self._name(at)) in own
        }

    def _name(self, number: int) -> str:
        return self.named[number].name


class _Printed:
    """Prints the ids of jobs in the order of their files, as soon as they are known.

    Args:
        quiet: Whether nothing is to be printed.
    """

    def __init__(self, *, quiet: bool) -> None:
        self.ids: dict[int, str] = {}
        self.notes: dict[int, Sequence[str]] = {}
        """Doubts about the files, by their numbers."""
        self._quiet = quiet
        self._next = 0

    def add(self, number: int, answer: SubmitResponse) -> None:
        """Note the id of the job of a file."""
        self.ids[number], self.notes[number] = answer.job_id, answer.notes
        while self._next in self.ids:
            self._print(self._next)
            self._next += 1

    def shapes(self, files: Sequence[LocalJobFile]) -> list[dict[str, object]]:
        """The jobs as JSON, in the order of their files."""
        return [
            {"id": self.ids[number], "file": file.name, "notes": list(self.notes[number])}
            for number, file in enumerate(files)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Print those that were submitted when another one was refused."""
        for number in sorted(number for number in self.ids if number >= self._next):
            self._print(number)

    def _print(self, number: int) -> None:
        if not self._quiet:
            click.echo(self.ids[number])
            for doubt in self.notes[number]:
                click.echo(f"{self.ids[number]}: {plain(doubt)}", err=True)


def warn_of_secrets(file_name: str, names: Iterable[str]) -> None:
    """Tell of variables of the caller that look like secrets and become part of a job."""
    for name in names:
        if _SECRET.search(name):
            note(
                f"{file_name}: the value of {name} is stored with the job; `eva secret set {name}`"
                f" and `secrets: [{name}]` in place of `envs` keep it out of records"
            )


def wait_for_all(client: Client, ids: list[str]) -> int:
    """Wait for jobs until they have ended, or the user ends the waiting; returns an exit code."""
    from eva_client.cli.waiting import still_running, wait_for

    try:
        return wait_for(client, ids).exit_code
    except KeyboardInterrupt:
        still_running(ids)
        return 130
