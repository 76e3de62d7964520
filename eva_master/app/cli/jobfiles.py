"""Job files on the user's disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eva_master.model.errors import InvalidJob


@dataclass(frozen=True, slots=True)
class LocalJobFile:
    """A job file as it was read.

    Attributes:
        name: For messages.
        text: Its content.
        directory: What its `workdir` is relative to.
    """

    name: str
    text: str
    directory: Path

    def check(self, envs: Mapping[str, str] | None = None, name: str | None = None) -> None:
        """Refuse what no master would accept; raises `InvalidJob`."""
        from eva_master.adapters.jobfile import check_job

        check_job(self.text, file_name=self.name, envs=envs, name=name)

    def workdir(self) -> Path | None:
        """The directory to upload, `None` for none; raises `InvalidJob` if there is none such."""
        from eva_master.adapters.jobfile import workdir_of

        stated = workdir_of(self.text)
        if stated is None:
            return None
        path = (self.directory / Path(stated).expanduser()).resolve()
        if not path.is_dir():
            raise InvalidJob(
                f"{self.name}: workdir: {path} is not a directory",
                hint="it is relative to the job file",
            )
        return path


def read_job_file(path: Path) -> LocalJobFile:
    """Read a job file, ``-`` for stdin.

    Raises:
        InvalidJob: It cannot be read, or is no text.
    """
    try:
        if str(path) == "-":
            return LocalJobFile("stdin", sys.stdin.read(), Path.cwd())
        return LocalJobFile(str(path), path.read_text(encoding="utf-8"), path.parent)
    except UnicodeDecodeError as failure:
        raise InvalidJob(f"{path} is not a text file", hint="save it as UTF-8") from failure
    except OSError as failure:
        raise InvalidJob(f"{path} cannot be read: {failure.strerror}") from failure
