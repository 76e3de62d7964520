"""Frozen dataclasses that are made and changed quickly, and keys and indexes for them.

`replace` is for records that are replaced many times per event, at a sixth of the cost of that of
`dataclasses`: for each class and each set of names, a function is made once that does just that.
`quick` has new instances made at a quarter of the cost.

A frozen dataclass sets each field by a call of `object.__setattr__`. Here an instance belongs to a
twin of its class while its fields are set: a class with equal slots that isn't frozen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Views", "alike", "by_id", "once", "quick", "replace", "sameness"]

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")

if TYPE_CHECKING:
    # To mypy this is the standard library's function, so that names and types are checked.
    from dataclasses import replace

    def quick(kind: type[_Item]) -> type[_Item]:
        """Have instances of a frozen dataclass with slots made quickly."""
        return kind
else:
    from dataclasses import _HAS_DEFAULT_FACTORY as _ABSENT
    from dataclasses import MISSING, fields
    from functools import cache

    _Value = TypeVar("_Value")
    _set_class = object.__dict__["__class__"].__set__
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

        A class without slots, or with a check of its own, is called.
        """
        items = fields(kind)
        every = [item.name for item in items]
        if unknown := sorted(set(names).difference(every)):
            raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
        assert kind.__dataclass_params__.frozen, f"{kind.__name__} is not frozen"
        namespace: dict[str, Any] = {"kind_": kind}
        taken = {name: name if name in names else f"value_.{name}" for name in every}
        same = " and ".join(f"{name} is value_.{name}" for name in names) or "True"
        lines = [f"def make(value_, {', '.join(names)}):", f" if {same}:", "  return value_"]
        if hasattr(kind, "__post_init__") or not _has_twin(kind, every):
            given = [f"{item.name}={taken[item.name]}" for item in items if item.init]
            lines.append(f" return kind_({', '.join(given)})")
        else:
            namespace["twin_"] = _twin(kind)
            lines.append(" copy_ = twin_()")
            lines.extend(f" copy_.{name} = {taken[name]}" for name in every)
            lines.extend((" copy_.__class__ = kind_", " return copy_"))
        exec("\n".join(lines), namespace)  # noqa: S102 - names of fields alone, as dataclasses does
        return namespace["make"]

    def quick(kind: type[_Value]) -> type[_Value]:
        """Have instances of a frozen dataclass with slots made quickly."""
        items = fields(kind)
        assert kind.__dataclass_params__.frozen, f"{kind.__name__} is not frozen"
        assert _has_twin(kind, [item.name for item in items]), f"{kind.__name__} has no slots"
        assert all(item.init for item in items), f"{kind.__name__} sets a field by itself"
        usual = kind.__init__
        by_name = [item.name for item in items if item.kw_only]
        parameters = [item.name for item in items if not item.kw_only]
        parameters += ["*", *by_name] if by_name else []
        namespace = {"kind_": kind, "usual_": usual, "twin_": _twin(kind), "set_class_": _set_class}
        given = ", ".join(f"{item.name}={item.name}" for item in items)
        lines = [
            f"def __init__(self_, {', '.join(parameters)}):",
            # An instance of a subclass stays one.
            f" if self_.__class__ is not kind_: return usual_(self_, {given})",
            " set_class_(self_, twin_)",
        ]
        for item in items:
            name = item.name
            if item.default_factory is not MISSING:
                namespace |= {f"{name}_made_": item.default_factory, "absent_": _ABSENT}
                name = f"{name}_made_() if {name} is absent_ else {name}"
            lines.append(f" self_.{item.name} = {name}")
        lines.append(" self_.__class__ = kind_")
        if hasattr(kind, "__post_init__"):
            lines.append(" self_.__post_init__()")
        exec("\n".join(lines), namespace)  # noqa: S102 - names of fields alone, as dataclasses does
        made = namespace["__init__"]
        # A field that is made anew has a mark for its default, as in dataclasses.
        made.__defaults__, made.__kwdefaults__ = usual.__defaults__, usual.__kwdefaults__
        made.__annotations__, made.__qualname__ = usual.__annotations__, usual.__qualname__
        kind.__init__ = made
        return kind

    @cache
    def _twin(kind: type) -> type:
        """A class with equal slots whose instances may change."""
        return type(f"_{kind.__name__}", (), {"__slots__": tuple(kind.__slots__)})

    def _has_twin(kind: type, names: Iterable[str]) -> bool:
        """Whether all fields of a class are slots of its own."""
        slots = (kind.__dict__.get(name) for name in names)
        own = all(isinstance(slot, MemberDescriptorType) for slot in slots)
        return own and kind.__bases__ == (object,)


def sameness(*values: object) -> tuple[int, ...]:
    """A key of some values by which objects are told apart, be they equal or not.

    The key is made at once, whereas the hash of a value of many fields is not. The objects must
    outlive the key: it is for use within one call, as a rule.
    """
    return tuple(map(id, values))


def alike(items: Iterable[_Item]) -> Iterator[tuple[_Item, int]]:
    """Each of some items once, and how often it is among them; told apart by `sameness`.

    Thousands of machines share a few values.
    """
    every = list(items)
    keys = list(map(id, every))
    by_key = dict(zip(keys, every, strict=True))
    for key, count in Counter(keys).items():
        yield by_key[key], count


class Views(tuple[_Item, ...]):
    """Views of one kind, with what was made of them for all that ask for it; see `once`."""

    @cached_property
    def made(self) -> dict[Callable[..., Any], Any]:
        """Results of functions of these views."""
        return {}

    def __reduce__(self) -> tuple[Callable[..., Views[_Item]], tuple[tuple[_Item, ...]]]:
        """The views without what was made of them."""
        return Views, (tuple(self),)


def once(make: Callable[[tuple[_Item, ...]], _Made], views: tuple[_Item, ...]) -> _Made:
    """The result of a function of views, which is made once; nobody may change it."""
    if not isinstance(views, Views):
        return make(views)
    if make not in views.made:
        views.made[make] = make(views)
    made: _Made = views.made[make]
    return made


def by_id(views: tuple[_Item, ...]) -> Mapping[Any, _Item]:
    """Views of one kind by their ids, in order."""
    return once(_index, views)


def _index(views: tuple[Any, ...]) -> dict[Any, Any]:
    return {view.id: view for view in views}
