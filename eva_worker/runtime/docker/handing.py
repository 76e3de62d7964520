"""Hands secrets to containers by a file in memory, which they cannot change.

Variables of a container are in the engine's records, on its disk and in `docker inspect`. The file
itself is mounted, read-only, so that its name on this machine can go once the container has begun.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from eva_worker.errors import InstanceFailed
from eva_worker.files import CONTAINER_HOME
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.secret_values import SecretValues

PLACE = f"{CONTAINER_HOME}/secrets"
"""The file in the container."""
_RECORD = "handed.json"
_KINDS = ("tmpfs", "ramfs")

READ = f"""if [ -r {PLACE} ]; then . {PLACE}
else echo "cannot start: its secrets are not there"; exit 126; fi
"""
"""Lines of the parent's script: it exports the variables."""
READ_AGAIN = f"[ ! -r {PLACE} ] || . {PLACE}\n"
"""A line of the script of a command beside the task: it exports them, if the task has any."""


def hand_in(secrets: SecretValues, directory: Path, owner: tuple[int, int] | None) -> Path:
    """Write secrets into a file in memory, which is to be mounted at `PLACE`.

    Args:
        secrets: The secrets.
        directory: Of the attempt's records, which get the place, so that a later agent removes it.
        owner: User and group that read it in the container; `None` for those of this process.

    Raises:
        InstanceFailed: There is no directory in memory.
        OSError: The directory has no room.
    """
    text = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in secrets.reveal().items()
    )
    descriptor, place = tempfile.mkstemp(prefix="eva-secrets-", dir=_base())
    with os.fdopen(descriptor, "wb") as file:
        write_json(directory / _RECORD, {"place": place})
        file.write(text.encode(errors="surrogateescape"))
        if owner is not None:
            os.fchown(descriptor, *owner)
    return Path(place)


def take_back(directory: Path) -> None:
    """Remove the file of an attempt; a container that has begun keeps what it has mounted.

    Args:
        directory: As in `hand_in`.
    """
    if record := read_json(directory / _RECORD):
        Path(record["place"]).unlink(missing_ok=True)


def _base() -> Path:
    """A directory whose files are in memory alone.

    Raises:
        InstanceFailed: There is none.
    """
    named = (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", "/run")  # noqa: S108
    in_memory = _devices_in_memory()
    for base in filter(None, named):
        try:
            device = Path(base).stat().st_dev
        except OSError:
            continue
        if device in in_memory and os.access(base, os.W_OK):
            return Path(base)
    raise InstanceFailed(
        "secrets cannot be handed to a container: none of $XDG_RUNTIME_DIR, /dev/shm and /run is"
        " in memory (tmpfs) on this machine"
    )


def _devices_in_memory() -> set[int]:
    devices = set()
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split(" ", 1)[0] in _KINDS:
            major, minor = fields.split()[2].split(":")
            devices.add(os.makedev(int(major), int(minor)))
    return devices
