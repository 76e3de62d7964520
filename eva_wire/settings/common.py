"""Settings that the master and the command share.

Every command reads this, so it imports little.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from eva_wire.settings.refusals import refusal

DEFAULT_ADDRESS = "127.0.0.1:7411"
LAST_PORT = 65_535

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")


def _check_address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[1]) > LAST_PORT:
        raise refusal(f"{text!r} is not an address", f"write HOST:PORT, such as {DEFAULT_ADDRESS}")
    return text


Address = Annotated[str, AfterValidator(_check_address)]


class BaseConfig(BaseSettings):
    """Settings that the master and the command share."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_nested_delimiter="__", validate_default=False
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Settings come from the arguments alone."""
        # `Layers` has merged the others already, remembering where each setting came from.
        return (init_settings,)


def user_state_dir() -> Path:
    """The state directory of a master that a user runs for themselves."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "eva"
