"""Helpers for the processes of test hosts."""

from __future__ import annotations

import ctypes
import signal
import subprocess

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Runs a command as the init of namespaces of its own, which end with it, or it with this one."""

_PR_SET_PDEATHSIG = 1
_PATIENCE_S = 480


def die_with_parent() -> None:
    """Have this process killed when its parent dies; fit for `preexec_fn`, one system call."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run(*command: str, text: str = "") -> str:
    """Run a tool.

    Args:
        command: The tool and its arguments.
        text: For its standard input.

    Returns:
        Output of the command.

    Raises:
        RuntimeError: The command failed; the message has its output.
    """
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
