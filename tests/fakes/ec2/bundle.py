"""The worker's bundle, made once for as long as its sources stay as they are."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path

from deploy import bundle

_PREFIX = "eva-test-bundle-"
_KEEP_S = 24 * 3600


@functools.cache
def made() -> Path:
    """Its path; not to be written to. Its wheels come from wherever pip takes packages."""
    home = Path(tempfile.gettempdir())
    directory = home / f"{_PREFIX}{bundle.source_digest()}"
    with (home / f"{_PREFIX}lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            aside = Path(tempfile.mkdtemp(prefix="new-" + _PREFIX))
            bundle.make("worker", into=aside)
            aside.rename(directory)
        os.utime(directory)
        for old in home.glob(f"{_PREFIX}*/"):
            if time.time() - old.stat().st_mtime > _KEEP_S:
                shutil.rmtree(old)
    (path,) = directory.glob("*.tar")
    return path
