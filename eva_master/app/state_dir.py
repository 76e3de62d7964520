"""Sees that a master starts with the state that it is meant to have."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

from eva_master.adapters.pki.authority import Authority
from eva_master.app.config import MasterConfig
from eva_wire.values.errors import InvalidConfig

_log = structlog.get_logger(__name__)

STATE_ID = "state-id"
RESTORED = "restored"
"""A file that the operator touches after the journal was put back from a backup."""
"""File in the state directory that says whose state it is."""


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_USUAL = stat.S_IWGRP | stat.S_IWOTH
_MENDED = ".private"
"""File that says that all in the state directory was made private once."""
_DISK = "disk"
"""Directory of an emulated instance, where tasks may have other users."""


def make_state(config: MasterConfig) -> None:
    """Make the state directory unless it is there, and keep other users out of it.

    Raises:
        InvalidConfig: The directory cannot be made, others may have written to it, or another user
            owns it.
    """
    directory = config.state_dir
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_private(directory)
    except OSError as error:
        raise InvalidConfig(
            f"the state directory {directory} cannot be made: {error.strerror}",
            hint="choose another one with --state-dir, or state_dir in the settings",
        ) from error


def keep_files_private(config: MasterConfig) -> None:
    """Have this process make files that its user alone may read.

    Files of an object store that is elsewhere are made as the user wants them, or for all to read
    if that is not said: workers of other users may need them.
    """
    url = urlsplit(config.objects_url)
    own = Path(unquote(url.path)).is_relative_to(config.state_dir.absolute())
    before = os.umask(_OTHERS)
    if url.scheme == "file" and not own:
        os.umask(_USUAL if before == _OTHERS else before)


def _make_private(directory: Path) -> None:
    mode = directory.stat().st_mode
    if mode & stat.S_ISVTX or (mode & stat.S_IWOTH and any(directory.iterdir())):
        raise InvalidConfig(
            f"the state directory {directory} can be changed by every user of this machine",
            hint="choose a directory of its own with --state-dir, or state_dir in the settings; if "
            f"all that is in it is yours: chmod 700 {directory}",
        )
    if mode & _OTHERS:
        try:
            directory.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        except OSError as error:
            raise InvalidConfig(
                f"the state directory {directory} is open to other users, and cannot be closed: "
                f"{error.strerror}",
                hint=f"have its owner run: chmod 700 {directory}",
            ) from error
        if Authority.made(directory / "pki"):
            _log.warning(
                "the state directory was open to other users of this machine and is closed now",
                directory=str(directory),
                hint="others may have read the journal, logs and what jobs have uploaded",
            )
    mended = directory / _MENDED
    if mode & _OTHERS or not mended.exists():
        if Authority.made(directory / "pki"):  # Else nothing in it is of Eva's.
            _mend(directory)
        mended.touch(mode=0o600)


def _mend(directory: Path) -> None:
    """Take from others what they may do with the files of a directory; links are not followed."""
    for place, directories, files, descriptor in os.fwalk(directory, follow_symlinks=False):
        for name in (*directories, *files):
            with contextlib.suppress(OSError):  # The file is gone by now.
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if not stat.S_ISLNK(status.st_mode) and status.st_mode & _OTHERS:
                    closed = stat.S_IMODE(status.st_mode) & ~_OTHERS
                    os.chmod(name, closed, dir_fd=descriptor)
        if _DISK in directories and Path(place).parent.name == "cloud":
            directories.remove(_DISK)


def restored_mark(config: MasterConfig) -> int:
    """When the operator put the journal back from a backup, in milliseconds; 0 for never."""
    try:
        return (config.state_dir / RESTORED).stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0


def require_state(config: MasterConfig) -> None:
    """Refuse a state directory that is not the one that the settings mean.

    In an empty one a master would begin a new cluster: another authority, an empty journal, and
    every instance of the old one unwanted.

    Raises:
        InvalidConfig: The directory has no id, or another one.
    """
    if not config.state_id:
        return
    file = config.state_dir / STATE_ID
    try:
        state_id = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidConfig(
            f"{config.state_dir} is not the state of this cluster: {file}: {error.strerror}",
            hint="see whether its volume is mounted; to begin anew leave state_id out",
        ) from error
    if state_id != config.state_id:
        raise InvalidConfig(
            f"{config.state_dir} is the state of another cluster: {file} says {state_id!r}, and "
            f"state_id is {config.state_id!r}",
            hint="mount the volume of this cluster",
        )
