"""``eva submit``: checks, uploads and submits jobs, and waits for them if asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from eva_client.cli.jobfiles import LocalJobFile, read_job_file
from eva_client.cli.session import Session, address_option, json_option, pass_session, print_json
from eva_client.cli.uploading import Uploads
from eva_client.cli.views.errors import note
from eva_client.cli.views.words import plain

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.jobfile import Predecessors
    from eva_wire.rpc.messages import SubmitResponse


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
    session: Session,
    ctx: click.Context,
    /,
    *,
    files: tuple[str, ...],
    wait: bool,
    name: str | None,
    envs: dict[str, str],
    allow_outside: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Submit the job in each FILE (- for stdin) and print its id."""
    if name and len(files) > 1:
        raise click.UsageError("--name names one job: submit the files one by one")
    job_files = [read_job_file(Path(file)) for file in files]
    for job_file in job_files:
        # All files are checked before any is submitted, so that a mistake in one submits none.
        job_file.check(envs, name)
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
        together.check(client, envs)
        printed = _Printed(quiet=as_json)
        with printed:
            for number in together.order:
                own = uploads[number]
                digests = _Uploaded(own.send_workdir(client), own.send_context(client))
                before = together.submitted_before(number, printed.ids)
                answer = _submit(
                    client, job_files[number], digests, name=name, envs=envs, after_ids=before
                )
                printed.add(number, answer)
        ids = [printed.ids[number] for number in range(len(job_files))]
        if as_json:
            print_json(
                {
                    "jobs": [
                        {
                            "id": printed.ids[number],
                            "file": job_file.name,
                            "notes": list(printed.notes[number]),
                        }
                        for number, job_file in enumerate(job_files)
                    ]
                }
            )
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

    def check(self, client: Client, envs: dict[str, str]) -> None:
        """Have the master check them all if one needs another, so that a mistake submits none."""
        if not any(file.problems for file in self.named):
            return
        names = [self.named[number].name for number in self.order]
        for place, number in enumerate(self.order):
            file, own = self.files[number], self.named[number].problems
            coming = [name for name in names[:place] if name in own]
            client.check(file.text, file_name=file.name, envs=envs, coming=coming)

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

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        """Print those that were submitted when another one was refused."""
        for number in sorted(number for number in self.ids if number >= self._next):
            self._print(number)

    def _print(self, number: int) -> None:
        if not self._quiet:
            click.echo(self.ids[number])
            for doubt in self.notes[number]:
                click.echo(f"{self.ids[number]}: {plain(doubt)}", err=True)


class _Uploaded(NamedTuple):
    """Digests of the directories that go with a job, empty for none."""

    workdir: str
    build: str


def _submit(
    client: Client,
    job_file: LocalJobFile,
    digests: _Uploaded,
    *,
    name: str | None,
    envs: dict[str, str],
    after_ids: dict[str, str],
) -> SubmitResponse:
    return client.submit(
        job_file.text,
        file_name=job_file.name,
        workdir=digests.workdir,
        build=digests.build,
        envs=envs,
        name=name or "",
        after_ids=after_ids,
    )


def wait_for_all(client: Client, ids: list[str]) -> int:
    """Wait for jobs until they have ended, or the user ends the waiting; returns an exit code."""
    from eva_client.cli.waiting import wait_for

    try:
        return wait_for(client, ids)
    except KeyboardInterrupt:
        what = " ".join(ids)
        note(f"\n{what}: still running; `eva logs -f` shows its output, `eva cancel` ends it")
        return 130
