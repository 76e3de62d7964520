"""The cluster's object store, as the master last described it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from eva_worker.files.download import Fetcher
from eva_worker.files.objects import Objects
from eva_worker.orders import Order, Welcome


class Storage:
    """The object store of the cluster. It is known once a master has ever welcomed this worker.

    Args:
        cache: Directory for blobs.
        uploads: Directory of the records of uploads in progress.
    """

    def __init__(self, cache: Path, uploads: Path) -> None:
        self._cache = cache
        self._uploads = uploads
        self._url = ""
        self._objects: Objects | None = None
        self._fetcher: Fetcher | None = None
        self.upload_s = 0.0

    def configure(self, welcome: Welcome) -> None:
        """Take over the cluster's settings. A new store applies to attempts that begin later."""
        self.upload_s = welcome.upload_ms / 1000
        if welcome.object_store != self._url:
            self._url = welcome.object_store
            self._objects = Objects(welcome.object_store, uploads=self._uploads)
            self._fetcher = Fetcher(self._objects, self._cache)

    @property
    def objects(self) -> Objects:
        """The object store that the master named."""
        assert self._objects, "no task comes before the first Welcome"
        return self._objects

    @property
    def fetcher(self) -> Fetcher:
        """The fetcher that downloads files from the store."""
        assert self._fetcher, "no task comes before the first Welcome"
        return self._fetcher


class SharedStorage:
    """A directory that all instances share, mounted there by the operator.

    Its parts are those of the object store: ``jobs/RUN/outputs``, and ``jobs/JOB/shared`` besides.

    Args:
        root: Where it is mounted.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def parts(self, order: Order) -> dict[str, Path]:
        """The parts of ``$EVA_STORAGE`` that lie here, by their path in it; blocks.

        Raises:
            OSError: The mount fails.
        """
        found = {
            "outputs": self._root / "jobs" / order.run / "outputs",
            "shared": self._root / "jobs" / order.job / "shared",
        }
        for directory in found.values():
            directory.mkdir(parents=True, exist_ok=True)
        inputs = {name: self.input(url) for name, url in order.inputs.items()}
        return found | {f"inputs/{name}": path for name, path in inputs.items() if path}

    def input(self, url: str) -> Path | None:
        """Where an input lies that need not be copied; `None` if it must be copied."""
        parts = urlsplit(url)
        if parts.scheme not in {"", "file"}:
            return None
        path = Path(unquote(parts.path)).resolve()
        return path if path.is_relative_to(self._root.resolve()) and path.exists() else None
