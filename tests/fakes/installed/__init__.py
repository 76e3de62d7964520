"""An environment into which the project's wheels are installed, with no checkout on its path."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

from deploy import bundle, wheels

_PREFIX = "eva-test-wheels-"
_KEEP_S = 24 * 3600
EXAMPLES_ALONE = ("sklearn", "scikit_learn", "joblib", "threadpoolctl", "torch")
"""Packages that `eva-scheduler` does not need, which a user may not have."""


@functools.cache
def built() -> tuple[Path, ...]:
    """Wheels of the six distributions, built once for as long as their sources stay as they are."""
    home = Path(tempfile.gettempdir())
    directory = home / f"{_PREFIX}{bundle.source_digest()}"
    with (home / f"{_PREFIX}lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            aside = Path(tempfile.mkdtemp(prefix="new-" + _PREFIX))
            wheels.build(wheels.DISTRIBUTIONS, aside)
            aside.rename(directory)
        os.utime(directory)
        for old in home.glob(f"{_PREFIX}*/"):
            if time.time() - old.stat().st_mtime > _KEEP_S:
                shutil.rmtree(old)
    return tuple(sorted(directory.glob("*.whl")))


class Installed:
    """A virtual environment with wheels, and links to the packages of others that are here.

    Args:
        home: Directory of the environment, made.
        wheels: Wheels to install; all of the project if not given.

    Attributes:
        home: Directory of the environment.
    """

    def __init__(self, home: Path, files: tuple[Path, ...] | None = None) -> None:
        self.home = home
        venv.create(home, symlinks=True)
        self._link_others()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python]
        command = [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
        subprocess.run([*command, *(built() if files is None else files)], check=True)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    @property
    def eva(self) -> Path:
        """Its command."""
        return self.home / "bin" / "eva"

    @property
    def packages(self) -> Path:
        """Directory of its packages."""
        paths = sysconfig.get_paths(vars={"base": str(self.home), "platbase": str(self.home)})
        return Path(paths["purelib"])

    def environment(self, **more: str) -> dict[str, str]:
        """Variables for its processes: none leads to a checkout, or to a cluster of the user."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EVA_", "PYTHON", "VIRTUAL_ENV"))
        }
        return {**kept, "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", **more}

    def run(self, *command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of it to its end."""
        return subprocess.run(
            command,
            cwd=cwd,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def _link_others(self) -> None:
        here = Path(sysconfig.get_paths()["purelib"])
        own = {Path(wheel.name).name.partition("-")[0] for wheel in built()}
        for entry in here.iterdir():
            name = entry.name.partition("-")[0]
            leads_here = name in own or name.startswith(("eva_", "__editable__", "_eva"))
            if not leads_here and name not in EXAMPLES_ALONE and entry.suffix != ".pth":
                (self.packages / entry.name).symlink_to(entry)
