"""Build contexts: directories that images are built from, without files that Docker ignores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from eva_client.uploads.docker_ignore import DockerRules
from eva_client.uploads.workdir import NEVER_NEEDED, Ignored, Scanned, ignore_rules, scan_directory
from eva_wire.text.unreadable import why_unreadable
from eva_wire.values.errors import InvalidJob

IGNORE_FILE = ".dockerignore"
"""File at the root of a context that lists what not to upload, in Docker's syntax."""


def scan_context(path: Path, dockerfiles: Collection[str]) -> Scanned:
    """Describe a build context as `scan_directory` does.

    `IGNORE_FILE` says what to leave out, or else the ignore file of working directories.
    Dockerfiles are never left out.

    Args:
        path: The context's root.
        dockerfiles: Paths of the Dockerfiles in it.

    Raises:
        InvalidJob: The context cannot be uploaded as it is.
    """
    root = path.resolve()
    file = root / IGNORE_FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        rules: Ignored = ignore_rules(root)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidJob(f"{file}: {why_unreadable(error)}") from error
    else:
        rules = _DockerIgnored(lines)
    return scan_directory(path, _Except(rules, dockerfiles))


class _DockerIgnored:
    """The lines of Docker's ignore file, applied as Docker does."""

    def __init__(self, lines: Sequence[str]) -> None:
        stripped = [line.strip() for line in lines]
        patterns = [line for line in stripped if line and not line.startswith("#")]
        # A file below an ignored directory may be included again.
        self._whole = not any(pattern.startswith("!") for pattern in patterns)
        self._rules = DockerRules([*NEVER_NEEDED, *patterns, f"!{IGNORE_FILE}"])

    def decision(self, path: str) -> bool:
        if path.endswith("/") and not self._whole:
            return path in NEVER_NEEDED
        return self._rules.leaves_out(path.rstrip("/"))

    def by_default(self, path: str) -> bool:  # noqa: ARG002
        return False


class _Except:
    """Rules that always include some files and their parent directories."""

    def __init__(self, rules: Ignored, kept: Collection[str]) -> None:
        self._rules = rules
        self._kept = {*kept}
        self._above = {f"{parent}/" for path in kept for parent in PurePosixPath(path).parents}
        self._outside = {path for path in self._above if rules.decision(path)}

    def decision(self, path: str) -> bool | None:
        if path in self._kept or path in self._above:
            return False
        if any(path.startswith(directory) for directory in self._outside):
            return True
        return self._rules.decision(path)

    def by_default(self, path: str) -> bool:
        return self._rules.by_default(path)
