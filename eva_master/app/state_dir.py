"""Sees that a master starts with the state that it is meant to have."""

from __future__ import annotations

from eva_master.app.config import MasterConfig
from eva_master.model.errors import InvalidConfig

STATE_ID = "state-id"
"""File in the state directory that says whose state it is."""


def make_state(config: MasterConfig) -> None:
    """Make the state directory unless it is there.

    Raises:
        InvalidConfig: It cannot be made.
    """
    try:
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfig(
            f"the state directory {config.state_dir} cannot be made: {error.strerror}",
            hint="choose another one with --state-dir, or state_dir in the settings",
        ) from error


def require_state(config: MasterConfig) -> None:
    """Refuse a state directory that is not the one that the settings mean.

    In an empty one a master would begin a new cluster: another authority, an empty journal, and
    every instance of the old one unwanted.

    Raises:
        InvalidConfig: It has no id, or another one.
    """
    if not config.state_id:
        return
    file = config.state_dir / STATE_ID
    try:
        found = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidConfig(
            f"{config.state_dir} is not the state of this cluster: {file}: {error.strerror}",
            hint="see whether its volume is mounted; to begin anew leave state_id out",
        ) from error
    if found != config.state_id:
        raise InvalidConfig(
            f"{config.state_dir} is the state of another cluster: {file} says {found!r}, and "
            f"state_id is {config.state_id!r}",
            hint="mount the volume of this cluster",
        )
