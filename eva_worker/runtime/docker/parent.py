"""The parent of a task's program in its container: a shell script, and how it is told to stop."""

from __future__ import annotations

import shlex
import signal

from eva_worker.files import CONTAINER_HOME
from eva_worker.runtime import TaskSpec, script
from eva_worker.runtime.docker import handing

LOG, TEMPORARY = (f"{CONTAINER_HOME}/{name}" for name in ("log", "tmp"))
SIGNALLED = 128
"""A shell's exit code for a signal is the signal's number plus this."""
_ASKED = "/dev/shm/.eva-asked"  # noqa: S108 - in the container

# The parent of the program inside the container. When it ends, so do the init above it and the
# whole container. When asked to stop, it therefore waits until it is the last process, so that a
# program below a shell that dies of the signal also gets its grace period. -1 means every process
# but init and itself. A success after the signal passes for an end by the signal: only the parent
# knows which of the two came first.
# Its arguments are the script's interpreter, if its first line names one, and the script.
# Its own variables are named as no variable of a task can be, which would lose its value.
_LOGS = f"exec >>{LOG} 2>&1\n"
_PARENT = f"""EVA_STOPPED=
trap EVA_STOPPED=1 TERM
[ $# != 1 ] || set -- "$(command -v bash || echo /bin/sh)" "$1"
if [ -e "$1" ]; then "$@"; EVA_CODE=$?; else EVA_CODE=127
echo "cannot start: $1, which the first line of \\`run\\` names, is not in the image"; fi
[ $EVA_CODE != 0 ] || [ ! -e {_ASKED} ] || EVA_CODE={SIGNALLED + signal.SIGTERM}
until [ -z "$EVA_STOPPED" ] || ! kill -0 -1; do sleep 0.1; done 2>/dev/null
exit $EVA_CODE"""
# The signal is sent once, even if the agent repeats the call because it got no answer.
TERMINATE = f"[ -e {_ASKED} ] || {{ : >{_ASKED}; kill -TERM -1; }} 2>/dev/null"
"""Sends SIGTERM to all processes of a container, in a process of its own there."""


def command(spec: TaskSpec) -> list[str]:
    """The command of a task's container."""
    arguments = [*script.interpreter(spec.command), f"{TEMPORARY}/{script.PATH}"]
    secrets = handing.READ if spec.secrets else ""
    return ["/bin/sh", "-c", _defaults(spec) + _LOGS + secrets + _PARENT, "eva-task", *arguments]


def _defaults(spec: TaskSpec) -> str:
    """Lines that set variables which the image does not state."""
    named = {"TMPDIR": TEMPORARY} if spec.temporary else {}
    return "".join(
        f'[ -n "${{{name}+stated}}" ] || export {name}={shlex.quote(value)}\n'
        for name, value in {**spec.defaults, **named}.items()
    )
