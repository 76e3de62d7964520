"""Hands secrets to containers by a file in memory, which the program's parent reads and removes.

Variables of a container are in the engine's records, on its disk and in `docker inspect`.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Set
from pathlib import Path

from eva_worker.errors import InstanceFailed
from eva_worker.files import CONTAINER_HOME
from eva_worker.files.beneath import remove_tree
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.secret_values import SecretValues

PLACE = f"{CONTAINER_HOME}/secrets"
"""Directory of the file in the container."""
_FILE = "env"
_RECORD = "handed.json"
_KINDS = ("tmpfs", "ramfs")

READ = f"""if [ -r {PLACE}/{_FILE} ]; then . {PLACE}/{_FILE}; : >{PLACE}/{_FILE}
rm -f {PLACE}/{_FILE}; else echo "cannot start: its secrets are not there"; exit 126; fi
"""
"""Lines of the parent's script: it exports the variables, and nothing is left of the file."""


def hand_in(secrets: SecretValues, directory: Path, owner: tuple[int, int] | None) -> Path:
    """Write secrets into a directory in memory, which is to be mounted at `PLACE`.

    Args:
        secrets: The secrets.
        directory: Of the attempt's records, which get the place, so that a later agent removes it.
        owner: User and group that read it in the container; `None` for those of this process.

    Raises:
        InstanceFailed: There is no directory in memory.
        OSError: The directory has no room.
    """
    place = Path(tempfile.mkdtemp(prefix="eva-secrets-", dir=_base()))
    write_json(directory / _RECORD, {"place": str(place)})
    text = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in secrets.reveal().items()
    )
    _write(place / _FILE, text, owner)
    if owner is not None:
        os.chown(place, *owner)
    return place


def read_again(name: str) -> str:
    """Lines of the script of a command beside the task: it exports what was handed to it."""
    file = f"{PLACE}/{name}"
    return f"if [ -r {file} ]; then . {file}; : >{file}; rm -f {file}; fi\n"


def hand_again(directory: Path, name: str, program: Mapping[str, str], stated: Set[str]) -> None:
    """Write the secrets of a running program for a command beside it; nothing if it has none.

    The values are those that the program began with: no agent keeps any.

    Args:
        directory: As in `hand_in`.
        name: Of the file, which nobody else uses.
        program: The program's environment.
        stated: Variables that the engine knows already.

    Raises:
        OSError: The directory has no room.
    """
    record = read_json(directory / _RECORD)
    if not record:
        return
    place = Path(record["place"])
    owner = place.stat()
    text = "".join(
        f"export {variable}={shlex.quote(value)}\n"
        for variable, value in program.items()
        if f"{variable}={value}" not in stated and variable.isidentifier()
    )
    _write(place / name, text, (owner.st_uid, owner.st_gid))


def drop(directory: Path, name: str) -> None:
    """Remove the file of a command that has not read it."""
    if record := read_json(directory / _RECORD):
        (Path(record["place"]) / name).unlink(missing_ok=True)


def take_back(directory: Path) -> None:
    """Remove the place of an attempt that does not run, and what its parent has left there.

    Args:
        directory: As in `hand_in`.
    """
    if record := read_json(directory / _RECORD):
        remove_tree(Path(record["place"]))


def _write(path: Path, text: str, owner: tuple[int, int] | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode(errors="surrogateescape"))
        if owner is not None:
            os.fchown(descriptor, *owner)


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
