"""Tables of arrays on the user's disk: ``--array FILE.csv``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eva_client.cli.session import Patience
from eva_wire.values.errors import of_file

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.jobfile import Table
    from eva_wire.rpc import messages

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class LocalTable:
    """A table that was read.

    Attributes:
        data: Content of the file.
        table: Figures of it.
        names: Column that names the tasks; empty for the usual one.
    """

    data: bytes
    table: Table
    names: str

    def upload(self, client: Client) -> messages.Table:
        """Have the master store the table; returns the reference of a submission."""
        from eva_wire.rpc.messages import Table

        digest = client.upload_blob(self.data, patience=Patience(client))
        return Table(file_name=self.table.file_name, digest=digest, names=self.names)

    @property
    def preview(self) -> messages.Table:
        """The table for a preview, without its content."""
        from eva_wire.rpc.messages import Table

        return Table(file_name=self.table.file_name, rows=self.table.rows)


def array_options(command: Decorated) -> Decorated:
    """Add ``--array`` and ``--names``."""
    file = click.option(
        "--array",
        "array",
        metavar="FILE.csv",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="Run a task for each row; columns are environment variables.",
    )
    names = click.option(
        "--names",
        metavar="COLUMN",
        default="",
        help="Column of --array that names the tasks; `name` if there is one.",
    )
    return file(names(command))


def read_local_table(array: str | None, names: str) -> LocalTable | None:
    """The table of the options; `None` if there is none.

    Raises:
        click.UsageError: There is a column of names and no table.
        InvalidJob: The table cannot be used.
        EvaError: The file cannot be read.
    """
    if array is None:
        if names:
            raise click.UsageError("--names chooses a column of a table: add --array FILE.csv")
        return None
    from eva_wire.jobfile import MOST_TABLE_BYTES, read_table

    # One byte more tells a table that is too large from the largest.
    if array == "-":
        file_name, data = "stdin", sys.stdin.buffer.read(MOST_TABLE_BYTES + 1)
    else:
        file_name = array
        try:
            with Path(array).open("rb") as file:
                data = file.read(MOST_TABLE_BYTES + 1)
        except OSError as failure:
            raise of_file(failure) from failure
    return LocalTable(data, read_table(data, file_name=file_name, names=names), names)
