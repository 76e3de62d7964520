"""The command's settings: file < environment < flag."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, SecretStr
from pydantic_settings import SettingsConfigDict

from eva_master.app.layers import Layers
from eva_master.app.sections.common import DEFAULT_ADDRESS, Address, BaseConfig, user_state_dir
from eva_master.app.sections.refusals import refusal
from eva_master.model.errors import InvalidConfig

CLIENT_FILE = "client.yaml"
"""Name of the file in a master's state directory with settings for its operator."""

_TOKEN = re.compile(r"[!-~]+")
_TOKEN_KEYS = ("token", "token_file")
_OTHERS = 0o077
_HOW = "start a master with `eva up`, or name the settings file that you were given in EVA_CONFIG"


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
    """

    model_config = SettingsConfigDict(env_prefix="EVA_")

    address: Address = DEFAULT_ADDRESS
    ca_file: Path | None = None
    token: Annotated[SecretStr, AfterValidator(_check_token)] | None = None
    token_file: Path | None = None

    def authorities(self) -> bytes:
        """The PEM certificates that the master is verified with.

        Raises:
            InvalidConfig: Nothing names them, or they cannot be read.
        """
        if self.ca_file is None:
            raise InvalidConfig("no ca_file is set, so the master cannot be verified", hint=_HOW)
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
        _see_that_it_is_private(self.token_file)
        text = _read(self.token_file, "token_file").decode(errors="replace").strip()
        if not _TOKEN.fullmatch(text):
            raise InvalidConfig(f"token_file: {self.token_file} does not hold a token and no more")
        return text


def client_file() -> Path | None:
    """The command's settings file.

    It is the one that EVA_CONFIG names, else the user's own, else the one that a master of this
    user has written; `None` if there is none of them.
    """
    if named := os.environ.get("EVA_CONFIG"):
        return Path(named)
    candidates = (user_config_dir() / "config.yaml", user_state_dir() / CLIENT_FILE)
    return next((file for file in candidates if file.is_file()), None)


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
    layers = Layers(ClientConfig, file=file, flags=flags or {}, exclusive=_TOKEN_KEYS)
    config = layers.settings()
    if file is None:
        return config
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
