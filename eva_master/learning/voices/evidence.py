"""The estimates behind one voice's figures of company, and which of them is forgotten first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from eva_master.learning.colocation import Key
from eva_master.learning.estimate import MeasuredEstimate
from eva_master.learning.voices.names import Voice, split
from eva_wire.values.ids import Workload

_Strangers = tuple[Voice, ...]
_Estimates = Mapping[Key, MeasuredEstimate]
"""Estimates of one workload beside neighbours of the same other voices, the oldest first."""


class Evidence(Mapping[Key, MeasuredEstimate]):
    """Estimates in groups of entries that have neighbours of the same other voices.

    The largest group gives way. So a neighbour that comes with new names again and again costs what
    is known of its own company alone. A group has a part for each workload, so that a new estimate
    copies little.

    Args:
        estimates: The estimates, those measured longest ago first.
    """

    __slots__ = ("_groups", "_sizes")

    def __init__(self, estimates: Iterable[tuple[Key, MeasuredEstimate]] = ()) -> None:
        groups: dict[_Strangers, dict[Workload, dict[Key, MeasuredEstimate]]] = {}
        for entry, estimate in estimates:
            group = groups.setdefault(_strangers(entry), {})
            group.setdefault(entry[0], {})[entry] = estimate
        self._groups: Mapping[_Strangers, Mapping[Workload, _Estimates]] = groups
        self._sizes: Mapping[_Strangers, int] = {
            strangers: sum(map(len, group.values())) for strangers, group in groups.items()
        }

    def __getitem__(self, entry: Key) -> MeasuredEstimate:
        return self._beside(_strangers(entry), entry[0])[entry]

    def __iter__(self) -> Iterator[Key]:
        parts = (part for group in self._groups.values() for part in group.values())
        return (entry for part in parts for entry in part)

    def __len__(self) -> int:
        return sum(self._sizes.values())

    def told(self, entry: Key, estimate: MeasuredEstimate) -> Evidence:
        """Evidence with another estimate of an entry, the last one if it was measured later."""
        strangers = _strangers(entry)
        part = dict(self._beside(strangers, entry[0]))
        before = part.get(entry)
        if before is None or estimate.at_ms > before.at_ms:
            part.pop(entry, None)  # makes it the last one
        part[entry] = estimate
        return self._with(strangers, entry[0], part)

    def without(self, entry: Key) -> Evidence:
        """Evidence without the estimate of an entry."""
        strangers = _strangers(entry)
        part = dict(self._beside(strangers, entry[0]))
        del part[entry]
        return self._with(strangers, entry[0], part)

    def oldest(self) -> Key:
        """The entry of the largest group that was measured longest ago, the lowest of several."""
        strangers = max(self._sizes, key=lambda voices: (self._sizes[voices], voices))
        parts = self._groups[strangers].values()
        at_ms = min(next(iter(part.values())).at_ms for part in parts)
        as_old = (takewhile(lambda item: item[1].at_ms == at_ms, part.items()) for part in parts)
        return min(entry for items in as_old for entry, _ in items)

    def _beside(self, strangers: _Strangers, workload: Workload) -> _Estimates:
        return self._groups.get(strangers, {}).get(workload, {})

    def _with(self, strangers: _Strangers, workload: Workload, part: _Estimates) -> Evidence:
        more = len(part) - len(self._beside(strangers, workload))
        group = {**self._groups.get(strangers, {}), workload: part}
        if not part:
            del group[workload]
        groups = {**self._groups, strangers: group}
        sizes = {**self._sizes, strangers: self._sizes.get(strangers, 0) + more}
        if not group:
            del groups[strangers], sizes[strangers]
        copy = Evidence()
        copy._groups, copy._sizes = groups, sizes
        return copy


def _strangers(entry: Key) -> _Strangers:
    """The other voices among the neighbours of an entry."""
    return tuple(sorted({voice for _, voice in map(split, entry[1]) if voice is not None}))
