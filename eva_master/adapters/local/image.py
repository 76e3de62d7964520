"""Builds an image of this machine's Python, for tasks that name none, without a registry.

The image has the interpreter with its library, packages of the present environment, a shell with
small tools, and the shared libraries that they need. Everything except the packages has the same
path as on the machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

from eva_wire.values.errors import NotFound

PACKAGES = ("eva-iterator", "scikit-learn")
"""Distributions in the image, with their requirements, as far as they are installed."""

_TOOLS = (
    *("sh", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "expr"),
    *("false", "find", "grep", "gzip", "head", "id", "ln", "ls", "mkdir", "mktemp", "mv", "nproc"),
    *("paste", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sha256sum", "sleep"),
    *("sort", "split", "stat", "tail", "tar", "tee", "timeout", "touch", "tr", "true", "uname"),
    *("uniq", "wc", "which", "xargs"),
)
_TOOLS_PATH = "/usr/local/bin:/usr/bin:/bin"
# Directories that are links on most machines; paths through them must work.
_TOP_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
# Parts that no program needs: tests, other packages, editors, a static interpreter.
_NOT_OF_LIBRARY = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo"}
    | {"ensurepip", "lib2to3", "pydoc_data"}
)
_NOT_OF_PACKAGES = frozenset({"tests"})
_OPTIMISED = ".opt-"  # In the name of a module compiled for `python -O`.
_COMPILED = "__pycache__"
_HALF_WRITTEN = re.compile(r"\.pyc\.\d+$")  # The interpreter renames it when it is whole.
_LIBRARY = re.compile(r"(?:=> |^\s+)(/\S+) \(0x", re.MULTILINE)
_CHUNK = 1 << 20
_SCRIPT = """#!/usr/local/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""


@dataclass
class Tree:
    """The content of an image by path: files of this machine, links, and texts.

    Attributes:
        files: The source of each file.
        links: The target of each symbolic link.
        texts: Programs that the machine does not have.
    """

    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, source: Path) -> None:
        """Add a file of this machine at the same path, with the links that lead to it."""
        place = source.parent.resolve() / source.name
        if place.is_symlink():
            self.links[str(place)] = str(place.readlink())
            self.add(place.parent / place.readlink())
        else:
            self.files[str(place)] = place

    def add_below(self, directory: Path, place: str, left_out: frozenset[str]) -> None:
        """Add the files below a directory at another path, without some directories."""
        for parent, directories, names in os.walk(directory):
            directories[:] = [
                name
                for name in directories
                if name not in left_out and not name.startswith("config-")
            ]
            inside = Path(place, Path(parent).relative_to(directory))
            for name in names:
                source = Path(parent, name)
                wanted = _OPTIMISED not in name and not _HALF_WRITTEN.search(name)
                if wanted and source.exists():
                    self.files[str(inside / name)] = source

    def digest(self) -> str:
        """A digest of names, sizes and times, for which no file is read.

        Compiled modules are in the image, but they say nothing new: any program of this machine
        that imports a module for the first time writes one.
        """
        digest = hashlib.sha256()
        for place, source in sorted(self.files.items()):
            if Path(place).parent.name == _COMPILED:
                continue
            status = source.stat()
            digest.update(
                f"{place}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\n".encode()
            )
        for place, content in sorted((self.links | self.texts).items()):
            digest.update(f"{place}\0{content}\n".encode())
        return digest.hexdigest()[:16]

    def add_libraries(self) -> None:
        """Add the shared libraries that its programs and modules need."""
        own = {source.resolve() for source in self.files.values()}
        programs = [
            source for source in self.files.values() if ".so" in source.name or _executable(source)
        ]
        listed = subprocess.run(
            ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
        )
        for name in sorted(set(_LIBRARY.findall(listed.stdout))):
            library = Path(name)
            if library.resolve() not in own:
                self.add(library)

    def _directories(self) -> list[str]:
        """All directories of the tree, parents first.

        Some storage drivers deny access to directories that the tar file does not list.
        """
        paths: set[Path] = set()
        for place in (*self.files, *self.links, *self.texts):
            _, top, *rest = Path(place).parts
            # Below a link such as /lib lies what lies below its target.
            real = self.links.get(f"/{top}", top).strip("/") if rest else top
            paths |= set(Path(real, *rest).parents)
        return sorted(map(str, paths - {Path(), Path("tmp")}))

    def packed(self) -> Iterator[bytes]:
        """Yield the tree as a tar file in pieces."""
        pieces = io.BytesIO()
        with tarfile.open(fileobj=pieces, mode="w") as tar:
            tar.addfile(_entry("tmp", mode=0o1777, kind=tarfile.DIRTYPE))
            for place in self._directories():
                tar.addfile(_entry(place, kind=tarfile.DIRTYPE))
            for place, target in self.links.items():
                tar.addfile(_entry(place, kind=tarfile.SYMTYPE, target=target))
            for place, text in self.texts.items():
                data = text.encode()
                tar.addfile(_entry(place, size=len(data)), io.BytesIO(data))
            for place, source in self.files.items():
                with source.open("rb") as file:
                    status = os.fstat(file.fileno())
                    entry = _entry(place, mode=status.st_mode & 0o777 | 0o444, size=status.st_size)
                    # Compiled modules are used only if the times of their sources match.
                    entry.mtime = int(status.st_mtime)
                    tar.addfile(entry, file)
                if pieces.tell() >= _CHUNK:
                    yield pieces.getvalue()
                    pieces.seek(0)
                    pieces.truncate()
        yield pieces.getvalue()


