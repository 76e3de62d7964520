"""Finds the image that an instance boots, and the name of its root device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eva_master.model.catalog import InstanceType, base_family
from eva_wire.values.errors import CloudError

PARAMETER = "ssm:"
_FRESH_S = 3600.0
"""Seconds for which a looked-up image is used, even if a newer one is published."""

_SUPPORTED: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (
        re.compile(r".*/arm64/base-oss-nvidia-driver-gpu-.*"),
        frozenset({"g5g", "p6e-gb200"}),
    ),
    (
        re.compile(r".*/base-oss-nvidia-driver-gpu-.*"),
        frozenset(
            {
                *("g4dn", "g5", "g6", "gr6", "g6e", "g7e"),
                *("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
            }
        ),
    ),
    (
        re.compile(r".*/base-proprietary-nvidia-driver-.*"),
        frozenset({"g3", "g3s", "p3", "p3dn"}),
    ),
    (re.compile(r".*/ami-amazon-linux-latest/.*"), frozenset()),
)
"""GPU families whose driver AWS's images have, by the parameter that names the image.

The open kernel modules of today's driver know no GPU before Turing, so neither V100 nor M60.
"""


def image_name(configured: Mapping[str, str], machine: InstanceType) -> str | None:
    """The configured image of a type: its own, its family's or its architecture's."""
    keys = (machine.name, base_family(machine.family), _kind(machine))
    return next((configured[key] for key in keys if key in configured), None)


def _kind(machine: InstanceType) -> str:
    return machine.architecture + ("-gpu" if machine.capacity.gpus else "")


def drives(image: str, machine: InstanceType) -> bool:
    """Whether a configured image has a driver for a type's GPUs; true if that is not known."""
    if not machine.capacity.gpus:
        return True
    supported = (families for names, families in _SUPPORTED if names.fullmatch(image))
    return base_family(machine.family) in next(supported, (base_family(machine.family),))


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An AMI.

    Attributes:
        ami: Its id.
        root_device: Device name, such as ``/dev/xvda``.
    """

    ami: str
    root_device: str


class MachineImages:
    """Looks up images, and remembers them for an hour. Any thread may call.

    Args:
        configured: The configured images; see `Ec2Settings.images`.
        call: Makes a call, such as ``call("ec2", "describe_images", {...})``.
        clock: A clock in seconds, such as `time.monotonic`.
    """

    def __init__(
        self,
        configured: Mapping[str, str],
        call: Callable[[str, str, Mapping[str, Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._configured = configured
        self._call = call
        self._clock = clock
        self._known: dict[str, tuple[float, MachineImage]] = {}

    def of(self, machine: InstanceType) -> MachineImage:
        """The image for a type.

        Raises:
            CloudError: There is none, or EC2 does not answer.
        """
        named = image_name(self._configured, machine)
        if named is None:
            kind = _kind(machine)
            raise CloudError(f"no image for {machine.name}", hint=f"name one in ec2.images.{kind}")
        entry = self._known.get(named)
        if entry is None or self._clock() - entry[0] > _FRESH_S:
            entry = self._clock(), self._look_up(named)
            self._known[named] = entry
        return entry[1]

    def _look_up(self, named: str) -> MachineImage:
        ami = named
        if named.startswith(PARAMETER):
            name = named.removeprefix(PARAMETER)
            ami = self._call("ssm", "get_parameter", {"Name": name})["Parameter"]["Value"]
        described = self._call("ec2", "describe_images", {"ImageIds": [ami]})["Images"]
        if not described:
            raise CloudError(f"there is no image {ami}", hint="see ec2.images in the settings")
        return MachineImage(ami, described[0].get("RootDeviceName", "/dev/xvda"))
