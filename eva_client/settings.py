"""The command's settings: file < environment < flag."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, SecretStr
from pydantic_settings import SettingsConfigDict

from eva_wire.files import write_file
from eva_wire.settings.common import DEFAULT_ADDRESS, Address, BaseConfig, user_state_dir
from eva_wire.settings.layers import Layers
from eva_wire.settings.refusals import refusal
from eva_wire.values.errors import InvalidConfig

CLIENT_FILE = "client.yaml"
"""Name of the file in a master's state directory with settings for its operator."""

_TOKEN = re.compile(r"[!-~]+")
_TOKEN_KEYS = ("token", "token_file", "identity")
_OTHERS = 0o077
_HOW = "start a master with `eva up`, or name the settings file that you were given in EVA_CONFIG"
_ELSEWHERE = "last-client"
"""File of the user's state directory: where the newest `eva up` with another one left its."""
_LONGEST_PATH = 4_096


def _check_token(token: SecretStr) -> SecretStr:
    if not _TOKEN.fullmatch(token.get_secret_value()):
        raise refusal("this cannot be a token", "copy it again: it has no spaces")
    return token


class ClientConfig(BaseConfig):
    """The command's settings.

    Attributes:
        address: The master's address.
        ca_file: PEM certificate of the cluster's authority, which the master is verified with.
        token: The user's token.
        token_file: File with the token instead.
        identity: In place of a token of the user's, the identity that gets one: ``aws`` for the one
            that AWS's own commands have.
    """

    model_config = SettingsConfigDict(env_prefix="EVA_")

    address: Address = DEFAULT_ADDRESS
    ca_file: Path | None = None
    token: Annotated[SecretStr, AfterValidator(_check_token)] | None = None
    token_file: Path | None = None
    identity: Literal["aws"] | None = None

    def authorities(self) -> bytes:
        """The PEM certificates that the master is verified with.

        Raises:
            InvalidConfig: Nothing names them, or they cannot be read.
        """
        if self.ca_file is None:
            raise InvalidConfig("no ca_file is set, so the master cannot be verified", hint=_how())
        data = _read(self.ca_file, "ca_file")
        if b"-----BEGIN CERTIFICATE-----" not in data:
            raise InvalidConfig(
                f"ca_file: {self.ca_file} has no certificate",
                hint="it is a copy of pki/ca.pem in the master's state directory",
            )
        return data

    def secret(self) -> str:
        """The token, empty if there is none; the master then refuses the call.

        Raises:
            InvalidConfig: The file of the token cannot be read, can be read by others, or holds
                no token.
        """
        if self.token is not None:
            return self.token.get_secret_value()
        if self.token_file is None:
            return ""
        if _is_empty(self.token_file):
            raise InvalidConfig(f"token_file: {self.token_file} is empty")
        _see_that_it_is_private(self.token_file)
        text = _read(self.token_file, "token_file").decode(errors="replace").strip()
        if not _TOKEN.fullmatch(text):
            raise InvalidConfig(f"token_file: {self.token_file} does not hold a token and no more")
        return text


def client_file() -> Path | None:
    """The command's settings file.

    The file is the one that EVA_CONFIG names, else the user's own, else the one that a master of
    this user has written; `None` if there is none of them.
    """
    if named := os.environ.get("EVA_CONFIG"):
        return Path(named)
    candidates = (user_config_dir() / "config.yaml", user_state_dir() / CLIENT_FILE)
    return next((file for file in candidates if file.is_file()), None)


def write_aws_settings(target: Path, address: str, authorities: str) -> None:
    """Write settings for a cluster that lets AWS identities in; there is no secret in them.

    Args:
        target: The file; the certificates go beside it.
        address: The master's address.
        authorities: PEM certificates that it is verified with.

    Raises:
        OSError: A file cannot be written.
    """
    ca_file = target.with_suffix(".pem")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(ca_file, authorities.encode(), mode=0o600)
    settings = {"address": address, "ca_file": str(ca_file.absolute()), "identity": "aws"}
    write_file(target, yaml.safe_dump(settings, sort_keys=False).encode(), mode=0o600)


def remember_client_file(file: Path) -> None:
    """Note where a cluster of this user's has left its settings, for who looks for them later."""
    directory = user_state_dir()
    if file.parent == directory:
        return
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / _ELSEWHERE).write_text(f"{file}\n", encoding="utf-8")


def _how() -> str:
    """How the command finds a master."""
    try:
        with (user_state_dir() / _ELSEWHERE).open(encoding="utf-8") as file:
            elsewhere = Path(file.read(_LONGEST_PATH).strip())
        usable = elsewhere.is_absolute() and elsewhere.is_file()
    except (OSError, ValueError):
        return _HOW
    if not usable:
        return _HOW
    words = f"the last `eva up` of yours has its state in {elsewhere.parent}"
    return f"{words}: export EVA_CONFIG={shlex.quote(str(elsewhere))}"


def _see_that_it_is_there(file: Path) -> None:
    """Say of a cluster's settings that are not written yet what they wait for."""
    if file.name != CLIENT_FILE or file.exists():
        return
    raise InvalidConfig(
        f"{file} is not there",
        hint="`eva up` writes it once the cluster is up: wait a moment if it is being started, "
        f"else `eva up --state-dir {shlex.quote(str(file.parent))}`",
    )


def user_config_dir() -> Path:
    """The directory of the user's own settings, which need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "eva"


def load_client_config(flags: Mapping[str, Any] | None = None) -> ClientConfig:
    """Gather the command's settings.

    Paths in the settings file are relative to it.

    Raises:
        InvalidConfig: With every problem that was found; or the file has a token and can be read
            by others.
    """
    file = client_file()
    if file is not None:
        _see_that_it_is_there(file)
    layers = Layers(ClientConfig, file=file, flags=flags or {}, exclusive=_TOKEN_KEYS)
    config = layers.settings()
    if file is None:
        return config
    _close(file.parent)
    if config.token is not None and layers.in_file("token"):
        _see_that_it_is_private(file)
    paths = {
        name: file.parent / path.expanduser()
        for name in ("ca_file", "token_file")
        if (path := getattr(config, name)) is not None and layers.in_file(name)
    }
    return config.model_copy(update=paths)


def _read(file: Path, key: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as failure:
        raise InvalidConfig(f"{key}: {file} cannot be read: {failure.strerror}") from failure


def _is_empty(file: Path) -> bool:
    try:
        return file.stat().st_size == 0
    except OSError:
        return False


def _close(directory: Path) -> None:
    """Keep other users out of a directory of Eva's settings or state."""
    if directory in {user_config_dir(), user_state_dir()}:
        with contextlib.suppress(OSError):  # Another user owns the file and answers for it.
            mode = directory.stat().st_mode
            if mode & _OTHERS:
                directory.chmod(mode & 0o700)


def _see_that_it_is_private(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except OSError as failure:
        raise InvalidConfig(f"{file} cannot be read: {failure.strerror}") from failure
    if mode & _OTHERS:
        raise InvalidConfig(
            f"{file} holds a token, and others can read or change it",
            hint=f"chmod 600 {file}; if others may have read it, have the token revoked",
        )
