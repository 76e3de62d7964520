"""Wheels of the project's distributions, made again of their installed files."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from eva_wire.values.errors import EvaError, NotFound

OWN = ("eva-client", "eva-iterator", "eva-lab", "eva-scheduler", "eva-wire", "eva-worker")
"""Distributions of the project."""
_INSTALLERS = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}
"""Files of a distribution's metadata that whoever installs it writes."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def is_installed(name: str) -> bool:
    """Whether a distribution is installed."""
    try:
        return bool(_installed(name))
    except NotFound:
        return False


def is_whole(name: str) -> bool:
    """Whether a distribution is installed with its files, rather than linked to a checkout.

    Raises:
        NotFound: The distribution is not installed.
    """
    text = _installed(name).read_text("direct_url.json")
    return not (text and json.loads(text).get("dir_info", {}).get("editable"))


def fingerprint() -> str:
    """Digest of the installed files of the project, alike on every machine; empty in a checkout."""
    names = [name for name in OWN if is_installed(name)]
    if not all(map(is_whole, names)):
        return ""
    files = [file for name in names for file in _own_files(_installed(name))]
    lines = sorted(f"{file} {file.hash.value if file.hash else ''}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def remake(name: str, into: Path) -> Path:
    """Make the wheel of a distribution again, the same every time.

    Args:
        name: The distribution.
        into: Directory of the wheel.

    Returns:
        The wheel.

    Raises:
        NotFound: The distribution is not installed.
        EvaError: A file is not as it was installed, or is missing.
    """
    installed = _installed(name)
    contents = {str(file): _content(name, installed, file) for file in _own_files(installed)}
    folder = next(path.partition("/")[0] for path in contents if ".dist-info/" in path)
    tags = _tags(contents[f"{folder}/WHEEL"].decode())
    wheel = into / f"{folder.removesuffix('.dist-info')}-{tags}.whl"
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in contents.items()]
    record = f"{folder}/RECORD"
    text = "\n".join([*lines, f"{record},,", ""])
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in (*contents.items(), (record, text.encode())):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return wheel


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise NotFound(f"{name} is not installed", hint=f"pip install {name}") from None


def _own_files(installed: Distribution) -> list[PackagePath]:
    """Files that came with the wheel, sorted: neither scripts nor compiled Python nor notes."""
    return sorted(
        file
        for file in installed.files or ()
        if ".." not in file.parts
        and "__pycache__" not in file.parts
        and not (file.parent.name.endswith(".dist-info") and file.name in _INSTALLERS)
    )


def _content(name: str, installed: Distribution, file: PackagePath) -> bytes:
    """The content of a file, which must be that of the wheel."""
    hint = f"install {name} again: pip install --force-reinstall --no-deps {name}"
    try:
        data = Path(str(installed.locate_file(file))).read_bytes()
    except OSError as error:
        raise EvaError(f"{file} of {name} is missing: {error.strerror}", hint=hint) from error
    if file.hash is not None and file.hash.value != _digest(data):
        raise EvaError(f"{file} of {name} has changed since it was installed", hint=hint)
    return data


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _tags(document: str) -> str:
    """The last parts of a wheel's name, by its file WHEEL."""
    tags = [line.partition(": ")[2] for line in document.splitlines() if line.startswith("Tag: ")]
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(dict.fromkeys(part)) for part in parts)
