"""Object stores, which outlive every instance, over obstore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store
from obstore.store import ObjectStore as Backend

from eva_master.adapters.objects.store import Objects
from eva_master.ports import ObjectStore
from eva_wire.values.errors import StorageError

if TYPE_CHECKING:
    from obstore.store import S3Config

__all__ = ["Objects", "open_store"]

_S3_OPTIONS = frozenset({"endpoint", "region"})


def open_store(url: str) -> ObjectStore:
    """Open the object store at a URL.

    Args:
        url: ``file:///absolute/directory``, created if need be, or ``s3://bucket/prefix`` with
            ``?region=NAME&endpoint=URL`` where the environment (``AWS_REGION``,
            ``AWS_ENDPOINT_URL``) does not say. Credentials are the environment's or the instance's,
            never in the URL.

    Raises:
        StorageError: There is no usable store at the URL.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "s3" and parts.hostname:
            return Objects(_bucket(parts))
        path = Path(unquote(parts.path))
        if parts.scheme == "file" and not parts.netloc and path.is_absolute():
            return Objects(LocalStore(path, mkdir=True), path)
    except (BaseError, OSError, ValueError) as error:
        raise StorageError(f"object store {url}: {error}") from error
    raise StorageError(
        f"{url!r} is no object store that Eva knows",
        hint="write file:///absolute/directory or s3://bucket/prefix",
    )


def _bucket(parts: SplitResult) -> Backend:
    """Raises `ValueError` for a URL with options that are unknown."""
    options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    if unknown := options.keys() - _S3_OPTIONS:
        raise ValueError(f"unknown option {min(unknown)!r}; there are {sorted(_S3_OPTIONS)}")
    config: S3Config = {}
    if "region" in options:
        config["region"] = options["region"]
    if "endpoint" in options:
        config["endpoint"] = options["endpoint"]
    return S3Store(
        parts.netloc,
        prefix=unquote(parts.path).strip("/") or None,
        config=config,
        # Only an explicit endpoint may be plain http: that of a test or of a private network.
        client_options={"allow_http": options.get("endpoint", "").startswith("http://")},
    )
