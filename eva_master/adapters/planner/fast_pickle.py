"""Pickles values of the model fast, to send them to another process and back.

A snapshot of a thousand jobs has ten thousand small values. The generic pickle code of
`dataclasses` would hold the interpreter's lock for noticeably long. Here each value is pickled as
its class and the values of its fields.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_Reducer = Callable[[Any], tuple[type[Any], tuple[Any, ...]]]


class _Reducers(dict[type[Any], Callable[[Any], Any]]):
    """How values are taken apart, by class; dataclasses are added when one is first pickled."""

    def __missing__(self, kind: type[Any]) -> _Reducer:
        """The reducer of a dataclass; others are pickled as usual."""
        names = tuple(item.name for item in fields(kind)) if is_dataclass(kind) else ()
        # `attrgetter` returns a tuple of two values at least; the class takes those in this order.
        if len(names) < 2 or names != kind.__match_args__:
            raise KeyError(kind)
        values = attrgetter(*names)
        self[kind] = reducer = lambda instance: (kind, values(instance))
        return reducer


_REDUCERS = _Reducers(copyreg.dispatch_table)


@dataclass(frozen=True, slots=True)
class FastPickle(Generic[T]):
    """Wraps a value so that it is converted only when it is pickled, in the pickling thread."""

    content: T

    def __reduce__(self) -> tuple[Callable[[bytes], FastPickle[T]], tuple[bytes]]:
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = _REDUCERS
        pickler.dump(self.content)
        return _opened, (buffer.getvalue(),)


def _opened(data: bytes) -> FastPickle[Any]:
    return FastPickle(pickle.loads(data))  # noqa: S301 - from our own child, or our own parent
