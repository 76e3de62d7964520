"""Room on the disk that all tasks of an instance share with the worker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from eva_worker.errors import InstanceFailed, TooLarge
from eva_worker.files.beneath import Directory

_KEPT = 1 << 30
"""Bytes that stay free for everybody else, or a tenth of a small disk."""
_GIB = 1 << 30


def require_room(directory: Directory, size: int) -> None:
    """Check that files that a task is given do not fill the disk; what is there already counts too.

    Args:
        directory: Where they go.
        size: Bytes of all of them.

    Raises:
        TooLarge: They are more than half of the disk.
        InstanceFailed: They are not, and others have filled this one.
    """
    disk = os.fstatvfs(directory.fd)
    whole, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    if size <= free - min(_KEPT, whole // 10):
        return
    what = f"{size / _GIB:.1f} GiB of files are to be brought to its instance"
    if 2 * size > whole:
        raise TooLarge(f"{what}, which has a disk of {whole / _GIB:.1f} GiB")
    raise InstanceFailed(f"{what}, where {free / _GIB:.1f} GiB are free")


def disk_mib(directory: Path) -> int:
    """Size of the file system that a directory is on, or is to be on, in MiB."""
    nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(nearest).total >> 20
