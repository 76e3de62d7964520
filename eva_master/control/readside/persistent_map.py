"""An ordered map that never changes; the next one shares all that stayed the same."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from operator import itemgetter
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_FANOUT = 64
"""Entries of a leaf and children of a branch, at most."""
_THIN = _FANOUT // 4
"""A node with fewer entries is joined with a neighbour where both fit into one."""
_ABSENT: Any = object()

_Change = tuple[Any, Any, Any]
"""Sort key, key, and value or `_ABSENT`."""
_sort_key = itemgetter(0)


class PersistentMap(Mapping[K, V]):
    """A B+ tree of tuples. Any thread may read it; nothing ever changes it.

    Args:
        order: Makes the sort key of a key. Two keys must not have the same one.
        root: The tree; empty if it is not given.
    """

    __slots__ = ("_order", "_root")

    def __init__(self, order: Callable[[K], Any], root: _Node | None = None) -> None:
        self._order = order
        self._root = _EMPTY if root is None else root

    def updated(self, put: Mapping[K, V], drop: Collection[K] = ()) -> PersistentMap[K, V]:
        """The map after some changes.

        Time and memory are proportional to the changes, times the logarithm of the size.

        Args:
            put: Entries to add or to replace.
            drop: Keys to remove; a missing key is no error.
        """
        order = self._order
        changes: list[_Change] = [(order(key), key, value) for key, value in put.items()]
        changes.extend((order(key), key, _ABSENT) for key in drop)
        if not changes:
            return self
        changes.sort(key=_sort_key)
        nodes = self._root.updated(changes)
        while len(nodes) > 1:
            nodes = [_branch(part) for part in _parts(nodes)]
        root = nodes[0] if nodes else _EMPTY
        while isinstance(root, _Branch) and len(root.children) == 1:
            root = root.children[0]
        return PersistentMap(order, root)

    def __getitem__(self, key: K) -> V:
        entry = self._find(key)
        if entry is _ABSENT:
            raise KeyError(key)
        value: V = entry
        return value

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key; `default` without one."""
        entry = self._find(key)
        return default if entry is _ABSENT else entry

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not _ABSENT

    def __len__(self) -> int:
        return self._root.size

    def __iter__(self) -> Iterator[K]:
        for leaf in _leaves(self._root):
            yield from leaf.names

    def values(self) -> ValuesView[V]:
        """The values, in the order of the keys."""
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        """The entries, in the order of the keys."""
        return _Items(self)

    def descending(self, before: K | None = None) -> Iterator[K]:
        """The keys from the last one back.

        Args:
            before: Only keys that come before this one, which need not be there.
        """
        bound = None if before is None else self._order(before)
        return _descending(self._root, bound)

    def ascending(self, start: K, end: K) -> Iterator[tuple[K, V]]:
        """The entries from one key on and before another; neither needs to be there."""
        first, beyond = self._order(start), self._order(end)
        for leaf, at in _leaves_from(self._root, first):
            for place in range(at, len(leaf.keys)):
                if leaf.keys[place] >= beyond:
                    return
                yield leaf.names[place], leaf.values[place]

    def several(self, keys: Iterable[K]) -> list[V]:
        """The values of keys, in their order: faster than one by one where keys are neighbours.

        Raises:
            KeyError: A key is not there.
        """
        order, values = self._order, list[V]()
        leaf = _EMPTY
        for key in keys:
            wanted = order(key)
            if not leaf.size or not leaf.first <= wanted <= leaf.keys[-1]:
                leaf = self._leaf(wanted)
            at = bisect_left(leaf.keys, wanted)
            if at == leaf.size or leaf.keys[at] != wanted:
                raise KeyError(key)
            values.append(leaf.values[at])
        return values

    def _leaf(self, wanted: Any) -> _Leaf:
        """The leaf that has a sort key, if any has."""
        node = self._root
        while isinstance(node, _Branch):
            node = node.children[bisect_right(node.firsts, wanted, 1) - 1]
        leaf: _Leaf = node
        return leaf

    def _find(self, key: Any) -> Any:
        wanted = self._order(key)
        leaf = self._leaf(wanted)
        at = bisect_left(leaf.keys, wanted)
        if at < leaf.size and leaf.keys[at] == wanted:
            return leaf.values[at]
        return _ABSENT


class _Values(ValuesView[V], Generic[V]):
    def __init__(self, of: PersistentMap[Any, V]) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[V]:
        for leaf in _leaves(self._of._root):
            yield from leaf.values


class _Items(ItemsView[K, V], Generic[K, V]):
    def __init__(self, of: PersistentMap[K, V]) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for leaf in _leaves(self._of._root):
            yield from zip(leaf.names, leaf.values, strict=True)


