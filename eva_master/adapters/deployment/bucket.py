"""Files in a cluster's bucket that its master waits for: bundles, and settings of an operator's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eva_master.adapters.deployment.account import Absent

_LAST_WORDS, _MOST_WORDS = "objects/boots/master.log", 65_536
"""Key under which a master that does not start leaves the end of its log, and its most bytes."""


class Bucket:
    """A cluster's bucket, in which files are stated as ``KEY#sha256=DIGEST``.

    Every method raises `CloudError`.

    Args:
        s3: A client of `Account.clients`.
        name: Name of the bucket.
    """

    def __init__(self, s3: Any, name: str) -> None:
        self._s3 = s3
        self._name = name

    def has(self, stated: Iterable[str]) -> bool:
        """Whether all of these files are there, with these digests."""
        return all(self._notes(file).get("sha256") == _digest(file) for file in stated)

    def made_of(self, stated: str) -> str:
        """Note of a bundle that says what it was made of; empty without one."""
        return self._notes(stated).get("made-of", "")

    def upload(self, stated: str, content: Path | bytes, made_of: str = "") -> None:
        """Upload a file, whole or not at all."""
        key, notes = _key(stated), {"sha256": _digest(stated), "made-of": made_of}
        if isinstance(content, bytes):
            self._s3.put_object(Bucket=self._name, Key=key, Body=content, Metadata=notes)
        else:
            self._s3.upload_file(str(content), self._name, key, ExtraArgs={"Metadata": notes})

    def last_words(self) -> str:
        """The end of the log of a master that has not started; empty if it left none."""
        try:
            answer = self._s3.get_object(Bucket=self._name, Key=_LAST_WORDS)
        except Absent:
            return ""
        return str(answer["Body"].read(_MOST_WORDS).decode(errors="replace"))

    def forget_words(self) -> None:
        """Remove the last words of an earlier boot."""
        self._s3.delete_object(Bucket=self._name, Key=_LAST_WORDS)

    def _notes(self, stated: str) -> dict[str, str]:
        try:
            return dict(self._s3.head_object(Bucket=self._name, Key=_key(stated))["Metadata"])
        except Absent:
            return {}


def _key(stated: str) -> str:
    return stated.partition("#")[0]


def _digest(stated: str) -> str:
    return stated.partition("#sha256=")[2]
