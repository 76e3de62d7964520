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
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Suspend
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Occupant
from eva_master.model.planning.snapshot import InstanceView, RemainingWork, RunView
from eva_master.model.resources import Resources

T = TypeVar("T")

_NUMEROUS = (
    RunView,
    Exchange,
    Estimate,
    Hold,
    Hosting,
    InstanceType,
    InstanceView,
    JobSpec,
    JobView,
    Move,
    NewInstance,
    Offering,
    Assign,
    Program,
    RemainingWork,
    Resources,
    Suspend,
    TaskSpec,
    Occupant,
)
"""The classes that are frequent. All have at least two fields, so that `attrgetter` returns
tuples."""


def _reducer(kind: type[Any]) -> Callable[[Any], tuple[type[Any], tuple[Any, ...]]]:
    values = attrgetter(*(field.name for field in fields(kind)))
    return lambda instance: (kind, values(instance))


_REDUCERS: dict[type[Any], Callable[[Any], Any]] = {
    **copyreg.dispatch_table,
    **{kind: _reducer(kind) for kind in _NUMEROUS},
}


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
