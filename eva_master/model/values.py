"""Changed copies of frozen dataclasses, and keys for them, where the usual ones cost too much.

`replace` is for records of many fields that are replaced many times per event, at half the cost of
that of `dataclasses`. The standard library looks up each field separately; here all are read at
once and passed to the class by position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

__all__ = ["alike", "replace", "sameness"]

_Item = TypeVar("_Item")

if TYPE_CHECKING:
    # To mypy this is the standard library's function, so that names and types are checked.
    from dataclasses import replace
else:
    from collections.abc import Callable
    from dataclasses import fields
    from operator import attrgetter
    from typing import Any

    _Value = TypeVar("_Value")
    _Shape = tuple[Callable[[object], tuple[Any, ...]], dict[str, int]]
    _shapes: dict[type, _Shape] = {}
    """For each class: a function that reads all fields, and the index of each name."""

    def replace(value: _Value, /, **changes: Any) -> _Value:
        """A copy of a value with some fields changed.

        Args:
            value: An instance of a dataclass of two fields or more, which takes all of them by
                position.
            changes: New values by field name.

        Raises:
            TypeError: The class has no such field.
        """
        kind = type(value)
        shape = _shapes.get(kind)
        if shape is None:
            names = [field.name for field in fields(kind)]
            shape = attrgetter(*names), {name: at for at, name in enumerate(names)}
            _shapes[kind] = shape
        take, places = shape
        taken = list(take(value))
        try:
            for name, new in changes.items():
                taken[places[name]] = new
        except KeyError as error:
            raise TypeError(f"{kind.__name__} has no field {error}") from None
        return kind(*taken)


def sameness(*values: object) -> tuple[int, ...]:
    """A key of some values by which objects are told apart, be they equal or not.

    The key is made at once, whereas the hash of a value of many fields is not. The objects must
    outlive the key: it is for use within one call, as a rule.
    """
    return tuple(map(id, values))


def alike(items: Sequence[_Item], keys: Iterable[Hashable]) -> Iterator[tuple[_Item, int]]:
    """The last one of the items with each key, and how many there are.

    Thousands of machines share a few values.

    Args:
        items: Some items.
        keys: One of each, such as its `sameness`.
    """
    every = list(keys)
    last = dict(zip(every, items, strict=True))
    for key, count in Counter(every).items():
        yield last[key], count
