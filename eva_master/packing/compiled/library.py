"""The compiled part of packing: a library's name, its functions, and structures for ctypes.

`python -m deploy.kernel` compiles it. The name of a library holds a digest of its source,
so a library of another version is never loaded.
"""

from __future__ import annotations

import ctypes
import platform
from ctypes import POINTER, Structure, c_double, c_int, c_int32, c_int64, c_void_p
from functools import cache
from hashlib import sha256
from importlib.resources import as_file, files

from eva_master.packing.round_work import WorkKind
from eva_master.packing.valuation.vectors import WIDTH

_PACKING = "eva_master.packing"
HOME = "local_search"
"""Folder of the library."""
SOURCES = (
    "local_search/kernel.c",
    "local_search/loads.c",
    "greedy/best.c",
    "lp/pricing/knapsack.c",
    "lp/pricing/multisets.c",
    "configuration/assign.c",
)
"""Files of the source, the first of which includes the others."""


def source() -> bytes:
    """All of the library's source files, one after the other."""
    return b"".join(files(_PACKING).joinpath(name).read_bytes() for name in SOURCES)


def library_name(system: str, machine: str, source: bytes) -> str:
    """File name of the library for a system.

    Args:
        system: `linux` or `darwin`.
        machine: Name of the processor, `x86_64` for example.
        source: Bytes of the source.
    """
    return f"kernel-{sha256(source).hexdigest()[:12]}-{system}-{machine}.so"


class SizedTold(Structure):
    """An offering as loads are sized by it."""

    _fields_ = (
        *((name, c_int32) for name in ("family", "number")),
        ("new_cost", c_int64),
        ("capacity", c_int64 * WIDTH),
    )


WORK = (WorkKind.LOAD, WorkKind.CANDIDATE, WorkKind.MEMBERS, WorkKind.TAKEN)
"""Kinds of work that the kernel counts."""

COUNTS = ("runs", "groups", "slots", "classes", "families", "offerings", "buyable", "iterations")
ARRAYS = (
    *("class_", "group", "home", "place", "movable", "share", "ends", "move_cost", "charge"),
    *("offering", "load", "staying", "price", "limit", "new_cost", "boot_ms"),
    *("family_of", "buyable_cost", "buyable_number", "draws", "weights"),
)


class Input(Structure):
    """Input of a search, by the names of `kernel.c`."""

    _fields_ = (
        *((name, c_int32) for name in COUNTS),
        *((name, c_void_p) for name in ARRAYS),
        ("round", c_int32),
        ("any_ends", c_int32),
    )


class FillingInput(Structure):
    """A machine that Algorithm 1 fills, by the names of `best.c`."""

    _fields_ = (
        *((name, c_void_p) for name in ("need", "prices", "charges", "workloads", "shares")),
        ("capacity", c_void_p),
        *((name, c_int64) for name in ("classes", "labels")),
    )


class KnapsackInput(Structure):
    """A question of pricing without interference, by the names of `knapsack.c`."""

    _fields_ = (
        *((name, c_void_p) for name in ("capacity", "need", "counts", "value")),
        *((name, c_int64) for name in ("classes", "parts", "nodes", "items")),
        ("worth", c_double),
    )


class KnapsackFound(Structure):
    """Answer to such a question of pricing."""

    _fields_ = (
        ("bound", c_double),
        *((name, c_int64) for name in ("nodes", "items", "found")),
        ("members", c_void_p),
    )


class MultisetsInput(Structure):
    """A question of pricing with interference, by the names of `multisets.c`."""

    _fields_ = (
        *((name, c_void_p) for name in ("value", "charge", "fraction", "need", "most", "starts")),
        *((name, c_void_p) for name in ("pairs", "directions", "shares", "observed", "rates")),
        *((name, c_void_p) for name in ("capacity", "least", "tasks", "joining", "present")),
        *((name, c_void_p) for name in ("worth", "above", "count")),
        *((name, c_int64) for name in ("classes", "labels", "turns", "sets", "nodes")),
        *((name, c_double) for name in ("limit", "whole")),
    )


class MultisetsFound(Structure):
    """Answer to such a question of pricing."""

    _fields_ = (
        ("bound", c_double),
        *((name, c_int64) for name in ("nodes", "found")),
        *((name, c_void_p) for name in ("values", "members")),
    )


class Output(Structure):
    """Budget, cost and places: before a search, and after it."""

    _fields_ = (
        ("total", c_int64),
        ("left", c_int64),
        ("done", c_int64 * len(WORK)),
        *((name, c_int32) for name in ("met", "tried", "kept", "used")),
        *((name, c_void_p) for name in ("place", "order", "order_load")),
        ("most", c_int32),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The library, `None` where there is none for this system."""
    here = files(_PACKING).joinpath(HOME)
    name = library_name(platform.system().lower(), platform.machine(), source())
    if not here.joinpath(name).is_file():
        return None
    try:
        with as_file(here.joinpath(name)) as path:
            opened = ctypes.CDLL(str(path))
    except OSError:
        return None  # of another C library
    for function, result, arguments in (
        ("loads_new", c_void_p, (*(c_int32,) * 2, c_void_p, c_int32, c_int64, c_int64)),
        ("loads_free", None, (c_void_p,)),
        ("loads_count", c_int32, (c_void_p,)),
        ("loads_class", c_int, (c_void_p, c_int32, c_void_p)),
        ("loads_pairs", None, (c_void_p, c_void_p, c_int32, c_void_p)),
        ("loads_observed", c_int, (c_void_p, c_void_p, *(c_int32,) * 3)),
        ("loads_forget", c_int, (c_void_p, c_void_p, c_int32)),
        ("loads_find", c_int32, (c_void_p, c_int32, c_void_p, c_int32)),
        ("loads_family", c_int32, (c_void_p, c_int32)),
        ("loads_classes", POINTER(c_int32), (c_void_p, c_int32, POINTER(c_int32))),
        ("search", c_int, (c_void_p, POINTER(Input), POINTER(Output))),
        (
            *("best_to_join", c_int64),
            (POINTER(FillingInput), c_void_p, c_int64, *(c_void_p,) * 5),
        ),
        ("assign", c_int, (c_int64, c_int64, c_void_p, c_void_p)),
        ("knapsack", c_int, (POINTER(KnapsackInput), POINTER(KnapsackFound))),
        ("multisets", None, (POINTER(MultisetsInput), POINTER(MultisetsFound))),
    ):
        getattr(opened, function).restype, getattr(opened, function).argtypes = result, arguments
    return opened