def python_tree(packages: Sequence[str] = PACKAGES) -> Tree:
    """The tree of the image, without shared libraries; see `Tree.add_libraries`.

    Raises:
        NotFound: The machine has no interpreter or shell at the expected path.
    """
    tree = Tree()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = Path(sys.base_prefix, "bin", f"python{version}")
    shell = shutil.which("sh", path=_TOOLS_PATH)
    for program in (interpreter, Path(shell or "/bin/sh")):
        if not program.exists():
            raise NotFound(f"there is no {program} to make an image of")
    tree.add(interpreter)
    for name in ("python", "python3"):
        tree.links[f"/usr/local/bin/{name}"] = str(interpreter.resolve())
    for name in _TOOLS:
        if tool := shutil.which(name, path=_TOOLS_PATH):
            tree.add(Path(tool))
    for name in _TOP_LINKS:
        if Path("/", name).is_symlink():
            tree.links[f"/{name}"] = str(Path("/", name).readlink())
    if (cache := Path("/etc/ld.so.cache")).exists():
        tree.add(cache)
    library = sysconfig.get_path("stdlib")
    tree.add_below(Path(library), str(Path(library).resolve()), _NOT_OF_LIBRARY)
    place = _packages_place(interpreter)
    for name in _needed(packages):
        _add_package(tree, name, place)
    return tree


def _packages_place(interpreter: Path) -> str:
    """Where the interpreter looks for packages when it is not in an environment."""
    code = "import site; print(site.getsitepackages()[0])"
    answer = subprocess.run(
        [interpreter, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def _needed(roots: Iterable[str]) -> list[str]:
    """The installed ones of some distributions and of their requirements."""
    needed: list[str] = []
    unseen = list(roots)
    while unseen:
        name = unseen.pop()
        try:
            requires = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue  # A requirement of other systems, or an optional one.
        if name not in needed:
            needed.append(name)
            unseen += [
                re.split(r"[^\w.-]", requirement)[0]
                for requirement in requires
                if "extra ==" not in requirement
            ]
    return sorted(needed)


def _add_package(tree: Tree, name: str, place: str) -> None:
    distribution = metadata.distribution(name)
    for script in distribution.entry_points.select(group="console_scripts"):
        module, _, function = script.value.partition(":")
        tree.texts[f"/usr/local/bin/{script.name}"] = _SCRIPT.format(
            module=module, function=function
        )
    if _editable(distribution):
        module = name.replace("-", "_")
        spec = util.find_spec(module)
        for directory in (spec and spec.submodule_search_locations) or ():
            tree.add_below(Path(directory), f"{place}/{module}", _NOT_OF_PACKAGES)
        return
    for file in distribution.files or ():
        source = Path(str(file.locate()))
        # Not what lies beside the packages: programs, data for other programs.
        if ".." not in file.parts and not _NOT_OF_PACKAGES & set(file.parts) and source.exists():
            tree.files[f"{place}/{file}"] = source


def _editable(distribution: metadata.Distribution) -> bool:
    """Whether the package is installed in editable mode."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def _executable(source: Path) -> bool:
    with source.open("rb") as file:
        return os.fstat(file.fileno()).st_mode & 0o111 != 0 and file.read(4) == b"\x7fELF"


def _entry(
    place: str, *, mode: int = 0o755, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(place.lstrip("/"))
    entry.mode, entry.size, entry.type, entry.linkname = mode, size, kind, target
    return entry
