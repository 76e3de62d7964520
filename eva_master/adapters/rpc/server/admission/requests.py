"""Checks the size of every request before its content is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from eva_wire.rpc.errors import BadRequest

_LONGEST_TEXT = 1_000
_MOST_ENTRIES = 10_000
_MOST_NAMES = 1_000
_FREE = frozenset({"job_yaml"})
"""Fields that are checked by whoever reads them."""
_NAMES = frozenset({"eva.api.v1.SubmitRequest.after_ids"})
"""Maps whose values are names, too."""
_ENTRIES: Mapping[str, int] = {"eva.api.v1.WatchRequest.jobs": _MOST_NAMES}


def checked(request: Any) -> Any:
    """Check that a request's texts and lists are short: ids and names go into queries and logs.

    Raises:
        BadRequest: One of them is too long, or holds a NUL character.
    """
    if isinstance(request, Message):
        for field, value in request.ListFields():
            _check(field, value)
    return request


def _check(field: FieldDescriptor, value: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _check_count(field, value)
        _check_texts(field, value)
        if field.full_name in _NAMES:
            _check_texts(field, value.values())
        return  # other values are those of variables, which the job's schema checks
    if field.type != FieldDescriptor.TYPE_STRING or field.name in _FREE:
        return
    if isinstance(value, str):
        _check_texts(field, (value,))
    else:
        _check_count(field, value)
        _check_texts(field, value)


def _check_count(field: FieldDescriptor, value: Any) -> None:
    most = _ENTRIES.get(field.full_name, _MOST_ENTRIES)
    if len(value) > most:
        raise BadRequest(f"{field.name} has {len(value):,} entries, at most {most:,} are allowed")


def _check_texts(field: FieldDescriptor, texts: Iterable[str]) -> None:
    for text in texts:
        if len(text) > _LONGEST_TEXT:
            raise BadRequest(
                f"{field.name} is {len(text):,} characters long, at most {_LONGEST_TEXT:,} are"
                " allowed"
            )
        if "\0" in text:
            raise BadRequest(f"{field.name} holds a NUL character")
