"""The messages of the users' port, for views of records: figures that no field holds are clamped.

Sums grow without end, and users choose many figures. One of them must not take a view away from all
users, so that a number beyond its field is shown as the largest, or smallest, that the field holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:
    import eva_wire._proto.api_pb2 as bounded_pb
else:
    from eva_wire._proto import api_pb2

__all__ = ["bounded_pb", "clamped"]

_SIGNED = (-(2**63), 2**63 - 1)
_UNSIGNED = (0, 2**64 - 1)
_SIGNED_SHORT = (-(2**31), 2**31 - 1)
_UNSIGNED_SHORT = (0, 2**32 - 1)
_RANGES = {
    FieldDescriptor.CPPTYPE_INT64: _SIGNED,
    FieldDescriptor.CPPTYPE_UINT64: _UNSIGNED,
    FieldDescriptor.CPPTYPE_INT32: _SIGNED_SHORT,
    FieldDescriptor.CPPTYPE_UINT32: _UNSIGNED_SHORT,
}
"""The least and largest number of each kind of field."""


def clamped(kind: Descriptor, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message with each number within what its field holds.

    Args:
        kind: Which message.
        fields: By name, as its constructor takes them.
    """
    return {name: _fitting(kind.fields_by_name[name], value) for name, value in fields.items()}


def _fitting(field: FieldDescriptor, value: Any) -> Any:
    entry = field.message_type
    if isinstance(value, dict):
        if entry is None or not entry.GetOptions().map_entry:
            return value if entry is None else clamped(entry, value)
        inner = entry.fields_by_name["value"]
        return {key: _fitting(inner, entry_value) for key, entry_value in value.items()}
    bounds = _RANGES.get(field.cpp_type)
    if bounds is None or value is None:
        return value
    if isinstance(value, int):
        return max(bounds[0], min(bounds[1], value))
    return [max(bounds[0], min(bounds[1], number)) for number in value]


class _Bounded(type):
    """Makes messages of a class, and stands for it where instances are told apart."""

    message: type[Message]

    def __call__(cls, **fields: Any) -> Message:
        try:
            return cls.message(**fields)
        except ValueError:  # a number beyond its field
            return cls.message(**clamped(cast("Descriptor", cls.message.DESCRIPTOR), fields))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.message)


if not TYPE_CHECKING:

    class _BoundedModule:
        """Every message of the protocol."""

        def __init__(self, names):
            for name in names:
                message = getattr(api_pb2, name)
                setattr(self, name, _Bounded(name, (), {"message": message}))

    bounded_pb = _BoundedModule(api_pb2.DESCRIPTOR.message_types_by_name)
