"""Object stores: the bytes that outlive every instance, over obstore."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore

from eva_master.adapters.objects.store import Objects
from eva_master.model.errors import StorageError
from eva_master.ports import ObjectStore

__all__ = ["Objects", "open_store"]


def open_store(url: str) -> ObjectStore:
    """Open the object store at a URL.

    Args:
        url: ``file:///absolute/directory``, created if need be.

    Raises:
        StorageError: No store can be had there.
    """
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc or not path.is_absolute():
        raise StorageError(
            f"{url!r} is no object store that Eva knows", hint="write file:///absolute/directory"
        )
    try:
        return Objects(LocalStore(path, mkdir=True))
    except (BaseError, OSError) as error:
        raise StorageError(f"object store {url}: {error}") from error
