"""The cluster's object store, as the master last described it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eva_worker.errors import UnsupportedInput
from eva_worker.files.beneath import Directory
from eva_worker.files.download import Fetcher
from eva_worker.files.inputs import Roots
from eva_worker.files.job_outputs import OutputsFetcher
from eva_worker.files.objects import Objects
from eva_worker.orders import JobOutputs, Order, Welcome


class Storage:
    """The object store of the cluster, known once a master has ever welcomed this worker.

    Args:
        cache: Directory for blobs.
        uploads: Directory of the records of uploads in progress.
        private: Directories that no input may come from.
        hidden: Directories that inputs may not come from, unless their root lies in one.
    """

    def __init__(
        self,
        cache: Path,
        uploads: Path,
        private: Collection[Path] = (),
        hidden: Collection[Path] = (),
    ) -> None:
        self._cache = cache
        self._uploads = uploads
        self._private = private
        self._hidden = hidden
        self._welcome: Welcome | None = None
        self._roots = Roots((), "")
        self._objects: Objects | None = None
        self._fetcher: Fetcher | None = None
        self.upload_s = 0.0

    def configure(self, welcome: Welcome) -> None:
        """Take over the cluster's settings. A new store applies to attempts that begin later."""
        self.upload_s = welcome.upload_ms / 1000
        before, self._welcome = self._welcome, welcome
        if before is None or before.object_store != welcome.object_store:
            self._objects = Objects(welcome.object_store, uploads=self._uploads)
            self._fetcher = None
        if self._fetcher is None or before is None or before.input_roots != welcome.input_roots:
            self._roots = Roots(welcome.input_roots, welcome.object_store)
            self._fetcher = Fetcher(
                self.objects, self._cache, self._roots, self._private, self._hidden
            )

    @property
    def roots(self) -> Roots:
        """Where inputs may come from."""
        return self._roots

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

    async def outputs(
        self, outputs: Mapping[str, JobOutputs], target: Path, shared: SharedStorage | None
    ) -> None:
        """Copy outputs of earlier jobs to a task's inputs, see `OutputsFetcher.fetch`."""
        mount = await asyncio.to_thread(shared.beside, self.objects.url) if shared else None
        await OutputsFetcher(self.objects, mount).fetch(outputs, target)


class SharedStorage:
    """A directory that all instances share, mounted there by the operator.

    Its parts are those of the object store: ``jobs/RUN/outputs``, and ``jobs/JOB/shared`` besides.
    Outputs of tasks that may have several runs are uploaded all the same: the master decides which
    of them count.

    Args:
        root: Where it is mounted.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def beside(self, store: str) -> Path | None:
        """Where it is mounted; `None` if an object store, by its URL, is this directory."""
        url = urlsplit(store)
        same = url.scheme == "file" and Path(unquote(url.path)).resolve() == self._root.resolve()
        return None if same else self._root

    def parts(self, order: Order, roots: Roots) -> dict[str, Path]:
        """The parts of ``$EVA_STORAGE`` that lie here, by their path in it; blocks.

        Args:
            order: The order of the attempt.
            roots: Where inputs may come from.

        Raises:
            OSError: The mount fails.
        """
        paths = {"shared": f"jobs/{order.job}/shared"}
        if not order.outputs_stored:
            paths["outputs"] = f"jobs/{order.run}/outputs"
        with Directory.at(self._root) as root:
            for path in paths.values():
                root.directory(path, make=True).close()
        inputs = {name: self.input(url, roots) for name, url in order.inputs.items()}
        parts = {name: self._root / path for name, path in paths.items()}
        return parts | {f"inputs/{name}": path for name, path in inputs.items() if path}

    def input(self, url: str, roots: Roots) -> Path | None:
        """Where an input lies that need not be copied; `None` if it must be copied.

        Files of tasks (``jobs``), and files reached by a link, are copied: they might be something
        else by the time they are mounted.
        """
        try:
            _, wanted = roots.place(url)
        except UnsupportedInput:
            return None  # Copying it will be refused, and say why.
        mount = self._root.absolute().parts[1:]
        inside = wanted.names[len(mount) :]
        if (
            wanted.scheme != "file"
            or wanted.names[: len(mount)] != mount
            or inside[:1] == ("jobs",)
        ):
            return None
        try:
            with Directory.at(self._root) as root:
                if inside:
                    root.status("/".join(inside))
        except OSError:
            return None
        return wanted.path if inside else None
