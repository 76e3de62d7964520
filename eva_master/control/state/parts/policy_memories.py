"""The policies' memories as the journal has them: one document for each partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial

from eva_master.model.changes import Deferred
from eva_master.model.planning.plan import Json, PolicyMemory

MEMORY_PREFIX = "memory/"
"""Of the documents of partitions that are not the default one, whose document is ``memory``."""


class PolicyMemories(dict[str, "PolicyMemory | None"]):
    """The memories of policies by partition; the default one's has the empty name.

    Args:
        changed: Called with each document that changes: its name, and its content when written.
    """

    def __init__(self, changed: Callable[[str, Deferred], None]) -> None:
        super().__init__()
        self._changed = changed

    def put(self, memory: PolicyMemory | None, partition: str = "") -> None:
        """Keep the memory of a partition's policy, of the default one's if none is named."""
        if memory != self.get(partition):
            self[partition] = memory
            self._changed(document_name(partition), partial(document_of, memory))


def document_name(partition: str) -> str:
    """The name of the document of a partition; the default one is named by the empty name."""
    return MEMORY_PREFIX + partition if partition else "memory"


def document_of(memory: PolicyMemory | None) -> Json:
    """A memory as a document."""
    return None if memory is None else asdict(memory)


def memory_of(document: Json) -> PolicyMemory | None:
    """A memory from its document, `None` if there is none."""
    if not isinstance(document, dict):
        return None
    data = document["data"]
    return PolicyMemory(
        policy=str(document["policy"]),
        version=int(str(document["version"])),
        data=dict(data) if isinstance(data, dict) else {},
    )


def memories_of(documents: Mapping[str, Json]) -> dict[str, PolicyMemory | None]:
    """The memories by partition; the default one's has the empty name."""
    named = {
        name.removeprefix(MEMORY_PREFIX): memory_of(document)
        for name, document in documents.items()
        if name.startswith(MEMORY_PREFIX)
    }
    return {"": memory_of(documents.get("memory")), **named}
