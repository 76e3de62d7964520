"""The fixed worlds, and what is known of them that does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.worlds.drawing import FLAVOURS

Case = tuple[str, str, int]
"""Policy, flavour and seed."""

_OF_NODES = ("only-nodes", "node-priorities")
_OF_SHORTS = ("short", "short-limits", "short-priorities")
_OF_OTHERS = (
    "plain", "limits", "single", "chains", "arrays", "gangs", "speeds", "priorities",
    "spot", "deadlines", "tenants", "rests", "retries", "wrong", "mixed",
)  # fmt: skip


def cases() -> Iterator[Case]:
    """A hundred worlds under eva, and fifteen under each other policy."""
    for flavour in FLAVOURS:
        if flavour not in _OF_NODES:
            yield from (("eva", flavour, seed) for seed in range(4))
    for policy in ("eva_published", "stratus", "no_packing"):
        yield from ((policy, flavour, 0) for flavour in _OF_OTHERS)
    for policy in ("cloudcoaster+eva", "slearn+eva", "eva+slearn", "slearn/eva"):
        yield from ((policy, flavour, seed) for flavour in _OF_SHORTS for seed in range(5))
    for policy in ("eva", "hadar", "fifo", "slearn", "astraea"):
        yield from ((policy, "only-nodes", seed) for seed in range(8))
        yield from ((policy, "node-priorities", seed) for seed in range(7))


EXPECTED: Mapping[Case, frozenset[str]] = {}
"""Oracles that object to a fixed world: to be mended, or named in docs/design/policies.md."""
