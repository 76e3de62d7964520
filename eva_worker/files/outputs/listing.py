"""Lists what a task has in ``$EVA_STORAGE/outputs``, and what links in it lead to.

The directory is the task's to change at any moment, so it is opened by `beneath` alone.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from dataclasses import dataclass, field
from pathlib import Path

from eva_worker.errors import UnstorableFile
from eva_worker.files import CONTAINER_HOME
from eva_worker.files.beneath import MOST_ENTRIES, Directory, Found, Listing, open_inside

_ROOTS = ("storage/outputs", "checkpoints", "work")
"""The task's own directories, to which links may lead."""


@dataclass(slots=True)
class Outputs:
    """Outputs that are to be stored.

    Attributes:
        files: By name below ``outputs``: the file, by its path in the attempt's directory.
        left_out: Why something is not stored, by its name.
    """

    files: dict[str, Found] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def collected(home: Directory, outputs: str) -> Outputs:
    """All outputs, and the content of what links lead to; blocks.

    Links to files and directories of the task itself are followed, those to directories once.

    Args:
        home: The attempt's directory.
        outputs: The path of the outputs in it.

    Raises:
        OSError: There is no such directory, or it is a link.
        UnstorableFile: The tree is too large or too deep.
    """
    with home.directory(outputs) as directory:
        listing = directory.listing()
    collection = Outputs(left_out={path: f"it {reason}" for path, reason in listing.others.items()})
    for file in listing.files:
        collection.files[file.path] = Found(f"{outputs}/{file.path}", file.status)
    for path, target in sorted(listing.links.items()):
        _follow(home, collection, path, f"{outputs}/{path}", target)
    if len(collection.files) > MOST_ENTRIES:
        raise UnstorableFile(f"there are more than {MOST_ENTRIES} files, those of links included")
    return collection


def _follow(
    home: Directory, found: Outputs, name: str, place: str, target: str, *, nested: bool = False
) -> None:
    """Take in what a link leads to.

    Args:
        home: The attempt's directory.
        found: Where it goes.
        name: Name below ``outputs``.
        place: Where the link is, in the attempt's directory.
        target: Target of the link.
        nested: Whether it was met in a directory that another link leads to.
    """
    real, status = _resolved(home, place, target)
    if real is None:
        found.left_out[name] = "it is a link that leads out of the task's directories"
    elif status is None:
        found.left_out[name] = "it is a link that leads nowhere"
    elif stat.S_ISREG(status.st_mode):
        found.files[name] = Found(real, status)
    elif not stat.S_ISDIR(status.st_mode):
        found.left_out[name] = "it is a link to neither a file nor a directory"
    elif nested or f"{place}/".startswith(f"{real}/"):
        found.left_out[name] = "it is a link to a directory, within one or met by another link"
    elif len(found.files) <= MOST_ENTRIES:
        listing = _listing(home, real)
        for path, reason in listing.others.items():
            found.left_out[f"{name}/{path}"] = f"it {reason}"
        for file in listing.files:
            found.files[f"{name}/{file.path}"] = Found(f"{real}/{file.path}", file.status)
        for path, further in sorted(listing.links.items()):
            _follow(home, found, f"{name}/{path}", f"{real}/{path}", further, nested=True)


def _listing(home: Directory, path: str) -> Listing:
    try:
        with home.directory(path) as directory:
            return directory.listing()
    except OSError:
        return Listing()  # The directory has changed meanwhile.


def _resolved(home: Directory, place: str, target: str) -> tuple[str | None, os.stat_result | None]:
    """Target of a link: its real path in the attempt's directory, and its status.

    Returns:
        No path for what lies outside the task's directories, no status for what does not exist.
    """
    own = str(Path(f"/proc/self/fd/{home.fd}").readlink())
    if posixpath.isabs(target):
        absolute = posixpath.normpath(target)
        above = next(
            (
                home_path
                for home_path in (own, CONTAINER_HOME)
                if absolute.startswith(f"{home_path}/")
            ),
            None,
        )
        path = "" if above is None else absolute.removeprefix(f"{above}/")
    else:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
    root = next((top for top in _ROOTS if path == top or path.startswith(f"{top}/")), None)
    if root is None:
        return None, None
    try:
        with home.directory(root) as directory:
            inside = open_inside(directory.fd, path.removeprefix(root).lstrip("/") or ".")
    except OSError as error:
        return (path, None) if error.errno in {errno.ENOENT, errno.ENOTDIR} else (None, None)
    try:
        real = str(Path(f"/proc/self/fd/{inside}").readlink())
        status = os.fstat(inside)
    finally:
        os.close(inside)
    return (real.removeprefix(f"{own}/") if real.startswith(f"{own}/") else None), status
