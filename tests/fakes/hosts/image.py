"""The image of test hosts: this machine's Python and a shell, made once and copied for each host.

``python -m tests.fakes.hosts.image DIRECTORY`` makes an engine's data directory that holds it.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from eva_master.adapters.local.engine import Engine
from eva_master.adapters.local.image import python_tree
from tests.fakes.hosts import engine
from tests.fakes.hosts.process import NAMESPACES, run

_NAME = "image-id"
_PREFIX = "eva-hosts-image-"
_KEEP_S = 24 * 3600


@functools.cache
def prepared() -> Path:
    """A directory with an engine's ``data`` that holds the image; not to be written to.

    The directory stays for the next test run; another one is made when Python or a package in it
    changes.
    """
    home = Path(tempfile.gettempdir())
    made = home / f"{_PREFIX}{python_tree().digest()}"
    with (home / f"{_PREFIX}lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            aside = made.with_suffix(".new")
            shutil.rmtree(aside, ignore_errors=True)
            run(*NAMESPACES, sys.executable, "-m", "tests.fakes.hosts.image", str(aside))
            aside.rename(made)
        os.utime(made)
        for old in home.glob(f"{_PREFIX}*/"):
            if time.time() - old.stat().st_mtime > _KEEP_S:
                shutil.rmtree(old)
    return made


def name(made: Path) -> str:
    """The name of the image for containers in a `prepared` directory."""
    return (made / _NAME).read_text()


def main() -> None:
    """Make the directory; in namespaces that end with this process, and with them the engine."""
    directory = Path(sys.argv[1])
    directory.mkdir()
    engine.prepare()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            engine.command(directory / "data", "/eva-hosts/image"), stdout=log, stderr=log
        )
        engine.await_answer()
        with Engine(f"unix://{engine.SOCKET}") as client:
            (directory / _NAME).write_text(client.make_image(python_tree()))
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
