"""The settings of the cloud on this machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eva_master.adapters.text.quantities import Duration
from eva_master.app.config import MasterConfig
from eva_master.app.sections.base import Section
from eva_master.app.sections.refusals import refusal


def _check_socket(text: str) -> str:
    if not text.startswith("unix://"):
        raise refusal(f"{text!r} is not a socket of this machine", "write unix:///path")
    return text


class LocalSection(Section):
    """The cloud on this machine.

    Attributes:
        launch_delay: Milliseconds from launch to up.
        data_rate_mib: MiB per second that one emulated instance may read, `None` for its
            type's.
        max_instances: Processes of this machine that are instances at the same time.
        runtime: What tasks run in. `auto` is containers if `docker_image` names an image and an
            engine answers, plain processes otherwise.
        docker_host: URL of the engine's socket, `None` for where ``DOCKER_HOST`` says or the
            usual one.
        docker_image: For tasks that name none; with the runtime `docker`, `None` stands for an
            image that is made of this machine's Python.
    """

    launch_delay: Duration = 2_000
    data_rate_mib: Annotated[int, Field(gt=0)] | None = None
    max_instances: Annotated[int, Field(gt=0)] = 50
    runtime: Literal["auto", "process", "docker"] = "auto"
    docker_host: Annotated[str, AfterValidator(_check_socket)] | None = None
    docker_image: Annotated[str, Field(min_length=1)] | None = None


def section_of(config: MasterConfig) -> LocalSection:
    """The section ``local`` of the settings."""
    section: LocalSection = config.section("local")
    return section
