"""Changed copies of frozen dataclasses, and keys for them, where the usual ones cost too much.

`replace` is for records that are replaced many times per event, at a third of the cost of that of
`dataclasses`: for each class and each set of names, a function is made once that does just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, TypeVar

__all__ = ["alike", "replace", "sameness"]

_Item = TypeVar("_Item")

if TYPE_CHECKING:
    # To mypy this is the standard library's function, so that names and types are checked.
    from dataclasses import replace
else:
    from collections.abc import Callable
    from dataclasses import fields
    from typing import Any

    _Value = TypeVar("_Value")
    _makers: dict[tuple[type | str, ...], Callable[..., Any]] = {}
    """For each class and names of fields: a function that replaces just these."""

    def replace(value: _Value, /, **changes: Any) -> _Value:
        """A copy of a value with some fields changed; the value itself if none is another object.

        Args:
            value: An instance of a frozen dataclass.
            changes: New values by field name.

        Raises:
            TypeError: The class has no such field.
        """
        key = (value.__class__, *changes)
        make = _makers.get(key)
        if make is None:
            make = _makers[key] = _maker(value.__class__, tuple(changes))
        return make(value, **changes)

    def _maker(kind: type, names: tuple[str, ...]) -> Callable[..., Any]:
        """Write the function that replaces some fields of a class.

        Slots are set directly. A class without slots, or with a check of its own, is called.
        """
        items = fields(kind)
        every = [item.name for item in items]
        if unknown := sorted(set(names).difference(every)):
            raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
        assert kind.__dataclass_params__.frozen, f"{kind.__name__} is not frozen"
        namespace: dict[str, Any] = {"kind_": kind, "new_": object.__new__}
        taken = {name: name if name in names else f"value_.{name}" for name in every}
        same = " and ".join(f"{name} is value_.{name}" for name in names) or "True"
        lines = [f"def make(value_, {', '.join(names)}):", f" if {same}:", "  return value_"]
        if hasattr(kind, "__post_init__") or not all(_is_slot(kind, name) for name in every):
            given = [f"{item.name}={taken[item.name]}" for item in items if item.init]
            lines.append(f" return kind_({', '.join(given)})")
        else:
            lines.append(" copy_ = new_(kind_)")
            for name in every:
                namespace[f"set_{name}_"] = getattr(kind, name).__set__
                lines.append(f" set_{name}_(copy_, {taken[name]})")
            lines.append(" return copy_")
        exec("\n".join(lines), namespace)  # noqa: S102 - names of fields alone, as dataclasses does
        return namespace["make"]

    def _is_slot(kind: type, name: str) -> bool:
        return isinstance(getattr(kind, name, None), MemberDescriptorType)


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
