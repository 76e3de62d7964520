"""Compiles the local search's kernel.

``python -m deploy.kernel [--all] [--into FOLDER]`` compiles it with zig's C compiler, which the
package ``ziglang`` brings: for this machine, or for every system that wheels are for. Libraries
that are there already are left alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from eva_master.packing.compiled.library import HOME as LIBRARY_HOME
from eva_master.packing.compiled.library import SOURCES, library_name, source

REPOSITORY = Path(__file__).parents[1]
PACKING = Path("eva_master", "packing")
HOME = PACKING / LIBRARY_HOME

TARGETS = {
    ("linux", "x86_64"): "x86_64-linux-gnu.2.17",
    ("linux", "aarch64"): "aarch64-linux-gnu.2.17",
    ("darwin", "x86_64"): "x86_64-macos",
    ("darwin", "arm64"): "aarch64-macos",
}
"""Zig's name of each system."""

# No fused operations: every machine is to round alike.
_OPTIONS = ("-O2", "-g0", "-s", "-std=c11", "-shared", "-fPIC", "-ffp-contract=off", "-Wall")


def here() -> tuple[str, str]:
    """System and processor of this machine."""
    return platform.system().lower(), platform.machine()


def compile_kernel(systems: Iterable[tuple[str, str]], into: Path) -> list[Path]:
    """Compile the kernel for some systems; files that are there already stay.

    Args:
        systems: Keys of `TARGETS`; others are left out, and have the search in Python.
        into: Folder of the libraries.

    Raises:
        subprocess.CalledProcessError: The compiler failed; it has said why.
    """
    main, text = REPOSITORY / PACKING / SOURCES[0], source()
    libraries = []
    for system, machine in systems:
        library = into / library_name(system, machine, text)
        target = TARGETS.get((system, machine))
        if target is None:
            continue
        if not library.exists():
            into.mkdir(parents=True, exist_ok=True)
            for old in into.glob(f"kernel-*-{system}-{machine}.so"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=into, prefix=".kernel-") as scratch:
                made = Path(scratch, library.name)
                command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *_OPTIONS]
                command += ["-o", str(made), str(main)]
                subprocess.run(command, check=True, env=_environment())
                made.replace(library)
        libraries.append(library)
    return libraries


def _environment() -> dict[str, str]:
    cache = str(REPOSITORY / ".cache" / "zig")
    return os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


def main() -> None:
    """Compile the kernel, and print the libraries' paths."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kernel", description=__doc__)
    parser.add_argument("--all", action="store_true", help="for every system that wheels are for")
    parser.add_argument("--into", type=Path, default=REPOSITORY / HOME, help="folder")
    options = parser.parse_args()
    for library in compile_kernel(TARGETS if options.all else [here()], options.into):
        sys.stdout.write(f"{library}\n")


if __name__ == "__main__":
    main()
