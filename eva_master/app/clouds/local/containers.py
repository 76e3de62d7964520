"""Decides at the start whether tasks of the local cloud run in containers."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.app.clouds.local.section import section_of
from eva_master.app.config import MasterConfig
from eva_wire.values.errors import EngineUnavailable, InvalidConfig, Problem

_HINT = "start it, name its socket in local.docker_host, or set local.runtime to process"


def settled(config: MasterConfig, told: Callable[[str], None]) -> tuple[MasterConfig, str]:
    """Choose the runtime if `local.runtime` is `auto`.

    Args:
        config: The settings.
        told: Called with a message when something takes seconds.

    Returns:
        The settings with a runtime that is `process` or `docker`, the latter with an engine and
        an image; and a sentence that says which and why.

    Raises:
        InvalidConfig: Tasks are to run in containers but cannot.
    """
    local = section_of(config)
    if local.runtime == "process":
        return config, "Tasks run as plain processes."
    if local.runtime == "auto" and local.docker_image is None:
        return _with(config, runtime="process"), (
            "Tasks run as plain processes. For containers: `eva up --local-runtime docker`."
        )
    try:
        return _contained(config, told)
    except EngineUnavailable as error:
        if local.runtime == "auto":
            why = f"Tasks run as plain processes: {error.message}."
            return _with(config, runtime="process"), why
        message = f"tasks cannot run in containers: {error.message}"
        raise InvalidConfig(
            message,
            hint=error.hint or _HINT,
            problems=(Problem(message, "local.runtime", hint=error.hint or _HINT),),
        ) from error


def _contained(config: MasterConfig, told: Callable[[str], None]) -> tuple[MasterConfig, str]:
    # A slow import that plain processes do not need.
    from eva_master.adapters.local.engine import Engine, ready_image

    local = section_of(config)
    with Engine(local.docker_host or "") as engine:
        named = local.docker_image
        image = named or ready_image(engine, told)
        kind = named or "this machine's Python"
        if config.isolation.network == "own":
            engine.gateway()
        return (
            _with(config, runtime="docker", docker_host=engine.url, docker_image=image),
            f"Tasks run in containers of the engine at {engine.url}, by default of {kind}.",
        )


def _with(config: MasterConfig, **changes: str) -> MasterConfig:
    local = section_of(config).model_copy(update=changes)
    return config.model_copy(update={"local": local})
