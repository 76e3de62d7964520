"""The estimates behind one voice's figures of company, and which of them is forgotten first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from eva_master.learning.colocation import Key
from eva_master.learning.estimate import MeasuredEstimate
from eva_master.learning.voices.names import Voice, split

_Group = Mapping[Key, MeasuredEstimate]
_Strangers = tuple[Voice, ...]


class Evidence(Mapping[Key, MeasuredEstimate]):
    """Estimates in groups of entries that have neighbours of the same other voices.

    The largest group gives way. So a neighbour that comes with new names again and again costs what
    is known of its own company alone.

    Args:
        estimates: The estimates, those measured longest ago first.
    """

    __slots__ = ("_groups", "_size")

    def __init__(self, estimates: Iterable[tuple[Key, MeasuredEstimate]] = ()) -> None:
        groups: dict[_Strangers, dict[Key, MeasuredEstimate]] = {}
        for entry, estimate in estimates:
            groups.setdefault(_strangers(entry), {})[entry] = estimate
        self._groups: Mapping[_Strangers, _Group] = groups
        self._size = sum(map(len, groups.values()))

    def __getitem__(self, entry: Key) -> MeasuredEstimate:
        return self._groups.get(_strangers(entry), {})[entry]

    def __iter__(self) -> Iterator[Key]:
        return (entry for group in self._groups.values() for entry in group)

    def __len__(self) -> int:
        return self._size

    def told(self, entry: Key, estimate: MeasuredEstimate) -> Evidence:
        """Evidence with another estimate of an entry, the last one if it was measured later."""
        strangers = _strangers(entry)
        group = dict(self._groups.get(strangers, {}))
        before = group.get(entry)
        if before is None or estimate.at_ms > before.at_ms:
            group.pop(entry, None)  # makes it the last one
        group[entry] = estimate
        return self._with_group(strangers, group)

    def without(self, entry: Key) -> Evidence:
        """Evidence without the estimate of an entry."""
        strangers = _strangers(entry)
        group = dict(self._groups[strangers])
        del group[entry]
        return self._with_group(strangers, group)

    def oldest(self) -> Key:
        """The entry of the largest group that was measured longest ago, the lowest of several."""
        group = self._groups[max(self._groups, key=lambda voices: (self._length(voices), voices))]
        estimates = iter(group.items())
        first, longest = next(estimates)
        as_old = takewhile(lambda item: item[1].at_ms == longest.at_ms, estimates)
        return min([first, *(entry for entry, _ in as_old)])

    def _length(self, strangers: _Strangers) -> int:
        return len(self._groups.get(strangers, ()))

    def _with_group(self, strangers: _Strangers, group: _Group) -> Evidence:
        groups = {**self._groups, strangers: group}
        if not group:
            del groups[strangers]
        copy = Evidence()
        copy._groups = groups
        copy._size = self._size + len(group) - self._length(strangers)
        return copy


def _strangers(entry: Key) -> _Strangers:
    """The other voices among the neighbours of an entry."""
    return tuple(sorted({voice for _, voice in map(split, entry[1]) if voice is not None}))
