"""Commands of a machine image, for scripts whose root is a directory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

OFF = "run/off"
"""A file of a root whose machine is switched off from within."""
UNITS = "run/units"
"""Directory of a root with a file for each unit that is to run."""
_PLACES = "dev|etc|mnt|opt|root|run|tmp|var"
_KEPT = "dev/null"

COMMANDS: Mapping[str, str] = {
    "apt-get": "exit 1",
    "aws": 'exec "$PYTHON" -m awscli "$@"',
    # A file that says what is on the disk; beside it is the directory that it holds.
    "blkid": 'test -s "$1"',
    "mkfs.xfs": 'echo xfs >"$1"',
    "mountpoint": 'test -L "${!#}"',
    "mount": 'rmdir "$2" && ln -s "$(readlink -f "$1").content" "$2"',
    "chgrp": "true",
    "chown": "true",
    "dnf": "true",
    "docker": "true",
    "dockerd": "true",
    "id": "true",
    "journalctl": 'tail -n 20 "$ROOT/var/log/master.log"',
    "lsblk": "true",
    "nvidia-ctk": 'echo "nvidia-ctk $*" >>"$ROOT/commands"',
    # As the images with a driver have it: without a GPU there is none.
    "nvidia-smi": 'echo "nvidia-smi $*" >>"$ROOT/commands"; [ "${GPUS:-0}" -gt 0 ]',
    "pidof": "exit 1",
    # Packages are this environment's: the interpreter alone is laid out.
    "python3.11": """
if [ "$2" != venv ]; then exec "$PYTHON" "$@"; fi
mkdir -p "$4/bin"
printf '#!/bin/bash\\ncase "$1" in */pip) exit 0 ;; esac\\nexec "$PYTHON" "$@"\\n' >"$4/bin/python"
chmod +x "$4/bin/python"
""",
    "python3": 'exec "$PYTHON" "$@"',
    "shutdown": f"""
case "$*" in "-P now") : >"$ROOT/{OFF}" ;; esac
""",
    "sync": "true",
    "systemctl": f"""
mkdir -p "$ROOT/{UNITS}"
case "$1" in
restart|start) date +%N >"$ROOT/{UNITS}/$2" ;;
enable) [ "$2" != --now ] || date +%N >"$ROOT/{UNITS}/$3" ;;
disable|stop) rm -f "$ROOT/{UNITS}/${{!#}}" ;;
poweroff) : >"$ROOT/{OFF}" ;;
esac
""",
    "useradd": "true",
}


def lay_out(directory: Path) -> None:
    """Put the commands into a directory."""
    directory.mkdir(parents=True)
    for name, text in COMMANDS.items():
        (directory / name).write_text(f"#!/bin/bash\n{text}\n")
        (directory / name).chmod(0o755)


def within(script: str, root: str) -> str:
    """A script whose absolute paths are below a directory with a plain name."""
    absolute = re.compile(rf"(?<![\w/}}.])/(?!{_KEPT})({_PLACES})(?=[/\s\"']|$)", re.MULTILINE)
    marked = script.replace("file:///", "file://\1/")
    return absolute.sub(rf"{root}/\1", marked).replace("\1", "")


def environment(directory: Path, root: Path, **more: str) -> dict[str, str]:
    """Variables for a script that uses the commands in a directory."""
    return {
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "ROOT": str(root),
        **more,
    }
