"""The files and the environment of a task inside its container."""

from __future__ import annotations

import os
from pathlib import Path

from docker.types import Mount

from eva_worker.files import CONTAINER_HOME
from eva_worker.isolation import hand_over, let_in
from eva_worker.runtime import TaskSpec, script
from eva_worker.runtime.docker import parent

_USER = "eva"
WORK, SOCKET = f"{CONTAINER_HOME}/work", f"{CONTAINER_HOME}/run"
# Variables that name a directory, and its path in the container.
_DIRECTORIES = {
    "EVA_STORAGE": f"{CONTAINER_HOME}/storage",
    "EVA_CHECKPOINT_DIR": f"{CONTAINER_HOME}/checkpoints",
    "EVA_MERGE_DIR": f"{CONTAINER_HOME}/merge",
}


def hand_over_files(spec: TaskSpec, temporary: Path, uid: int, gid: int) -> None:
    """Give the files of a task that has not begun to its user."""
    places = [Path(spec.env[name]) for name in _DIRECTORIES if name in spec.env]
    hand_over([spec.workdir, temporary, *places], uid, gid)
    os.chown(spec.log, uid, gid, follow_symlinks=False)
    for name, source in spec.elsewhere.items():
        if not name.startswith("inputs/"):  # Its content is that of earlier attempts.
            os.chown(source, uid, gid, follow_symlinks=False)
    if "EVA_SOCKET" in spec.env:
        let_in(Path(spec.env["EVA_SOCKET"]).parent, gid)


def temporary(spec: TaskSpec) -> Path:
    """The directory of a task's temporary files, with its script; raises `OSError`."""
    place = spec.temporary or spec.log.with_name("tmp")
    place.mkdir(exist_ok=True)
    script.write(spec.command, place)
    return place.absolute()


def inside(spec: TaskSpec, temporary: Path) -> tuple[dict[str, str], list[Mount]]:
    """The environment inside the container, and the mounts that it refers to."""
    # Programs ask for the name of their user, which no image knows.
    env = {"HOME": WORK, "USER": _USER, "LOGNAME": _USER, **spec.env}
    sources = {
        WORK: spec.workdir.absolute(),
        parent.LOG: spec.log.absolute(),
        parent.TEMPORARY: temporary,
    }
    for name, place in _DIRECTORIES.items():
        if name in env:
            sources[place] = Path(env[name])
            env[name] = place
    if "EVA_SOCKET" in env:
        # The socket's directory is mounted, so that the task sees the socket of the next agent.
        socket = Path(env["EVA_SOCKET"])
        sources[SOCKET] = socket.parent
        env["EVA_SOCKET"] = f"{SOCKET}/{socket.name}"
    mounts = [
        # Connecting to a socket needs no right to write beside it.
        Mount(place, str(source), type="bind", read_only=place == SOCKET)
        for place, source in sources.items()
    ]
    for name, source in spec.elsewhere.items():
        # The engine creates their mount points below the previous mount.
        place, input_ = f"{_DIRECTORIES['EVA_STORAGE']}/{name}", name.startswith("inputs/")
        mounts.append(Mount(place, str(source), type="bind", read_only=input_))
    return env, mounts
