"""Uploads of a job's directories: what is left out, what is asked first, and the progress."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eva_client.cli.session import Patience, console
from eva_client.cli.views.errors import note
from eva_client.cli.views.words import plain
from eva_wire.values.errors import InvalidJob

if TYPE_CHECKING:
    from eva_client.cli.jobfiles import LocalContext, LocalJobFile
    from eva_client.rpc.master import Client, Scan
    from eva_client.uploads.workdir import LeftOut, Scanned

ASKED_ABOVE = 100 * 1000 * 1000
"""Bytes that are sent without a question."""
_NAMED = 5
"""Names in a line."""
_BEFORE, _AFTER = r"(?:^|[\s\"'`=(:;|&<>{]|/)", r"(?=$|[\s\"'`;|&)/<>:,}])"
"""Text around a path in a command."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """The directories of one job.

    Attributes:
        file: Its file.
        workdir: The working directory, if it has one.
        context: Context that its images are built from, if any.
        sure: Whether nothing is to be asked.
    """

    file: LocalJobFile
    workdir: Path | None
    context: LocalContext | None
    sure: bool

    def send_workdir(self, client: Client) -> str:
        """Upload the working directory; returns its digest, empty for none.

        Raises:
            InvalidJob: Files cannot be uploaded, or a command needs what is left out.
            click.Abort: The user does not want to.
        """
        return self._send(client, self.workdir) if self.workdir else ""

    def send_context(self, client: Client) -> str:
        """Upload the build context; returns its digest, empty for none."""
        if self.context is None:
            return ""
        from eva_client.uploads.context import scan_context

        dockerfiles = self.context.dockerfiles
        return self._send(
            client, self.context.directory, lambda root: scan_context(root, dockerfiles)
        )

    def _send(self, client: Client, directory: Path, scan: Scan | None = None) -> str:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

        screen = console(stderr=True)
        columns = (TextColumn("uploading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(
            *columns, console=screen, transient=True, disable=not screen.is_terminal
        ) as progress:
            bar = progress.add_task("upload", total=None)

            def admit(found: Scanned, files: Sequence[str]) -> None:
                progress.stop()
                self._admit(directory, found, files)
                progress.start()

            return client.upload(
                directory,
                lambda done, total: progress.update(bar, completed=done, total=total),
                scan=scan,
                admit=admit,
                patience=Patience(client),
            )

    def _admit(self, directory: Path, found: Scanned, files: Sequence[str]) -> None:
        if found.left_out:
            _check_commands(self.file, found.left_out)
            note(plain(left_out_note(directory, found.left_out)))
        size = sum(found.sizes[digest] for digest in files)
        if size <= ASKED_ABOVE or self.sure:
            return
        largest = sorted(files, key=lambda digest: -found.sizes[digest])[:_NAMED]
        names = ", ".join(
            f"{found.sources[digest].name} {amount(found.sizes[digest])}" for digest in largest
        )
        text = f"{amount(size)} of {directory} would be uploaded, the largest: {names}"
        if can_ask():
            click.confirm(plain(f"{text}. Go on?"), abort=True, err=True)
        else:
            note(plain(f"{text}; .evaignore leaves files out, --yes leaves this line out"))


def can_ask() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def left_out_note(directory: Path, left_out: Sequence[LeftOut]) -> str:
    """Line about the files that Eva leaves out of a directory by itself."""
    shown = ", ".join(file.path for file in sorted(left_out, key=_secrets_first)[:_NAMED])
    if len(left_out) > _NAMED:
        shown += f" and {len(left_out) - _NAMED:,} more"
    size = amount(sum(file.size for file in left_out))
    return (
        f"not uploaded of {directory.name}: {shown} ({size}); a line !NAME in .evaignore sends it"
    )


def _secrets_first(entry: LeftOut) -> tuple[bool, str]:
    return entry.path.endswith("/"), entry.path


def amount(size: int) -> str:
    """A number of bytes, for people."""
    for unit, bound in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bound:
            return f"{size / bound:.1f} {unit}"
    return f"{size} bytes"


def _check_commands(file: LocalJobFile, left_out: Iterable[LeftOut]) -> None:
    """Refuse a job that names what is not uploaded; raises `InvalidJob`."""
    commands = "\n".join(file.commands())
    for entry in left_out:
        name = entry.path.rstrip("/").rpartition("/")[2]
        if re.search(f"{_BEFORE}{re.escape(name)}{_AFTER}", commands, re.MULTILINE):
            raise InvalidJob(
                f"{file.name}: run names {name}, and {entry.path} is not uploaded",
                hint=f"make it on the instance, or write !{name} into .evaignore to upload it",
            )
