"""The cluster's object store, as the master last described it."""

from __future__ import annotations

from pathlib import Path

from eva_worker.objects import Objects
from eva_worker.orders import Welcome
from eva_worker.transfer import Fetcher


class Storage:
    """Where files come from and go to; known once a master has welcomed this worker, ever.

    Args:
        cache: Directory for blobs.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._url = ""
        self._objects: Objects | None = None
        self._fetcher: Fetcher | None = None
        self.upload_s = 0.0

    def configure(self, welcome: Welcome) -> None:
        """Take the cluster's settings; another store counts for attempts that begin later."""
        self.upload_s = welcome.upload_ms / 1000
        if welcome.object_store != self._url:
            self._url = welcome.object_store
            self._objects = Objects(welcome.object_store)
            self._fetcher = Fetcher(self._objects, self._cache)

    @property
    def objects(self) -> Objects:
        """The store."""
        assert self._objects, "no task comes before the first Welcome"
        return self._objects

    @property
    def fetcher(self) -> Fetcher:
        """What brings files here from it."""
        assert self._fetcher, "no task comes before the first Welcome"
        return self._fetcher
