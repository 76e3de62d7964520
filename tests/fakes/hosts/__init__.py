"""Hosts for tests that are really apart: each has its own network, processes, mounts and engine.

`cluster.HostCluster` is where to begin; docs/reference/test-hosts.md draws the picture.
"""

from __future__ import annotations

import shutil

from tests.fakes.docker import dockerd


def available() -> bool:
    """Whether this machine can run test hosts."""
    return dockerd.available() and all(map(shutil.which, ("ip", "nsenter", "unshare")))
