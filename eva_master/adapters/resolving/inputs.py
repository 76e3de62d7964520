"""Where jobs' inputs may come from, as the operator decides with the setting ``input_roots``.

The agent reads inputs with rights that users have not, so it checks the same again
(``eva_worker/files/inputs.py``), and follows no link out of a root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem

DEFAULT_ROOTS = ("s3://",)
"""Whatever the workers' role may read in S3, and no file of an instance."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
# The region becomes part of a host's name.
_REGION = re.compile(r"region=[a-z0-9-]{1,40}")
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class InputPlace:
    """A scheme, a bucket (empty for files and for all buckets) and names below it.

    Raises:
        ValueError: The URL can be neither an input nor a root; says why.
    """

    scheme: str
    bucket: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> InputPlace:
        """Read a URL; raises `ValueError`."""
        parts = urlsplit(url)
        bucket, path = parts.netloc, unquote(parts.path)
        if parts.scheme == "file":
            if bucket not in {"", "localhost"} or not path.startswith("/"):
                raise ValueError("a file of an instance is written file:///path")
            bucket = ""
        elif parts.scheme != "s3":
            raise ValueError("only s3:// and file:// are known")
        elif bucket and not _BUCKET.fullmatch(bucket):
            raise ValueError(f"{bucket!r} is no name of a bucket")
        names = tuple(name for name in path.split("/") if name)
        if parts.fragment or not path.isprintable() or {".", ".."} & {*names}:
            raise ValueError("neither '#', '.' nor '..' may be in its path")
        if names and parts.scheme == "s3" and not bucket:
            raise ValueError("it names no bucket")
        return cls(parts.scheme, bucket, names)

    def covers(self, other: InputPlace) -> bool:
        """Whether another place is this one or below it."""
        return (
            self.scheme == other.scheme
            and self.bucket in {"", other.bucket}
            and self.names == other.names[: len(self.names)]
        )


@dataclass(frozen=True, slots=True)
class InputRoots:
    """The places that inputs may come from.

    Attributes:
        roots: URLs such as ``s3://``, ``s3://bucket/prefix`` and ``file:///data``.
        store: URL of the cluster's object store, which has other users' files: inputs come from it
            only if a root itself lies in it.
    """

    roots: tuple[str, ...] = DEFAULT_ROOTS
    store: str = ""

    @property
    def store_place(self) -> InputPlace | None:
        """The place of the object store, `None` if inputs could not come from one of its kind."""
        try:
            return InputPlace.of(self.store)
        except ValueError:
            return None

    def complaint(self, url: str) -> str:
        """Why an input must not come from a URL; empty if it may."""
        if len(url) > _LONGEST:
            return f"its URL is longer than {_LONGEST} characters"
        try:
            wanted = InputPlace.of(url)
        except ValueError as error:
            return str(error)
        if wanted.scheme == "s3" and not wanted.bucket:
            return "it names no bucket"
        own = {*urlsplit(self.store).query.split("&")}
        query = urlsplit(url).query
        options = query.split("&") if query else []
        # Others could have an instance send its credentials elsewhere.
        if any(option not in own and not _REGION.fullmatch(option) for option in options):
            return "only the option region is allowed"
        if any(self._allows(InputPlace.of(root), wanted) for root in self.roots):
            return ""
        return f"inputs are allowed only from {', '.join(self.roots) or 'nowhere'}"

    def _allows(self, root: InputPlace, wanted: InputPlace) -> bool:
        if not root.covers(wanted):
            return False
        store = self.store_place
        if store is None:
            return True
        return store.covers(root) or not (store.covers(wanted) or wanted.covers(store))

    def problems(self, document: Document, inputs: Mapping[str, str]) -> Iterator[Problem]:
        """Problems of a job file's inputs."""
        for name, url in inputs.items():
            if complaint := self.complaint(url):
                yield document.problem(
                    ("storage", "inputs", name),
                    f"no input from {url[:200]}: {complaint}",
                    "the operator decides with the master's setting input_roots",
                )