class _Leaf:
    """Entries, sorted by sort key; never changed once it is made."""

    __slots__ = ("first", "keys", "names", "size", "values", "width")

    def __init__(
        self, keys: tuple[Any, ...], names: tuple[Any, ...], values: tuple[Any, ...]
    ) -> None:
        self.keys = keys
        self.names = names
        self.values = values
        self.first = keys[0] if keys else None
        self.size = self.width = len(keys)

    def updated(self, changes: Sequence[_Change]) -> list[_Node]:
        """The leaves that take the place of this one."""
        values = list(self.values)
        for key, _, value in changes:
            at = bisect_left(self.keys, key)
            if value is _ABSENT or at == len(self.keys) or self.keys[at] != key:
                return self._merged(changes)
            values[at] = value
        return [_Leaf(self.keys, self.names, tuple(values))]

    def _merged(self, changes: Sequence[_Change]) -> list[_Node]:
        entries = {
            key: (key, name, value)
            for key, name, value in zip(self.keys, self.names, self.values, strict=True)
        }
        for change in changes:
            if change[2] is _ABSENT:
                entries.pop(change[0], None)
            else:
                entries[change[0]] = change
        ordered = [entries[key] for key in sorted(entries)]
        return [_Leaf(*zip(*part, strict=True)) for part in _parts(ordered)]

    def joined(self, other: _Leaf) -> _Leaf:
        return _Leaf(self.keys + other.keys, self.names + other.names, self.values + other.values)


class _Branch:
    """Nodes of one height, with the least sort key below each; never changed once it is made."""

    __slots__ = ("children", "first", "firsts", "size", "width")

    def __init__(self, firsts: tuple[Any, ...], children: tuple[Any, ...], size: int) -> None:
        self.firsts = firsts
        self.children = children
        self.first = firsts[0]
        self.width = len(children)
        self.size = size

    def updated(self, changes: Sequence[_Change]) -> list[_Node]:
        """The branches that take the place of this one."""
        firsts, children = self.firsts, list(self.children)
        start, last = len(changes), len(children)
        size, reshaped = self.size, False
        while start:
            # From the last child back, so that the places of those before stay what they are.
            at = max(0, bisect_right(firsts, changes[start - 1][0], hi=last) - 1)
            low = bisect_left(changes, firsts[at], hi=start, key=_sort_key) if at else 0
            nodes = children[at].updated(changes[low:start])
            if len(nodes) == 1 and nodes[0].width >= _THIN and nodes[0].first == firsts[at]:
                size += nodes[0].size - children[at].size
                children[at] = nodes[0]
            else:
                children[at : at + 1] = nodes
                reshaped = True
            start, last = low, at
        if not reshaped:
            return [_Branch(firsts, tuple(children), size)]
        return [_branch(part) for part in _parts(_without_thin(children))]

    def joined(self, other: _Branch) -> _Branch:
        return _branch([*self.children, *other.children])


_Node = Any
"""A `_Leaf` or a `_Branch`; both have `size`, `width`, `first`, `updated` and `joined`."""

_EMPTY = _Leaf((), (), ())


def _branch(children: Sequence[_Node]) -> _Branch:
    return _Branch(
        tuple(child.first for child in children),
        tuple(children),
        sum(child.size for child in children),
    )


def _parts(entries: Sequence[Any]) -> list[Sequence[Any]]:
    """Entries in as few parts as fit into nodes, all about equally long; none if there are none."""
    count = -(-len(entries) // _FANOUT)
    if count <= 1:
        return [entries] if entries else []
    bounds = [len(entries) * at // count for at in range(count + 1)]
    return [entries[low:high] for low, high in itertools.pairwise(bounds)]


def _without_thin(nodes: Sequence[_Node]) -> list[_Node]:
    """Neighbours joined where one of them is thin and one node can hold both."""
    kept: list[_Node] = []
    for node in nodes:
        if (
            kept
            and min(kept[-1].width, node.width) < _THIN
            and kept[-1].width + node.width <= _FANOUT
        ):
            kept[-1] = kept[-1].joined(node)
        else:
            kept.append(node)
    return kept


def _leaves(node: _Node) -> Iterator[_Leaf]:
    if isinstance(node, _Leaf):
        yield node
        return
    for child in node.children:
        yield from _leaves(child)


def _leaves_from(node: _Node, first: Any) -> Iterator[tuple[_Leaf, int]]:
    """The leaves from a sort key on, each with the place where to begin in it."""
    if isinstance(node, _Leaf):
        yield node, bisect_left(node.keys, first)
        return
    at = max(0, bisect_right(node.firsts, first) - 1)
    yield from _leaves_from(node.children[at], first)
    for child in node.children[at + 1 :]:
        for leaf in _leaves(child):
            yield leaf, 0


def _descending(node: _Node, bound: Any) -> Iterator[Any]:
    if isinstance(node, _Leaf):
        end = len(node.keys) if bound is None else bisect_left(node.keys, bound)
        yield from reversed(node.names[:end])
        return
    end = len(node.children) if bound is None else bisect_left(node.firsts, bound)
    for at in reversed(range(end)):
        yield from _descending(node.children[at], bound if at == end - 1 else None)
