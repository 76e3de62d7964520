"""Job files on the user's disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eva_wire.values.errors import InvalidJob

if TYPE_CHECKING:
    from eva_wire.jobfile import Predecessors, Table


@dataclass(frozen=True, slots=True)
class LocalContext:
    """A directory that images are built from.

    Attributes:
        directory: Its root.
        dockerfiles: The Dockerfiles in it that are used.
    """

    directory: Path
    dockerfiles: Collection[str]


@dataclass(frozen=True, slots=True)
class LocalJobFile:
    """A job file on the user's disk.

    Attributes:
        name: Its name, for messages.
        text: Its content.
        directory: The directory that its paths are relative to.
    """

    name: str
    text: str
    directory: Path

    def check(
        self,
        envs: Mapping[str, str] | None = None,
        name: str | None = None,
        table: Table | None = None,
        caller: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse a file that no master would accept; raises `InvalidJob`.

        Args:
            envs: Variables that override the file's.
            name: Used instead of the file's name.
            table: Table whose rows are the tasks.
            caller: See `variables_of_caller`.
        """
        from eva_wire.jobfile import check_job

        check_job(self.text, file_name=self.name, envs=envs, name=name, table=table, caller=caller)

    def variables_of_caller(self, envs: Mapping[str, str]) -> dict[str, str]:
        """The variables without a value, with that of this process's environment.

        Args:
            envs: Variables that override the file's; they are left out.

        Raises:
            InvalidJob: The environment lacks one.
        """
        from eva_wire.jobfile import caller_variables_of

        names = [name for name in caller_variables_of(self.text) if name not in envs]
        for name in names:
            if name not in os.environ:
                raise InvalidJob(
                    f"{self.name}: envs.{name} takes your variable {name}, which is not set",
                    hint=f'export it, or add --env {name}=VALUE; "" in the file is an empty one',
                )
        return {name: os.environ[name] for name in names}

    def predecessors(self) -> Predecessors:
        """The jobs that it is to run after; raises `InvalidJob` as `check` does."""
        from eva_wire.jobfile import predecessors_of

        return predecessors_of(self.text, file_name=self.name)

    def workdir(self, *, allow_outside: bool = False) -> Path | None:
        """The directory to upload, `None` for none.

        Args:
            allow_outside: Whether it may be above that of the job file, or a hidden one elsewhere.

        Raises:
            InvalidJob: The directory does not exist, or needs `allow_outside`.
        """
        from eva_wire.jobfile import workdir_of

        stated = workdir_of(self.text)
        if stated is None:
            return None
        path = (self.directory / Path(stated).expanduser()).resolve()
        if not path.is_dir():
            raise InvalidJob(
                f"{self.name}: workdir: {path} is not a directory",
                hint="it is relative to the job file",
            )
        self._check_outside(path, "workdir", allow_outside)
        return path

    def commands(self) -> Sequence[str]:
        """The command of each of its tasks."""
        from eva_wire.jobfile import commands_of

        return commands_of(self.text)

    def _check_outside(self, path: Path, key: str, allow_outside: bool) -> None:
        """Refuse a directory such as a user's home or ``~/.ssh``, sent by mistake or by a trick."""
        own = self.directory.resolve()
        if allow_outside or path.is_relative_to(own):
            return
        beside = path.relative_to(os.path.commonpath([own, path])).parts
        if hidden := [name for name in beside if name.startswith(".")]:
            raise InvalidJob(
                f"{self.name}: {key}: {path} is outside the directory of the job file and in the "
                f"hidden directory {hidden[0]}, and all of it would be uploaded",
                hint="submit it with --allow-outside if that is meant",
            )
        if own.is_relative_to(path):
            raise InvalidJob(
                f"{self.name}: {key}: {path} is above the directory of the job file, and all of it "
                "would be uploaded",
                hint="submit it with --allow-outside if that is meant",
            )

    def build_context(self, *, allow_outside: bool = False) -> LocalContext | None:
        """The directory that images are built from; `None` for none.

        Args:
            allow_outside: See `workdir`.

        Raises:
            InvalidJob: The context does not exist, is above the job file's, or lacks a Dockerfile.
        """
        from eva_wire.jobfile import build_context_of
        from eva_wire.text.yamlfile import invalid

        stated = build_context_of(self.text, file_name=self.name)
        if stated is None:
            return None
        root = (self.directory / Path(stated.directory).expanduser()).resolve()
        if not root.is_dir():
            raise invalid(InvalidJob, self.name, [stated.missing])
        self._check_outside(root, "build.context", allow_outside)
        problems = [
            problem
            for dockerfile, problem in stated.dockerfiles.items()
            if not (root / dockerfile).is_file()
        ]
        if problems:
            raise invalid(InvalidJob, self.name, problems)
        return LocalContext(root, tuple(stated.dockerfiles))


def read_job_file(path: Path) -> LocalJobFile:
    """Read a job file, ``-`` for stdin.

    Raises:
        InvalidJob: The file cannot be read, or is not text.
    """
    try:
        if str(path) == "-":
            return LocalJobFile("stdin", sys.stdin.read(), Path.cwd())
        return LocalJobFile(str(path), path.read_text(encoding="utf-8"), path.parent)
    except UnicodeDecodeError as failure:
        raise InvalidJob(f"{path} is not a text file", hint="save it as UTF-8") from failure
    except OSError as failure:
        raise InvalidJob(f"{path} cannot be read: {failure.strerror}") from failure
