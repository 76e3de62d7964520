"""Writes settings for the command with an operator's token, for the user who runs the master."""

from __future__ import annotations

import getpass
from pathlib import Path

import yaml

from eva_client.settings import CLIENT_FILE
from eva_master.adapters.store import UserTokens
from eva_wire.files import write_file
from eva_wire.values.errors import NotAuthenticated
from eva_wire.values.users import Role, is_owner


def write_client_file(
    state_dir: Path, address: str, ca_file: Path, tokens: UserTokens, *, renewed: bool = False
) -> Path:
    """Write a settings file with an operator's token for the user who runs this master.

    A valid token in the file stays; otherwise it gets a new one. So a user who may write to the
    state directory can never be locked out.

    Args:
        state_dir: The master's state directory.
        address: The address for users.
        ca_file: The certificate of the cluster's authority.
        tokens: The tokens of the cluster.
        renewed: Whether the token in the file is revoked and makes way for a new one. Where
            operators prove who they are, none of theirs is to last.

    Returns:
        The file; only its owner can read it.

    Raises:
        StorageError: A new token cannot be stored.
        OSError: The file cannot be written.
    """
    file = state_dir / CLIENT_FILE
    secret = _operator_secret(file, tokens)
    if renewed and secret is not None:
        tokens.revoke(tokens.authenticate(secret).id)
        secret = None
    if secret is None:
        _, secret = tokens.create(_login_name(), Role.OPERATOR)
    settings = {"address": address, "ca_file": str(ca_file.absolute()), "token": secret}
    write_file(file, yaml.safe_dump(settings, sort_keys=False).encode(), mode=0o600)
    return file


def _operator_secret(file: Path, tokens: UserTokens) -> str | None:
    """The secret in a settings file, if it is an operator's and valid."""
    try:
        secret = str(yaml.safe_load(file.read_bytes())["token"])
        token = tokens.authenticate(secret)
    except (OSError, yaml.YAMLError, KeyError, TypeError, NotAuthenticated):
        return None
    return secret if token.role is Role.OPERATOR else None


def _login_name() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # A user id without a name, as in some containers.
        name = ""
    return name if is_owner(name) else "operator"
