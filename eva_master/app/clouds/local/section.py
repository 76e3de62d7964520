"""The settings of the cloud on this machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eva_master.app.config import MasterConfig
from eva_master.app.sections.base import Section
from eva_wire.settings.refusals import between, refusal
from eva_wire.text.quantities import Discount, Duration


def _check_socket(text: str) -> str:
    if not text.startswith("unix://"):
        raise refusal(f"{text!r} is not a socket of this machine", "write unix:///path")
    return text


CLOUD = "cloud"
"""Directory of the instances, in the master's state directory."""

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_Life = Annotated[Duration, between(_MINUTE_MS, 30 * _DAY_MS, "1m and 30d", "2h")]


def _check_notice(duration_ms: int) -> int:
    if duration_ms > 10 * _MINUTE_MS:
        raise refusal("must be 10m at most", "write 2m, 30s or 0s")
    return duration_ms


class SpotSection(Section):
    """Simulated spot instances, for jobs that allow them.

    Attributes:
        discount: Discount of a spot instance from its type's price on demand.
        expected_life: How long one lives before it is interrupted, until it is known better.
        notice: How long before its end the worker of one that is taken back can hear of it; 0s for
            an end without warning.
        types: Types or families that are sold so; `None` for all.
        interruptions: Whether the cloud takes them back at random, so that they live as long as
            expected on average; if not, `eva interrupt` alone does.
        seed: Of the random interruptions.
    """

    discount: Discount = 670_000
    expected_life: _Life = 7 * _DAY_MS
    notice: Annotated[Duration, AfterValidator(_check_notice)] = 2 * _MINUTE_MS
    types: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    interruptions: Literal["none", "random"] = "none"
    seed: Annotated[int, Field(ge=0, strict=True)] = 1


class LocalSection(Section):
    """The cloud on this machine.

    Attributes:
        launch_delay: Milliseconds from launch to up.
        data_rate_mib: MiB per second that one emulated instance may read, `None` for its
            type's.
        max_instances: Processes of this machine that are instances at the same time.
        runtime: Runtime of tasks. `auto` is containers if `docker_image` names an image and an
            engine answers, plain processes otherwise.
        docker_host: URL of the engine's socket, `None` for where ``DOCKER_HOST`` says or the
            usual one.
        docker_image: For tasks that name none; with the runtime `docker`, `None` stands for an
            image that is made of this machine's Python.
        spot: Spot instances; `None` for none.
    """

    launch_delay: Duration = 2_000
    data_rate_mib: Annotated[int, Field(gt=0)] | None = None
    max_instances: Annotated[int, Field(gt=0)] = 50
    runtime: Literal["auto", "process", "docker"] = "auto"
    docker_host: Annotated[str, AfterValidator(_check_socket)] | None = None
    docker_image: Annotated[str, Field(min_length=1)] | None = None
    spot: SpotSection | None = None


def section_of(config: MasterConfig) -> LocalSection:
    """The section ``local`` of the settings."""
    section: LocalSection = config.section("local")
    return section
