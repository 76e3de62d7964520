"""Files of weights, read without running anything that is in them.

`.npy` and `.npz` are read by numpy with `allow_pickle=False`, `.pt` and `.pth` by torch with
`weights_only=True`, which makes tensors, containers and numbers, and nothing else.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eva_iterator._forks.states import Unfit

COPIED = frozenset((".json", ".txt", ".yaml", ".yml", ".toml", ".csv"))
"""Files that say something about weights, and are taken from the fastest part as they are."""

_MOST_MEMBERS = 100_000


def is_averaged(path: Path) -> bool:
    """Whether files of this name hold weights that can be averaged."""
    return path.suffix in _READERS


def read(path: Path, most: int | None = None) -> Any:
    """Reads a file of weights.

    Args:
        path: The file; its name says how to read it.
        most: Bytes that may come out of it, however well it is compressed.

    Raises:
        Unfit: The file is torn, not what its name says, or holds other things than weights.
        OSError: The file cannot be read.
    """
    try:
        if most is not None and unpacked(path) > most:
            raise Unfit("it is too large")
        return _READERS[path.suffix](path)
    except (Unfit, OSError):
        raise
    except MemoryError:
        raise Unfit("it does not fit into memory") from None
    except Exception as error:  # Whatever a torn or made-up file makes a parser raise.
        raise Unfit(f"it cannot be read: {str(error)[:200]}") from error


def unpacked(path: Path) -> int:
    """Bytes that come out of a file of weights, by its directory of members if it has one.

    Raises:
        Exception: The file is torn.
    """
    if path.suffix == ".npy":
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in _members(archive))


def write(path: Path, state: Any) -> None:
    """Writes what `read` gave, or a mean of such.

    Raises:
        OSError: The file cannot be written.
    """
    _WRITERS[path.suffix](path, state)


def _read_npy(path: Path) -> Any:
    with path.open("rb") as file:
        state = _array(file, path.stat().st_size)
        if file.read(1):
            raise Unfit("there is something behind its array")
    return state


def _read_npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        arrays = {}
        for member in _members(archive):
            with archive.open(member) as file:
                arrays[member.filename] = _array(file, member.file_size)
        return arrays


def _array(file: Any, size: int) -> Any:
    import numpy
    from numpy.lib import format as layout

    version = layout.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = layout.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = layout.read_array_header_2_0(file)
    else:
        raise Unfit(f"its arrays are of version {version}")
    count = 1
    for length in shape:
        count *= int(length)
    if dtype.hasobject:
        raise Unfit("it holds Python objects")
    if count < 0 or count * dtype.itemsize > size:
        raise Unfit("it is torn")
    content = file.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise Unfit("it is torn")
    array = numpy.frombuffer(bytearray(content), dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _write_npy(path: Path, state: Any) -> None:
    import numpy

    numpy.save(path, state, allow_pickle=False)


def _write_npz(path: Path, state: dict[str, Any]) -> None:
    from numpy.lib import format as layout

    # Not by `savez`, to which some names of arrays mean something else.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in state.items():
            with archive.open(name, "w", force_zip64=True) as file:
                layout.write_array(file, array, allow_pickle=False)


def _read_torch(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        for member in _members(archive):
            if member.compress_type != zipfile.ZIP_STORED:
                raise Unfit("it is compressed")
        if archive.testzip() is not None:
            raise Unfit("it is torn")
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _write_torch(path: Path, state: Any) -> None:
    import torch

    torch.save(state, path)


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        raise Unfit(f"it has {len(members)} members")
    if len({member.filename for member in members}) < len(members):
        raise Unfit("two of its members have one name")
    return members


_READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pt": _read_torch,
    ".pth": _read_torch,
}
_WRITERS: dict[str, Callable[[Path, Any], None]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".pt": _write_torch,
    ".pth": _write_torch,
}
